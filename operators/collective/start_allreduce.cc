// StartAllreduce and FinishAllreduce: sums over all ranks that move while the operators between them run, such as those
// of gradients while the backward pass goes on. What is started together moves as one block; a single tensor may move
// where it is, if it is an output, too, and is not touched before FinishAllreduce gets it. StartReduceScatter and
// FinishReduceScatter: the same, but each rank gets its part of the sums only, one R-th of the block's elements; zeros
// are added to its end so that all parts have as many.
//
// An Allreduce takes tensors of a GPU, too, if the world moves them.
//
// Values that move as bfloat16 are rounded to the nearest, ties to even. Each rank gets its part of all ranks' values,
// adds them up in float32, in the order of ranks, and, for an Allreduce, rounds the sum to bfloat16 and gives it to
// all. So a sum is rounded once, however many ranks there are.
//
// No derivatives: they stand behind the gradient pass.

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/compute/half_spans.h"
#include "operators/collective/collective_call.h"

namespace stepnet::cpu_start_allreduce {
namespace {

using collective::cpu_input;
using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::made_output;
using collective::on_world;
using collective::sent_input;
using collective::world_of;

struct MoveArgs {
  std::string move_as;
};

struct Started {
  WorldPtr world;
  World* moves = nullptr;  // the world, or the part of it that moves tensors where these are
  bool scatters = false;
  DType dtype = DType::float32;
  int64_t count = 0, part = 0;  // elements of all tensors, and those that a rank gets
  Tensor block;                 // the values of all tensors behind each other; of an Allreduce, then their sums
  Tensor received;              // of bfloat16, this rank's part of all ranks' values; else its part of the sums
  PendingPtr pending;

