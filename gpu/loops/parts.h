// Parts of a tensor along one dimension, joined or cut: what Concat and the Splits are made of. Up to kMost parts are
// moved by one kernel. Threads: as gpu/runtime/launch.h.
//
//   gpu::PartsMove move(call, whole, axis, gpu::PartsMove::join);
//   for (...) move.add(&part, size);  // in order
//   move.finish();
#pragma once

#include "gpu/loops/copy_elements.h"

namespace stepnet::gpu {

// Rows of the parts stand beside each other in a row of the whole, from byte `begin` on.
struct PartsLayout {
  static constexpr int kMost = 8;
  int count = 0;
  size_t rows = 0, row = 0, begin = 0, width = 0;  // bytes, but for the number of rows; width: of all parts
  std::byte* whole = nullptr;
  std::byte* part[kMost] = {};  // null: left out
  size_t size[kMost] = {};      // bytes of a row of the part
};

template <class Unit, bool kJoin>
void move_parts(const Call& call, PartsLayout p) {
  constexpr size_t kBytes = sizeof(Unit);
  for (int i = 0; i < p.count; ++i) p.size[i] /= kBytes;
  const size_t row = p.row / kBytes, begin = p.begin / kBytes, width = p.width / kBytes;
  const Divider rows(width);
  each(call, p.rows * width, [=] __device__(size_t i) {
    auto [r, column] = rows.split(i);
    Unit& whole = reinterpret_cast<Unit*>(p.whole)[r * row + begin + column];
    int at = 0;
    for (; column >= p.size[at]; ++at) column -= p.size[at];
    if (p.part[at] == nullptr) return;
    Unit& part = reinterpret_cast<Unit*>(p.part[at])[r * p.size[at] + column];
    if (kJoin)
      whole = part;
    else
      part = whole;
  });
}

class PartsMove {
 public:
  enum Way { join, cut };

  // Along dimension `axis` of the whole.
  PartsMove(const Call& call, const Tensor& whole, int axis, Way way) : call_(call), way_(way) {
    const Shape& shape = whole.shape();
    next_.rows = static_cast<size_t>(shape.size_between(0, axis));
    next_.row = width_of(whole, shape.size_between(axis, shape.rank()));
    next_.whole = const_cast<std::byte*>(bytes_of(whole));
    line_ = width_of(whole, shape.size_between(axis + 1, shape.rank()));
  }
  // The next part, null if it is not wanted, whose size along the dimension this is.
  void add(const Tensor* part, int64_t size) {
    const size_t bytes = static_cast<size_t>(size) * line_;
    next_.part[next_.count] = part ? const_cast<std::byte*>(bytes_of(*part)) : nullptr;
    next_.size[next_.count] = bytes;
    next_.width += bytes;
    if (++next_.count == PartsLayout::kMost) finish();
  }
  void finish() {
    if (next_.rows * next_.width > 0) {
      size_t all = next_.row | next_.begin | address(next_.whole);
      for (int i = 0; i < next_.count; ++i) all |= next_.size[i] | address(next_.part[i]);
      with_unit(all, [&](auto unit) {
        if (way_ == join)
          move_parts<decltype(unit), true>(call_, next_);
        else
          move_parts<decltype(unit), false>(call_, next_);
      });
    }
    next_.begin += next_.width;
    next_.width = 0;
    next_.count = 0;
  }

 private:
  const Call& call_;
  Way way_;
  size_t line_ = 0;  // bytes of one index of the dimension
  PartsLayout next_;
};

}  // namespace stepnet::gpu
