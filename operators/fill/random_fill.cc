// GaussianFill, XavierFill and MSRAFill: random float and double tensors. No derivatives: the results do not depend on
// any input's values.
#include "operators/fill/random_fill.h"

#include <cmath>

#include "core/compute/threads.h"
#include "stepnet/random.h"

namespace stepnet {

DType RandomFillArgs::element_type() const {
  const DType type = dtype_from_number(dtype);
  require(type == DType::float32 || type == DType::float64, "argument \"dtype\" must be float or double, but is {}",
          dtype_name(type));
  return type;
}

double xavier_limit(const Shape& shape) { return std::sqrt(3 / static_cast<double>(shape.size() / shape[0])); }
double msra_deviation(const Shape& shape) { return std::sqrt(2 / static_cast<double>(shape.size() / shape[1])); }

namespace {

template <class T, class Draw>
void fill(Tensor& y, double nanoseconds, const Draw& draw) {
  const Out<T> out = y.span<T>();
  parallel_for(y.size(), nanoseconds, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(draw(static_cast<uint64_t>(i)));
  });
}

template <class Draw>
void fill_any(Tensor& y, double nanoseconds, const Draw& draw) {
  if (y.dtype() == DType::float64) return fill<double>(y, nanoseconds, draw);
  fill<float>(y, nanoseconds, draw);
}

}  // namespace

void fill_normal(uint64_t key, double mean, double std, Tensor& y) {
  fill_any(y, 50, [=](uint64_t i) { return mean + std * random_normal(key, i); });
}

void fill_centred(uint64_t key, double limit, Tensor& y) {
  fill_any(y, 15, [=](uint64_t i) { return limit * (2 * random_uniform(key, i) - 1); });
}

namespace {

// GaussianFill: Y[i] normal with the given mean and standard deviation.
void gaussian_shape(const GaussianArgs& args, ShapeCall& call) {
  if (const auto shape = fill_shape(args, call)) call.set(0, args.element_type(), *shape);
}

void gaussian_fill(const GaussianArgs& args, Call& call) {
  fill_normal(call.random_key, args.mean, args.std, call.out(0));
}

REGISTER(gaussian_fill) {
  auto spec = op<GaussianArgs>("GaussianFill");
  return declare_random_fill(spec)
      .doc("Random numbers of the normal distribution.")
      .arg("mean", &GaussianArgs::mean, 0.0f, "the mean")
      .arg("std", &GaussianArgs::std, 1.0f, "the standard deviation", float_at_least(0))
      .shape(gaussian_shape)
      .example({}, {"shape=2,3"})
      .example({"input=2,3"})
      .example({"input=int64,2:2,3"}, {"input_as_shape=1", "extra_shape=2"})
      .example({}, {"shape=2,3", "mean=2", "std=0.5"})
      .cpu(gaussian_fill);
}

// XavierFill: Y[i] uniform in [-a, a), a = sqrt(3 / fan_in), fan_in = elements per first index, so that Y X has the
// variance of X (Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks",
// by the fan-in alone).
void xavier_shape(const RandomFillArgs& args, ShapeCall& call) {
  const auto shape = fill_shape(args, call);
  if (!shape) return;
  require(shape->rank() >= 1, "XavierFill needs at least one dimension, but the shape is {}", shape->str());
  call.set(0, args.element_type(), *shape);
}

void xavier_fill(const RandomFillArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() > 0) fill_centred(call.random_key, xavier_limit(y.shape()), y);
}

REGISTER(xavier_fill) {
  auto spec = op<RandomFillArgs>("XavierFill");
  return declare_random_fill(spec)
      .doc("Initial weights, uniform in +-sqrt(3 / fan_in), where fan_in is the size over the first dimension.")
      .shape(xavier_shape)
      .example({}, {"shape=2,3"})
      .example({"input=2,3"})
      .cpu(xavier_fill);
}

// MSRAFill: Y[i] normal with mean 0 and standard deviation sqrt(2 / fan_out), fan_out = size / second dimension
// (He et al. 2015, "Delving deep into rectifiers").
void msra_shape(const RandomFillArgs& args, ShapeCall& call) {
  const auto shape = fill_shape(args, call);
  if (!shape) return;
  require(shape->rank() >= 2, "MSRAFill needs at least two dimensions, but the shape is {}", shape->str());
  call.set(0, args.element_type(), *shape);
}

void msra_fill(const RandomFillArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() > 0) fill_normal(call.random_key, 0, msra_deviation(y.shape()), y);
}

REGISTER(msra_fill) {
  auto spec = op<RandomFillArgs>("MSRAFill");
  return declare_random_fill(spec)
      .doc(
          "Initial weights, normal with deviation sqrt(2 / fan_out), where fan_out is the size over the second "
          "dimension.")
      .shape(msra_shape)
      .example({}, {"shape=2,3"})
      .example({"input=2,3"})
      .cpu(msra_fill);
}

}  // namespace
}  // namespace stepnet
