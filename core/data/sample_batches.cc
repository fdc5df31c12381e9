#include "core/data/sample_batches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
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

template <class T>
bool is_missing(T value) {
  return std::isnan(static_cast<double>(value));
}

template <class From, class To>
bool put_value(const FedColumn& fed, const From* from, int64_t element, To& to) {
  if (fed.mean.empty()) return convert(from[element], to);
  const auto feature = static_cast<size_t>(element) % fed.mean.size();
  return convert((static_cast<double>(from[element]) - fed.mean[feature]) / fed.deviation[feature], to);
}

int64_t elements(const Shape& shape, int begin, int end) {
  int64_t product = 1;
  for (int d = begin; d < end; ++d) product *= shape[d];
  return product;
}

// Sample `at` of the blob, whose dimension `axis` counts samples and whose others may be larger than the sample's; it
// and the mask, if there is one, are filled for padding.
template <class From, class To>
void put(const FedColumn& fed, int64_t sample, const From* from, int64_t at, const Shape& blob, To* to, float* mask) {
  const Shape shape = shape_of(*fed.column, sample);
  const int64_t outer = elements(shape, 0, fed.axis), inner = elements(shape, fed.axis, shape.rank());
  const int64_t step = elements(blob, fed.axis + 1, blob.rank()), count = blob[fed.axis];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t element = o * inner + i, place = (o * count + at) * step + i;
      if (mask && is_missing(from[element])) continue;
      if (mask) mask[place] = 1;
      if (put_value(fed, from, element, to[place])) continue;
      throw Error(fmt::format("sample {} of {} has {} at {}, which is no {} value to feed to \"{}\"", sample,
                              fed.column->file(), static_cast<double>(from[element]), index_text(shape, element),
                              dtype_name(fed.dtype), fed.blob),
                  is_missing(from[element])
                      ? "where values may be missing, name a \"mask\" beside the column in the model"
                      : "");
    }
}

// The blob's type for so many samples, whose first dimension is `length` if they vary.
TensorType type_for(const FedColumn& fed, int64_t samples, int64_t length) {
  const Shape& sample = fed.column->shape();
  std::vector<int64_t> dims(sample.begin(), sample.end());
  if (fed.column->varies()) dims[0] = length;
  dims.insert(dims.begin() + fed.axis, samples);
  return TensorType::of(fed.dtype, Shape(dims));
}

int64_t longest_of(const Column& column, const std::vector<int64_t>& samples) {
  int64_t longest = 0;
  for (const int64_t sample : samples) longest = std::max(longest, column.length(sample));
  return longest;
}

// Lets the blob be of the type, in the memory that it has if that is enough, else in memory for the larger type.
Tensor& make_room(Batch& batch, const std::string& name, const TensorType& type, const TensorType& most) {
  Tensor& blob = batch.blobs[name];
  if (!blob.storage() || blob.storage()->bytes() < static_cast<size_t>(byte_size(type.dtype, type.shape)))
    blob = Tensor::empty(type.dtype, most.shape);
  blob = Tensor::view(blob.storage(), 0, type.dtype, type.shape);
  return blob;
}

template <class To>
void fill(const FedColumn& fed, std::span<To> to) {
  To value{};
  require(convert(fed.pad, value), "{} is no {} value to fill \"{}\" with", fed.pad, dtype_name(fed.dtype), fed.blob);
  std::ranges::fill(to, value);
}

void put_lengths(const FedColumn& fed, const std::vector<int64_t>& samples, Batch& batch, int64_t most) {
  if (fed.lengths.empty()) return;
  const auto count = static_cast<int64_t>(samples.size());
  Tensor& blob = make_room(batch, fed.lengths, TensorType::of(DType::int32, {count}),
                           TensorType::of(DType::int32, {std::max(count, most)}));
  for (int64_t at = 0; at < count; ++at)
    blob.data<int32_t>()[at] = static_cast<int32_t>(fed.column->length(samples[static_cast<size_t>(at)]));
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
  return type_for(fed, samples, sample.rank() > 0 ? sample[0] : 1);
}

