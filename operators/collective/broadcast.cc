// Broadcast and Reduce, which are each other's derivative. With L = sum over ranks of their own L:
//   Broadcast: Y = X of the root, on every rank. dX = sum over ranks of dY on the root, and 0 elsewhere: Reduce.
//   Reduce: Y = sum over ranks of X on the root, and 0 elsewhere. dX = dY of the root, on every rank: Broadcast.

#include <algorithm>

#include "operators/collective/collective_call.h"

namespace stepnet::cpu_broadcast {
namespace {

using collective::check_root;
using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::made_output;
using collective::on_world;
using collective::sent_input;
using collective::wait_for;
using collective::world_of;

struct RootArgs {
  int64_t root = 0;
};

void check_counts(const BlobCall& c) {
  require(c.out.size() + 1 == c.in.size(), "it has {} inputs beside the world and {} outputs; there must be as many",
          c.in.size() - 1, c.out.size());
}

void broadcast(const RootArgs& a, BlobCall& c) {
  check_counts(c);
  if (!is_dry()) check_root(a.root, world_of(c));
  for (int i = 1; i < static_cast<int>(c.in.size()); ++i) sent_input(c, i);
  for (int o = 0; o < static_cast<int>(c.out.size()); ++o) {
    const Tensor x = std::as_const(*c.in[o + 1]).tensor();
    World& world = world_of(c, o + 1);
    Tensor& y = made_output(c, o, x, x.shape());
    if (!is_dry()) {
      if (world.rank() == a.root && y.size() > 0 && y.raw() != x.raw()) y.copy_from(x);
      wait_for(world.start_broadcast(y.raw(), y.size(), y.dtype(), static_cast<int>(a.root)), {&y});
    }
    y.mark_written();
  }
}

void infer_broadcast(const RootArgs&, ShapeCall& c) {
  for (int o = 0; o < c.outputs() && o + 1 < c.inputs(); ++o) c.set_like(o, o + 1);
}

std::vector<Gradient> broadcast_derivative(Formula& f) {
  std::vector<Gradient> gradients(static_cast<size_t>(f.inputs()));
  for (int i = 1; i < f.inputs(); ++i)
    if (f.wants_at(i) && f.has_dy_at(i - 1))
      gradients[static_cast<size_t>(i)] = f.op("Reduce", {f.x_at(0), f.dy_at(i - 1)}, f.forward_args());
  return gradients;
}

void reduce(const RootArgs& a, BlobCall& c) {
  if (!is_dry()) check_root(a.root, world_of(c));
  const Tensor x = sent_input(c, 1);
  World& world = world_of(c, 1);
  require(x.dtype() != DType::boolean, "\"{}\" is {}; bools cannot be added up", c.def.input(1), x);
  Tensor& y = made_output(c, 0, x, x.shape());
  if (!is_dry()) {
    const auto root = static_cast<int>(a.root);
    wait_for(world.start_reduce(x.raw(), y.raw(), x.size(), x.dtype(), ReduceOp::sum, root), {&x, &y});
    if (world.rank() != a.root) y.fill_zero();
  }
  y.mark_written();
}

template <class Builder>
Builder& add_root(Builder& builder, const char* doc) {
  return builder.arg("root", &RootArgs::root, int64_t{0}, doc, at_least(0));
}

REGISTER(broadcast) {
  auto builder = op<RootArgs>("Broadcast");
  builder.doc("Gives all ranks the values that a tensor has on one of them, the root.");
  declare(add_root(builder, "the rank whose values all get"))
      .input("X", "of any type but strings; on all ranks of the type and the shape that it has on the root")
      .variadic()
      .output("Y", "the root's values, one for each X; in the public format in place of X")
      .variadic()
      .in_place("X", "Y")
      .shape(infer_broadcast)
      .blobs(broadcast)
      .runs_dry()
      .whole_derivative(broadcast_derivative)
      .example_net(on_world("type: 'Broadcast' input: 'X' output: 'X'"), {"X=2,3"})
      .example_net(on_world("type: 'Broadcast' input: 'X' output: 'Y'"), {"X=2,3"}, {"Y"})
      .example_net(on_world("type: 'Broadcast' input: 'A' input: 'B' output: 'C' output: 'D'"), {"A=2", "B=3,1"},
                   {"C", "D"});
  return finish_declaring(builder);
}

REGISTER(reduce) {
  auto builder = op<RootArgs>("Reduce");
  builder.doc("Adds a tensor up over all ranks; one of them, the root, gets the sum, and the others zeros.");
  declare(add_root(builder, "the rank that gets the sum"))
      .input("X", "numbers, of the same type and shape on all ranks")
      .output("Y", "on the root the sum, zeros elsewhere", like("X"))
      .in_place("X", "Y")
      .blobs(reduce)
      .runs_dry()
      .derivative("X",
                  [](Formula& f) {
                    return f.op("Broadcast", {f.x("comm_world"), f.dy("Y")}, f.forward_args());
                  })
      .example_net(on_world("type: 'Reduce' input: 'X' output: 'Y'"), {"X=2,3"}, {"Y"});
  return finish_declaring(builder);
}

}  // namespace
}  // namespace stepnet::cpu_broadcast
