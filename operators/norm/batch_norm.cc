// BatchNorm: with mean and variance of each channel over the batch and all other dimensions,
//   u = (X - mean) inv, inv = 1 / sqrt(variance + epsilon), Y = scale u + bias.
// The running statistics become momentum times themselves, plus 1 - momentum times those of this batch; variances are
// divided by the number of elements m, but SpatialBN's running one, as in the public format, by m - 1 if m is not 1.
// With is_test, mean and variance are est_mean and est_var.
//
// With m elements per channel and sums over them, for a given dY, dmean and dinv:
//   dX = scale inv (dY - sum(dY) / m - u sum(dY u) / m) + dmean / m - dinv inv^2 u / m,
//   dscale = sum(dY u), dbias = sum(dY).
// Backward reads X, scale, saved_mean and saved_inv_std; dscale no scale, and dbias none of them. What comes to
// running_mean and running_var from outside is put into dmean and dinv. With is_test the gradients are formulas over
// other operators. The derivatives of the gradient follow from its formulas.

#include "operators/loops/batch_norm.h"
#include "core/operator/flops.h"
#include "operators/loops/composing.h"

#include <cmath>

namespace stepnet::cpu_batch_norm {
namespace {

constexpr int kTrainOutputs = 5;

void infer(const BatchNormArgs& a, ShapeCall& c) {
  const int expected = a.is_test ? 1 : kTrainOutputs;
  require(c.outputs() == expected, "with is_test: {} it has {}, but here {} outputs", int{a.is_test},
          a.is_test ? "the output Y alone" : "5 outputs", c.outputs());
  if (!c.known(0)) return;
  const Channels channels(a, c.shape(0));
  check_channels(c, 0, channels, {{1, "scale"}, {2, "bias"}, {3, "est_mean"}, {4, "est_var"}});
  require(a.is_test || channels.size() > 0 || channels.count == 0,
          "X {} has no elements in a channel; without is_test: 1 there must be some, as nothing has no mean",
          c.shape(0));
  c.set_like(0, 0);
  for (int i = 1; i < kTrainOutputs; ++i) c.set(i, c.dtype(0), Shape{channels.count});
}

template <bool kUnbiased, class T>
void forward(const BatchNormArgs& a, In<T> x, In<T> scale, In<T> bias, In<T> est_mean, In<T> est_var, Out<T> y,
             Out<T> running_mean, Out<T> running_var, Out<T> saved_mean, Out<T> saved_inv, Call& call) {
  const Channels channels(a, call.in(0).shape());
  const double keep = static_cast<double>(a.momentum), add = static_cast<double>(1.0F - a.momentum);
  const double add_spread = add * running_share(kUnbiased, channels.size());
  channels.each_range(3.0, [&](int64_t begin, int64_t end) {
    PerChannel mean = zeros_for(begin, end), inv = zeros_for(begin, end);
    if (!a.is_test) measure(channels, begin, end, x, mean, inv);
    for (int64_t c = begin; c < end; ++c) {
      double &center = mean[c - begin], &spread = inv[c - begin];
      if (a.is_test) {
        center = static_cast<double>(est_mean[c]), spread = static_cast<double>(est_var[c]);
      } else {
        spread /= static_cast<double>(channels.size());
        running_mean[c] = static_cast<T>(keep * static_cast<double>(est_mean[c]) + add * center);
        running_var[c] = static_cast<T>(keep * static_cast<double>(est_var[c]) + add_spread * spread);
      }
      spread = 1 / std::sqrt(spread + static_cast<double>(a.epsilon));
      if (!saved_mean.empty()) saved_mean[c] = static_cast<T>(center);
      if (!saved_inv.empty()) saved_inv[c] = static_cast<T>(spread);
    }
    normalize(channels, begin, end, x, scale, bias, mean, inv, y);
  });
}

// dbias, which needs dY alone.
template <class T>
void sum_gradients(const Channels& channels, In<T> dy, Out<T> dbias) {
  if (dbias.empty()) return;
  channels.each_range(1.0, [&](int64_t begin, int64_t end) {
    PerChannel sum = zeros_for(begin, end);
    if (!dy.empty())
      channels.each_element(begin, end, [&](int64_t c, int64_t i) { sum[c] += static_cast<double>(dy[i]); });
    for (int64_t c = begin; c < end; ++c) dbias[c] = static_cast<T>(sum[c - begin]);
  });
}

// An empty dY, dmean or dinv is zeros, and an empty output is not wanted. The bytes of an input that no wanted output
// uses may be missing.
template <class T>
void gradient(const BatchNormArgs& a, In<T> x, In<T> scale, In<T> dy, In<T> means, In<T> invs, In<T> dmean, In<T> dinv,
              Out<T> dx, Out<T> dscale, Out<T> dbias, Call& call) {
  const Channels channels(a, call.in(0).shape());
  if (!call.wants(0) && !call.wants(1)) return sum_gradients(channels, dy, dbias);
  const double m = static_cast<double>(channels.size());
  const auto at = [](In<T> values, int64_t i) { return values.empty() ? 0.0 : static_cast<double>(values[i]); };
  const NormalizedX<T> n{x, dy, means, invs};
  channels.each_range(4.0, [&](int64_t begin, int64_t end) {
    PerChannel sum = zeros_for(begin, end), along = zeros_for(begin, end);
    sum_slopes(channels, begin, end, n, sum, along);
    for (int64_t c = begin; c < end; ++c) {
      double &constant = sum[c - begin], &slope = along[c - begin];
      if (!dbias.empty()) dbias[c] = static_cast<T>(constant);
      if (!dscale.empty()) dscale[c] = static_cast<T>(slope);
      if (dx.empty()) continue;
      const double inv = static_cast<double>(invs[c]), factor = static_cast<double>(scale[c]) * inv;
      constant = (at(dmean, c) - factor * constant) / m;
      slope = -(factor * slope + at(dinv, c) * inv * inv) / m;
    }
    if (!dx.empty()) put_slopes(channels, begin, end, n, scale, sum, along, dx);
  });
}

void infer_gradient(const BatchNormArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  const Channels channels(a, c.shape(0));
  if (c.known(2)) require(c.shape(2) == c.shape(0), "dY is {}, but X {}", c.shape(2), c.shape(0));
  check_channels(c, 0, channels, {{1, "scale"}, {3, "mean"}, {4, "inv_std"}, {5, "dmean"}, {6, "dinv_std"}});
  c.set_like(0, 0);
  for (const int i : {1, 2}) c.set(i, c.dtype(0), Shape{channels.count});
}

// What comes to a statistic from outside, directly and through its running one.
Value total(Formula& f, Value saved, Value running) {
  if (!saved.defined() || !running.defined()) return saved.defined() ? saved : running;
  return f.op("Sum", {saved, running});
}

Value scaled(Formula& f, Value x, float factor) { return f.op("Scale", {x}, {make_arg("scale", factor)}); }

// As arguments of broadcasting: a value for each channel is laid over X.
std::vector<Argument> over_channels(const BatchNormArgs& a) {
  std::vector<Argument> args = {make_arg("broadcast", true)};
  if (!a.channels_last()) args.push_back(make_arg("axis", 1));
  return args;
}

bool is_unbiased(const std::string& type) { return type == "SpatialBN"; }

// What comes to SpatialBN's running variance, times m / (m - 1) for the m elements of each channel.
Value with_running_share(Formula& f, Value from_var) {
  using composing::at_least, composing::div, composing::fill, composing::sub;
  const Value scale = f.x("scale"), ones = fill(f, f.x("X"), 1);
  const Value count = f.same_shape(f.op("SumReduceLike", {ones, scale}, over_channels(f.args<BatchNormArgs>())), scale);
  const Value share = div(f, count, at_least(f, sub(f, count, fill(f, scale, 1)), 1));
  return f.op("Mul", {from_var, share});
}

std::vector<Gradient> train_derivatives(Formula& f, const std::string& type) {
  const auto& a = f.args<BatchNormArgs>();
  const auto given = [&f](const char* name) { return f.has_dy(name) ? f.dy(name) : Value(); };
  const Value kept_mean = given("running_mean"), kept_var = given("running_var");
  // What comes to the statistics from outside flows on to X alone.
  const auto for_x = [&f](Value v) { return f.wants("X") ? v : Value(); };
  Value from_mean = for_x(kept_mean), from_var = for_x(kept_var);
  if (from_mean.defined()) from_mean = scaled(f, from_mean, 1.0F - a.momentum);
  if (from_var.defined())  // the variance is inv^-2 - epsilon
    from_var = scaled(f, f.op("Mul", {from_var, f.op("Pow", {f.y("saved_inv_std")}, {make_arg("exponent", -3.0F)})}),
                      -2.0F * (1.0F - a.momentum));
  if (from_var.defined() && is_unbiased(type)) from_var = with_running_share(f, from_var);
  const Value dmean = total(f, for_x(given("saved_mean")), from_mean);
  const Value dinv = total(f, for_x(given("saved_inv_std")), from_var);
  const std::vector<Value> d = f.ops(
      type + "Gradient", {f.x("X"), f.x("scale"), given("Y"), f.y("saved_mean"), f.y("saved_inv_std"), dmean, dinv},
      f.forward_args(), {f.wants("X"), f.wants("scale"), f.wants("bias")});
  Gradient mean, variance;
  if (kept_mean.defined() && f.wants("est_mean")) mean = scaled(f, kept_mean, a.momentum);
  if (kept_var.defined() && f.wants("est_var")) variance = scaled(f, kept_var, a.momentum);
  return {d[0], d[1], d[2], mean, variance};
}

std::vector<Gradient> test_derivatives(Formula& f) {
  const auto& a = f.args<BatchNormArgs>();
  const std::vector<Argument> laid_over = over_channels(a);
  const Value dy = f.dy("Y"), scale = f.x("scale");
  const Value epsilon = f.op("ConstantFill", {f.x("est_var")}, {make_arg("value", a.epsilon)});
  const Value inv = f.op("Pow", {f.op("Add", {f.x("est_var"), epsilon})}, {make_arg("exponent", -0.5F)});
  const Value factor = f.op("Mul", {scale, inv});
  const Value u = f.op("Mul", {f.op("Sub", {f.x("X"), f.x("est_mean")}, laid_over), inv}, laid_over);
  const Value dscale = f.op("SumReduceLike", {f.op("Mul", {dy, u}), scale}, laid_over);
  const Value dbias = f.op("SumReduceLike", {dy, scale}, laid_over);
  const Value by_var = f.op("Mul", {f.op("Mul", {factor, inv}), dscale});
  return {f.op("Mul", {dy, factor}, laid_over), dscale, dbias, f.op("Negative", {f.op("Mul", {factor, dbias})}),
          scaled(f, by_var, -0.5F)};
}

void add_examples(OpBuilder<BatchNormArgs>& b, const std::string& type) {
  const std::string test =
      R"(op { type: ")" + type +
      R"(" input: "X" input: "scale" input: "bias" input: "mean" input: "var" output: "Y" arg { name: "is_test" i: 1 })";
  const std::vector<std::string> parameters = {"scale=3", "bias=3", "mean=3", "var=3,0.5..2"};
  const auto with = [&](const char* x) {
    std::vector<std::string> feeds = parameters;
    feeds.insert(feeds.begin(), x);
    return feeds;
  };
  b.example({"X=4,3", "scale=3", "bias=3", "est_mean=3", "est_var=3,0.5..2"}, {"epsilon=0.1"})
      .example({"X=2,3,2", "scale=3", "bias=3", "est_mean=3", "est_var=3,0.5..2"}, {"epsilon=0.1", "momentum=0.5"})
      .example({"X=2,2,3", "scale=3", "bias=3", "est_mean=3", "est_var=3,0.5..2"}, {"epsilon=0.1", "order=NHWC"})
      .example({"X=2,1", "scale=1", "bias=1", "est_mean=1", "est_var=1,0.5..2"}, {"epsilon=0.1"})
      .example_net(test + "}", with("X=2,3,2"), {"Y"})
      .example_net(test + R"(arg { name: "order" s: "NHWC" }})", with("X=2,2,3"), {"Y"});
}

