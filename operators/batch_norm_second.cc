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

#include "operators/batch_norm.h"
#include "operators/flops.h"

namespace stepnet {
namespace {

constexpr int kX = 0, kScale = 1, kDy = 2, kMean = 3, kInv = 4, kDinv = 5, kDdx = 6, kDdscale = 7, kDdbias = 8;
constexpr int kXGrad = 0, kScaleGrad = 1, kDyGrad = 2, kMeanGrad = 3, kInvGrad = 4, kDmeanGrad = 5, kDinvGrad = 6;

// The inputs, in double. Those that were left out count as zeros.
template <class T>
class Inputs {
 public:
  explicit Inputs(const Call& c) {
    for (int i = 0; i <= kDdbias; ++i) values_[i] = c.has(i) ? c.in(i).data<T>() : nullptr;
  }
  double operator()(int input, int64_t i) const { return values_[input] ? static_cast<double>(values_[input][i]) : 0; }

 private:
  const T* values_[kDdbias + 1];
};

template <class T>
void put(Call& c, int output, int64_t i, double value) {
  if (c.wants(output)) c.out(output).data<T>()[i] = static_cast<T>(value);
}

// The sums of a channel.
struct Sums {
  double h = 0, dy = 0, hu = 0, dyu = 0, hdy = 0;  // of products
  double v = 0, vu = 0;
};

template <class T>
class Range {
 public:
  Range(Call& call, const Channels& channels, int64_t begin, int64_t end)
      : call_(call),
        in_(call),
        channels_(channels),
        begin_(begin),
        end_(end),
        sums_(static_cast<size_t>(end - begin)) {}

  void run() {
    channels_.each_element(begin_, end_, [this](int64_t c, int64_t i) { add_element(sums_[c], begin_ + c, i); });
    channels_.each_element(begin_, end_, [this](int64_t c, int64_t i) { put_element(sums_[c], begin_ + c, i); });
    for (int64_t c = begin_; c < end_; ++c) put_channel(sums_[c - begin_], c);
  }

 private:
  double u(int64_t c, int64_t i) const { return (in_(kX, i) - in_(kMean, c)) * in_(kInv, c); }

  void add_element(Sums& s, int64_t c, int64_t i) const {
    const double h = in_(kDdx, i), dy = in_(kDy, i), here = u(c, i);
    s.h += h;
    s.dy += dy;
    s.hu += h * here;
    s.dyu += dy * here;
    s.hdy += h * dy;
  }

  void put_element(Sums& s, int64_t c, int64_t i) {
    const double h = in_(kDdx, i), dy = in_(kDy, i), here = u(c, i), k = in_(kDdscale, c), inv = in_(kInv, c);
    const double factor = in_(kScale, c) * inv;
    const double v = k * dy - (factor * (h * s.dyu + dy * s.hu) + in_(kDinv, c) * inv * inv * h) / size_;
    s.v += v;
    s.vu += v * here;
    put<T>(call_, kDyGrad, i, factor * (h - (s.h + here * s.hu) / size_) + k * here + in_(kDdbias, c));
    put<T>(call_, kXGrad, i, v * inv);
  }

  void put_channel(const Sums& s, int64_t c) {
    const double inv = in_(kInv, c), r = s.hdy - (s.h * s.dy + s.hu * s.dyu) / size_;
    put<T>(call_, kScaleGrad, c, inv * r);
    put<T>(call_, kMeanGrad, c, -inv * s.v);
    put<T>(call_, kInvGrad, c, s.vu / inv + in_(kScale, c) * r - 2 * in_(kDinv, c) * inv * s.hu / size_);
    put<T>(call_, kDmeanGrad, c, s.h / size_);
    put<T>(call_, kDinvGrad, c, -inv * inv * s.hu / size_);
  }

  Call& call_;
  Inputs<T> in_;
  const Channels& channels_;
  int64_t begin_, end_;
  double size_ = static_cast<double>(channels_.size());
  std::vector<Sums> sums_;
};

template <class T>
void second_gradient(const BatchNormArgs& a, Call& call) {
  const Channels channels(a, call.in(kX).shape());
  channels.each_range(10.0, [&](int64_t begin, int64_t end) { Range<T>(call, channels, begin, end).run(); });
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
      .shape(infer)
      .flops([](const auto&, const ShapeCall& c) { return 29 * input_size(c, 0) + 22 * input_size(c, 1); })
      .cpu_for<float>(second_gradient<float>)
      .cpu_for<double>(second_gradient<double>)
      .no_gradient("third derivatives of BatchNorm are not written");
}

}  // namespace
}  // namespace stepnet
