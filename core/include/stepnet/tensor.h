// Storage and Tensor: typed, shaped views of shared bytes.
//
// A Tensor is a small value: dtype, shape, and a shared Storage with a byte offset. Copying one shares the bytes, so a
// view or an alias is just another tensor. Elements are dense, in row-major order.
// A Storage has one version, shared by all its tensors, that every in-place write raises (`mark_written`).
// Strings are held as std::string objects, on the CPU only.
// In a dry run (core/tensor/dry_device.h) storages have no bytes: copies and fills do nothing, and reading elements is
// an Error.
//
// Threads: a Tensor is a value; concurrent reads of the bytes are fine, writes need the caller's order.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stepnet/device.h"
#include "stepnet/shape.h"

namespace stepnet {

class Storage {
 public:
  Storage(size_t bytes, Device device);                            // uninitialised bytes
  explicit Storage(size_t strings);                                // that many empty strings
  Storage(std::shared_ptr<void> owner, void* data, size_t bytes);  // bytes that somebody else owns, on the CPU
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool readable() const { return readable_; }  // the CPU can read the elements
  bool is_dry() const { return dry_; }
  // Of a dry one of few bytes: whether they are there after all, because they follow from shapes.
  void set_known(bool known);
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void mark_written() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Device device_;
  bool readable_ = true, dry_ = false;
  std::atomic<uint64_t> version_{0};
  std::vector<std::string> strings_;
  std::shared_ptr<void> owner_;
  bool owned_ = true;
};

class Tensor {
 public:
  Tensor() = default;                                                        // undefined
  static Tensor empty(DType dtype, const Shape& shape, Device device = {});  // uninitialised elements
  static Tensor zeros(DType dtype, const Shape& shape, Device device = {});
  // Elements in that storage, from that byte on. The caller guarantees that they fit.
  static Tensor view(const std::shared_ptr<Storage>& storage, size_t offset, DType dtype, const Shape& shape);
  template <class T>
  static Tensor of(const Shape& shape, std::span<const T> values);  // a CPU tensor with these values
  template <class T>
  static Tensor of(const Shape& shape, std::initializer_list<T> values) {
    return of<T>(shape, std::span<const T>(values.begin(), values.size()));
  }
  template <class T>
  static Tensor scalar(T value) {
    return of<T>(Shape{}, {value});
  }

  bool defined() const { return dtype_ != DType::undefined; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t size() const { return shape_.size(); }
  size_t bytes() const { return static_cast<size_t>(size()) * dtype_size(dtype_); }
  Device device() const { return storage_ ? storage_->device() : Device{}; }
  std::string str() const;  // "float[2, 3]"

  // Typed elements; throw Error on another dtype, or on bytes that the CPU cannot reach.
  template <class T>
  T* data() {
    check_access(dtype_of<T>());
    return reinterpret_cast<T*>(raw());
  }
  template <class T>
  const T* data() const {
    check_access(dtype_of<T>());
    return reinterpret_cast<const T*>(raw());
  }
  template <class T>
  std::span<T> span() {
    return {data<T>(), static_cast<size_t>(size())};
  }
  template <class T>
  std::span<const T> span() const {
    return {data<T>(), static_cast<size_t>(size())};
  }
  template <class T>
  T item() const;  // the only element, converted; throws Error unless there is exactly one

  // The bytes, on whatever device; null if there are none.
  std::byte* raw() { return storage_ ? storage_->data() + offset_ : nullptr; }
  const std::byte* raw() const { return storage_ ? storage_->data() + offset_ : nullptr; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  size_t offset() const { return offset_; }
  uint64_t version() const { return storage_ ? storage_->version() : 0; }
  void mark_written() {
    if (storage_) storage_->mark_written();
  }
  bool is_dry() const { return storage_ && storage_->is_dry(); }
  void set_known(bool known) {  // see Storage
    if (is_dry()) storage_->set_known(known);
  }
  bool shares_storage(const Tensor& other) const { return storage_ && storage_ == other.storage_; }

  // Gives this tensor a dtype and shape for writing. Same dtype and number of elements: the bytes stay, so a view stays
  // a view. Otherwise the storage is reused if nobody else holds it and it is large enough, and replaced if not.
  void resize(DType dtype, const Shape& shape, Device device = {});
  // Views. `rows` are of dimension 0; throws Error out of range.
  Tensor rows(int64_t begin, int64_t count) const;
  Tensor row(int64_t index) const;            // dimension 0 dropped
  Tensor reshaped(const Shape& shape) const;  // same number of elements
  // For executors that move views: another place or shape in the same storage. The caller guarantees that it fits.
  void set_offset(size_t bytes) { offset_ = bytes; }
  void set_view(const Shape& shape, size_t offset) {
    shape_ = shape;
    offset_ = offset;
  }
  // A dtype and a shape without bytes.
  void set_type(DType dtype, const Shape& shape) {
    drop_bytes();
    dtype_ = dtype;
    shape_ = shape;
  }

  // Lets go of the bytes and keeps dtype and shape, which are all that a `shape_only` reader needs.
  void drop_bytes() {
    storage_.reset();
    offset_ = 0;
  }

  Tensor clone() const;                  // own storage on the same device
  void copy_from(const Tensor& source);  // resizes, then copies values; devices may differ
  void fill_zero();

 private:
  void check_access(DType dtype) const;
  void refuse_unless_asked() const;
  void copy_known(const Tensor& source);  // both dry, or this one

  DType dtype_ = DType::undefined;
  Shape shape_;
  std::shared_ptr<Storage> storage_;  // shared by all tensors that view it
  size_t offset_ = 0;
};

Tensor copied_to(const Tensor& value, Device device);  // a copy there
Tensor on_device(const Tensor& value, Device device);  // the tensor itself if it is there, else a copy

}  // namespace stepnet
