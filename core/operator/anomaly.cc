#include "core/operator/anomaly.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "stepnet/half.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

bool looks(const RunContext& run) { return run.anomalies && run.anomalies->looks(); }

template <class T>
ValueRange range_of_elements(std::span<const T> values) {
  ValueRange r{.looked = true};
  r.least = std::numeric_limits<double>::infinity();
  r.most = -r.least;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value =
        static_cast<double>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(values[i]));
    const bool nan = std::isnan(value);
    if (!nan) r.least = std::min(r.least, value), r.most = std::max(r.most, value);
    if (std::isfinite(value)) continue;
    if (nan ? !r.nan : r.finite())
      r.first = static_cast<int64_t>(i),
      r.first_value = nan ? std::numeric_limits<double>::quiet_NaN() : value;  // whose sign says nothing
    (nan ? r.nan : r.infinite) = true;
  }
  return r;
}

bool has_elements(const Tensor& t) { return t.defined() && t.size() > 0 && t.storage() && !t.is_dry(); }

const Tensor* tensor_in(const Blob* blob) { return blob && blob->is_tensor() ? &blob->tensor() : nullptr; }

}  // namespace

void AnomalyWatch::after(const BoundOp& op) {
  if (!last_.empty() && std::ranges::count(op.def.output(), last_) > 0) looks_ = false;
}

std::string ValueRange::str() const {
  if (least > most) return nan ? "nan" : "empty";
  return fmt::format("from {:g} to {:g}{}", least, most, nan ? ", and nan" : "");
}

std::string index_text(const Shape& shape, int64_t element) {
  std::vector<int64_t> index(shape.rank());
  for (int d = shape.rank(); d-- > 0; element /= shape[d]) index[d] = element % shape[d];
  return fmt::format("[{}]", fmt::join(index, ", "));
}

ValueRange range_of(const Tensor& tensor) {
  if (!has_elements(tensor)) return {};
  ValueRange range;
  const Tensor here = on_device(tensor, {});
  const auto look = [&](auto zero) { range = range_of_elements(here.span<decltype(zero)>()); };
  if (here.dtype() == DType::float32) look(float{});
  if (here.dtype() == DType::float64) look(double{});
  with_half(here.dtype(), look);
  return range;
}

AnomalyCheck::AnomalyCheck(const BoundOp& op, std::span<const Tensor* const> in, const RunContext& run) {
  if (!looks(run)) return;
  op_ = &op;
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i]) see_input(i, *in[i]);
}

AnomalyCheck::AnomalyCheck(const BoundOp& op, std::span<Blob* const> in, const RunContext& run) {
  if (!looks(run)) return;
  op_ = &op;
  for (size_t i = 0; i < in.size(); ++i)
    if (const Tensor* t = tensor_in(in[i])) see_input(i, *t);
}

void AnomalyCheck::see_input(size_t index, const Tensor& tensor) {
  const ValueRange range = range_of(tensor);
  if (!range.looked) return;
  nan_ = nan_ || range.nan;
  infinite_ = infinite_ || range.infinite;
  inputs_.push_back(fmt::format("{} is {}, {}", op_->def.input(static_cast<int>(index)), tensor.str(), range.str()));
}

void AnomalyCheck::after(std::span<Tensor* const> out) const {
  if (!op_) return;
  for (size_t o = 0; o < out.size(); ++o)
    if (out[o]) see_output(o, *out[o]);
}

void AnomalyCheck::after(std::span<Blob* const> out) const {
  if (!op_) return;
  for (size_t o = 0; o < out.size(); ++o)
    if (const Tensor* t = tensor_in(out[o])) see_output(o, *t);
}

void AnomalyCheck::see_output(size_t index, const Tensor& tensor) const {
  const ValueRange range = range_of(tensor);
  const bool infinity_is_new = range.infinite && !inputs_.empty() && !infinite_ && !nan_;
  if ((range.nan && !nan_) || infinity_is_new) {
    Error error(fmt::format("\"{}\" is {} at {}, though {}{}", op_->def.output(static_cast<int>(index)),
                            range.first_value, index_text(tensor.shape(), range.first),
                            inputs_.empty() ? "nothing floating is read"
                            : infinite_     ? "no input has a nan"
                                            : "all inputs are finite",
                            op_->def.is_gradient_op() ? "; it belongs to the derivative of the operator there" : ""));
    add_op_context(error, *op_, inputs_);
    throw error;
  }
}

}  // namespace stepnet
