// DType and Shape: the type of a tensor's elements and its dimensions.
//
// Threads: value types and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace stepnet {

// Numbers are those of TensorProto.DataType, so a conversion is a cast. bfloat16, which that lacks, has ONNX's.
enum class DType : int8_t {
  undefined = 0,
  float32 = 1,
  int32 = 2,
  string = 4,
  boolean = 5,
  uint8 = 6,
  int8 = 7,
  uint16 = 8,
  int16 = 9,
  int64 = 10,
  float16 = 12,
  float64 = 13,
  bfloat16 = 16,
};

std::string_view dtype_name(DType dtype);      // "float", "double", "int32", ...
size_t dtype_size(DType dtype);                // bytes of an element; of a string, its in-memory object
DType dtype_from_number(int64_t number);       // throws Error on a number that is no type
DType dtype_from_name(std::string_view name);  // by the format's names ("FLOAT", "bool"), any case
constexpr bool is_floating(DType d) {
  return d == DType::float32 || d == DType::float64 || d == DType::float16 || d == DType::bfloat16;
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::float32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::float64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::int32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::int64;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::boolean;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::uint8;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::int8;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return DType::uint16;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return DType::int16;
}
template <>
constexpr DType dtype_of<std::string>() {
  return DType::string;
}

// At most 8 dimensions, held in place: copying a Shape allocates nothing. No dimensions is a scalar of one element.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);  // throws Error on a negative size, overflow, or more than 8 of them

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t at(int i) const;  // i may be negative, from the end; throws Error out of range
  void set(int i, int64_t size) { dims_[i] = size; }
  int64_t size() const;  // number of elements
  int64_t size_between(int begin, int end) const;
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  Shape with(int i, int64_t size) const;  // the same with dimension i replaced
  Shape from(int first) const;            // dimensions first..end
  Shape prepend(int64_t size) const;
  void push_back(int64_t size);
  bool operator==(const Shape& other) const;
  std::string str() const;  // "[2, 3]"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Bytes of so many elements; throws Error if 64 bits cannot count them.
int64_t byte_size(DType dtype, const Shape& shape);

// Turns an axis that may be negative into 0..rank-1 (or ..rank if `end_allowed`); throws Error naming both.
int canonical_axis(int64_t axis, int rank, bool end_allowed = false);

// Calls fn(T{}) with the type of numeric or bool elements; false, and no call, if they are of another type.
template <class Fn>
bool with_type(DType type, const Fn& fn) {
  switch (type) {
    case DType::float32:
      return fn(float{}), true;
    case DType::float64:
      return fn(double{}), true;
    case DType::int32:
      return fn(int32_t{}), true;
    case DType::int64:
      return fn(int64_t{}), true;
    case DType::boolean:
      return fn(bool{}), true;
    case DType::uint8:
      return fn(uint8_t{}), true;
    case DType::int8:
      return fn(int8_t{}), true;
    case DType::uint16:
      return fn(uint16_t{}), true;
    case DType::int16:
      return fn(int16_t{}), true;
    default:
      return false;
  }
}

}  // namespace stepnet
