// How many timesteps operators take at once that need not wait for any: together some 128 rows, which is what matrix
// products need to be fast, and twice as many where they add up over rows, as a total is read and written each time.
// Where stages hand blocks to each other and the batch is small, half as many, so that a stage need not wait long for
// the first. Each is a multiple of the next smaller, so that a segment of whole deferred blocks is one of all of them.
// The result does not depend on it but for rounding. Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

int64_t hoisted_block(int64_t batch);
int64_t deferred_block(int64_t batch);
int64_t staged_block(int64_t batch, int64_t block);  // at most `block`

}  // namespace stepnet
