// TakeShard and GatherShards: a rank's part of tensors that all ranks have, and these from the parts of all ranks. With
// all tensors' elements behind each other, N of them, rank r of R has those from r P to (r + 1) P, where P is N / R
// rounded up; what is missing at the end is zeros. ShardedNormClip: GlobalNormClip of what the ranks have parts of.
//
// No derivatives: they stand behind the gradient pass, where an optimizer updates a part.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "operators/collective/collective_call.h"

namespace stepnet::cpu_shards {
namespace {

using collective::cpu_input;
using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::made_output;
using collective::on_world;
using collective::wait_for;
using collective::world_of;

int64_t part_of(int64_t count, const World& world) { return (count + world.size() - 1) / world.size(); }

// Inputs from `first` on: one type; the number of their elements.
int64_t count_from(const BlobCall& c, int first) {
  require(static_cast<int>(c.in.size()) > first, "it has no tensors");
  int64_t count = 0;
  for (int i = first; i < static_cast<int>(c.in.size()); ++i) {
    const Tensor& x = cpu_input(c, i);
    require(x.dtype() == cpu_input(c, first).dtype(), "inputs \"{}\" and \"{}\" must be of one type, but are {} and {}",
            c.def.input(first), c.def.input(i), cpu_input(c, first), x);
    count += x.size();
  }
  return count;
}

void take(const NoArgs&, BlobCall& c) {
  const World& world = world_of(c);
  const DType dtype = cpu_input(c, 1).dtype();
  const int64_t part = part_of(count_from(c, 1), world), begin = world.rank() * part;
  Tensor& y = made_output(c, 0, dtype, {part});
  if (!is_dry()) {
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    auto* to = static_cast<std::byte*>(y.raw());
    int64_t at = 0, made = 0;
    for (const Blob* blob : c.in.subspan(1)) {
      const Tensor& x = blob->tensor();
      const int64_t from = std::max(begin, at), end = std::min(begin + part, at + x.size());
      if (from < end) {
        std::memcpy(to + made * size, static_cast<const std::byte*>(x.raw()) + (from - at) * size,
                    static_cast<size_t>((end - from) * size));
        made += end - from;
      }
      at += x.size();
    }
    std::fill_n(to + made * size, (part - made) * size, std::byte{0});
  }
  y.mark_written();
}

void gather(const NoArgs&, BlobCall& c) {
  World& world = world_of(c);
  require(c.out.size() + 2 == c.in.size(),
          "it has {} tensors whose types it takes, and {} outputs; there must be as many", c.in.size() - 2,
          c.out.size());
  const Tensor shard = cpu_input(c, 1);
  const int64_t part = part_of(count_from(c, 2), world);
  const DType dtype = cpu_input(c, 2).dtype();
  require(shard.dtype() == dtype && shard.size() == part, "\"{}\" is {}, but must be {} elements of {}", c.def.input(1),
          shard, part, dtype_name(dtype));
  Tensor all;
  {
    const MemoryScope scope(MemoryCategory::workspace);
    all = Tensor::empty(dtype, {part * world.size()});
  }
  if (!is_dry()) wait_for(world.start_allgather(shard.raw(), all.raw(), part, dtype), {&shard, &all});
  const auto* from = static_cast<const std::byte*>(is_dry() ? nullptr : all.raw());
  for (int o = 0; o < static_cast<int>(c.out.size()); ++o) {
    require(c.out[o] != nullptr, "output {} has an empty name", o);
    const Shape shape = std::as_const(*c.in[o + 2]).tensor().shape();
    Tensor& y = made_output(c, o, dtype, shape);
    if (!is_dry() && y.bytes() > 0) std::memcpy(y.raw(), from, y.bytes());
    if (!is_dry()) from += y.bytes();
    y.mark_written();
  }
}

void infer_gathered(const NoArgs&, ShapeCall& c) {
  for (int o = 0; o < c.outputs() && o + 2 < c.inputs(); ++o) c.set_like(o, o + 2);
}

struct ClipArgs {
  float max_norm = 1;
};

constexpr int64_t kBlock = 1 << 16;

// In blocks of a fixed size, so that the sum does not depend on the number of threads.
template <class T>
double sum_squares(std::span<const T> values) {
  const auto size = static_cast<int64_t>(values.size());
  double sum = 0;
  for (int64_t at = 0; at < size; at += kBlock)
    sum += vec_sum_squares(values.subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(kBlock, size - at))));
  return sum;
}

template <class T>
void scale(const Tensor& from, Tensor& to, double factor) {
  const T f = static_cast<T>(factor);
  const T* x = from.data<T>();
  T* y = to.data<T>();
  parallel_for(from.size(), 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = f * x[i];
  });
}