// By cuDNN: statistics that are not outputs. Without it, in the gradient where only some gradients are asked for or
// come in, two sums.
std::vector<int64_t> gpu_workspace(const BatchNormArgs& a, const Call& c) {
  constexpr int64_t kPair = 2 * sizeof(double);
  if (a.is_test) return {};
  const Channels channels(a, c.in(0).shape());
  if (channels.size() < 2) return {kPair * channels.count};
  return {4 * static_cast<int64_t>(dtype_size(c.in(0).dtype())) * channels.count};
}
std::vector<int64_t> gradient_gpu_workspace(const BatchNormArgs& a, const Call& c) {
  constexpr int64_t kPair = 2 * sizeof(double);
  const Channels channels(a, c.in(0).shape());
  const bool by_library = c.has(2) && !c.has(5) && !c.has(6) && c.wants(0) && channels.size() > 1;
  return {(by_library ? 2 * static_cast<int64_t>(dtype_size(c.in(0).dtype())) : kPair) * channels.count};
}

OpBuilder<BatchNormArgs> batch_norm(const std::string& type) {
  OpBuilder<BatchNormArgs> b(type);
  add_batch_norm_args(b)
      .input("X", "[N, C, ...], or with order NHWC [N, ..., C]; without is_test each channel must have an element")
      .input("scale", "[C]")
      .input("bias", "[C]")
      .input("est_mean", "[C], the running mean; with is_test the mean")
      .input("est_var", "[C], the running variance; with is_test the variance")
      .output("Y", "like X", like("X"))
      .output("running_mean", "est_mean, updated in place; not with is_test, nor any of the following")
      .optional()
      .output("running_var", "est_var, updated in place")
      .optional()
      .output("saved_mean", "[C], of this batch; backward reads it")
      .optional()
      .output("saved_inv_std", "[C], 1 / sqrt(variance + epsilon) of this batch; backward reads it")
      .optional()
      .in_place("X", "Y", {"X", "scale", "est_mean", "est_var"})
      .must_be_in_place("est_mean", "running_mean")
      .must_be_in_place("est_var", "running_var")
      .gpu_workspace(gpu_workspace)
      .shape(infer)
      .flops([](const auto& a, const ShapeCall& c) {
        return input_size(c, 0) * (a.is_test ? 4 : 8) + input_size(c, 1) * (a.is_test ? 3 : 11);
      })
      .precision(Precision::float32)
      .derivatives({"X", "scale", "bias", "est_mean", "est_var"}, [type](Formula& f) {
        return f.args<BatchNormArgs>().is_test ? test_derivatives(f) : train_derivatives(f, type);
      });
  if (is_unbiased(type))
    b.cpu(forward<true, float>, forward<true, double>);
  else
    b.cpu(forward<false, float>, forward<false, double>);
  add_examples(b, type);
  return b;
}

