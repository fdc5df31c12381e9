// FCSoftmaxWithLoss: the loss that SoftmaxWithLoss gives an FC's output, without that output:
//   S = X W^T + b,  loss = scale * sum(w[n] l[n]) / sum(w),  l[n] = log(sum(exp(S[n]))) - S[n, T[n]].
// Scores exist for a block of rows at a time. The gradients of the loss, for a dloss of 1, are outputs: a block's
// scores become their own gradient in place, and are multiplied into dX, and into the sums dW and db, while they are
// there. So nothing is computed twice, and the gradients are what waits for the backward pass: some rows of X's width,
// and a W.
//
// FCSoftmaxWithLossGradient multiplies what was left by dloss, in place, and returns at once if that is 1.
//
// A block has as many rows as its scores have room for in kBlockBytes, and at least kLeastRows: with fewer, reading W
// and adding to dW are what products take their time for. Sums over rows are in one order for a given number of rows.

#include <algorithm>

#include "core/operator/flops.h"
#include "core/operator/program_gradients.h"
#include "operators/loops/composing.h"
#include "operators/loops/sum_rows.h"
#include "operators/loss/softmax_loss.h"
#include "operators/loss/softmax_row.h"
#include "stepnet/matmul.h"

namespace stepnet::cpu_fc_softmax_with_loss {
namespace {

constexpr const char* kType = "FCSoftmaxWithLoss";
constexpr int kX = 0, kW = 1, kT = 2, kB = 3, kWeights = 4;
constexpr int kLoss = 0, kDx = 1, kDw = 2, kDb = 3;

struct BlockLossArgs {
  int32_t axis = 1, axis_w = 1;
  float scale = 1;
  int64_t block_rows = 0;
};

constexpr int64_t kBlockBytes = int64_t{8} << 20;
constexpr int64_t kLeastRows = 192;

// X is [m, k], W [n, k]; blocks have `rows` rows, the last one maybe fewer.
struct BlockSizes {
  int64_t m = 0, n = 0, k = 0, rows = 0;

  int64_t scores() const { return m * n; }
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

// Of blocks of about the same size.
int64_t rows_of_block(const BlockLossArgs& a, int64_t m, int64_t n, int64_t element) {
  const int64_t wanted =
      a.block_rows > 0 ? a.block_rows : std::max(kLeastRows, kBlockBytes / std::max<int64_t>(n * element, 1));
  const int64_t most = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(m, 1));
  if (a.block_rows > 0 || m == 0) return most;
  const int64_t blocks = (m + most - 1) / most;
  return (m + blocks - 1) / blocks;
}

BlockSizes sizes_of(const BlockLossArgs& a, const Shape& x, const Shape& w, DType type) {
  const int axis = canonical_axis(a.axis, x.rank()), axis_w = canonical_axis(a.axis_w, w.rank());
  BlockSizes s{.m = x.size_between(0, axis), .n = w.size_between(0, axis_w), .k = x.size_between(axis, x.rank())};
  const int64_t taken = w.size_between(axis_w, w.rank());
  require(s.k == taken, "X {} has rows of {} values from axis {} on, but W {} takes rows of {}", x, s.k, axis, w,
          taken);
  s.rows = rows_of_block(a, s.m, s.n, static_cast<int64_t>(dtype_size(type)));
  return s;
}

BlockSizes sizes_of(const BlockLossArgs& a, const Call& c) {
  return sizes_of(a, c.in(kX).shape(), c.in(kW).shape(), c.in(kX).dtype());
}

void infer(const BlockLossArgs& a, ShapeCall& c) {
  if (!c.known(kX) || !c.known(kW)) return;
  const BlockSizes s = sizes_of(a, c.shape(kX), c.shape(kW), c.dtype(kX));
  check_targets({}, c, Shape{s.m, s.n}, c.dtype(kX), kT, c.has(kWeights) ? kWeights : -1);
  if (c.known(kB))
    require(c.shape(kB) == Shape{s.n}, "b is {}, but W {} gives {} outputs, so b must be [{}]", c.shape(kB),
            c.shape(kW), s.n, s.n);
  c.set(kLoss, c.dtype(kX), Shape{});
  c.set_like(kDx, kX);
  c.set_like(kDw, kW);
  c.set(kDb, c.dtype(kX), Shape{s.n});
}

// What is read and written, by the first elements; null where it is left out.
template <class T>
struct BlockMatrices {
  const T *x, *w, *b;
  T *dx, *dw;
};

// The products of a block of rows, whose first is `first`. Of a dry run no matrix has elements, so `first` is 0.
template <class T>
struct BlockProducts {
  BlockSizes s;
  BlockMatrices<T> of;
  WeightPacks* packs;

