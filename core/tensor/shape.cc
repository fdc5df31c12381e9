#include "stepnet/shape.h"

#include <algorithm>
#include <string>

#include "stepnet/error.h"

namespace stepnet {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;       // as people read it
  std::string_view file_name;  // as the format spells it
  size_t size;
};

constexpr DTypeInfo kTypes[] = {
    {DType::undefined, "undefined", "UNDEFINED", 0},
    {DType::float32, "float", "FLOAT", 4},
    {DType::int32, "int32", "INT32", 4},
    {DType::string, "string", "STRING", sizeof(std::string)},
    {DType::boolean, "bool", "BOOL", 1},
    {DType::uint8, "uint8", "UINT8", 1},
    {DType::int8, "int8", "INT8", 1},
    {DType::uint16, "uint16", "UINT16", 2},
    {DType::int16, "int16", "INT16", 2},
    {DType::int64, "int64", "INT64", 8},
    {DType::float16, "float16", "FLOAT16", 2},
    {DType::float64, "double", "DOUBLE", 8},
    {DType::bfloat16, "bfloat16", "BFLOAT16", 2},
};

const DTypeInfo& info(DType dtype) {
  for (const DTypeInfo& t : kTypes)
    if (t.dtype == dtype) return t;
  return kTypes[0];
}

}  // namespace

std::string_view dtype_name(DType dtype) { return info(dtype).name; }
size_t dtype_size(DType dtype) { return info(dtype).size; }

DType dtype_from_number(int64_t number) {
  for (const DTypeInfo& t : kTypes)
    if (static_cast<int64_t>(t.dtype) == number && t.dtype != DType::undefined) return t.dtype;
  fail("{} is not the number of a data type", number);
}

DType dtype_from_name(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  std::vector<std::string> names;
  for (const DTypeInfo& t : kTypes) {
    if (t.dtype == DType::undefined) continue;
    if (upper == t.file_name) return t.dtype;
    names.emplace_back(t.file_name);
  }
  fail("\"{}\" is not a data type; there are {}.{}", name, fmt::join(names, ", "), suggest(upper, names));
}

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  require(dims.size() <= kMaxRank, "a tensor has at most {} dimensions, not {}", kMaxRank, dims.size());
  // The product of the sizes that are not 0 must fit, so that no partial product ever overflows.
  int64_t product = 1;
  for (const int64_t d : dims) {
    require(d >= 0, "a dimension of size {} in shape [{}]", d, fmt::join(dims, ", "));
    if (d > 0)
      require(!__builtin_mul_overflow(product, d, &product), "shape [{}] has more elements than 64 bits can count",
              fmt::join(dims, ", "));
    dims_[rank_++] = d;
  }
}

int64_t Shape::at(int i) const { return dims_[canonical_axis(i, rank_)]; }

int64_t Shape::size() const { return size_between(0, rank_); }

int64_t Shape::size_between(int begin, int end) const {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product *= dims_[i];
  return product;
}

Shape Shape::with(int i, int64_t size) const {
  std::array<int64_t, kMaxRank> dims = dims_;
  dims[i] = size;
  return Shape(std::span<const int64_t>(dims.data(), rank_));
}

Shape Shape::from(int first) const { return Shape(dims().subspan(first)); }

Shape Shape::prepend(int64_t size) const {
  require(rank_ < kMaxRank, "a tensor has at most {} dimensions", kMaxRank);
  std::array<int64_t, kMaxRank> dims{};
  dims[0] = size;
  std::copy(begin(), end(), dims.begin() + 1);
  return Shape(std::span<const int64_t>(dims.data(), rank_ + 1));
}

void Shape::push_back(int64_t size) {
  require(rank_ < kMaxRank, "a tensor has at most {} dimensions", kMaxRank);
  std::array<int64_t, kMaxRank> dims = dims_;
  dims[rank_] = size;
  *this = Shape(std::span<const int64_t>(dims.data(), rank_ + 1));
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

int64_t byte_size(DType dtype, const Shape& shape) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.size(), static_cast<int64_t>(dtype_size(dtype)), &bytes))
    fail("{}{} has more bytes than 64 bits can count", dtype_name(dtype), shape);
  return bytes;
}

int canonical_axis(int64_t axis, int rank, bool end_allowed) {
  const int64_t last = end_allowed ? rank : rank - 1;
  require(axis >= -rank && axis <= last, "axis {} is out of range for {} dimensions", axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace stepnet
