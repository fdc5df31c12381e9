// MaskByLength: keeps what belongs to samples that are not over. In Y, row b of timestep t is
//   X's, if t < lengths[b], and BEYOND's, or zero if there is none, from there on
// (with `beyond` the other way round: X's from there on, else zero). What is not taken is not looked at, so that NaN
// there goes nowhere.
//
// dX = MaskByLength(dY), dBEYOND = MaskByLength(dY) with the other side; only lengths and timesteps are read.
#include "operators/segments/mask_by_length.h"

#include <algorithm>

#include "core/compute/threads.h"
#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet {
namespace {

// Several timesteps stand one after the other, [R, B, ...]; a single one may be [B, ...] too.
void infer(const MaskByLengthArgs& a, ShapeCall& call) {
  require(!(a.beyond && call.has(3)), "with \"beyond\" there is no input BEYOND");
  if (call.known(1))
    require(call.shape(1).rank() == 1, "lengths must be [B], one for each sample, but is {}", call.shape(1));
  if (call.known(2)) require(call.shape(2).rank() == 1, "timestep must be [R], but is {}", call.shape(2));
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  require(call.dtype(0) != DType::string, "X holds strings, of which none is zero");
  if (call.known(1) && call.known(2)) {
    const int64_t steps = call.shape(2)[0], batch = call.shape(1)[0];
    const bool rows = x.rank() >= 2 && x[0] == steps && x[1] == batch;
    require(rows || (steps == 1 && x.rank() >= 1 && x[0] == batch),
            "X must be [{}, {}, ...] for the timesteps {} and the lengths {}, but is {}", steps, batch, call.shape(2),
            call.shape(1), x);
  }
  if (call.known(3))
    require(call.shape(3).size() == x.size() && call.dtype(3) == call.dtype(0), "BEYOND must be {} as X is, but is {}",
            call.in(0), call.in(3));
  call.set_like(0, 0);
}

void mask(const MaskByLengthArgs& a, Call& call) {
  const Tensor& x = call.in(0);
  const auto lengths = call.in_span<int32_t>(1), timesteps = call.in_span<int32_t>(2);
  Tensor& y = call.out(0);
  const auto batch = static_cast<int64_t>(lengths.size());
  const int64_t rows = batch * static_cast<int64_t>(timesteps.size());
  if (y.size() == 0) return;
  const int64_t size = y.size() / rows;
  const bool in_place = y.raw() == x.raw();
  parallel_for(rows, 2 + 0.1 * static_cast<double>(size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const bool over = timesteps[r / batch] >= lengths[r % batch];
      if (over == a.beyond) {
        if (!in_place) copy_elements(x, r * size, y, r * size, size);
      } else if (call.has(3)) {
        copy_elements(call.in(3), r * size, y, r * size, size);
      } else {
        const size_t row = static_cast<size_t>(size) * dtype_size(y.dtype());
        std::fill_n(y.raw() + r * row, row, std::byte{0});
      }
    }
  });
}

Gradient gradient(Formula& f, bool beyond) {
  return f.op("MaskByLength", {f.dy("Y"), f.x("lengths"), f.x("timestep")}, {make_arg("beyond", beyond)});
}

REGISTER(mask_by_length) {
  return op<MaskByLengthArgs>("MaskByLength")
      .doc("Rows of samples that are not over; in the others zero, or another tensor's rows.")
      .arg("beyond", &MaskByLengthArgs::beyond, false, "keep the rows of samples that are over, and no others")
      .input("X", "[R, B, ...] for R timesteps, or [B, ...] for one; numbers of any type")
      .any_type()
      .input("lengths", "[B], how many timesteps each sample has")
      .types({DType::int32})
      .input("timestep", "[R], which timesteps these are")
      .types({DType::int32})
      .input("BEYOND", "as X: the rows of samples that are over")
      .any_type()
      .optional()
      .output("Y", "as X", like("X"))
      .any_type()
      .shape(infer)
      .in_place("X", "Y")
      .rowwise([](const MaskByLengthArgs&, const ShapeCall& call) {
        return call.known(2) && call.known(0) && call.shape(0).rank() > 1 && call.shape(0)[0] == call.shape(2)[0] ? 1
                                                                                                                  : 0;
      })
      .role(Role::mask_by_length)
      .cpu(mask)
      .example({"X=3,2,2", "lengths=int32,2:1,3", "timestep=int32,3:0,1,2", "BEYOND=3,2,2"})
      .example({"X=3,2,2", "lengths=int32,2:1,3", "timestep=int32,3:0,1,2"}, {"beyond=1"})
      .example({"X=3,2", "lengths=int32,3:0,1,2", "timestep=int32,1:1"})
      .derivative("X", [](Formula& f) { return gradient(f, f.args<MaskByLengthArgs>().beyond); })
      .derivative("BEYOND", [](Formula& f) { return gradient(f, true); });
}

}  // namespace
}  // namespace stepnet
