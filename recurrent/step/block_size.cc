#include "recurrent/step/block_size.h"

#include <algorithm>

namespace stepnet {

constexpr int64_t kSmallBatch = 8;

static int64_t steps_of(int64_t batch, int64_t rows) { return batch <= 0 ? 1 : (rows + batch - 1) / batch; }

int64_t hoisted_block(int64_t batch) { return batch < kSmallBatch ? 2 * steps_of(batch, 64) : steps_of(batch, 128); }
int64_t deferred_block(int64_t batch) { return 2 * hoisted_block(batch); }
int64_t staged_block(int64_t batch, int64_t block) {
  return batch < kSmallBatch ? std::min(block, steps_of(batch, 64)) : block;
}

}  // namespace stepnet