void check_gradients(const BlobCall& c) {
  require(c.in.size() > 1 && c.out.size() == c.in.size(),
          "{} tensors need {} outputs, the last for the norm, but there are {}", c.in.size() - 1, c.in.size(),
          c.out.size());
  for (int i = 1; i < static_cast<int>(c.in.size()); ++i) {
    const Tensor& g = cpu_input(c, i);
    require(c.out[static_cast<size_t>(i) - 1] != nullptr, "output {} has an empty name", i - 1);
    require(g.dtype() == DType::float32 || g.dtype() == DType::float64, "\"{}\" must be float or double, but is {}",
            c.def.input(i), g);
  }
}

// The norm on all ranks, of which each has heard of all values that are not finite.
double norm_of(const BlobCall& c, World& world) {
  const auto sum = std::make_shared<double>(0);  // no tensor, so that nothing is live that a dry run does not have
  for (int i = 1; i < static_cast<int>(c.in.size()); ++i) {
    const Tensor& g = cpu_input(c, i);
    *sum += g.dtype() == DType::float64 ? sum_squares(g.span<double>()) : sum_squares(g.span<float>());
  }
  const PendingPtr pending = world.start_allreduce(sum.get(), sum.get(), 1, DType::float64, ReduceOp::sum);
  pending->hold(sum);
  pending->wait();
  const double norm = std::sqrt(*sum);
  if (!std::isfinite(norm))
    throw Error(fmt::format("the norm of all ranks' gradients is {}", std::isnan(norm) ? NAN : norm),
                "use a smaller learning rate, or look for the operator that overflows first");
  return norm;
}

void clip(const ClipArgs& args, BlobCall& c) {
  World& world = world_of(c);
  check_gradients(c);
  const double norm = is_dry() ? 0 : norm_of(c, world);
  const double factor = norm > args.max_norm ? args.max_norm / norm : 1;
  for (size_t i = 1; i < c.in.size(); ++i) {
    if (c.in[i] == c.out[i - 1] && factor == 1) continue;
    const Tensor from = c.in[i]->tensor();
    Tensor& to = made_output(c, static_cast<int>(i) - 1, from.dtype(), from.shape());
    if (!is_dry()) from.dtype() == DType::float64 ? scale<double>(from, to, factor) : scale<float>(from, to, factor);
    to.mark_written();
  }
  if (!c.out.back()) return;
  Tensor& y = made_output(c, static_cast<int>(c.out.size()) - 1, DType::float32, {});
  if (!is_dry()) y.data<float>()[0] = static_cast<float>(norm);
  y.mark_written();
}

void infer_clipped(const ClipArgs&, ShapeCall& c) {
  for (int o = 0; o + 1 < c.outputs() && o + 1 < c.inputs(); ++o) c.set_like(o, o + 1);
  if (c.outputs() > 0) c.set(c.outputs() - 1, DType::float32, {});
}

REGISTER(take_shard) {
  auto builder = op("TakeShard");
  declare(builder.doc("Makes this rank's part of tensors that all ranks have: of R ranks, an R-th of all elements."))
      .input("X", "tensors of one type, of the same shapes on all ranks")
      .variadic()
      .output("Y",
              "[N]: of R ranks, an R-th of all tensors' elements behind each other, rounded up; zeros at their end")
      .blobs(take)
      .runs_dry()
      .example_net(on_world("type: 'TakeShard' input: 'A' input: 'B' output: 'Y'"), {"A=2", "B=3,1"});
  return finish_declaring(builder).stop_gradient().own();
}

REGISTER(gather_shards) {
  auto builder = op("GatherShards");
  declare(builder.doc("Makes tensors from the parts of all ranks that TakeShard makes of them."))
      .input("shard", "this rank's part")
      .input("like", "a tensor for each that is made, of its type and shape")
      .variadic()
      .output("Y", "the tensors, the same on all ranks")
      .variadic()
      .in_place("like", "Y")
      .shape(infer_gathered)
      .blobs(gather)
      .runs_dry()
      .example_net(on_world("type: 'TakeShard' input: 'A' input: 'B' output: 'Y' } op { input: 'world' type: "
                            "'GatherShards' input: 'Y' input: 'A' input: 'B' output: 'C' output: 'D'"),
                   {"A=2", "B=3,1"});
  return finish_declaring(builder).stop_gradient().own();
}

REGISTER(sharded_norm_clip) {
  auto builder = op<ClipArgs>("ShardedNormClip");
  builder.doc("Scales what ranks have parts of so that the norm of all parts together is at most max_norm.")
      .arg("max_norm", &ClipArgs::max_norm, 1.0F, "the largest norm", greater_than(0));
  declare(builder)
      .input("G", "this rank's parts")
      .variadic()
      .output("outputs", "the scaled parts, then the norm of all ranks' parts before, float without dimensions")
      .any_type()
      .variadic(2)
      .in_place("G", "outputs")
      .shape(infer_clipped)
      .blobs(clip)
      .runs_dry()
      .example_net(on_world("type: 'ShardedNormClip' input: 'A' input: 'B' output: 'A' output: 'B' output: 'norm'"),
                   {"A=2", "B=3,1"});
  return finish_declaring(builder).stop_gradient().own();
}

}  // namespace
}  // namespace stepnet::cpu_shards
