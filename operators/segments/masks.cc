// Masks by lengths, windows and diagonals: SequenceMask and MaskByLength.
#include "operators/segments/masks.h"

#include <algorithm>
#include <limits>

#include "core/compute/threads.h"
#include "operators/loops/copy_elements.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_masks {
namespace {

// SequenceMask: X with fill_val in place of what is masked. X is a matrix of rows i, the dimensions before `axis`, and
// columns j, those from there on. Masked is, by `mode`:
//   sequence  j >= lengths[i]        upper  j > i    upperdiag  j >= i
//   window    |j - centers[i]| > r   lower  j < i    lowerdiag  j <= i
// With `batch`, each index of the dimensions up to that one has such a matrix, and i counts the dimensions behind it.
// With `repeat_from_axis`, j ends there, and what lies behind is masked together.
//
// dX = SequenceMask(dY) with grad = 1, which puts zeros in place of fill_val; backward reads lengths or centers alone.

bool has_values(const SequenceMaskArgs& a) { return a.mode == "sequence" || a.mode == "window"; }

void sequence_mask_infer(const SequenceMaskArgs& a, ShapeCall& c) {
  require(!has_values(a) || c.has(1), "mode \"{}\" needs a second input, with {} for each row", a.mode,
          a.mode == "window" ? "the centre" : "the length");
  require(has_values(a) || !c.has(1), "mode \"{}\" takes no second input", a.mode);
  require(a.radius >= 0, "argument \"radius\" must be at least 0, but is {}", a.radius);
  if (!c.known(0)) return;
  const MaskLayout l = mask_layout(a, c.shape(0));
  if (c.known(1))
    require(c.shape(1).size() == l.rows, "the input {} has {} rows to mask, but sequence_lengths {} has {} values",
            c.shape(0), l.rows, c.shape(1), c.shape(1).size());
  c.set_like(0, 0);
}

void check_lengths(In<int32_t> lengths) {
  for (size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] < 0) fail("length {} is {}, which is negative", i, lengths[i]);
}

template <class T>
void apply_sequence_mask(const SequenceMaskArgs& a, In<T> x, In<int32_t> values, Out<T> y, Call& call) {
  const MaskLayout l = mask_layout(a, call.in(0).shape());
  const MaskMode mode = mask_mode(a.mode);
  if (mode == MaskMode::sequence) check_lengths(values);
  if (y.empty()) return;
  const T masked = a.grad ? T(0) : static_cast<T>(a.fill_val);
  const int64_t row_size = l.columns * l.repeats;
  parallel_for(l.matrices * l.rows, 2 + 0.2 * static_cast<double>(row_size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const KeptColumns kept =
          kept_columns(mode, a.radius, values.empty() ? 0 : values[r % l.rows], r % l.rows, l.columns);
      const T* from = x.data() + r * row_size;
      T* to = y.data() + r * row_size;
      const int64_t first = kept.begin * l.repeats, last = kept.end * l.repeats;
      std::fill(to, to + first, masked);
      if (from != to) std::copy(from + first, from + last, to + first);
      std::fill(to + last, to + row_size, masked);
    }
  });
}

Gradient sequence_mask_gradient_of(Formula& f) {
  std::vector<Argument> args;
  for (const Argument& arg : f.forward_args())
    if (arg.name() != "grad") args.push_back(arg);
  args.push_back(make_arg("grad", true));
  return f.op("SequenceMask", {f.dy("masked_tensor"), f.x("sequence_lengths")}, args);
}

