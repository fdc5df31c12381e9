// InlineVector: a vector whose first N elements need no allocation, for the few inputs and outputs of an operator.
// Threads: as std::vector.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace stepnet {

// Of a fixed size, which it is made with.
template <class T, size_t N>
class InlineVector {
 public:
  explicit InlineVector(size_t size) : size_(size) {
    if (size_ > N) {
      more_.resize(size_);
      data_ = more_.data();
    } else {
      data_ = std::launder(reinterpret_cast<T*>(bytes_));
      std::uninitialized_value_construct_n(data_, size_);
    }
  }
  ~InlineVector() {
    if (size_ <= N) std::destroy_n(data_, size_);
  }
  InlineVector(const InlineVector&) = delete;
  InlineVector& operator=(const InlineVector&) = delete;

  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  operator std::span<T>() { return {data_, size_}; }
  operator std::span<const T>() const { return {data_, size_}; }

 private:
  alignas(T) std::byte bytes_[N * sizeof(T)];  // NOLINT(bugprone-sizeof-expression): also of pointers
  std::vector<T> more_;
  T* data_;
  size_t size_;
};

}  // namespace stepnet