// The statistics count as inputs of their own here; that they are made of X is BatchNorm's derivative to say.
std::vector<Value> gradient_body(Formula& f) {
  using composing::add_given, composing::div, composing::fill, composing::like_first, composing::map, composing::mul,
      composing::negative, composing::sub;
  const auto& a = f.args<BatchNormArgs>();
  const Value x = f.x("X"), scale = f.x("scale"), inv = f.x("inv_std");
  const auto by_channel = [&](const char* type, Value v, Value numbers) {
    return like_first(f, type, v, numbers, over_channels(a));
  };
  const auto sum = [&](Value v) { return f.same_shape(f.op("SumReduceLike", {v, scale}, over_channels(a)), scale); };
  const Value count = sum(fill(f, x, 1)), u = by_channel("Mul", by_channel("Sub", x, f.x("mean")), inv);
  Value dx, dscale, dbias;
  if (f.has_x("dY")) {
    const Value dy = f.x("dY");
    dscale = sum(mul(f, dy, u));
    dbias = sum(dy);
    const Value across = by_channel("Sub", dy, div(f, dbias, count)),
                along = by_channel("Mul", u, div(f, dscale, count));
    dx = by_channel("Mul", sub(f, across, along), mul(f, scale, inv));
  }
  if (f.has_x("dinv_std")) {
    const Value slope = div(f, mul(f, f.x("dinv_std"), map(f, "Sqr", inv)), count);
    dx = add_given(f, dx, negative(f, by_channel("Mul", u, slope)));
  }
  if (f.has_x("dmean")) {
    const Value share = f.op("SumReduceLikeGradient", {x, div(f, f.x("dmean"), count)}, over_channels(a));
    dx = add_given(f, dx, f.same_shape(share, x));
  }
  return {dx, dscale, dbias};
}

