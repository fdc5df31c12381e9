// How two operands of different shapes are laid over each other, for elementwise operators and their gradients.
//
// The shapes are aligned at the end; sizes of 1 repeat, and missing leading dimensions count as 1, for both operands.
// With `broadcast`, a B of a single element goes with any A, whose shape is the result's. With `axis` or `axis_str`
// too, B's dimensions stand at A's from that axis on, only B repeats, and only its leading and trailing dimensions of 1
// do. Threads: pure functions.
#pragma once

#include <array>
#include <string>

#include "stepnet/operator.h"

namespace stepnet {

struct BroadcastArgs {
  bool broadcast = false;
  int64_t axis = -1;
  std::string axis_str;
  std::string order;
  bool equal_shapes = false;

  bool aligned() const { return axis != -1 || !axis_str.empty(); }  // B is laid over A from an axis on
};

// The arguments that all these operators have. Args is or has as its base BroadcastArgs.
template <class Args>
OpBuilder<Args>& add_broadcast_args(OpBuilder<Args>& builder) {
  return builder
      .arg("broadcast", static_cast<bool Args::*>(&Args::broadcast), false,
           "lay B over A as in 2018: by axis, axis_str and order, and a B of one element over any A")
      .arg("axis", static_cast<int64_t Args::*>(&Args::axis), int64_t{-1},
           "lay B over A from this dimension on; -1: align both at the end")
      .arg("axis_str", static_cast<std::string Args::*>(&Args::axis_str), std::string(),
           "the same as a letter of order")
      .arg("order", static_cast<std::string Args::*>(&Args::order), std::string(),
           "names of A's dimensions for axis_str, NCHW if not given")
      .arg("equal_shapes", static_cast<bool Args::*>(&Args::equal_shapes), false,
           "refuse operands of different shapes; gradients say so where what an operand was is overwritten")
      .own_args({"equal_shapes"})
      .accepts("allow_broadcast_fastpath", "it chooses between two ways to the same result");
}

// The result's shape and where each operand moves along it.
struct Broadcast {
  Shape out;
  Shape a, b;  // of out's rank, 1 where the operand repeats

  bool plain() const { return a == out && b == out; }
};

// Throws Error if the shapes do not go together.
Broadcast broadcast_shapes(const BroadcastArgs& args, const Shape& a, const Shape& b);

// The same for a B that was repeated to A's shape, whatever `args.broadcast` says.
Broadcast broadcast_like(const BroadcastArgs& args, const Shape& a, const Shape& b);

// A stretch of the result over which each operand either moves with it or stays.
struct BroadcastRun {
  int64_t out = 0, a = 0, b = 0;  // offsets of the first element
  int64_t size = 0;
  bool a_moves = false, b_moves = false;
};

// Visits the result in order, as few and as long runs as possible.
class BroadcastRuns {
 public:
  explicit BroadcastRuns(const Broadcast& broadcast);

  template <class Fn>
  void each(Fn fn) const {
    if (total_ == 0) return;
    BroadcastRun run = inner_;
    std::array<int64_t, Shape::kMaxRank> index{};
    for (; run.out < total_; run.out += run.size) {
      fn(run);
      for (int g = groups_ - 1; g >= 0; --g) {
        const Group& group = group_[g];
        run.a += group.a_step;
        run.b += group.b_step;
        if (++index[g] < group.size) break;
        index[g] = 0;
        run.a -= group.a_step * group.size;
        run.b -= group.b_step * group.size;
      }
    }
  }

 private:
  struct Group {
    int64_t size = 1, a_step = 0, b_step = 0;
    bool a_moves = false, b_moves = false;
  };
  std::array<Group, Shape::kMaxRank> group_;  // all but the innermost, outermost first
  int groups_ = 0;
  BroadcastRun inner_;
  int64_t total_ = 0;
};

// How a value gets another shape, of which one is the other broadcast: it is summed or repeated.
struct Fit {
  Broadcast shapes;  // A is the one that B is repeated to, and has the result's shape
  bool sums = false;
};

// Throws Error if neither shape is the other broadcast.
Fit fit_shapes(const Shape& from, const Shape& to);

// The shape function and traits of C = A op B.
void infer_broadcast(const BroadcastArgs& args, ShapeCall& call);
int broadcast_rows(const BroadcastArgs& args, const ShapeCall& call);

}  // namespace stepnet
