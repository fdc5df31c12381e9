#include "core/data/sample_batches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "core/operator/anomaly.h"
#include "stepnet/error.h"
#include "stepnet/half.h"
#include "stepnet/random.h"

namespace stepnet {
namespace {

// A value of the file as one of the blob; false if it is none.
template <class From, class To>
bool convert(From from, To& to) {
  if constexpr (std::is_same_v<To, bool>) {
    to = static_cast<double>(from) != 0;
    return static_cast<double>(from) == 0 || static_cast<double>(from) == 1;
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    to = static_cast<To>(from);  // NOLINT(bugprone-signed-char-misuse): a number, no character
    return std::in_range<To>(static_cast<std::conditional_t<std::is_same_v<From, bool>, int, From>>(from));
  } else if constexpr (std::is_integral_v<To>) {
    const auto value = static_cast<double>(from);
    const bool fits = value >= static_cast<double>(std::numeric_limits<To>::min()) &&
                      value < std::ldexp(1.0, std::numeric_limits<To>::digits) && value == std::floor(value);
    if (fits) to = static_cast<To>(value);
    return fits;
  } else {
    to = static_cast<To>(static_cast<float>(from));
    if constexpr (std::is_same_v<To, double>) to = static_cast<double>(from);
    return std::isfinite(static_cast<double>(to));
  }
}

// Calls fn(T{}) with the type of the elements.
template <class Fn>
void with_value(DType type, const Fn& fn) {
  if (!with_type(type, fn) && !with_half(type, fn)) fail("elements of type {} are no data", dtype_name(type));
}

struct Place {
  int64_t outer = 1, inner = 1;  // elements of a sample before and behind the dimension of samples
};

Place place_of(const FedColumn& fed) {
  Place place;
  for (int d = 0; d < fed.column->shape().rank(); ++d)
    (d < fed.axis ? place.outer : place.inner) *= fed.column->shape()[d];
  return place;
}

template <class From, class To>
bool put_value(const FedColumn& fed, const From* from, int64_t element, To& to) {
  if (fed.mean.empty()) return convert(from[element], to);
  const auto feature = static_cast<size_t>(element) % fed.mean.size();
  return convert((static_cast<double>(from[element]) - fed.mean[feature]) / fed.deviation[feature], to);
}

// Sample `at` of `count` in the blob.
template <class From, class To>
void put(const FedColumn& fed, int64_t sample, const From* from, int64_t at, int64_t count, To* to) {
  const Place place = place_of(fed);
  for (int64_t o = 0; o < place.outer; ++o)
    for (int64_t i = 0; i < place.inner; ++i) {
      const int64_t element = o * place.inner + i;
      if (put_value(fed, from, element, to[(o * count + at) * place.inner + i])) continue;
      throw Error(fmt::format("sample {} of {} has {} at {}, which is no {} value to feed to \"{}\"", sample,
                              fed.column->file(), static_cast<double>(from[element]),
                              index_text(fed.column->shape(), element), dtype_name(fed.dtype), fed.blob));
    }
}

}  // namespace

DType fed_type(DType column) {
  if (is_floating(column)) return DType::float32;
  return column == DType::boolean ? DType::boolean : DType::int32;
}

TensorType fed_type(const FedColumn& fed, int64_t samples) {
  const Shape& sample = fed.column->shape();
  require(fed.axis >= 0 && fed.axis <= sample.rank(),
          "\"{}\" has samples of {}{}, so that they stand along a dimension from 0 to {} of \"{}\", not along {}",
          fed.name, dtype_name(fed.column->dtype()), sample, sample.rank(), fed.blob, fed.axis);
  std::vector<int64_t> dims(sample.begin(), sample.end());
  dims.insert(dims.begin() + fed.axis, samples);
  return TensorType::of(fed.dtype, Shape(dims));
}

void normalize(FedColumn& fed, SampleRange range) {
  const Column& column = *fed.column;
  require(is_floating(fed.dtype), "\"{}\" is fed as {}, but only floating values are normalised", fed.name,
          dtype_name(fed.dtype));
  const Shape& shape = column.shape();
  const auto features = static_cast<size_t>(shape.rank() > 0 ? shape[shape.rank() - 1] : 1);
  std::vector<double> mean(features, 0), squares(features, 0);
  std::vector<std::byte> row(static_cast<size_t>(shape.size()) * dtype_size(column.dtype()));
  const int64_t rows = features > 0 ? shape.size() / static_cast<int64_t>(features) : 0;
  double count = 0;
  for (int64_t sample = range.begin; sample < range.end; ++sample) {
    column.read(sample, row.data());
    with_value(column.dtype(), [&]<class T>(T) {
      const auto* values = reinterpret_cast<const T*>(row.data());
      for (int64_t r = 0; r < rows; ++r) {
        count += 1;
        for (size_t f = 0; f < features; ++f) {
          const double value = static_cast<double>(*values++), distance = value - mean[f];
          mean[f] += distance / count;
          squares[f] += distance * (value - mean[f]);
        }
      }
    });
  }
  for (double& s : squares) s = s > 0 ? std::sqrt(s / count) : 1;
  fed.mean = std::move(mean);
  fed.deviation = std::move(squares);
}

int64_t count_samples(const std::vector<FedColumn>& columns) {
  require(!columns.empty(), "no data are fed to the net");
  const Column& first = *columns.front().column;
  for (const FedColumn& fed : columns)
    require(fed.column->samples() == first.samples(), "{} has {} samples, but {} has {}", fed.column->file(),
            fed.column->samples(), first.file(), first.samples());
  require(first.samples() > 0, "{} has no samples", first.file());
  return first.samples();
}

void read_samples(const std::vector<FedColumn>& columns, const std::vector<int64_t>& samples, Batch& batch,
                  int64_t most) {
  const auto count = static_cast<int64_t>(samples.size());
  std::vector<std::byte> row;
  for (const FedColumn& fed : columns) {
    const TensorType type = fed_type(fed, count);
    Tensor& blob = batch.blobs[fed.blob];
    if (!blob.storage() || blob.storage()->bytes() < static_cast<size_t>(byte_size(type.dtype, type.shape)))
      blob = Tensor::empty(type.dtype, fed_type(fed, std::max(count, most)).shape);
    blob = Tensor::view(blob.storage(), 0, type.dtype, type.shape);
    const Column& column = *fed.column;
    row.resize(static_cast<size_t>(column.shape().size()) * dtype_size(column.dtype()));
    for (int64_t at = 0; at < count; ++at) {
      const int64_t sample = samples[static_cast<size_t>(at)];
      column.read(sample, row.data());
      with_value(column.dtype(), [&]<class From>(From) {
        with_value(type.dtype, [&]<class To>(To) {
          put(fed, sample, reinterpret_cast<const From*>(row.data()), at, count, blob.data<To>());
        });
      });
    }
  }
  batch.starts = true;
}

SampleBatches::SampleBatches(std::vector<FedColumn> columns, SampleRange range, int64_t batch, bool shuffled,
                             uint64_t seed)
    : columns_(std::move(columns)), range_(range), batch_(batch), shuffled_(shuffled), seed_(seed) {
  require(range_.size() > 0, "there are no samples to train on");
  require(batch_ > 0, "a batch needs at least 1 sample, but has {}", batch_);
}

void SampleBatches::draw_order(int64_t epoch) {
  if (drawn_ == epoch) return;
  order_.resize(static_cast<size_t>(range_.size()));
  std::iota(order_.begin(), order_.end(), range_.begin);
  if (shuffled_) {
    const uint64_t key = random_key(seed_, "data", "order", epoch, 0);
    for (int64_t i = range_.size() - 1; i > 0; --i)
      std::swap(order_[static_cast<size_t>(i)],
                order_[static_cast<size_t>(random_int(key, static_cast<uint64_t>(i), 0, i))]);
  }
  drawn_ = epoch;
}

void SampleBatches::next(Batch& batch) {
  draw_order(position_ / batches());
  const int64_t first = position_ % batches() * batch_;
  const int64_t last = std::min(first + batch_, range_.size());
  read_samples(columns_, {order_.begin() + first, order_.begin() + last}, batch, batch_);
  ++position_;
}

void SampleBatches::set_position(int64_t position) {
  require(position >= 0, "the position in the data is {}, but must be at least 0", position);
  position_ = position;
}

}  // namespace stepnet