  bool is_rounded() const { return block.dtype() != dtype; }
};
using StartedPtr = std::shared_ptr<Started>;

// The inputs' elements; all must be of one type, and in one place.
int64_t count_inputs(const BlobCall& c) {
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
  return count;
}

// The block's elements from `at` on, as a tensor of that shape.
Tensor part_of(const Tensor& block, int64_t at, const Shape& shape) {
  return block.rows(at, shape.size()).reshaped(shape);
}

void fill_block(const BlobCall& c, Started& s) {
  int64_t at = 0;
  for (const Blob* blob : c.in.subspan(1)) {
    const Tensor& x = blob->tensor();
    Tensor part = part_of(s.block, at, x.shape());
    if (s.is_rounded())
      convert_elements(x.data<float>(), x.size(), part.data<bfloat16>());
    else
      part.copy_from(x);
    at += x.size();
  }
  if (at < s.block.size()) s.block.rows(at, s.block.size() - at).fill_zero();
}

void start_moving(Started& s) {
  World& world = *s.moves;
  if (s.is_rounded())
    s.pending = world.start_alltoall(s.block.raw(), s.received.raw(), s.part, s.block.dtype());
  else if (s.scatters)
    s.pending = world.start_reduce_scatter(s.block.raw(), s.received.raw(), s.part, s.dtype, ReduceOp::sum);
  else
    s.pending = world.start_allreduce(s.block.raw(), s.block.raw(), s.count, s.dtype, ReduceOp::sum);
  s.pending->hold(s.block.storage());
  if (s.received.defined()) s.pending->hold(s.received.storage());
}

void start(const MoveArgs& args, BlobCall& c, bool scatters) {
  require(c.in.size() > 1, "it has no tensors to add up");
  const bool rounds = !args.move_as.empty();
  if (rounds || scatters) cpu_input(c, 1);
  auto s = std::make_shared<Started>();
  s->world = c.in[0]->get<WorldPtr>();
  s->scatters = scatters;
  s->count = count_inputs(c);
  s->moves = &world_of(c, 1);
  const World& world = *s->moves;
  s->part = (s->count + world.size() - 1) / world.size();
  const Tensor& first = sent_input(c, 1);
  s->dtype = first.dtype();
  const bool in_place = c.out.size() > 1;
  require(!in_place || (c.in.size() == 2 && c.out.size() == 2 && !rounds),
          "only a single tensor that moves in its own type can do so in place");
  require(!rounds || s->dtype == DType::float32, "\"{}\" is {}, but only float32 moves as {}", c.def.input(1), first,
          args.move_as);
  const int64_t whole = s->part * world.size();
  s->block = in_place ? c.out[1]->tensor().reshaped({s->count})
                      : Tensor::empty(rounds ? DType::bfloat16 : s->dtype, {rounds || scatters ? whole : s->count},
                                      first.device());
  if (rounds) s->received = Tensor::empty(DType::bfloat16, {whole});
  if (!rounds && scatters) s->received = Tensor::empty(s->dtype, {s->part});
  if (!is_dry()) {
    if (!in_place) fill_block(c, *s);
    start_moving(*s);
  }
  if (in_place) c.out[1]->tensor().mark_written();
  c.out[0]->emplace<StartedPtr>(std::move(s));
}

StartedPtr started_input(const BlobCall& c, bool scatters) {
  require(c.in[0] != nullptr && c.in[0]->holds<StartedPtr>() && c.in[0]->get<StartedPtr>()->scatters == scatters,
          "\"{}\" must be what {} has made", c.def.input(0), scatters ? "StartReduceScatter" : "StartAllreduce");
  return c.in[0]->get<StartedPtr>();
}

// Of what has been received.
void sum_part(const Started& s, float* sums) {
  std::fill_n(sums, s.part, 0.0F);
  for (int r = 0; r < s.moves->size(); ++r) add_to_floats(s.received.data<bfloat16>() + r * s.part, s.part, sums);
}

// In place of the values, their sums over all ranks.
void share_rounded_sums(Started& s) {
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor sums = Tensor::empty(DType::float32, {s.part});
  if (is_dry()) return;
  sum_part(s, sums.data<float>());
  convert_elements(sums.data<float>(), s.part, s.received.data<bfloat16>());
  const PendingPtr pending = s.moves->start_allgather(s.received.raw(), s.block.raw(), s.part, DType::bfloat16);
  collective::wait_for(pending, {&s.received, &s.block});
}

void finish(const NoArgs&, BlobCall& c) {
  require(c.out.size() == c.in.size(), "it has {} tensors whose types it takes, and {} outputs; there must be as many",
          c.in.size() - 1, c.out.size() - 1);
  const StartedPtr s = started_input(c, false);
  int64_t count = 0;
  for (int i = 1; i < static_cast<int>(c.in.size()); ++i) count += sent_input(c, i).size();
  require(count == s->count, "{} elements have been started, but outputs have {}", s->count, count);
  if (!is_dry()) s->pending->wait();
  if (s->is_rounded()) share_rounded_sums(*s);
  int64_t at = 0;
  for (int o = 1; o < static_cast<int>(c.out.size()); ++o) {
    require(c.out[o] != nullptr, "output {} has an empty name", o);
    const Tensor like = std::as_const(*c.in[o]).tensor();
    require(like.dtype() == s->dtype, "\"{}\" is {}, but {} has been started", c.def.input(o), like,
            dtype_name(s->dtype));
    Tensor& y = made_output(c, o, like, like.shape());
    if (!is_dry()) {
      const Tensor sums = part_of(s->block, at, y.shape());
      if (std::as_const(y).raw() == sums.raw()) {
        // it has moved in place
      } else if (s->is_rounded())
        convert_elements(sums.data<bfloat16>(), y.size(), y.data<float>());
      else
        y.copy_from(sums);
    }
    at += y.size();
    y.mark_written();
  }
  c.out[0]->clear();
}

void finish_part(const NoArgs&, BlobCall& c) {
  const StartedPtr s = started_input(c, true);
  if (!is_dry()) s->pending->wait();
  Tensor& y = made_output(c, 1, s->dtype, {s->part});
  if (!is_dry()) {
    if (s->is_rounded())
      sum_part(*s, y.data<float>());
    else if (y.bytes() > 0)
      std::memcpy(y.raw(), s->received.raw(), y.bytes());
  }
  y.mark_written();
  c.out[0]->clear();
}

void infer(const NoArgs&, ShapeCall& c) {
  for (int o = 1; o < c.outputs() && o < c.inputs(); ++o) c.set_like(o, o);
}

// What moves in place is of its own type, so that what follows can be inferred.
void infer_moving(const MoveArgs&, ShapeCall& c) {
  if (c.outputs() > 1) c.set_like(1, 1);
}

OpBuilder<MoveArgs>& declare_start(OpBuilder<MoveArgs>& builder) {
  builder.arg("move_as", &MoveArgs::move_as, std::string(), "bfloat16, or the tensors' own type; sums are of that type",
              one_of({"", "bfloat16"}));
  return declare(builder)
      .input("X", "numbers of one type, of the same shapes on all ranks; they are copied")
      .variadic()
      .output("started", "what the operator that finishes takes")
      .object()
      .runs_dry();
}

OpBuilder<NoArgs>& declare_finish(OpBuilder<NoArgs>& builder, const char* start) {
  return builder.input("started", std::string("what ") + start + " has made").object();
}

REGISTER(start_allreduce) {
  auto builder = op<MoveArgs>("StartAllreduce");
  builder.doc("Begins to add tensors up over all ranks, and goes on; FinishAllreduce gets the sums.");
  declare_start(builder)
      .output("Y",
              "the tensor, if it is the only one and is to move in place: FinishAllreduce has it as input and output")
      .optional()
      .must_be_in_place("X", "Y")
      .shape(infer_moving)
      .blobs([](const MoveArgs& args, BlobCall& c) { start(args, c, false); })
      .example_net(on_world("type: 'StartAllreduce' input: 'A' input: 'B' output: 'started'"), {"A=2", "B=3,1"});
  return finish_declaring(builder).stop_gradient().own();
}

REGISTER(finish_allreduce) {
  auto builder = op("FinishAllreduce");
  builder.doc("Waits for what StartAllreduce has begun, and makes the sums over all ranks.");
  return declare_finish(builder, "StartAllreduce")
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
      .own()
      .example_net(on_world("type: 'StartAllreduce' input: 'A' output: 'started' } op { type: 'FinishAllreduce' input: "
                            "'started' input: 'A' output: 'started' output: 'B'"),
                   {"A=2,3"});
}

REGISTER(start_reduce_scatter) {
  auto builder = op<MoveArgs>("StartReduceScatter");
  builder.doc(
      "Begins to add tensors up over all ranks, and goes on; FinishReduceScatter gets this rank's part of the sums.");
  declare_start(builder)
      .blobs([](const MoveArgs& args, BlobCall& c) { start(args, c, true); })
      .example_net(on_world("type: 'StartReduceScatter' input: 'A' input: 'B' output: 'started'"), {"A=2", "B=3,1"});
  return finish_declaring(builder).stop_gradient().own();
}

REGISTER(finish_reduce_scatter) {
  auto builder = op("FinishReduceScatter");
  builder.doc("Waits for what StartReduceScatter has begun, and makes this rank's part of the sums.");
  return declare_finish(builder, "StartReduceScatter")
      .output("started", "the same blob, which is empty afterwards")
      .object()
      .output("Y",
              "[N]: of R ranks, an R-th of all tensors' elements behind each other, rounded up; zeros at their end")
      .must_be_in_place("started", "started")
      .blobs(finish_part)
      .runs_dry()
      .side_effect()
      .stop_gradient()
      .own()
      .example_net(on_world("type: 'StartReduceScatter' input: 'A' output: 'started' } op { type: "
                            "'FinishReduceScatter' input: 'started' output: 'started' output: 'B'"),
                   {"A=2,3"});
}

}  // namespace
}  // namespace stepnet::cpu_start_allreduce
