// StartAllreduce and FinishAllreduce: sums over all ranks that move while the operators between them run, such as those
// of gradients while the backward pass goes on. What is started together moves as one block.
//
// No derivatives: they stand behind the gradient pass.

#include <memory>

#include "operators/collective/collective_call.h"

namespace stepnet::cpu_start_allreduce {
namespace {

using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::made_output;
using collective::on_world;
using collective::sent_input;
using collective::world_of;

struct Started {
  WorldPtr world;
  Tensor block;  // the values of all tensors behind each other, and then their sums
  PendingPtr pending;
};
using StartedPtr = std::shared_ptr<Started>;

// The block's elements from `at` on, as a tensor of that shape.
Tensor part_of(const Tensor& block, int64_t at, const Shape& shape) {
  return block.rows(at, shape.size()).reshaped(shape);
}

void start(const NoArgs&, BlobCall& c) {
  require(c.in.size() > 1, "it has no tensors to add up");
  const Tensor& first = sent_input(c, 1);
  require(first.dtype() != DType::boolean, "\"{}\" is {}; bools cannot be added up", c.def.input(1), first);
  int64_t count = 0;
  for (int i = 1; i < static_cast<int>(c.in.size()); ++i) {
    const Tensor& x = sent_input(c, i);
    require(x.dtype() == first.dtype(), "inputs \"{}\" and \"{}\" must be of one type, but are {} and {}",
            c.def.input(1), c.def.input(i), first, x);
    require(x.device() == first.device(), "inputs \"{}\" and \"{}\" must be in one place, but are on {} and {}",
            c.def.input(1), c.def.input(i), first.device(), x.device());
    count += x.size();
  }
  World& world = world_of(c, 1);
  auto started = std::make_shared<Started>();
  started->world = c.in[0]->get<WorldPtr>();
  started->block = Tensor::empty(first.dtype(), {count}, first.device());
  if (!is_dry()) {
    int64_t at = 0;
    for (const Blob* blob : c.in.subspan(1)) {
      const Tensor& x = blob->tensor();
      part_of(started->block, at, x.shape()).copy_from(x);
      at += x.size();
    }
    started->pending =
        world.start_allreduce(started->block.raw(), started->block.raw(), count, first.dtype(), ReduceOp::sum);
    started->pending->hold(started->block.storage());
  }
  c.out[0]->emplace<StartedPtr>(std::move(started));
}

void finish(const NoArgs&, BlobCall& c) {
  require(c.in[0] != nullptr && c.in[0]->holds<StartedPtr>(), "\"{}\" must be what StartAllreduce has made",
          c.def.input(0));
  require(c.out.size() == c.in.size(), "it has {} tensors whose types it takes, and {} outputs; there must be as many",
          c.in.size() - 1, c.out.size() - 1);
  const StartedPtr started = c.in[0]->get<StartedPtr>();
  int64_t count = 0;
  for (int i = 1; i < static_cast<int>(c.in.size()); ++i) count += sent_input(c, i).size();
  require(count == started->block.size(), "{} elements have been started, but outputs have {}", started->block.size(),
          count);
  if (!is_dry()) started->pending->wait();
  int64_t at = 0;
  for (int o = 1; o < static_cast<int>(c.out.size()); ++o) {
    require(c.out[o] != nullptr, "output {} has an empty name", o);
    const Shape shape = std::as_const(*c.in[o]).tensor().shape();
    Tensor& y = made_output(c, o, started->block, shape);
    if (!is_dry()) y.copy_from(part_of(started->block, at, shape));
    at += shape.size();
    y.mark_written();
  }
  c.out[0]->clear();
}

void infer(const NoArgs&, ShapeCall& c) {
  for (int o = 1; o < c.outputs() && o < c.inputs(); ++o) c.set_like(o, o);
}

REGISTER(start_allreduce) {
  auto builder = op("StartAllreduce");
  declare(builder.doc("Begins to add tensors up over all ranks, and goes on; FinishAllreduce gets the sums."))
      .input("X", "numbers of one type, of the same shapes on all ranks; they are copied")
      .variadic()
      .output("started", "what FinishAllreduce takes")
      .object()
      .blobs(start)
      .runs_dry()
      .example_net(on_world("type: 'StartAllreduce' input: 'A' input: 'B' output: 'started'"), {"A=2", "B=3,1"});
  return finish_declaring(builder).stop_gradient();
}

REGISTER(finish_allreduce) {
  return op("FinishAllreduce")
      .doc("Waits for what StartAllreduce has begun, and makes the sums over all ranks.")
      .input("started", "what StartAllreduce has made")
      .object()
      .input("like", "a tensor for each that was given to StartAllreduce, of its type and shape")
      .variadic()
      .output("started", "the same blob, which is empty afterwards")
      .object()
      .output("Y", "the sum, the same on all ranks: one for each")
      .variadic()
      .must_be_in_place("started", "started")
      .in_place("like", "Y")
      .shape(infer)
      .blobs(finish)
      .runs_dry()
      .side_effect()
      .stop_gradient()
      .example_net(on_world("type: 'StartAllreduce' input: 'A' output: 'started' } op { type: 'FinishAllreduce' input: "
                            "'started' input: 'A' output: 'started' output: 'B'"),
                   {"A=2,3"});
}

}  // namespace
}  // namespace stepnet::cpu_start_allreduce