std::map<std::string, TensorType> fed_types(const std::vector<FedColumn>& columns, int64_t samples) {
  std::map<std::string, TensorType> types;
  for (const FedColumn& fed : columns) {
    const TensorType type = fed_type(fed, samples);
    types[fed.blob] = type;
    if (!fed.lengths.empty()) types[fed.lengths] = TensorType::of(DType::int32, {samples});
    if (!fed.mask.empty()) types[fed.mask] = TensorType::of(DType::float32, type.shape);
  }
  return types;
}

void normalize(FedColumn& fed, SampleRange range) {
  const Column& column = *fed.column;
  require(is_floating(fed.dtype), "\"{}\" is fed as {}, but only floating values are normalised", fed.name,
          dtype_name(fed.dtype));
  const auto features = static_cast<size_t>(features_of(column));
  std::vector<double> mean(features, 0), squares(features, 0);
  std::vector<std::byte> row(sample_bytes(column));
  std::vector<double> count(features, 0);
  for (int64_t i = 0; i < range.size(); ++i) {
    const int64_t sample = range.at(i);
    const int64_t rows = features > 0 ? shape_of(column, sample).size() / static_cast<int64_t>(features) : 0;
    column.read(sample, 1, row.data());
    with_value(column.dtype(), [&]<class T>(T) {
      const auto* values = reinterpret_cast<const T*>(row.data());
      for (int64_t r = 0; r < rows; ++r)
        for (size_t f = 0; f < features; ++f, ++values) {
          if (!fed.mask.empty() && is_missing(*values)) continue;
          const double value = static_cast<double>(*values), distance = value - mean[f];
          mean[f] += distance / ++count[f];
          squares[f] += distance * (value - mean[f]);
        }
    });
  }
  for (size_t f = 0; f < features; ++f) squares[f] = squares[f] > 0 ? std::sqrt(squares[f] / count[f]) : 1;
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
    const Column& column = *fed.column;
    const TensorType type =
        type_for(fed, count, fed.to_longest && column.varies() ? column.shape()[0] : longest_of(column, samples));
    Tensor& blob = make_room(batch, fed.blob, type, fed_type(fed, std::max(count, most)));
    row.resize(sample_bytes(column));
    float* mask = nullptr;
    if (!fed.mask.empty()) {
      const TensorType marks = TensorType::of(DType::float32, type.shape);
      Tensor& tensor =
          make_room(batch, fed.mask, marks, TensorType::of(DType::float32, fed_type(fed, std::max(count, most)).shape));
      std::ranges::fill(tensor.span<float>(), 0.0f);
      mask = tensor.data<float>();
    }
    with_value(column.dtype(), [&]<class From>(From) {
      with_value(type.dtype, [&]<class To>(To) {
        if (column.varies() || mask) fill(fed, blob.span<To>());
        for (int64_t at = 0; at < count; ++at) {
          const int64_t sample = samples[static_cast<size_t>(at)];
          column.read(sample, 1, row.data());
          put(fed, sample, reinterpret_cast<const From*>(row.data()), at, type.shape, blob.data<To>(), mask);
        }
      });
    });
    put_lengths(fed, samples, batch, most);
  }
  batch.samples = count;
  batch.starts = true;
}

std::vector<std::string> sample_order_names() { return {"shuffled", "given", "bucketed", "streams"}; }

SampleOrder sample_order(const std::string& name) {
  if (name == "shuffled") return SampleOrder::shuffled;
  if (name == "given") return SampleOrder::given;
  if (name == "bucketed") return SampleOrder::bucketed;
  if (name == "streams") return SampleOrder::streams;
  const std::vector<std::string> known = sample_order_names();
  fail("samples have no order \"{}\"; there are {}.{}", name, fmt::join(known, ", "), suggest(name, known));
}