REGISTER(sequence_mask) {
  return op<SequenceMaskArgs>("SequenceMask")
      .doc("Puts one value in place of what lies behind a length, outside of a window, or beside a diagonal.")
      .required_arg("mode", &SequenceMaskArgs::mode,
                    "what is masked: sequence, window, upper, lower, upperdiag, lowerdiag",
                    one_of({"sequence", "window", "upper", "lower", "upperdiag", "lowerdiag"}))
      .arg("axis", &SequenceMaskArgs::axis, int64_t{1}, "the first dimension that is columns; those before it are rows")
      .arg("radius", &SequenceMaskArgs::radius, int64_t{10}, "mode window: how far from the centre is kept")
      .arg("batch", &SequenceMaskArgs::batch, {},
           "dimensions up to this one are no rows: each index has a matrix of its own")
      .arg("repeat_from_axis", &SequenceMaskArgs::repeat_from_axis, {},
           "mode sequence: dimensions from this one on are no columns but masked together")
      .arg("fill_val", &SequenceMaskArgs::fill_val, -std::numeric_limits<float>::infinity(),
           "what stands in masked places")
      .arg("grad", &SequenceMaskArgs::grad, false, "masked places are 0, whatever fill_val says")
      .input("input", "one dimension or more")
      .input("sequence_lengths", "modes sequence and window: the length, or the centre, of each row")
      .types({DType::int32})
      .optional()
      .output("masked_tensor", "as the input", like("input"))
      .shape(sequence_mask_infer)
      .in_place("input", "masked_tensor")
      .cpu(apply_sequence_mask<float>, apply_sequence_mask<double>)
      .example({"input=3,4", "sequence_lengths=int32,3:2,0,5"}, {"mode=sequence", "fill_val=-2"})
      .example({"input=2,3,2", "sequence_lengths=int32,2:2,1"}, {"mode=sequence", "fill_val=-2", "repeat_from_axis=2"})
      .example({"input=2,3,4", "sequence_lengths=int32,3:1,4,2"}, {"mode=sequence", "fill_val=0", "axis=2", "batch=0"})
      .example({"input=3,4", "sequence_lengths=int32,3:0,2,7"}, {"mode=window", "radius=1", "fill_val=1"})
      .example({"input=3,4"}, {"mode=upper", "fill_val=-2"})
      .example({"input=3,4"}, {"mode=lower", "fill_val=-2"})
      .example({"input=3,3"}, {"mode=upperdiag", "fill_val=-2"})
      .example({"input=3,3"}, {"mode=lowerdiag", "grad=1"})
      .example({"input=1,1"}, {"mode=lower", "fill_val=-2"})
      .example_net(R"(op { type: "SequenceMask" input: "X" output: "Y" arg { name: "mode" s: "upper" } })", {"X=3,3"})
      .derivative("input", sequence_mask_gradient_of);
}

// MaskByLength: keeps what belongs to samples that are not over. In Y, row b of timestep t is
//   X's, if t < lengths[b], and BEYOND's, or zero if there is none, from there on
// (with `beyond` the other way round: X's from there on, else zero). What is not taken is not looked at, so that NaN
// there goes nowhere.
//
// dX = MaskByLength(dY), dBEYOND = MaskByLength(dY) with the other side; only lengths and timesteps are read.

// Several timesteps stand one after the other, [R, B, ...]; a single one may be [B, ...] too.
void mask_by_length_infer(const MaskByLengthArgs& a, ShapeCall& call) {
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

void apply_mask_by_length(const MaskByLengthArgs& a, Call& call) {
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

Gradient mask_by_length_gradient_of(Formula& f, bool beyond) {
  return f.op("MaskByLength", {f.dy("Y"), f.x("lengths"), f.x("timestep")}, {make_arg("beyond", beyond)});
}

REGISTER(mask_by_length) {
  return op<MaskByLengthArgs>("MaskByLength")
      .own()
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
      .shape(mask_by_length_infer)
      .in_place("X", "Y")
      .rowwise([](const MaskByLengthArgs&, const ShapeCall& call) {
        return call.known(2) && call.known(0) && call.shape(0).rank() > 1 && call.shape(0)[0] == call.shape(2)[0] ? 1
                                                                                                                  : 0;
      })
      .role(Role::mask_by_length)
      .cpu(apply_mask_by_length)
      .example({"X=3,2,2", "lengths=int32,2:1,3", "timestep=int32,3:0,1,2", "BEYOND=3,2,2"})
      .example({"X=3,2,2", "lengths=int32,2:1,3", "timestep=int32,3:0,1,2"}, {"beyond=1"})
      .example({"X=3,2", "lengths=int32,3:0,1,2", "timestep=int32,1:1"})
      .derivative("X", [](Formula& f) { return mask_by_length_gradient_of(f, f.args<MaskByLengthArgs>().beyond); })
      .derivative("BEYOND", [](Formula& f) { return mask_by_length_gradient_of(f, true); });
}

}  // namespace
}  // namespace stepnet::cpu_masks
