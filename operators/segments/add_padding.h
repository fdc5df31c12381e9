// What the kernels of AddPadding, RemovePadding and GatherPadding share: their arguments.
#pragma once

#include "stepnet/error.h"

namespace stepnet {

struct PaddingArgs {
  int64_t padding_width = 1, end_padding_width = -1;

  int64_t start() const { return padding_width; }
  int64_t end() const { return end_padding_width < 0 ? padding_width : end_padding_width; }
};

// Rows of padding in each segment; throws Error if there are too many to count.
inline int64_t padding_rows(const PaddingArgs& args) {
  int64_t rows = 0;
  require(!__builtin_add_overflow(args.start(), args.end(), &rows), "paddings of {} and {} rows are too large",
          args.start(), args.end());
  return rows;
}

}  // namespace stepnet
