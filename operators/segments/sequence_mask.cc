// SequenceMask: X with fill_val in place of what is masked. X is a matrix of rows i, the dimensions before `axis`, and
// columns j, those from there on. Masked is, by `mode`:
//   sequence  j >= lengths[i]        upper  j > i    upperdiag  j >= i
//   window    |j - centers[i]| > r   lower  j < i    lowerdiag  j <= i
// With `batch`, each index of the dimensions up to that one has such a matrix, and i counts the dimensions behind it.
// With `repeat_from_axis`, j ends there, and what lies behind is masked together.
//
// dX = SequenceMask(dY) with grad = 1, which puts zeros in place of fill_val; backward reads lengths or centers alone.
#include "operators/segments/sequence_mask.h"

#include <limits>

#include "core/compute/threads.h"

namespace stepnet {
namespace {

bool has_values(const SequenceMaskArgs& a) { return a.mode == "sequence" || a.mode == "window"; }

void infer(const SequenceMaskArgs& a, ShapeCall& c) {
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
void mask(const SequenceMaskArgs& a, In<T> x, In<int32_t> values, Out<T> y, Call& call) {
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

Gradient gradient(Formula& f) {
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
      .shape(infer)
      .in_place("input", "masked_tensor")
      .cpu(mask<float>, mask<double>)
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
      .derivative("input", gradient);
}

}  // namespace
}  // namespace stepnet
