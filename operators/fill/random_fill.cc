// Random fills of float and double tensors.
#include "operators/fill/random_fill.h"

#include <cmath>

#include "core/compute/threads.h"
#include "core/tensor/random.h"

namespace stepnet {
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

DType RandomFillArgs::element_type() const {
  const DType type = dtype_from_number(dtype);
  require(type == DType::float32 || type == DType::float64, "argument \"dtype\" must be float or double, but is {}",
          dtype_name(type));
  return type;
}

double xavier_limit(const Shape& shape) { return std::sqrt(3 / static_cast<double>(shape.size() / shape[0])); }
double msra_deviation(const Shape& shape) { return std::sqrt(2 / static_cast<double>(shape.size() / shape[1])); }

void fill_normal(uint64_t key, double mean, double std, Tensor& y) {
  fill_any(y, 50, [=](uint64_t i) { return mean + std * random_normal(key, i); });
}

void fill_centred(uint64_t key, double limit, Tensor& y) {
  fill_any(y, 15, [=](uint64_t i) { return limit * (2 * random_uniform(key, i) - 1); });
}

}  // namespace stepnet
