// ReversePackedSegs: turns the first lengths[b] timesteps of each sample b of a sequence around. What stands behind a
// sample's end stays where it is.
//
// dX = ReversePackedSegs(dY); backward reads the lengths.

#include "core/compute/threads.h"
#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/segment_lengths.h"

namespace stepnet {
namespace {

void infer(const NoArgs&, ShapeCall& call) {
  require_one_dimension(call, 1, "lengths");
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  require(x.rank() >= 2, "data must be [T, B, ...], but is {}", x);
  if (call.known(1))
    require(x[1] == call.shape(1)[0], "data {} has {} samples, but there are {} lengths", x, x[1], call.shape(1)[0]);
  call.set_like(0, 0);
}

void check_lengths(const Tensor& lengths, const Shape& x) {
  read_segment_lengths(lengths);
  with_indices(lengths, [&](auto values) {
    for (size_t b = 0; b < values.size(); ++b)
      if (values[b] > x[0]) fail("length {} is {}, but data {} has {} timesteps", b, values[b], x, x[0]);
  });
}

void reverse(Call& call) {
  const Tensor& x = call.in(0);
  Tensor& y = call.out(0);
  check_lengths(call.in(1), x.shape());
  if (y.size() == 0) return;
  const int64_t batch = x.dim(1), row = x.shape().size_between(2, x.rank());
  const double nanoseconds = 3 + 0.1 * static_cast<double>(row) * static_cast<double>(dtype_size(x.dtype()));
  with_indices(call.in(1), [&](auto lengths) {
    parallel_for(x.dim(0) * batch, nanoseconds, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t t = r / batch, b = r % batch, length = lengths[b];
        const int64_t from = t < length ? length - 1 - t : t;
        copy_elements(x, (from * batch + b) * row, y, r * row, row);
      }
    });
  });
}

REGISTER(reverse_packed_segs) {
  return op("ReversePackedSegs")
      .doc("Turns each sample of a sequence around, up to its own length.")
      .input("data", "[T, B, ...] of any type")
      .any_type()
      .input("lengths", "[B], the number of timesteps of each sample, at most T")
      .types({DType::int32, DType::int64})
      .output("reversed_data", "as data")
      .any_type()
      .shape(infer)
      .cpu(reverse)
      .example({"data=3,3,2", "lengths=int32,3:3,1,2"})
      .example({"data=2,1", "lengths=int64,1:0"})
      .example({"data=0,2,2", "lengths=int32,2:0,0"})
      .derivative("data", [](Formula& f) {
        return f.op("ReversePackedSegs", {f.dy("reversed_data"), f.x("lengths")});
      });
}

}  // namespace
}  // namespace stepnet