SampleBatches::SampleBatches(std::vector<FedColumn> columns, SampleRange range, int64_t batch, SampleOrder order,
                             uint64_t seed, Shard shard)
    : columns_(std::move(columns)), range_(range), batch_(batch), how_(order), seed_(seed), shard_(shard) {
  require(range_.size() > 0, "there are no samples to train on");
  require(batch_ > 0, "a batch needs at least 1 sample, but has {}", batch_);
  require(how_ != SampleOrder::streams || range_.size() >= batch_,
          "a batch goes on in {} streams, but there are {} samples for them", batch_, range_.size());
  if (how_ == SampleOrder::streams && range_.gap() > 0)
    throw Error(fmt::format("samples come in streams, each going on where the one before ended, but samples {} to {} "
                            "between others are left out",
                            range_.gap_begin, range_.gap_end - 1),
                "hold out the first or the last fold");
}

int64_t SampleBatches::batches() const {
  return how_ == SampleOrder::streams ? range_.size() / batch_ : (range_.size() + batch_ - 1) / batch_;
}

void SampleBatches::shuffle(int64_t epoch, std::vector<int64_t>& values, const char* what) const {
  const uint64_t key = random_key(seed_, "data", what, epoch, 0);
  for (auto i = static_cast<int64_t>(values.size()) - 1; i > 0; --i)
    std::swap(values[static_cast<size_t>(i)],
              values[static_cast<size_t>(random_int(key, static_cast<uint64_t>(i), 0, i))]);
}

// Among the samples of some fifty batches those of like length become a batch, and the full batches are shuffled.
void SampleBatches::bring_together(int64_t epoch) {
  constexpr int64_t kBatches = 50;
  const auto length = [&](int64_t sample) {
    int64_t longest = 0;
    for (const FedColumn& fed : columns_)
      if (fed.column->varies()) longest = std::max(longest, fed.column->length(sample));
    return longest;
  };
  const auto count = static_cast<int64_t>(order_.size());
  for (int64_t begin = 0; begin < count; begin += kBatches * batch_) {
    const auto end = order_.begin() + std::min(begin + kBatches * batch_, count);
    std::stable_sort(order_.begin() + begin, end, [&](int64_t a, int64_t b) { return length(a) < length(b); });
  }
  std::vector<int64_t> full(static_cast<size_t>(count / batch_));
  std::iota(full.begin(), full.end(), 0);
  shuffle(epoch, full, "batches");
  const std::vector<int64_t> sorted = order_;
  for (size_t k = 0; k < full.size(); ++k)
    std::copy_n(sorted.begin() + full[k] * batch_, batch_, order_.begin() + static_cast<int64_t>(k) * batch_);
}

void SampleBatches::draw_order(int64_t epoch) {
  if (drawn_ == epoch) return;
  order_.resize(static_cast<size_t>(range_.size()));
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = range_.at(static_cast<int64_t>(i));
  if (how_ == SampleOrder::shuffled || how_ == SampleOrder::bucketed) shuffle(epoch, order_, "order");
  if (how_ == SampleOrder::bucketed) bring_together(epoch);
  if (how_ == SampleOrder::streams) {
    order_.resize(static_cast<size_t>(batches() * batch_));
    for (int64_t k = 0; k < batches(); ++k)
      for (int64_t b = 0; b < batch_; ++b)
        order_[static_cast<size_t>(k * batch_ + b)] = range_.begin + b * batches() + k;
  }
  drawn_ = epoch;
}

void SampleBatches::next(Batch& batch) {
  draw_order(position_ / batches());
  const int64_t first = position_ % batches() * batch_;
  const int64_t last = std::min(first + batch_, static_cast<int64_t>(order_.size()));
  const int64_t begin = shard_.begin(last - first), end = shard_.end(last - first);
  const auto samples = order_.begin() + first + (begin < end ? begin : 0);
  read_samples(columns_, {samples, samples + std::max<int64_t>(end - begin, 1)}, batch,
               (batch_ + shard_.count - 1) / shard_.count);
  batch.share = static_cast<double>(end - begin) / static_cast<double>(last - first);
  batch.starts = how_ != SampleOrder::streams || first == 0;
  ++position_;
}

void SampleBatches::set_position(int64_t position) {
  require(position >= 0, "the position in the data is {}, but must be at least 0", position);
  position_ = position;
}

}  // namespace stepnet
