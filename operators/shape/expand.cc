// Expand: Y = X repeated to a larger shape. Dimensions are aligned at the end; where X has size 1, or no dimension, it
// repeats, and where the new shape has 1 or -1, X's size stays.
//
// dX = SumReduceLike(dY, X), which reads X's shape only.

#include <algorithm>

#include "operators/loops/broadcast.h"
#include "operators/loops/fill_shape.h"

namespace stepnet::cpu_expand {
namespace {

struct ExpandArgs {
  std::optional<std::vector<int64_t>> shape;
};

Shape expanded(const Shape& x, const std::vector<int64_t>& target) {
  require(target.size() <= Shape::kMaxRank, "the new shape has {} dimensions, but a tensor at most {}", target.size(),
          Shape::kMaxRank);
  const int given = static_cast<int>(target.size());
  const int rank = std::max(x.rank(), given);
  Shape y;
  for (int i = 0; i < rank; ++i) {
    const int in_x = i - (rank - x.rank()), in_target = i - (rank - given);
    const int64_t have = in_x >= 0 ? x[in_x] : 1;
    int64_t want = in_target >= 0 ? target[in_target] : 1;
    require(want >= -1, "size {} of the new shape is {}; only -1 may be negative", in_target, want);
    if (want == -1) want = have;
    require(have == want || have == 1 || want == 1, "shape {} cannot be expanded to [{}]: {} against {}", x,
            fmt::join(target, ", "), have, want);
    y.push_back(have == 1 ? want : have);
  }
  return y;
}

void infer(const ExpandArgs& args, ShapeCall& call) {
  require(!args.shape || !call.has(1), "the new shape is given by the argument \"shape\" and by an input");
  require(args.shape || call.has(1), "the new shape is given neither by the argument \"shape\" nor by an input");
  if (!call.known(0)) return;
  if (args.shape) {
    call.set(0, call.dtype(0), expanded(call.shape(0), *args.shape));
  } else if (call.value(1)) {
    call.set(0, call.dtype(0), expanded(call.shape(0), read_integers(*call.value(1), "a new shape given as input")));
  }
}

template <class T>
void expand(In<T> x, Out<T> y, Call& call) {
  const Shape& from = call.in(0).shape();
  const Shape& to = call.out(0).shape();
  Shape aligned;
  for (int i = from.rank(); i < to.rank(); ++i) aligned.push_back(1);
  for (const int64_t size : from) aligned.push_back(size);
  BroadcastRuns({to, aligned, to}).each([&](const BroadcastRun& run) {
    const T* source = x.data() + run.a;
    if (run.a_moves) {
      std::copy_n(source, run.size, y.data() + run.out);
    } else {
      std::fill_n(y.data() + run.out, run.size, *source);
    }
  });
}

Gradient gradient(Formula& f) { return f.op("SumReduceLike", {f.dy("Y"), f.x("X")}, {make_arg("broadcast", true)}); }

REGISTER(expand) {
  return op<ExpandArgs>("Expand")
      .doc("Repeats a tensor along dimensions of size 1, and along new leading ones, to a larger shape.")
      .arg("shape", &ExpandArgs::shape, {}, "the new shape, unless it is an input; -1 keeps a size")
      .accepts("allow_broadcast_fastpath", "it chooses between two ways to the same result")
      .input("X", "any shape")
      .input("shape", "the new shape, one dimension, instead of the argument")
      .types({DType::int64, DType::int32})
      .optional()
      .output("Y", "the repeated tensor")
      .shape(infer)
      .cpu_for<float>(expand<float>)
      .cpu_for<double>(expand<double>)
      .cpu_for<int32_t>(expand<int32_t>)
      .cpu_for<int64_t>(expand<int64_t>)
      .example({"X=2,1,3"}, {"shape=2,2,3"})
      .example({"X=3"}, {"shape=2,-1"})
      .example({"X=1", "shape=int64,2:2,2"})
      .example({"X=2,1"}, {"shape=2,0"})
      .derivative("X", gradient);
}

}  // namespace
}  // namespace stepnet::cpu_expand
