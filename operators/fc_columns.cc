// FCColumns: an FC whose rows are some columns of a wider FC's: Y = X W[:, first : first + k]^T + b, with X flattened
// to [M, k] before `axis` and W to [N, K]. An FC of parts laid side by side is the sum of one FCColumns for each part.
//
// dX = dY W[:, window], dW = dY^T X in the window and zero beside it, db = the sum of dY over its M rows. Each reads
// only the values in its formula.
//
// `first` is a number, or follows from the other parts, of which only the shapes are read: with `before` of them in
// front of X, the window begins behind those; with `from_end`, it ends in front of the rest. Parts on the other side
// are there so that all of W's columns can be checked to have a part.

#include "operators/fc_product.h"

namespace stepnet {
namespace {

struct ColumnsArgs {
  int32_t axis = 1;
  int64_t first = 0;
  int64_t before = 0;
  bool from_end = false;
};

int64_t width(const Shape& part, int32_t axis) {
  return part.size_between(canonical_axis(axis, part.rank()), part.rank());
}

// `part(i)` is the shape of part i of the others, of which there are `parts`.
template <class Part>
FcSizes sizes_of(const ColumnsArgs& a, const Shape& x, const Shape& w, int parts, Part part) {
  require(w.rank() >= 1, "W {} has no columns", w);
  const int axis = canonical_axis(a.axis, x.rank());
  FcSizes s{x.size_between(0, axis), w[0], x.size_between(axis, x.rank()), w.size_between(1, w.rank())};
  require(a.before <= parts, "argument \"before\" is {}, but there are {} other parts", a.before, parts);
  require(a.first == 0 || (parts == 0 && !a.from_end),
          "argument \"first\" is {}, but the other parts, or \"from_end\", say already where the columns begin",
          a.first);
  int64_t in_front = a.first, behind = 0;
  for (int i = 0; i < parts; ++i) {
    const Shape& other = part(i);
    require(other.rank() == x.rank(), "X {} and the part {} beside it differ in their number of dimensions", x, other);
    int64_t& side = i < a.before ? in_front : behind;
    require(!__builtin_add_overflow(side, width(other, a.axis), &side), "the parts are too large");
  }
  s.first = a.from_end ? s.columns - s.k - behind : in_front;
  require(s.first >= 0 && s.first <= s.columns && s.k <= s.columns - s.first,
          "X {} takes {} columns of W {} from column {} on, but W has {}", x, s.k, w, s.first, s.columns);
  const bool all = a.from_end ? a.before > 0 : parts > a.before;
  require(!all || in_front + s.k + behind == s.columns,
          "X {} and the parts beside it have rows of {} values from axis {} on, but W {} takes rows of {}", x,
          in_front + s.k + behind, axis, w, s.columns);
  return s;
}

// The other parts follow input 2, which is b or dY.
constexpr int kParts = 3;

bool sizes_known(const ShapeCall& c) {
  bool known = c.known(0) && c.known(1);
  for (int i = kParts; i < c.inputs(); ++i) {
    require(c.has(i), "part {} has an empty name", i - kParts);
    known = known && c.known(i);
  }
  return known;
}

int parts_of(int inputs) { return std::max(inputs - kParts, 0); }

std::optional<FcSizes> sizes_of(const ColumnsArgs& a, const ShapeCall& c) {
  if (!sizes_known(c)) return std::nullopt;
  const auto part = [&](int i) -> const Shape& { return c.shape(kParts + i); };
  return sizes_of(a, c.shape(0), c.shape(1), parts_of(c.inputs()), part);
}

FcSizes sizes_of(const ColumnsArgs& a, const Call& c) {
  const auto part = [&](int i) -> const Shape& { return c.in(kParts + i).shape(); };
  return sizes_of(a, c.in(0).shape(), c.in(1).shape(), parts_of(c.inputs()), part);
}

void declare(OpBuilder<ColumnsArgs>& b) {
  b.arg("axis", &ColumnsArgs::axis, 1, "X is flattened to a matrix whose rows are the dimensions before this one");
  b.arg("first", &ColumnsArgs::first, int64_t{0}, "the first of W's columns that X is multiplied by; not with parts",
        at_least(0));
  b.arg("before", &ColumnsArgs::before, int64_t{0},
        "how many of the parts have the columns before X's; the others follow X's", at_least(0));
  b.arg("from_end", &ColumnsArgs::from_end, false, "columns are counted from W's last one, not from its first");
}

// The gradient is linear in dY and in each of X and W, so its derivatives are FCColumns and its gradient again.
std::vector<Gradient> second_derivatives(Formula& f) {
  const Value dw = f.dy("dW"), db = f.dy("db"), dx = f.dy("dX");
  const auto with_parts = [&f](std::vector<Value> inputs) {
    for (int i = kParts; i < f.inputs(); ++i) inputs.push_back(f.x_at(i));
    return inputs;
  };
  const auto product = [&](Value x, Value w) {
    return f.op("FCColumns", with_parts({x, w, Value()}), f.forward_args());
  };
  const auto gradient = [&](Value x, Value w, const std::vector<bool>& wanted) {
    return f.ops("FCColumnsGradient", with_parts({x, w, f.x("dY")}), f.forward_args(), wanted);
  };
  Gradient x, w, dy;
  if (f.wants("X") && dw.defined()) x = gradient(f.x("X"), dw, {false, false, true})[2];
  if (f.wants("W") && dx.defined()) w = gradient(dx, f.x("W"), {true, false, false})[0];
  if (f.wants("dY")) {
    std::vector<Value> terms;
    if (dx.defined()) terms.push_back(product(dx, f.x("W")));
    if (dw.defined()) terms.push_back(product(f.x("X"), dw));
    if (db.defined()) terms.push_back(f.op("SumReduceLikeGradient", {f.x("dY"), db}));
    dy = terms.size() == 1 ? terms[0] : f.op("Sum", terms);
  }
  return {x, w, dy};
}

REGISTER(fc_columns) {
  auto b = op<ColumnsArgs>("FCColumns");
  declare(b);
  b.doc("Fully connected layer with some columns of the weights: Y = X W[:, first : first + k]^T + b.")
      .input("X", "[M, k] after flattening")
      .input("W", "[N, K]")
      .input("b", "[N]")
      .optional()
      .input("parts", "what the other columns of W are for, in order, flattened as X is; values are not read")
      .optional()
      .shape_only()
      .variadic();
  return declare_fc_output(b)
      .example({"X=2,3", "W=4,5", "b=4"}, {"first=1"})
      .example({"X=2,3", "W=4,6", "b=4", "parts0=2,1", "parts1=2,2"}, {"before=1"})
      .example({"X=2,2,3", "W=4,6", "parts0=2,2,2"}, {"axis=2", "from_end=true"})
      .example({"X=2,0", "W=3,2", "b=3"}, {"first=2"})
      .derivatives({"X", "W", "b"}, [](Formula& f) { return fc_derivatives(f, "FCColumnsGradient"); })
      .variadic_derivative("parts", [](Formula&, int) { return Gradient::none(); });
}

REGISTER(fc_columns_gradient) {
  auto b = op<ColumnsArgs>("FCColumnsGradient");
  declare(b);
  b.doc("Gradients of FCColumns. Outputs that are not wanted are left out or \"\", and cost nothing.")
      .input("X", "FCColumns' X; its values are read for dW only")
      .input("W", "FCColumns' W; its values are read for dX only")
      .input("dY", "gradient of FCColumns' Y")
      .input("parts", "as FCColumns'")
      .optional()
      .shape_only()
      .variadic();
  return declare_fc_gradients(b, "dY^T X in the columns of X, else zero", "dY W[:, first : first + k]")
      .derivatives({"X", "W", "dY"}, second_derivatives)
      .variadic_derivative("parts", [](Formula&, int) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