  void scores(int64_t first, int64_t rows, T* scores) const {
    matmul(false, true, rows, s.n, s.k, of.x + first * s.k, of.w, scores, false, packs, of.b);
  }
  void gradients(int64_t first, int64_t rows, bool accumulate, const T* ds) const {
    if (of.dx) matmul(false, false, rows, s.k, s.n, ds, of.w, of.dx + first * s.k, false, packs);
    if (of.dw) matmul(true, false, s.n, s.k, rows, ds, of.x + first * s.k, of.dw, accumulate);
  }
};

template <class T>
BlockProducts<T> products_of(const BlockLossArgs& a, In<T> x, In<T> w, In<T> b, Out<T> dx, Out<T> dw, Call& call) {
  return {sizes_of(a, call),
          {x.data(), w.data(), b.data(), call.wants(kDx) ? dx.data() : nullptr, call.wants(kDw) ? dw.data() : nullptr},
          call.run.packs};
}

template <class T>
Tensor room_for_block(const BlockSizes& s) {
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::empty(dtype_of<T>(), {s.rows * s.n});
}

// Calls fn(first, rows) for each block, and once for no rows, so that sums of none are 0.
template <class Fn>
void each_block(const BlockSizes& s, Fn fn) {
  int64_t first = 0;
  do {
    fn(first, std::min(s.rows, s.m - first));
    first += s.rows;
  } while (first < s.m);
}

// The loss of one row, whose scores become the exponentials of what they are below the largest, times `factor` over
// their sum, less `factor` at the label.
template <class T>
double row_loss(int64_t size, int64_t label, T factor, bool gradients, T* s) {
  const Out<T> row(s, static_cast<size_t>(size));
  const T most = vec_max(In<T>(row)), own = s[label];
  subtract_from_row(size, s, most, s);
  vec_exp(In<T>(row), row);
  const double sum = vec_sum(In<T>(row));
  if (gradients) {
    multiply_row(size, static_cast<T>(static_cast<double>(factor) / sum), s, s);
    s[label] -= factor;
  }
  return static_cast<double>(most) + std::log(sum) - static_cast<double>(own);
}

template <class T>
void forward(const BlockLossArgs& a, In<T> x, In<T> w, const Tensor& target, In<T> b, In<T> weights, Out<T> loss,
             Out<T> dx, Out<T> dw, Out<T> db, Call& call) {
  const BlockProducts<T> products = products_of<T>(a, x, w, b, dx, dw, call);
  const BlockSizes& s = products.s;
  require(s.n > 0 || s.m == 0, "W {} gives no classes", call.in(kW).shape());
  const LossTargets<T> targets({}, {s.m, s.n, 1}, target, weights);
  const bool gradients = call.wants(kDx) || call.wants(kDw) || call.wants(kDb);
  const double total = targets.weight_sum(), scale = static_cast<double>(a.scale);
  const double unit = total != 0 ? scale / total : 0;
  Tensor room = room_for_block<T>(s);
  T* const scores = room.span<T>().data();
  double sum = 0;
  each_block(s, [&](int64_t first, int64_t rows) {
    products.scores(first, rows, scores);
    const auto losses = thread_buffer<double>(ThreadBuffer::lines, static_cast<size_t>(rows));
    parallel_for(rows, 2.0 + 2.0 * static_cast<double>(s.n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        losses[i] = row_loss(s.n, targets.label(first + i), static_cast<T>(unit * targets.weight(first + i)), gradients,
                             scores + i * s.n);
    });
    for (int64_t i = 0; i < rows; ++i) sum += targets.weight(first + i) * losses[i];
    if (call.wants(kDb)) sum_rows(rows, s.n, scores, db.data(), first > 0);
    products.gradients(first, rows, first > 0, scores);
  });
  if (call.wants(kLoss)) loss[0] = static_cast<T>(total != 0 ? scale * (sum / total) : 0);
}

template <class T>
void workspace(const BlockLossArgs& a, In<T> x, In<T> w, const Tensor&, In<T> b, In<T>, Out<T>, Out<T> dx, Out<T> dw,
               Out<T>, Call& call) {
  const BlockProducts<T> products = products_of<T>(a, x, w, b, dx, dw, call);
  Tensor room = room_for_block<T>(products.s);
  T* const scores = room.span<T>().data();
  each_block(products.s, [&](int64_t first, int64_t rows) {
    products.scores(0, rows, scores);
    products.gradients(0, rows, first > 0, scores);
  });
}

// Of a class, of a row, and of the mean over rows, beside the products.
double flops(const BlockLossArgs& a, const ShapeCall& c) {
  if (!c.known(kX) || !c.known(kW)) return 0;
  const BlockSizes s = sizes_of(a, c.shape(kX), c.shape(kW), c.dtype(kX));
  const bool weighted = c.has(kWeights), gradients = c.wants(kDx) || c.wants(kDw) || c.wants(kDb);
  const auto each = static_cast<double>(3 + int{c.has(kB)} + int{gradients} + int{c.wants(kDb)});
  const auto row = static_cast<double>(4 + 2 * int{weighted} + (gradients ? 2 + int{weighted} : 0));
  return s.flops() * (1 + int{c.wants(kDx)} + int{c.wants(kDw)}) + each * static_cast<double>(s.scores()) +
         row * static_cast<double>(s.m) + (gradients ? 3 : 2);
}

std::vector<Argument> fc_args(const BlockLossArgs& a) {
  return {make_arg("axis", a.axis), make_arg("axis_w", a.axis_w)};
}

std::vector<Value> body(Formula& f) {
  const auto& a = f.args<BlockLossArgs>();
  const Value x = f.x("X"), w = f.x("W"), t = f.x("T");
  const Value b = f.has_x("b") ? f.x("b") : Value(), weights = f.has_x("weights") ? f.x("weights") : Value();
  const std::vector<Argument> loss_args = {make_arg("axis", -1), make_arg("scale", a.scale)};
  const Value scores = f.op("FC", {x, w, b}, fc_args(a));
  const std::vector<Value> made = f.ops("SoftmaxWithLoss", {scores, t, weights}, loss_args, {true, true});
  std::vector<Value> inputs = {scores, t, made[0], composing::fill(f, made[1], 1)};
  if (weights.defined()) inputs.insert(inputs.begin() + 2, weights);
  const Value ds = f.same_shape(f.op("SoftmaxWithLossGradient", inputs, loss_args), scores);
  const std::vector<Value> d = f.ops("FCGradient", {x, w, ds}, fc_args(a), {true, true, true});
  return {made[1], f.same_shape(d[2], x), f.same_shape(d[0], w), d[1]};
}

// For a dloss of 1: what the operator has left, or, where it has not, is to be made.
std::vector<Value> unit_gradients(Formula& f, const std::vector<bool>& wanted) {
  const auto is_there = [&](int o) { return f.def().output_size() > o && !f.def().output(o).empty(); };
  std::vector<Value> units(wanted.size());
  std::vector<bool> missing = {false};
  const char* const names[] = {"dX", "dW", "db"};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool left = is_there(kDx + static_cast<int>(i));
    if (wanted[i] && left) units[i] = f.y(names[i]);
    missing.push_back(wanted[i] && !left);
  }
  if (std::ranges::none_of(missing, [](bool m) { return m; })) return units;
  std::vector<Value> inputs;
  for (const char* name : {"X", "W", "T", "b", "weights"}) inputs.push_back(f.has_x(name) ? f.x(name) : Value());
  const std::vector<Value> made = f.ops(kType, inputs, f.forward_args(), missing);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (missing[i + 1]) units[i] = made[i + 1];
  return units;
}

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<bool> wanted = {f.wants("X"), f.wants("W"), f.has_x("b") && f.wants("b")};
  std::vector<Value> d(wanted.size());
  if (f.has_dy("loss")) {
    std::vector<Value> inputs = {f.dy("loss")};
    const std::vector<Value> units = unit_gradients(f, wanted);
    inputs.insert(inputs.end(), units.begin(), units.end());
    d = f.ops("FCSoftmaxWithLossGradient", inputs, {}, wanted);
  }
  if (!f.has_dy("dX") && !f.has_dy("dW") && !f.has_dy("db")) return {d[0], d[1], d[2]};
  // Apart from the loss's: what is read of outputs and inputs then grows with the gradients that there are.
  std::vector<bool> all(static_cast<size_t>(f.inputs()), false);
  all[kX] = wanted[0], all[kW] = wanted[1];
  if (wanted[2]) all[kB] = true;
  const std::vector<Gradient> of_units = body_gradients(op_spec(kType), f.def(), &f.args<BlockLossArgs>(), f, all, kDx);
  const size_t inputs[] = {kX, kW, kB};
  for (size_t i = 0; i < d.size(); ++i) {
    if (!wanted[i]) continue;
    const Value more = of_units[inputs[i]].dense;
    if (more.defined()) d[i] = d[i].defined() ? f.op("Sum", {d[i], more}) : more;
  }
  return {d[0], d[1], d[2]};
}

