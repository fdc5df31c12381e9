#include "stepnet/tensor.h"

#include <algorithm>
#include <cstring>

#include "core/tensor/dry_device.h"
#include "core/tensor/storage_watch.h"
#include "stepnet/error.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

// Strings are not the allocator's, but huge shapes of them are refused as it would.
size_t countable_strings(size_t strings) {
  constexpr size_t kFew = 4096;
  require(strings <= kFew || strings <= static_cast<size_t>(cpu_memory_limit()) / sizeof(std::string),
          "out of memory: {} strings were asked for", strings);
  return strings;
}

}  // namespace

Storage::Storage(size_t bytes, Device device) : bytes_(bytes), device_(device) {
  StorageWatch::made(this);
  if (DryScope* dry = DryScope::now()) {
    owner_ = dry->take(bytes, &data_);
    owned_ = readable_ = false;
    dry_ = true;
    return;
  }
  readable_ = device.kind == DeviceKind::cpu;
  data_ = static_cast<std::byte*>(allocator(device).allocate(bytes));
}

Storage::Storage(size_t strings)
    : bytes_(strings * sizeof(std::string)), strings_(countable_strings(strings)), owned_(false) {
  StorageWatch::made(this);
  data_ = reinterpret_cast<std::byte*>(strings_.data());
}

Storage::Storage(std::shared_ptr<void> owner, void* data, size_t bytes)
    : data_(static_cast<std::byte*>(data)), bytes_(bytes), owner_(std::move(owner)), owned_(false) {
  StorageWatch::made(this);
}

void Storage::set_known(bool known) { readable_ = known && DryScope::has_bytes(data_); }

Storage::~Storage() {
  if (owned_) allocator(device_).release(data_, bytes_);
}

Tensor Tensor::empty(DType dtype, const Shape& shape, Device device) {
  Tensor t;
  t.resize(dtype, shape, device);
  return t;
}

Tensor Tensor::view(const std::shared_ptr<Storage>& storage, size_t offset, DType dtype, const Shape& shape) {
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.storage_ = storage;
  t.offset_ = offset;
  return t;
}

Tensor Tensor::zeros(DType dtype, const Shape& shape, Device device) {
  Tensor t = empty(dtype, shape, device);
  t.fill_zero();
  return t;
}

template <class T>
Tensor Tensor::of(const Shape& shape, std::span<const T> values) {
  require(static_cast<int64_t>(values.size()) == shape.size(), "{} values do not fill shape {}", values.size(), shape);
  Tensor t = empty(dtype_of<T>(), shape);
  if (t.is_dry()) {
    t.storage_->set_known(std::is_integral_v<T>);
    if (!t.storage_->readable()) return t;
  }
  std::copy(values.begin(), values.end(), t.data<T>());
  return t;
}

template <class T>
T Tensor::item() const {
  require(size() == 1, "{} is not a single value", *this);
  switch (dtype_) {
    case DType::float32:
      return static_cast<T>(*data<float>());
    case DType::float64:
      return static_cast<T>(*data<double>());
    case DType::int32:
      return static_cast<T>(*data<int32_t>());
    case DType::int64:
      return static_cast<T>(*data<int64_t>());
    case DType::boolean:
      return static_cast<T>(*data<bool>());
    case DType::uint8:
      return static_cast<T>(*data<uint8_t>());
    case DType::int8:
      return static_cast<T>(*data<int8_t>());
    case DType::uint16:
      return static_cast<T>(*data<uint16_t>());
    case DType::int16:
      return static_cast<T>(*data<int16_t>());
    case DType::float16:
      return static_cast<T>(float{*data<float16>()});
    case DType::bfloat16:
      return static_cast<T>(float{*data<bfloat16>()});
    default:
      fail("{} is not a number", str());
  }
}

std::string Tensor::str() const {
  if (!defined()) return "nothing";
  return fmt::format("{}{}", dtype_name(dtype_), shape_.str());
}

void Tensor::refuse_unless_asked() const {
  if (const DryScope* dry = DryScope::now(); dry && dry->gives_addresses()) return;
  throw Error(fmt::format("the elements of {} are needed, but a dry run has none", str()),
              "what depends on data cannot be known without it");
}

void Tensor::check_access(DType dtype) const {
  if (dtype != dtype_) [[unlikely]] {
    fail("a tensor of {} is needed here, not {}", dtype_name(dtype), str());
  }
  if (storage_ && !storage_->readable()) [[unlikely]] {
    if (storage_->is_dry()) return refuse_unless_asked();
    fail("{} is on {}, where the CPU cannot read it", str(), device().str());
  }
}

