// SyncBatchNorm and SyncSpatialBN: BatchNorm and SpatialBN (operators/norm/batch_norm.cc) in training, with the mean
// and the variance of all ranks' X. With m_r elements per channel on rank r, their mean mean_r, and the sum of squares
// Q_r of what is left when that is taken off:
//   m = sum(m_r), mean = sum(m_r mean_r) / m, variance = sum(Q_r + m_r (mean_r - mean)^2) / m,
// in two sums over the ranks, so that nothing large is subtracted from something as large.
// Source: T. F. Chan, G. H. Golub and R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample
// variances, 1979.
//
// With L = sum over ranks of their own L, and sums over a rank's elements:
//   dX = scale inv dY + sum over ranks(dmean - scale inv sum(dY)) / m
//        - u sum over ranks(scale inv sum(dY u) + dinv inv^2) / m,
//   dscale = sum(dY u), dbias = sum(dY): those of the rank's own scale and bias.
// A rank whose share is 0 counts nowhere, and its dX is 0: it has something in place of a part of the batch.
//
// What comes to the running statistics from outside has no way to X, and gradients have no derivatives.

#include <cmath>
#include <memory>

#include "operators/collective/collective_call.h"
#include "operators/loops/batch_norm.h"

namespace stepnet::cpu_sync_batch_norm {
namespace {

using collective::cpu_input;
using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::made_output;
using collective::on_world;
using collective::world_of;

enum Input { kWorld, kX, kScale, kBias, kMean, kVariance, kShare };
enum Output { kY, kRunningMean, kRunningVariance, kSavedMean, kSavedInverse, kOutputs };

// Shared with MPI, which may touch them after a failure.
using SumsPtr = std::shared_ptr<PerChannel>;

bool has(const BlobCall& c, int i) { return i < static_cast<int>(c.in.size()) && c.in[i] != nullptr; }
bool wants(const BlobCall& c, int o) { return o < static_cast<int>(c.out.size()) && c.out[o] != nullptr; }

// The input, whose shape must be that, and whose type X's; undefined if it is not there.
Tensor checked_input(const BlobCall& c, int i, const Shape& shape) {
  if (!has(c, i)) return {};
  const Tensor& t = cpu_input(c, i);
  const Tensor& x = cpu_input(c, kX);
  require(t.dtype() == x.dtype() && t.shape() == shape, "\"{}\" is {}, but beside \"{}\", which is {}, it must be {}",
          c.def.input(i), t, c.def.input(kX), x, TensorType::of(x.dtype(), shape).str());
  return t;
}

Tensor checked_x(const BlobCall& c) {
  const Tensor& x = cpu_input(c, kX);
  require(x.dtype() == DType::float32 || x.dtype() == DType::float64, "\"{}\" must be float or double, but is {}",
          c.def.input(kX), x);
  return x;
}

// Whether this rank has a part of the batch.
bool counts(const BlobCall& c, int share) {
  return is_dry() || !has(c, share) || cpu_input(c, share).item<double>() > 0;
}

void add_over_ranks(World& world, const SumsPtr& sums) {
  const PendingPtr pending =
      world.start_allreduce(sums->data(), sums->data(), std::ssize(*sums), DType::float64, ReduceOp::sum);
  pending->hold(sums);
  pending->wait();
}

template <class T>
In<T> values_of(const Tensor& t) {
  return t.defined() ? t.span<T>() : In<T>{};
}
template <class T>
Out<T> room_of(const BlobCall& c, int o) {
  return wants(c, o) ? c.out[o]->tensor().span<T>() : Out<T>{};
}

// Of all ranks.
struct Measured {
  double m = 0;  // elements in a channel
  const double* means = nullptr;
  SumsPtr sums;     // [1 + C], which has these
  SumsPtr squares;  // [C], the sums of squares of what is left when the means are taken off
};

template <class T>
Measured measure_all(World& world, const Channels& channels, In<T> x, bool is_counted) {
  PerChannel mean = zeros_for(0, channels.count), own = mean;
  const double m = is_counted ? static_cast<double>(channels.size()) : 0;
  if (m > 0)
    channels.each_range(3.0, [&](int64_t begin, int64_t end) {
      PerChannel part = zeros_for(begin, end), part_squares = part;
      measure(channels, begin, end, x, part, part_squares);
      std::ranges::copy(part, mean.begin() + begin);
      std::ranges::copy(part_squares, own.begin() + begin);
    });
  const auto size = static_cast<size_t>(channels.count);
  const auto sums = std::make_shared<PerChannel>(1 + size), squares = std::make_shared<PerChannel>(size);
  double* const all = sums->data();
  all[0] = m;
  for (int64_t c = 0; c < channels.count; ++c) all[1 + c] = m * mean[c];
  add_over_ranks(world, sums);
  require(all[0] > 0 || channels.count == 0, "no rank has an element in a channel; nothing has no mean");
  for (int64_t c = 0; c < channels.count; ++c) {
    all[1 + c] /= all[0];
    const double off = mean[c] - all[1 + c];
    (*squares)[c] = own[c] + m * off * off;
  }
  add_over_ranks(world, squares);
  return {all[0], all + 1, sums, squares};
}

// What a run reads.
struct Parts {
  Tensor x, scale, bias, est_mean, est_var;
};

template <class T>
void normalize_by_all(const BatchNormArgs& a, BlobCall& c, const Parts& in, bool unbiased) {
  const Channels channels(a, in.x.shape());
  const Measured all = measure_all<T>(world_of(c), channels, in.x.span<T>(), counts(c, kShare));
  const double keep = static_cast<double>(a.momentum), add = static_cast<double>(1.0F - a.momentum);
  const double add_spread = add * running_share(unbiased, static_cast<int64_t>(all.m));
  const In<T> est_mean = in.est_mean.span<T>(), est_var = in.est_var.span<T>();
  const Out<T> y = room_of<T>(c, kY), running_mean = room_of<T>(c, kRunningMean),
               running_var = room_of<T>(c, kRunningVariance), saved_mean = room_of<T>(c, kSavedMean),
               saved_inv = room_of<T>(c, kSavedInverse);
  channels.each_range(3.0, [&](int64_t begin, int64_t end) {
    const PerChannel mean(all.means + begin, all.means + end);
    PerChannel inv = zeros_for(begin, end);
    for (int64_t k = begin; k < end; ++k) {
      const double center = mean[k - begin], spread = (*all.squares)[k] / all.m;
      running_mean[k] = static_cast<T>(keep * static_cast<double>(est_mean[k]) + add * center);
      running_var[k] = static_cast<T>(keep * static_cast<double>(est_var[k]) + add_spread * spread);
      inv[k - begin] = 1 / std::sqrt(spread + static_cast<double>(a.epsilon));
      if (!saved_mean.empty()) saved_mean[k] = static_cast<T>(center);
      if (!saved_inv.empty()) saved_inv[k] = static_cast<T>(inv[k - begin]);
    }
    if (!y.empty())
      normalize<T>(channels, begin, end, in.x.span<T>(), in.scale.span<T>(), in.bias.span<T>(), mean, inv, y);
  });
}

void forward(const BatchNormArgs& a, BlobCall& c, bool unbiased) {
  require(c.out.size() == size_t{kOutputs}, "it has {} outputs, but there must be {}", c.out.size(), size_t{kOutputs});
  for (const int o : {kRunningMean, kRunningVariance}) require(wants(c, o), "output {} has an empty name", o);
  require(!a.is_test, "is_test is set, but in a test nothing is measured, and there is {} for that",
          unbiased ? "SpatialBN" : "BatchNorm");
  Parts in{.x = checked_x(c), .scale = {}, .bias = {}, .est_mean = {}, .est_var = {}};
  const Shape shape = {Channels(a, in.x.shape()).count};
  in.scale = checked_input(c, kScale, shape);
  in.bias = checked_input(c, kBias, shape);
  in.est_mean = checked_input(c, kMean, shape);
  in.est_var = checked_input(c, kVariance, shape);
  if (has(c, kShare)) cpu_input(c, kShare);
  world_of(c);
  for (int o = 0; o < kOutputs; ++o)
    if (wants(c, o)) made_output(c, o, in.x.dtype(), o == kY ? in.x.shape() : shape);
  if (!is_dry()) {
    if (in.x.dtype() == DType::float64)
      normalize_by_all<double>(a, c, in, unbiased);
    else
      normalize_by_all<float>(a, c, in, unbiased);
  }
  for (int o = 0; o < kOutputs; ++o)
    if (wants(c, o)) c.out[o]->tensor().mark_written();
}

enum GradientInput { kGradientY = 3, kMeans, kInverses, kGradientMean, kGradientInverse, kGradientShare };
enum GradientOutput { kGradientX, kGradientScale, kGradientBias };

// What the gradient reads; undefined where it is zeros.
struct Slopes {
  Tensor x, scale, dy, means, invs, dmean, dinv;
};

template <class T>
void put_gradients(const BatchNormArgs& a, BlobCall& c, const Slopes& in) {
  const Channels channels(a, in.x.shape());
  // [1 + 2 C]: the number of elements in a channel, what all of them get, and what they get for each u, times that
  // number.
  const auto sums = std::make_shared<PerChannel>(1 + 2 * static_cast<size_t>(channels.count));
  const bool is_counted = counts(c, kGradientShare);
  const NormalizedX<T> n{in.x.span<T>(), values_of<T>(in.dy), in.means.span<T>(), in.invs.span<T>()};
  const In<T> scale = in.scale.span<T>(), dmean = values_of<T>(in.dmean), dinv = values_of<T>(in.dinv);
  const Out<T> dscale = room_of<T>(c, kGradientScale), dbias = room_of<T>(c, kGradientBias),
               dx = room_of<T>(c, kGradientX);
  double* const constants = sums->data() + 1;
  double* const slopes = constants + channels.count;
  channels.each_range(2.0, [&](int64_t begin, int64_t end) {
    PerChannel sum = zeros_for(begin, end), along = zeros_for(begin, end);
    sum_slopes(channels, begin, end, n, sum, along);
    for (int64_t k = begin; k < end; ++k) {
      const double inv = static_cast<double>(n.invs[k]), factor = static_cast<double>(scale[k]) * inv;
      const double own = is_counted ? sum[k - begin] : 0, own_along = is_counted ? along[k - begin] : 0;
      if (!dbias.empty()) dbias[k] = static_cast<T>(own);
      if (!dscale.empty()) dscale[k] = static_cast<T>(own_along);
      constants[k] = (dmean.empty() ? 0.0 : static_cast<double>(dmean[k])) - factor * own;
      slopes[k] = -factor * own_along - (dinv.empty() ? 0.0 : static_cast<double>(dinv[k])) * inv * inv;
    }
  });
  if (!wants(c, kGradientX)) return;
  sums->front() = is_counted ? static_cast<double>(channels.size()) : 0;
  add_over_ranks(world_of(c), sums);
  if (!is_counted) {
    std::ranges::fill(dx, T(0));
    return;
  }
  const double m = sums->front();
  channels.each_range(2.0, [&](int64_t begin, int64_t end) {
    PerChannel constant(constants + begin, constants + end), slope(slopes + begin, slopes + end);
    for (PerChannel* values : {&constant, &slope})
      for (double& value : *values) value /= m;
    put_slopes(channels, begin, end, n, scale, constant, slope, dx);
  });
}

void gradient(const BatchNormArgs& a, BlobCall& c) {
  Slopes in{.x = checked_x(c), .scale = {}, .dy = {}, .means = {}, .invs = {}, .dmean = {}, .dinv = {}};
  const Shape shape = {Channels(a, in.x.shape()).count};
  in.scale = checked_input(c, kScale, shape);
  in.dy = checked_input(c, kGradientY, in.x.shape());
  in.means = checked_input(c, kMeans, shape);
  in.invs = checked_input(c, kInverses, shape);
  in.dmean = checked_input(c, kGradientMean, shape);
  in.dinv = checked_input(c, kGradientInverse, shape);
  if (has(c, kGradientShare)) cpu_input(c, kGradientShare);
  world_of(c);
  for (const int o : {kGradientX, kGradientScale, kGradientBias})
    if (wants(c, o)) made_output(c, o, in.x.dtype(), o == kGradientX ? in.x.shape() : shape);
  if (!is_dry()) {
    if (in.x.dtype() == DType::float64)
      put_gradients<double>(a, c, in);
    else
      put_gradients<float>(a, c, in);
  }
  for (const int o : {kGradientX, kGradientScale, kGradientBias})
    if (wants(c, o)) c.out[o]->tensor().mark_written();
}

void infer(const BatchNormArgs& a, ShapeCall& c) {
  if (!c.known(kX)) return;
  const Channels channels(a, c.shape(kX));
  check_channels(c, kX, channels, {{kScale, "scale"}, {kBias, "bias"}, {kMean, "est_mean"}, {kVariance, "est_var"}});
  if (c.outputs() > 0) c.set_like(kY, kX);
  for (int o = 1; o < c.outputs(); ++o) c.set(o, c.dtype(kX), Shape{channels.count});
}

void infer_gradient(const BatchNormArgs& a, ShapeCall& c) {
  if (!c.known(kX)) return;
  const Channels channels(a, c.shape(kX));
  if (c.outputs() > 0) c.set_like(kGradientX, kX);
  for (int o = 1; o < c.outputs(); ++o) c.set(o, c.dtype(kX), Shape{channels.count});
}

std::vector<Gradient> derivatives(Formula& f) {
  for (const char* running : {"running_mean", "running_var"})
    if (f.has_dy(running))
      fail("the loss depends on the output \"{}\"; gradients through the running statistics of all ranks are not made",
           running);
  const auto given = [&f](const char* name) { return f.has_dy(name) ? f.dy(name) : Value(); };
  const std::vector<Value> d =
      f.ops("SyncBatchNormGradient",
            {f.x("comm_world"), f.x("X"), f.x("scale"), given("Y"), f.y("saved_mean"), f.y("saved_inv_std"),
             f.wants("X") ? given("saved_mean") : Value(), f.wants("X") ? given("saved_inv_std") : Value(),
             f.has_x("share") ? f.x("share") : Value()},
            f.forward_args(), {f.wants("X"), f.wants("scale"), f.wants("bias")});
  return {d[0], d[1], d[2], Gradient::none(), Gradient::none()};
}

OpBuilder<BatchNormArgs>& declare_norm(OpBuilder<BatchNormArgs>& builder) {
  add_batch_norm_args(builder);
  return declare(builder)
      .input("X", "[N, C, ...], or with order NHWC [N, ..., C]; ranks may have different N")
      .input("scale", "[C]")
      .input("bias", "[C]")
      .input("est_mean", "[C], the running mean")
      .input("est_var", "[C], the running variance")
      .input("share", "a number; where it is 0 this rank's X does not count, and its gradient is 0")
      .any_type()
      .optional()
      .output("Y", "like X")
      .output("running_mean", "est_mean, updated in place")
      .output("running_var", "est_var, updated in place")
      .output("saved_mean", "[C], of all ranks; backward reads it")
      .output("saved_inv_std", "[C], 1 / sqrt(variance + epsilon) of all ranks; backward reads it")
      .in_place("X", "Y", {"X", "scale"})
      .must_be_in_place("est_mean", "running_mean")
      .must_be_in_place("est_var", "running_var")
      .shape(infer)
      .runs_dry()
      .derivatives({"X", "scale", "bias", "est_mean", "est_var"}, derivatives)
      .derivative("share", [](Formula&) { return Gradient::none(); });
}

std::string example_of(const std::string& type, const std::string& more = "") {
  return on_world("type: '" + type +
                  "' input: 'X' input: 'scale' input: 'bias' input: 'mean' input: 'var' output: 'Y' output: 'mean' "
                  "output: 'var' output: 'saved' output: 'inv' arg { name: 'epsilon' f: 0.1 } " +
                  more);
}
const std::vector<std::string> kExampleFeeds = {"X=2,3,2", "scale=3", "bias=3", "mean=3", "var=3,0.5..2"};

REGISTER(sync_batch_norm) {
  auto builder = op<BatchNormArgs>("SyncBatchNorm");
  builder.doc("BatchNorm in training, by the mean and the variance of what all ranks have.");
  declare_norm(builder)
      .blobs([](const BatchNormArgs& a, BlobCall& c) { forward(a, c, false); })
      .example_net(example_of("SyncBatchNorm"), kExampleFeeds, {"Y"})
      .example_net(example_of("SyncBatchNorm", "arg { name: 'order' s: 'NHWC' }"),
                   {"X=2,2,3", "scale=3", "bias=3", "mean=3", "var=3,0.5..2"}, {"Y"});
  return finish_declaring(builder).own();
}

REGISTER(sync_spatial_bn) {
  auto builder = op<BatchNormArgs>("SyncSpatialBN");
  builder.doc("SpatialBN in training, by the mean and the variance of what all ranks have.");
  declare_norm(builder)
      .blobs([](const BatchNormArgs& a, BlobCall& c) { forward(a, c, true); })
      .example_net(example_of("SyncSpatialBN"), kExampleFeeds, {"Y", "saved", "inv"});
  return finish_declaring(builder).own();
}

REGISTER(sync_batch_norm_gradient) {
  auto builder = op<BatchNormArgs>("SyncBatchNormGradient");
  add_batch_norm_args(
      builder.doc("Gradients of SyncBatchNorm and SyncSpatialBN. An output that is not wanted is left out or \"\"."));
  declare(builder)
      .input("X", "the operator's X")
      .input("scale", "its scale")
      .input("dY", "gradient of its Y; zeros if left out")
      .optional()
      .input("mean", "its saved_mean")
      .input("inv_std", "its saved_inv_std")
      .input("dmean", "gradient of its saved_mean; zeros if left out")
      .optional()
      .input("dinv_std", "gradient of its saved_inv_std; zeros if left out")
      .optional()
      .input("share", "its share")
      .any_type()
      .optional()
      .output("dX", "like X")
      .optional()
      .output("dscale", "[C], of this rank's Y")
      .optional()
      .output("dbias", "[C], of this rank's Y")
      .optional()
      .shape(infer_gradient)
      .blobs(gradient)
      .runs_dry()
      .example_net(on_world("type: 'SyncBatchNormGradient' input: 'X' input: 'scale' input: 'dY' input: 'mean' input: "
                            "'inv' output: 'dX' output: 'dscale' output: 'dbias'"),
                   {"X=2,3,2", "scale=3", "dY=2,3,2", "mean=3", "inv=3,0.5..2"});
  return finish_declaring(builder).own().no_gradient("gradients of batch norm over several ranks have no derivatives");
}

}  // namespace
}  // namespace stepnet::cpu_sync_batch_norm
