// BatchNormSecondGradient: the gradients of BatchNorm's gradient, see batch_norm.cc.
//
// Per channel, with u = (x - mean) inv, sums over its m elements, and h, k and b for the gradients of dX, dscale and
// dbias, the loss is
//   scale inv r + dmean sum(h) / m - dinv inv^2 sum(h u) / m + k sum(dy u) + b sum(dy),
//   r = sum(h dy) - sum(h) sum(dy) / m - sum(h u) sum(dy u) / m.
// So its derivatives are
//   dy: scale inv (h - sum(h) / m - u sum(h u) / m) + k u + b,  scale: inv r,  dmean: sum(h) / m,
//   dinv: -inv^2 sum(h u) / m,  u: -scale inv (h sum(dy u) + dy sum(h u)) / m - dinv inv^2 h / m + k dy =: v, and so
//   x: v inv,  mean: -inv sum(v),  inv: sum(v u) / inv + scale r - 2 dinv inv sum(h u) / m.

#include "operators/norm/batch_norm_second.h"
#include "core/operator/flops.h"
#include "operators/norm/batch_norm.h"

namespace stepnet {
namespace {

using namespace batch_norm_second;

template <class T>
void second_gradient(const BatchNormArgs& a, Call& call) {
  const Channels channels(a, call.in(kX).shape());
  const BatchNormSecond<T> t(
      static_cast<double>(channels.size()), [&](int i) { return call.in_span<T>(i).data(); },
      [&](int o) { return call.out_span<T>(o).data(); });
  channels.each_range(10.0, [&](int64_t begin, int64_t end) {
    std::vector<BatchNormSecondSums> sums(static_cast<size_t>(end - begin));
    channels.each_element(begin, end, [&](int64_t c, int64_t i) { t.add_element(sums[c], begin + c, i); });
    channels.each_element(begin, end, [&](int64_t c, int64_t i) {
      const double v = t.put_element(sums[c], begin + c, i);
      sums[c].v += v;
      sums[c].vu += v * t.u(begin + c, i);
    });
    for (int64_t c = begin; c < end; ++c) t.put_channel(sums[c - begin], c);
  });
}

void infer(const BatchNormArgs& a, ShapeCall& c) {
  if (!c.known(kX)) return;
  const Channels channels(a, c.shape(kX));
  for (const auto& [i, name] : {std::pair{kDy, "dY"}, {kDdx, "ddX"}})
    if (c.known(i)) require(c.shape(i) == c.shape(kX), "{} is {}, but X {}", name, c.shape(i), c.shape(kX));
  check_channels(c, kX, channels,
                 {{kScale, "scale"},
                  {kMean, "mean"},
                  {kInv, "inv_std"},
                  {kDinv, "dinv_std"},
                  {kDdscale, "ddscale"},
                  {kDdbias, "ddbias"}});
  for (const int i : {kXGrad, kDyGrad}) c.set_like(i, kX);
  for (const int i : {kScaleGrad, kMeanGrad, kInvGrad, kDmeanGrad, kDinvGrad})
    c.set(i, c.dtype(kX), Shape{channels.count});
}

std::vector<int64_t> gpu_workspace(const BatchNormArgs& a, const Call& c) {
  return {static_cast<int64_t>(sizeof(BatchNormSecondSums)) * Channels(a, c.in(0).shape()).count};
}

REGISTER(batch_norm_second_gradient) {
  auto builder = op<BatchNormArgs>("BatchNormSecondGradient");
  builder.doc("Gradients of BatchNormGradient and of SpatialBNGradient. An input left out counts as zeros.");
  return add_batch_norm_args(builder)
      .input("X", "BatchNorm's X")
      .input("scale", "its scale")
      .input("dY", "gradient of its Y")
      .optional()
      .input("mean", "its saved_mean")
      .input("inv_std", "its saved_inv_std")
      .input("dinv_std", "gradient of its saved_inv_std")
      .optional()
      .input("ddX", "gradient of BatchNormGradient's dX")
      .optional()
      .input("ddscale", "gradient of its dscale")
      .optional()
      .input("ddbias", "gradient of its dbias")
      .optional()
      .output("X_grad", "like X")
      .optional()
      .output("scale_grad", "[C]")
      .optional()
      .output("dY_grad", "like X")
      .optional()
      .output("mean_grad", "[C]")
      .optional()
      .output("inv_std_grad", "[C]")
      .optional()
      .output("dmean_grad", "[C]")
      .optional()
      .output("dinv_std_grad", "[C]")
      .optional()
      .gpu_workspace(gpu_workspace)
      .shape(infer)
      .flops([](const auto&, const ShapeCall& c) { return 29 * input_size(c, 0) + 22 * input_size(c, 1); })
      .cpu_for<float>(second_gradient<float>)
      .cpu_for<double>(second_gradient<double>)
      .no_gradient("third derivatives of BatchNorm are not written");
}

}  // namespace
}  // namespace stepnet
