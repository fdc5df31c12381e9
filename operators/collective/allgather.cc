// Allgather and ReduceScatter, which are each other's derivative. With R ranks and X of n rows (dimension 0):
//   Allgather: Y has the rows of rank 0, then those of rank 1, ...: R n rows, the same on every rank.
//   ReduceScatter: of the sum of X over all ranks, rank r gets rows r n / R to (r + 1) n / R.
// With L = sum over ranks of their own L, the gradient of Allgather is the sum of the ranks' dY, of which each rank
// gets its own rows; that of ReduceScatter all ranks' dY, one behind the other.

#include "operators/collective/collective_call.h"

namespace stepnet::cpu_allgather {
namespace {

using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::made_output;
using collective::on_world;
using collective::sent_input;
using collective::wait_for;
using collective::world_of;

const Tensor& rows_input(const BlobCall& c) {
  const Tensor& x = sent_input(c, 1);
  require(x.rank() > 0, "\"{}\" is {}, but must have a dimension of rows", c.def.input(1), x);
  return x;
}

void allgather(const NoArgs&, BlobCall& c) {
  const Tensor x = rows_input(c);
  World& world = world_of(c, 1);
  int64_t rows = 0;
  require(!__builtin_mul_overflow(x.dim(0), int64_t{world.size()}, &rows), "{} rows of {} ranks are too many", x.dim(0),
          world.size());
  Tensor& y = made_output(c, 0, x, x.shape().with(0, rows));
  if (!is_dry()) wait_for(world.start_allgather(x.raw(), y.raw(), x.size(), x.dtype()), {&x, &y});
  y.mark_written();
}

void reduce_scatter(const NoArgs&, BlobCall& c) {
  const Tensor x = rows_input(c);
  World& world = world_of(c, 1);
  require(x.dtype() != DType::boolean, "\"{}\" is {}; bools cannot be added up", c.def.input(1), x);
  require(x.dim(0) % world.size() == 0, "the {} rows of \"{}\", which is {}, cannot be shared out to {} ranks alike",
          x.dim(0), c.def.input(1), x, world.size());
  Tensor& y = made_output(c, 0, x, x.shape().with(0, x.dim(0) / world.size()));
  if (!is_dry()) wait_for(world.start_reduce_scatter(x.raw(), y.raw(), y.size(), x.dtype(), ReduceOp::sum), {&x, &y});
  y.mark_written();
}

REGISTER(allgather) {
  auto builder = op("Allgather");
  declare(builder.doc("Puts the rows of all ranks one behind the other, in the order of ranks; each rank gets all."))
      .input("X", "at least one dimension; of the same type and shape on all ranks")
      .output("Y", "as many times the rows of X as there are ranks")
      .blobs(allgather)
      .runs_dry()
      .derivative("X",
                  [](Formula& f) {
                    return f.op("ReduceScatter", {f.x("comm_world"), f.dy("Y")});
                  })
      .example_net(on_world("type: 'Allgather' input: 'X' output: 'Y'"), {"X=2,3"}, {"Y"});
  return finish_declaring(builder);
}

REGISTER(reduce_scatter) {
  auto builder = op("ReduceScatter");
  declare(builder.doc(
              "Adds a tensor up over all ranks and shares the rows of the sum out, in the order of ranks. The public "
              "format's operator has the numbers of rows as a last input, and is another one."))
      .input("X", "at least one dimension, whose size is a multiple of the number of ranks")
      .output("Y", "this rank's rows of the sum")
      .blobs(reduce_scatter)
      .runs_dry()
      .derivative("X",
                  [](Formula& f) {
                    return f.op("Allgather", {f.x("comm_world"), f.dy("Y")});
                  })
      .example_net(on_world("type: 'ReduceScatter' input: 'X' output: 'Y'"), {"X=2,3"}, {"Y"});
  return finish_declaring(builder);
}

}  // namespace
}  // namespace stepnet::cpu_allgather