void Tensor::resize(DType dtype, const Shape& shape, Device device) {
  if (dtype == dtype_ && shape.size() == size() && storage_ && storage_->device() == device) {
    shape_ = shape;
    return;
  }
  const int64_t bytes = byte_size(dtype, shape);
  const bool plain = dtype != DType::string && dtype_ != DType::string;
  const bool fits = plain && storage_ && storage_.use_count() == 1 && storage_->device() == device &&
                    storage_->bytes() >= static_cast<size_t>(bytes) && offset_ == 0;
  if (!fits) {
    storage_.reset();  // before the new one, so that both are never live at once
    const DryScope::WholeNumbers numbers(dtype == DType::int32 || dtype == DType::int64);
    storage_ = dtype == DType::string ? std::make_shared<Storage>(static_cast<size_t>(shape.size()))
                                      : std::make_shared<Storage>(static_cast<size_t>(bytes), device);
    offset_ = 0;
  }
  dtype_ = dtype;
  shape_ = shape;
}

// Not by require(), here and below: runs in every timestep, and the texts of the messages allocate.
Tensor Tensor::rows(int64_t begin, int64_t count) const {
  if (!(rank() > 0 && begin >= 0 && count >= 0 && begin <= dim(0) - count))
    fail("rows {} to {} are outside of {}", begin, begin + count, str());
  Tensor view = *this;
  view.shape_.set(0, count);
  view.offset_ += static_cast<size_t>(begin * shape_.size_between(1, rank())) * dtype_size(dtype_);
  return view;
}

Tensor Tensor::row(int64_t index) const {
  Tensor view = rows(index, 1);
  view.shape_ = shape_.from(1);
  return view;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  if (shape.size() != size())
    fail("{} cannot be seen as {}: {} elements against {}", *this, shape, size(), shape.size());
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::clone() const {
  Tensor copy;
  copy.copy_from(*this);
  return copy;
}

void Tensor::copy_from(const Tensor& source) {
  if (!source.defined()) {
    *this = Tensor();
    return;
  }
  const Device to = defined() && storage_ ? device() : source.device();
  resize(source.dtype(), source.shape(), to);
  if (is_dry()) return copy_known(source);
  if (source.is_dry()) source.refuse_unless_asked();
  if (dtype_ == DType::string) {
    std::copy_n(source.data<std::string>(), size(), data<std::string>());
  } else if (to.kind == DeviceKind::cpu) {
    allocator(source.device()).copy_to_host(raw(), source.raw(), bytes());
  } else if (source.device().kind == DeviceKind::cpu) {
    allocator(to).copy_from_host(raw(), source.raw(), bytes());
  } else {
    allocator(to).copy_within(raw(), source.raw(), bytes());
  }
}

void Tensor::copy_known(const Tensor& source) {
  const bool whole = storage_->bytes() == bytes();
  storage_->set_known(whole && (!source.storage_ || source.storage_->readable()));
  if (storage_->readable() && bytes() > 0) std::memmove(raw(), source.raw(), bytes());
}

void Tensor::fill_zero() {
  if (is_dry()) return;
  if (dtype_ == DType::string) {
    for (std::string& s : span<std::string>()) s.clear();
  } else {
    allocator(device()).fill_zero(raw(), bytes());
  }
}

template Tensor Tensor::of(const Shape&, std::span<const float>);
template Tensor Tensor::of(const Shape&, std::span<const double>);
template Tensor Tensor::of(const Shape&, std::span<const int32_t>);
template Tensor Tensor::of(const Shape&, std::span<const int64_t>);
template Tensor Tensor::of(const Shape&, std::span<const bool>);
template Tensor Tensor::of(const Shape&, std::span<const uint8_t>);
template Tensor Tensor::of(const Shape&, std::span<const int8_t>);
template Tensor Tensor::of(const Shape&, std::span<const uint16_t>);
template Tensor Tensor::of(const Shape&, std::span<const int16_t>);
template Tensor Tensor::of(const Shape&, std::span<const std::string>);
template float Tensor::item() const;
template double Tensor::item() const;
template int32_t Tensor::item() const;
template int64_t Tensor::item() const;
template bool Tensor::item() const;

Tensor copied_to(const Tensor& value, Device device) {
  Tensor copy = Tensor::empty(value.dtype(), value.shape(), device);
  copy.copy_from(value);
  return copy;
}

Tensor on_device(const Tensor& value, Device device) {
  return value.device() == device ? value : copied_to(value, device);
}

}  // namespace stepnet
