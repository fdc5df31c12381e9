// Broadcasting of two shapes; see broadcast.h.
#include "operators/loops/broadcast.h"

#include <algorithm>

namespace stepnet {
namespace {

int64_t aligned_axis(const BroadcastArgs& args) {
  require(args.axis == -1 || args.axis_str.empty(), "axis and axis_str are both given; give one");
  if (args.axis_str.empty()) return args.axis;
  const std::string order = args.order.empty() ? "NCHW" : args.order;
  const size_t at = order.find(args.axis_str);
  require(args.axis_str.size() == 1 && at != std::string::npos, "axis_str \"{}\" is not one letter of order \"{}\"",
          args.axis_str, order);
  return static_cast<int64_t>(at);
}

Shape ones(int rank) {
  Shape s;
  for (int i = 0; i < rank; ++i) s.push_back(1);
  return s;
}

Broadcast align_at_axis(int64_t from, const Shape& a, const Shape& b) {
  require(from >= 0 && from <= a.rank() - b.rank(), "B {} laid over A {} from axis {} on sticks out", b, a, from);
  const auto axis = static_cast<int>(from);
  Broadcast result{a, a, ones(a.rank())};
  int first = 0, last = b.rank();
  while (first < last && b[first] == 1) ++first;
  while (last > first && b[last - 1] == 1) --last;
  for (int i = first; i < last; ++i) {
    require(b[i] == a[axis + i], "B {} laid over A {} from axis {} on has {} against {} in dimension {}", b, a, axis,
            b[i], a[axis + i], axis + i);
    result.b.set(axis + i, b[i]);
  }
  return result;
}

Broadcast align_at_end(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Broadcast result{ones(rank), ones(rank), ones(rank)};
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1, y = i <= b.rank() ? b[b.rank() - i] : 1;
    require(x == y || x == 1 || y == 1, "A {} and B {} cannot be broadcast together: {} against {}", a, b, x, y);
    result.a.set(rank - i, x);
    result.b.set(rank - i, y);
    result.out.set(rank - i, x == 1 ? y : x);
  }
  return result;
}

void check_equal(const BroadcastArgs& args, const Shape& a, const Shape& b) {
  if (!args.equal_shapes || a == b) return;
  throw Error(fmt::format("A is {} and B {}, but the argument equal_shapes says that they have one shape", a, b),
              "where the gradient pass has set it, let no later operator write to the blob of an operand");
}

}  // namespace

Broadcast broadcast_shapes(const BroadcastArgs& args, const Shape& a, const Shape& b) {
  if (args.broadcast) return broadcast_like(args, a, b);
  require(!args.aligned(), "axis and axis_str need the argument broadcast: 1");
  check_equal(args, a, b);
  return align_at_end(a, b);
}

Broadcast broadcast_like(const BroadcastArgs& args, const Shape& a, const Shape& b) {
  check_equal(args, a, b);
  const bool one = b.size() == 1;
  if (args.aligned()) {
    const int64_t axis = aligned_axis(args);
    return one ? Broadcast{a, a, ones(a.rank())} : align_at_axis(axis, a, b);
  }
  return one && b.rank() > a.rank() ? Broadcast{a, a, ones(a.rank())} : align_at_end(a, b);
}

Fit fit_shapes(const Shape& from, const Shape& to) {
  const Broadcast shapes = align_at_end(from, to);
  const bool sums = shapes.out == from;
  require(sums || shapes.out == to, "A {} can be neither summed nor repeated to the shape of B {}", from, to);
  return {sums ? shapes : align_at_end(to, from), sums};
}

BroadcastRuns::BroadcastRuns(const Broadcast& broadcast) : total_(broadcast.out.size()) {
  const Shape& out = broadcast.out;
  std::array<Group, Shape::kMaxRank + 1> groups;  // innermost first
  int count = 0;
  int64_t a_step = 1, b_step = 1;
  for (int i = out.rank() - 1; i >= 0; --i) {
    if (out[i] == 1) continue;
    const bool a_moves = broadcast.a[i] != 1, b_moves = broadcast.b[i] != 1;
    Group& last = groups[std::max(count - 1, 0)];
    if (count > 0 && last.a_moves == a_moves && last.b_moves == b_moves) {
      last.size *= out[i];
    } else {
      groups[count++] = {out[i], a_moves ? a_step : 0, b_moves ? b_step : 0, a_moves, b_moves};
    }
    if (a_moves) a_step *= out[i];
    if (b_moves) b_step *= out[i];
  }
  inner_.size = groups[0].size;
  inner_.a_moves = groups[0].a_moves;
  inner_.b_moves = groups[0].b_moves;
  for (int g = count - 1; g > 0; --g) group_[groups_++] = groups[g];
}

void infer_broadcast(const BroadcastArgs& args, ShapeCall& call) {
  if (!call.known(0) || !call.known(1)) return;
  call.set(0, call.dtype(0), broadcast_shapes(args, call.shape(0), call.shape(1)).out);
}

// Rows end where an operand repeats over some of A's dimensions only; a B that lacks A's leading dimensions is the same
// for every row, as a parameter is.
int broadcast_rows(const BroadcastArgs& args, const ShapeCall& call) {
  if (!call.known(0) || !call.known(1)) return 0;
  const Broadcast shapes = broadcast_shapes(args, call.shape(0), call.shape(1));
  if (shapes.plain()) return Shape::kMaxRank;
  if (shapes.a != shapes.out || args.aligned()) return 0;
  return std::max(shapes.out.rank() - call.shape(1).rank(), 0);
}

}  // namespace stepnet
