// AllgatherSlices: a sparse gradient's rows of all ranks. With n_r indices and rows of rank r:
//   Y has the rows of rank 0, then those of rank 1, ...: n_0 + n_1 + ... of them, the same on every rank,
// and so have the indices. As rows of one index add up, that is the sum of all ranks' gradients, and far fewer bytes
// than the dense one if few rows of a large table are looked up.
//
// Ranks first tell each other how many rows they have. Values that move as bfloat16 are rounded to the nearest, ties to
// even, and are of their own type again before they are added to anything.
//
// No derivative: it stands behind the gradient pass.

#include <memory>
#include <numeric>

#include "core/compute/half_spans.h"
#include "operators/collective/collective_call.h"

namespace stepnet::cpu_allgather_slices {
namespace {

using collective::cpu_input;
using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::made_output;
using collective::on_world;
using collective::wait_for;
using collective::world_of;

struct SliceArgs {
  std::string move_as;
};

Tensor room_for(DType dtype, const Shape& shape) {
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::empty(dtype, shape);
}

// What a row of the values looks like.
Shape row_of(const BlobCall& c, const Tensor& indices, const Tensor& values) {
  require(indices.dtype() == DType::int32 || indices.dtype() == DType::int64,
          "\"{}\" must be indices of int32 or int64, but is {}", c.def.input(1), indices);
  const Shape &of_indices = indices.shape(), &shape = values.shape();
  const bool fits =
      shape.rank() >= of_indices.rank() && std::equal(of_indices.begin(), of_indices.end(), shape.begin());
  require(fits, "\"{}\" is {}, which does not begin with the shape of \"{}\", {}", c.def.input(2), values,
          c.def.input(1), of_indices);
  return shape.from(of_indices.rank());
}

// How many rows each rank has. All must have as many elements in a row.
std::vector<int64_t> counts_of(const BlobCall& c, World& world, int64_t rows, int64_t row) {
  const auto ranks = static_cast<size_t>(world.size());
  if (is_dry()) return std::vector<int64_t>(ranks, rows);                   // as if all were alike
  const auto told = std::make_shared<std::vector<int64_t>>(2 + 2 * ranks);  // shared with MPI, if it fails
  told->at(0) = rows;
  told->at(1) = row;
  const PendingPtr pending = world.start_allgather(told->data(), told->data() + 2, 2, DType::int64);
  pending->hold(told);
  pending->wait();
  std::vector<int64_t> counts;
  for (size_t r = 0; r < ranks; ++r) {
    const int64_t* said = told->data() + 2 + 2 * r;
    require(said[1] == row, "rows of \"{}\" have {} elements on rank {}, but {} on rank {}", c.def.input(2), row,
            world.rank(), said[1], r);
    counts.push_back(said[0]);
  }
  return counts;
}

// What moves: the values, or these rounded.
Tensor moved(const Tensor& values, bool rounds) {
  if (!rounds) return values;
  Tensor rounded = room_for(DType::bfloat16, values.shape());
  if (!is_dry()) convert_elements(values.data<float>(), values.size(), rounded.data<bfloat16>());
  return rounded;
}

void gather(const SliceArgs& args, BlobCall& c) {
  require(c.out[0] != nullptr && c.out[1] != nullptr, "an output has an empty name");
  const Tensor indices = cpu_input(c, 1), values = cpu_input(c, 2);
  const Shape row = row_of(c, indices, values);
  const bool rounds = !args.move_as.empty();
  require(!rounds || values.dtype() == DType::float32, "\"{}\" is {}, but only float32 moves as {}", c.def.input(2),
          values, args.move_as);
  World& world = world_of(c, 1);
  std::vector<int64_t> counts = counts_of(c, world, indices.size(), row.size());
  Shape shape = {std::accumulate(counts.begin(), counts.end(), int64_t{0})};
  Tensor& all_indices = made_output(c, 0, indices.dtype(), shape);
  for (const int64_t size : row) shape.push_back(size);
  Tensor& all_values = made_output(c, 1, values.dtype(), shape);
  const Tensor own = moved(values, rounds);
  Tensor all = rounds ? room_for(DType::bfloat16, shape) : all_values;
  if (!is_dry()) {
    const PendingPtr places = world.start_allgather_parts(indices.raw(), all_indices.raw(), counts, indices.dtype());
    for (const Tensor* t : std::initializer_list<const Tensor*>{&indices, &all_indices}) places->hold(t->storage());
    for (int64_t& count : counts) count *= row.size();
    const PendingPtr rows = world.start_allgather_parts(own.raw(), all.raw(), counts, own.dtype());
    for (const Tensor* t : std::initializer_list<const Tensor*>{&own, &all}) rows->hold(t->storage());
    wait_for(places, {});
    wait_for(rows, {});
    if (rounds) convert_elements(all.data<bfloat16>(), all.size(), all_values.data<float>());
  }
  all_indices.mark_written();
  all_values.mark_written();
}

REGISTER(allgather_slices) {
  auto builder = op<SliceArgs>("AllgatherSlices");
  builder
      .doc(
          "Gathers the rows of a sparse gradient: each rank gets the indices and the rows of all ranks, which may "
          "have different numbers of them.")
      .arg("move_as", &SliceArgs::move_as, std::string(), "bfloat16, or the values' own type; what is made is of that",
           one_of({"", "bfloat16"}));
  declare(builder)
      .input("indices", "any shape")
      .types({DType::int32, DType::int64})
      .input("values", "the indices' shape, then the shape of a row, which is the same on all ranks")
      .output("all_indices", "[N], those of all ranks in their order")
      .output("all_values", "[N, ...], their rows")
      .blobs(gather)
      .runs_dry()
      .example_net(on_world("type: 'AllgatherSlices' input: 'I' input: 'V' output: 'J' output: 'W'"),
                   {"I=int32,2,2:3,0,3,1", "V=2,2,3"});
  return finish_declaring(builder).own().no_gradient("it stands behind the gradient pass");
}

}  // namespace
}  // namespace stepnet::cpu_allgather_slices
