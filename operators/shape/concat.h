// Where Concat and Split cut: the axis and its size in each part. Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/operator.h"

namespace stepnet {

struct ConcatArgs {
  std::optional<int64_t> axis;
  std::optional<std::string> order;
  bool add_axis = false;
};

// The dimension that the arguments name, for tensors of `rank` dimensions; throws Error. With add_axis it is the place
// of the new one, 0 to rank.
int concat_axis(const ConcatArgs& args, int rank, bool new_axis = false);

// The size of a part along it.
inline int64_t part_size(const ConcatArgs& args, const Shape& part, int axis) { return args.add_axis ? 1 : part[axis]; }

// Declares "axis", "order" and "add_axis"; `Args` derives from ConcatArgs.
template <class Args>
void declare_axis(OpBuilder<Args>& op) {
  op.arg("axis", static_cast<std::optional<int64_t> Args::*>(&ConcatArgs::axis), {},
         "the dimension, from the end if negative; 1 if neither this nor \"order\" is given");
  op.arg("order", static_cast<std::optional<std::string> Args::*>(&ConcatArgs::order), {},
         "NCHW (dimension 1) or NHWC (dimension 3), instead of \"axis\"");
  op.arg("add_axis", static_cast<bool Args::*>(&ConcatArgs::add_axis), false,
         "parts lack the dimension: Concat stacks them on a new one, Split drops it");
}

// The arguments above, as given to the forward operator, for a formula.
std::vector<Argument> axis_args(const Formula& f);

// Copies `part` to or from its place in `whole`, the two differing in the size of dimension `axis` of `whole`, where
// the part covers [begin, begin + size).
void put_part(const Tensor& part, Tensor& whole, int axis, int64_t begin, int64_t size);
void take_part(const Tensor& whole, Tensor& part, int axis, int64_t begin, int64_t size);

}  // namespace stepnet