REGISTER(fc_softmax_with_loss) {
  auto builder = op<BlockLossArgs>(kType);
  builder.own();
  return builder
      .doc("SoftmaxWithLoss of an FC's output, which is never whole in memory, and the gradients of the loss.")
      .arg("axis", &BlockLossArgs::axis, 1, "X is flattened to a matrix whose rows are the dimensions before this one")
      .arg("axis_w", &BlockLossArgs::axis_w, 1, "the same for W")
      .arg("scale", &BlockLossArgs::scale, 1.0F, "a factor of the loss")
      .arg("block_rows", &BlockLossArgs::block_rows, int64_t{0},
           "rows whose scores exist at a time; 0: as many as take 8 MiB, and at least 192", at_least(0))
      .input("X", "[M, K] after flattening")
      .input("W", "[N, K] after flattening")
      .input("T", "M labels from 0 to N - 1")
      .types({DType::int32, DType::int64})
      .input("b", "[N]")
      .optional()
      .input("weights", "the weight of each row; 1 if left out")
      .optional()
      .output("loss", "a scalar")
      .optional()
      .output("dX", "the gradient of X for a dloss of 1")
      .optional()
      .output("dW", "the gradient of W for a dloss of 1")
      .optional()
      .output("db", "the gradient of b for a dloss of 1")
      .optional()
      .shape(infer)
      .flops(flops)
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .workspace(workspace<float>, workspace<double>)
      .derivatives({"X", "W", "b"}, derivatives)
      .composed(body)
      .example({"X=3,2", "W=4,2", "T=int32,3:2,0,3", "b=4"}, {"scale=0.5", "block_rows=2"})
      .example({"X=2,2,3", "W=4,3", "T=int64,4:2,0,3,3", "b=4", "weights=4,0.5..2"}, {"axis=2", "block_rows=3"})
      .example({"X=1,2", "W=3,2", "T=int32,1:1"})
      .example({"X=0,2", "W=3,2", "T=int32,0", "b=3"});
}