OpBuilder<BatchNormArgs> batch_norm_gradient(const std::string& type) {
  OpBuilder<BatchNormArgs> b(type + "Gradient");
  b.doc("Gradients of " + type + " without is_test. An output that is not wanted is left out or \"\".");
  add_batch_norm_args(b)
      .input("X", type + "'s X")
      .input("scale", "its scale")
      .input("dY", "gradient of its Y; zeros if left out")
      .optional()
      .input("mean", "its saved_mean")
      .input("inv_std", "its saved_inv_std")
      .input("dmean", "gradient of its saved_mean; zeros if left out")
      .optional()
      .input("dinv_std", "gradient of its saved_inv_std; zeros if left out")
      .optional()
      .output("dX", "like X")
      .optional()
      .uses({"X", "scale", "dY", "mean", "inv_std", "dmean", "dinv_std"})
      .output("dscale", "[C]")
      .optional()
      .uses({"X", "dY", "mean", "inv_std"})
      .output("dbias", "[C]")
      .optional()
      .uses({"dY"})
      .gpu_workspace(gradient_gpu_workspace)
      .shape(infer_gradient)
      .flops([](const auto&, const ShapeCall& c) {
        if (!c.wants(0) && !c.wants(1)) return input_size(c, 0);
        return input_size(c, 0) * (5 + 4 * int{c.wants(0)}) + input_size(c, 1) * 9 * int{c.wants(0)};
      })
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body);
  return b;
}

REGISTER(batch_norm) {
  return batch_norm("BatchNorm")
      .own()
      .doc(
          "Normalizes each channel by its mean and variance over the batch and all other dimensions, then scales and "
          "shifts it. Variances are divided by the number of elements, also the running ones.");
}
REGISTER(spatial_bn) {
  return batch_norm("SpatialBN")
      .doc(
          "BatchNorm, by its name in the public format. There the running variance gets this batch's divided by one "
          "less than the number of elements, as long as that is not 0.");
}
REGISTER(batch_norm_gradient) { return batch_norm_gradient("BatchNorm").own(); }
REGISTER(spatial_bn_gradient) { return batch_norm_gradient("SpatialBN"); }

}  // namespace
}  // namespace stepnet::cpu_batch_norm
