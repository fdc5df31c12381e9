// Squeeze and ExpandDims: the same elements with dimensions of size 1 removed or inserted. `dims` are places in the
// longer of the two shapes. Each is the other's gradient, with the same dims; backward reads nothing.

#include <algorithm>

#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet {
namespace {

struct DimsArgs {
  std::vector<int64_t> dims;
};

// Sorted, each once, and within a shape of `rank` dimensions.
std::vector<int64_t> places(const DimsArgs& args, int rank) {
  std::vector<int64_t> dims = args.dims;
  std::ranges::sort(dims);
  dims.erase(std::unique(dims.begin(), dims.end()), dims.end());
  for (const int64_t d : dims)
    require(d >= 0 && d < rank, "argument \"dims\" names dimension {}, but the shape has {}", d, rank);
  return dims;
}

void squeezed(const DimsArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  const std::vector<int64_t> dims = places(args, x.rank());
  Shape y;
  for (int i = 0; i < x.rank(); ++i) {
    const bool gone = std::ranges::binary_search(dims, int64_t{i});
    if (!gone) y.push_back(x[i]);
    require(!gone || x[i] == 1, "argument \"dims\" names dimension {} of {}, whose size is {} and not 1", i, x, x[i]);
  }
  call.set(0, call.dtype(0), y);
}

void expanded(const DimsArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  std::vector<int64_t> dims = args.dims;
  std::ranges::sort(dims);
  const int rank = x.rank() + static_cast<int>(std::unique(dims.begin(), dims.end()) - dims.begin());
  require(rank <= Shape::kMaxRank, "{} with {} more dimensions has more than {}", x, rank - x.rank(), Shape::kMaxRank);
  dims = places(args, rank);
  Shape y;
  for (int i = 0, from = 0; i < rank; ++i) y.push_back(std::ranges::binary_search(dims, int64_t{i}) ? 1 : x[from++]);
  call.set(0, call.dtype(0), y);
}

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

// Dimensions before the first that changes.
int leading_rows(const DimsArgs& args, const ShapeCall&) {
  if (args.dims.empty()) return Shape::kMaxRank;
  return static_cast<int>(std::clamp<int64_t>(std::ranges::min(args.dims), 0, Shape::kMaxRank));
}

OpBuilder<DimsArgs>& declare(OpBuilder<DimsArgs>& builder) {
  return builder.required_arg("dims", &DimsArgs::dims, "places in the longer shape, from 0")
      .input("data", "a tensor of any type")
      .any_type()
      .output("output", "the same elements")
      .any_type()
      .in_place("data", "output")
      .rowwise(leading_rows)
      .cpu(copy);
}

Gradient by(Formula& f, const char* type) { return f.op(type, {f.dy("output")}, f.forward_args()); }

REGISTER(squeeze) {
  auto builder = op<DimsArgs>("Squeeze");
  return declare(builder)
      .doc("Removes dimensions of size 1.")
      .shape(squeezed)
      .example({"data=2,1,3,1"}, {"dims=1,3"})
      .example({"data=1"}, {"dims=0"})
      .derivative("data", [](Formula& f) { return by(f, "ExpandDims"); });
}

REGISTER(expand_dims) {
  auto builder = op<DimsArgs>("ExpandDims");
  return declare(builder)
      .doc("Inserts dimensions of size 1.")
      .shape(expanded)
      .example({"data=2,3"}, {"dims=0,2"})
      .example({"data="}, {"dims=0"})
      .derivative("data", [](Formula& f) { return by(f, "Squeeze"); });
}

}  // namespace
}  // namespace stepnet