template <class T>
void scale_gradients(const NoArgs&, In<T> dloss, In<T>, In<T>, In<T>, Out<T>, Out<T>, Out<T>, Call& call) {
  constexpr double kNanosecondsPerElement = 0.3;
  const T factor = dloss[0];
  for (int o = 0; o < call.outputs(); ++o) {
    if (!call.wants(o)) continue;
    const In<T> unit = call.in_span<T>(o + 1);
    const Out<T> scaled = call.out_span<T>(o);
    if (factor == T(1) && unit.data() == scaled.data()) continue;
    parallel_for(static_cast<int64_t>(unit.size()), kNanosecondsPerElement, [&](int64_t begin, int64_t end) {
      multiply_row(end - begin, factor, unit.data() + begin, scaled.data() + begin);
    });
  }
}

void infer_scaled(const NoArgs&, ShapeCall& c) {
  if (c.known(0)) require(c.shape(0).size() == 1, "dloss must be one number, but is {}", c.shape(0));
  for (int o = 0; o < c.outputs(); ++o) {
    require(!c.wants(o) || c.has(o + 1), "output {} is that of input {}, which is absent", o, o + 1);
    c.set_like(o, o + 1);
  }
}

double scaled_flops(const NoArgs&, const ShapeCall& c) {
  double sum = 0;
  for (int o = 0; o < c.outputs(); ++o)
    if (c.wants(o)) sum += output_size(c, o);
  return sum;
}

std::vector<Value> scaled_body(Formula& f) {
  const auto scaled = [&](const char* name) {
    return f.has_x(name) ? composing::like_first(f, "Mul", f.x(name), f.x("dloss"), composing::laid_over()) : Value();
  };
  return {scaled("unit_dX"), scaled("unit_dW"), scaled("unit_db")};
}

REGISTER(fc_softmax_with_loss_gradient) {
  auto builder = op<NoArgs>("FCSoftmaxWithLossGradient");
  builder.own();
  return builder.doc("Gradients of FCSoftmaxWithLoss: those that it left, which are for a dloss of 1, times dloss.")
      .input("dloss", "the loss's gradient, one number")
      .input("unit_dX", "FCSoftmaxWithLoss' dX")
      .optional()
      .input("unit_dW", "FCSoftmaxWithLoss' dW")
      .optional()
      .input("unit_db", "FCSoftmaxWithLoss' db")
      .optional()
      .output("dX", "like unit_dX")
      .optional()
      .uses({"dloss", "unit_dX"})
      .output("dW", "like unit_dW")
      .optional()
      .uses({"dloss", "unit_dW"})
      .output("db", "like unit_db")
      .optional()
      .uses({"dloss", "unit_db"})
      .in_place("unit_dX", "dX")
      .in_place("unit_dW", "dW")
      .in_place("unit_db", "db")
      .shape(infer_scaled)
      .flops(scaled_flops)
      .cpu(scale_gradients<float>, scale_gradients<double>)
      .composed(scaled_body)
      .example({"dloss=1", "unit_dX=2,3", "unit_dW=4,3", "unit_db=4"})
      .example({"dloss=1", "unit_dX=0,3", "unit_dW=2,3", "unit_db=2"});
}

}  // namespace
}  // namespace stepnet::cpu_fc_softmax_with_loss
