// Allreduce: the sum of X over all ranks, the same on each of them. Of several X_k, which stand for as many devices of
// one process, all outputs are the sum of all inputs of all ranks:
//   Y_k = sum over ranks r and inputs j of X_j of r.
//
// With L = sum over ranks of their own L, dX_k = sum over ranks and outputs j of dY_j: the same operator.

#include <algorithm>

#include "operators/collective/collective_call.h"
#include "stepnet/half.h"

namespace stepnet::cpu_allreduce {
namespace {

using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::made_output;
using collective::on_world;
using collective::sent_input;
using collective::wait_for;
using collective::world_of;

template <class Fn>
void with_number(DType dtype, const Fn& fn) {
  if (!with_type(dtype, fn)) with_half(dtype, fn);
}

// y += x
void add_to(Tensor& y, const Tensor& x) {
  with_number(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for (int64_t i = 0; i < x.size(); ++i) to[i] = static_cast<T>(to[i] + from[i]);
  });
}

// Makes `y` the sum of this rank's inputs, in their order but for one that it is itself.
void add_inputs(const BlobCall& c, Tensor& y) {
  if (y.size() == 0) return;
  const auto is_y = [&](const Blob* in) { return std::as_const(*in).tensor().raw() == y.raw(); };
  const auto inputs = c.in.subspan(1);
  require(std::ranges::count_if(inputs, is_y) <= 1,
          "a tensor that is given twice cannot be overwritten by the sum; write to another blob");
  auto first = std::ranges::find_if(inputs, is_y);
  if (first == inputs.end()) {
    first = inputs.begin();
    y.copy_from(std::as_const(**first).tensor());
  }
  for (auto in = inputs.begin(); in != inputs.end(); ++in)
    if (in != first) add_to(y, std::as_const(**in).tensor());
}

void check_inputs(const BlobCall& c) {
  const Tensor& first = sent_input(c, 1);
  require(first.dtype() != DType::boolean, "\"{}\" is {}; bools cannot be added up", c.def.input(1), first);
  for (int i = 2; i < static_cast<int>(c.in.size()); ++i) {
    const Tensor& x = sent_input(c, i);
    require(x.dtype() == first.dtype() && x.shape() == first.shape(),
            "inputs \"{}\" and \"{}\" must be alike, but are {} and {}", c.def.input(1), c.def.input(i), first, x);
    require(is_dry() || (x.device().kind == DeviceKind::cpu && first.device().kind == DeviceKind::cpu),
            "\"{}\" and \"{}\" are on {} and {}; of a GPU one tensor is added up, and more by StartAllreduce",
            c.def.input(1), c.def.input(i), first.device(), x.device());
  }
}

void check_counts(int inputs, int outputs) {
  require(outputs >= 1 && outputs < inputs, "it has {} inputs beside the world and {} outputs; each is the sum",
          inputs - 1, outputs);
}

void run(const NoArgs&, BlobCall& c) {
  check_counts(static_cast<int>(c.in.size()), static_cast<int>(c.out.size()));
  check_inputs(c);
  const Tensor x = std::as_const(*c.in[1]).tensor();
  World& world = world_of(c, 1);
  const auto first = std::ranges::find_if(c.out, [](const Blob* b) { return b != nullptr; });
  if (first == c.out.end()) return;
  Tensor& y = made_output(c, static_cast<int>(first - c.out.begin()), x, x.shape());
  if (!is_dry()) {
    if (c.in.size() > 2) add_inputs(c, y);
    const Tensor& from = c.in.size() > 2 ? y : x;
    wait_for(world.start_allreduce(from.raw(), y.raw(), y.size(), y.dtype(), ReduceOp::sum), {&x, &y});
  }
  y.mark_written();
  for (auto o = first + 1; o != c.out.end(); ++o)
    if (*o) {
      made_output(c, static_cast<int>(o - c.out.begin()), x, x.shape()).copy_from(y);
      (*o)->tensor().mark_written();
    }
}

void infer(const NoArgs&, ShapeCall& c) {
  check_counts(c.inputs(), c.outputs());
  for (int o = 0; o < c.outputs() && o + 1 < c.inputs(); ++o) c.set_like(o, o + 1);
}

std::vector<Gradient> derivative(Formula& f) {
  std::vector<Gradient> gradients(static_cast<size_t>(f.inputs()));
  std::vector<Value> inputs = {f.x_at(0)};
  for (int o = 0; o < f.outputs(); ++o)
    if (f.has_dy_at(o)) inputs.push_back(f.dy_at(o));
  if (inputs.size() == 1) return gradients;
  std::vector<bool> wanted(inputs.size() - 1, false);
  wanted[0] = true;
  const Value sum = f.ops("Allreduce", inputs, {}, wanted)[0];
  for (int i = 1; i < f.inputs(); ++i)
    if (f.wants_at(i)) gradients[static_cast<size_t>(i)] = sum;
  return gradients;
}

REGISTER(allreduce) {
  auto builder = op("Allreduce");
  declare(builder.doc("Adds a tensor up over all ranks; each of them gets the sum. Several tensors are added up, too."))
      .input("X", "numbers, of the same type and shape on all ranks")
      .variadic()
      .output("Y", "the sum, the same on all ranks: one for each X")
      .optional()
      .variadic()
      .in_place("X", "Y")
      .shape(infer)
      .blobs(run)
      .runs_dry()
      .whole_derivative(derivative)
      .example_net(on_world("type: 'Allreduce' input: 'X' output: 'Y'"), {"X=2,3"}, {"Y"})
      .example_net(on_world("type: 'Allreduce' input: 'A' input: 'B' output: 'C' output: 'D'"), {"A=2", "B=2"},
                   {"C", "D"})
      .example_net(on_world("type: 'Allreduce' input: 'X' output: 'X'"), {"X=int32,0"});
  return finish_declaring(builder);
}

}  // namespace
}  // namespace stepnet::cpu_allreduce
