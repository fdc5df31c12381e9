// SequenceMask: X with fill_val in place of what is masked. X is a matrix of rows i, the dimensions before `axis`, and
// columns j, those from there on. Masked is, by `mode`:
//   sequence  j >= lengths[i]        upper  j > i    upperdiag  j >= i
//   window    |j - centers[i]| > r   lower  j < i    lowerdiag  j <= i
// With `batch`, each index of the dimensions up to that one has such a matrix, and i counts the dimensions behind it.
// With `repeat_from_axis`, j ends there, and what lies behind is masked together.
//
// dX = SequenceMask(dY) with grad = 1, which puts zeros in place of fill_val; backward reads lengths or centers alone.

#include <algorithm>
#include <limits>

#include "core/operator.h"
#include "core/parallel.h"

namespace stepnet {
namespace {

struct MaskArgs {
  std::string mode;
  int64_t axis = 1, radius = 10;
  std::optional<int64_t> batch, repeat_from_axis;
  bool grad = false;
  float fill_val = 0;
};

bool has_values(const MaskArgs& a) { return a.mode == "sequence" || a.mode == "window"; }

struct Layout {
  int64_t matrices = 1, rows = 1, columns = 1, repeats = 1;
};

Layout layout_of(const MaskArgs& a, const Shape& x) {
  const int axis = canonical_axis(a.axis, x.rank());
  int first_row = 0, repeat = x.rank();
  if (a.batch) {
    const int batch = canonical_axis(*a.batch, x.rank());
    require(batch < axis, "argument \"batch\" is dimension {}, which must come before \"axis\", dimension {}", batch,
            axis);
    first_row = batch + 1;
  }
  if (a.repeat_from_axis) {
    require(a.mode == "sequence", "argument \"repeat_from_axis\" goes with mode \"sequence\", not \"{}\"", a.mode);
    repeat = canonical_axis(*a.repeat_from_axis, x.rank());
    require(repeat >= axis, "argument \"repeat_from_axis\" is dimension {}, which comes before \"axis\", dimension {}",
            repeat, axis);
  }
  return {x.size_between(0, first_row), x.size_between(first_row, axis), x.size_between(axis, repeat),
          x.size_between(repeat, x.rank())};
}

void infer(const MaskArgs& a, ShapeCall& c) {
  require(!has_values(a) || c.has(1), "mode \"{}\" needs a second input, with {} for each row", a.mode,
          a.mode == "window" ? "the centre" : "the length");
  require(has_values(a) || !c.has(1), "mode \"{}\" takes no second input", a.mode);
  require(a.radius >= 0, "argument \"radius\" must be at least 0, but is {}", a.radius);
  if (!c.known(0)) return;
  const Layout l = layout_of(a, c.shape(0));
  if (c.known(1))
    require(c.shape(1).size() == l.rows, "the input {} has {} rows to mask, but sequence_lengths {} has {} values",
            c.shape(0), l.rows, c.shape(1), c.shape(1).size());
  c.set_like(0, 0);
}

// The columns that are not masked.
struct Kept {
  int64_t begin = 0, end = 0;
};

enum class Mode { sequence, window, upper, lower, upperdiag, lowerdiag };

Mode mode_of(const std::string& name) {
  if (name == "sequence") return Mode::sequence;
  if (name == "window") return Mode::window;
  if (name == "upper") return Mode::upper;
  if (name == "lower") return Mode::lower;
  return name == "upperdiag" ? Mode::upperdiag : Mode::lowerdiag;
}

Kept kept_columns(Mode mode, int64_t radius, In<int32_t> values, int64_t row, int64_t columns) {
  Kept kept{0, columns};
  switch (mode) {
    case Mode::sequence:
      kept.end = values[row];
      break;
    case Mode::window:
      // A radius of 2^32 reaches every column that a centre can be far from.
      radius = std::min(radius, int64_t{1} << 32);
      kept = {values[row] - radius, values[row] + radius + 1};
      break;
    case Mode::upper:
      kept.end = row + 1;
      break;
    case Mode::upperdiag:
      kept.end = row;
      break;
    case Mode::lower:
      kept.begin = row;
      break;
    case Mode::lowerdiag:
      kept.begin = row + 1;
      break;
  }
  kept.begin = std::clamp<int64_t>(kept.begin, 0, columns);
  kept.end = std::clamp<int64_t>(kept.end, kept.begin, columns);
  return kept;
}

void check_lengths(In<int32_t> lengths) {
  for (size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] < 0) fail("length {} is {}, which is negative", i, lengths[i]);
}

template <class T>
void mask(const MaskArgs& a, In<T> x, In<int32_t> values, Out<T> y, Call& call) {
  const Layout l = layout_of(a, call.in(0).shape());
  const Mode mode = mode_of(a.mode);
  if (mode == Mode::sequence) check_lengths(values);
  if (y.empty()) return;
  const T masked = a.grad ? T(0) : static_cast<T>(a.fill_val);
  const int64_t row_size = l.columns * l.repeats;
  parallel_for(l.matrices * l.rows, 2 + 0.2 * static_cast<double>(row_size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const Kept kept = kept_columns(mode, a.radius, values, r % l.rows, l.columns);
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
  return op<MaskArgs>("SequenceMask")
      .doc("Puts one value in place of what lies behind a length, outside of a window, or beside a diagonal.")
      .required_arg("mode", &MaskArgs::mode, "what is masked: sequence, window, upper, lower, upperdiag, lowerdiag",
                    one_of({"sequence", "window", "upper", "lower", "upperdiag", "lowerdiag"}))
      .arg("axis", &MaskArgs::axis, int64_t{1}, "the first dimension that is columns; those before it are rows")
      .arg("radius", &MaskArgs::radius, int64_t{10}, "mode window: how far from the centre is kept")
      .arg("batch", &MaskArgs::batch, {}, "dimensions up to this one are no rows: each index has a matrix of its own")
      .arg("repeat_from_axis", &MaskArgs::repeat_from_axis, {},
           "mode sequence: dimensions from this one on are no columns but masked together")
      .arg("fill_val", &MaskArgs::fill_val, -std::numeric_limits<float>::infinity(), "what stands in masked places")
      .arg("grad", &MaskArgs::grad, false, "masked places are 0, whatever fill_val says")
      .input("input", "one dimension or more")
      .input("sequence_lengths", "modes sequence and window: the length, or the centre, of each row")
      .types({DType::int32})
      .optional()
      .output("masked_tensor", "as the input")
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
