// The file: "\x93NUMPY", major and minor version, the length of the header (2 bytes in version 1, 4 later), the header
// as a Python dictionary, the elements. The header is padded so that the elements start at a multiple of 64.
#include "core/io/npy.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/io/files.h"
#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint32_t kLongestHeader = 1 << 16;

struct Code {
  DType dtype;
  std::string_view code;
};
constexpr Code kCodes[] = {
    {DType::float16, "f2"}, {DType::float32, "f4"}, {DType::float64, "f8"}, {DType::int8, "i1"},
    {DType::int16, "i2"},   {DType::int32, "i4"},   {DType::int64, "i8"},   {DType::uint8, "u1"},
    {DType::uint16, "u2"},  {DType::boolean, "b1"},
};

// Reads the dictionary of a header, which has three keys in any order.
class HeaderParser {
 public:
  HeaderParser(std::string text, std::string path) : text_(std::move(text)), path_(std::move(path)) { parse(); }

  DType dtype() const { return *dtype_; }
  bool fortran_order() const { return *fortran_order_; }
  const Shape& shape() const { return *shape_; }

 private:
  [[noreturn]] void bad(const std::string& why) const { fail("{} has an unreadable header: {}", path_, why); }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(std::string_view word) {
    skip_space();
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word)) bad(fmt::format("'{}' is due at character {}", word, at_));
  }
  std::string parse_string();
  int64_t parse_number();
  DType parse_dtype();
  Shape parse_shape();
  void parse();

  std::string text_, path_;
  size_t at_ = 0;
  std::optional<DType> dtype_;
  std::optional<bool> fortran_order_;
  std::optional<Shape> shape_;
};

std::string HeaderParser::parse_string() {
  skip_space();
  const char quote = at_ < text_.size() ? text_[at_] : '\0';
  if (quote != '\'' && quote != '"') bad(fmt::format("a text in quotes is due at character {}", at_));
  const size_t end = text_.find(quote, at_ + 1);
  if (end == std::string::npos) bad("a text has no end");
  std::string value = text_.substr(at_ + 1, end - at_ - 1);
  at_ = end + 1;
  return value;
}

int64_t HeaderParser::parse_number() {
  skip_space();
  const size_t begin = at_;
  int64_t value = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
      bad("a dimension is too large");
  if (at_ == begin) bad(fmt::format("a number is due at character {}", at_));
  accept("L");  // as Python 2 wrote long integers
  return value;
}

DType HeaderParser::parse_dtype() {
  skip_space();
  if (at_ < text_.size() && text_[at_] == '[') fail("{} has elements with several fields, which are not read", path_);
  const std::string descr = parse_string();
  const char order = descr.empty() ? '\0' : descr[0];
  for (const Code& c : kCodes) {
    if (std::string_view(descr).substr(descr.empty() ? 0 : 1) != c.code) continue;
    const bool one_byte = c.code.back() == '1';
    require(order != '>' || one_byte, "{} is big-endian (element type {}), which is not read", path_, descr);
    if (order == '<' || order == '=' || (one_byte && (order == '|' || order == '>'))) return c.dtype;
  }
  throw Error(fmt::format("{} has elements of type {}, which are not read", path_, descr),
              "save numbers, such as array.astype(\"float32\")");
}

Shape HeaderParser::parse_shape() {
  std::vector<int64_t> dims;
  expect("(");
  while (!accept(")")) {
    dims.push_back(parse_number());
    if (!accept(",")) {
      expect(")");
      break;
    }
  }
  return Shape(std::span<const int64_t>(dims));
}

void HeaderParser::parse() {
  expect("{");
  while (!accept("}")) {
    const std::string key = parse_string();
    expect(":");
    if (key == "descr") {
      dtype_ = parse_dtype();
    } else if (key == "fortran_order") {
      fortran_order_ = accept("True");
      if (!*fortran_order_) expect("False");
    } else if (key == "shape") {
      shape_ = parse_shape();
    } else {
      bad(fmt::format("unknown key '{}'", key));
    }
    if (!accept(",")) {
      expect("}");
      break;
    }
  }
  if (!dtype_ || !fortran_order_ || !shape_) bad("'descr', 'fortran_order' or 'shape' is missing");
}

// Elements in Fortran order, whose first index changes fastest, to C order.
void transpose(const std::vector<std::byte>& from, Tensor& to) {
  const size_t width = dtype_size(to.dtype());
  std::vector<int64_t> index(static_cast<size_t>(to.rank()), 0);
  std::vector<int64_t> stride(index.size(), 1);
  for (size_t d = 1; d < stride.size(); ++d) stride[d] = stride[d - 1] * to.dim(static_cast<int>(d) - 1);
  int64_t source = 0;
  for (int64_t i = 0; i < to.size(); ++i) {
    std::memcpy(to.raw() + static_cast<size_t>(i) * width, from.data() + static_cast<size_t>(source) * width, width);
    for (size_t d = index.size(); d-- > 0;) {
      source += stride[d];
      if (++index[d] < to.dim(static_cast<int>(d))) break;
      source -= stride[d] * index[d];
      index[d] = 0;
    }
  }
}

std::string header_of(const Tensor& tensor) {
  std::string shape;
  for (const int64_t d : tensor.shape()) shape += fmt::format("{}, ", d);
  if (tensor.rank() > 1) shape.resize(shape.size() - 2);
  if (tensor.rank() == 1) shape.resize(shape.size() - 1);
  for (const Code& c : kCodes) {
    if (c.dtype != tensor.dtype()) continue;
    const char order = c.code.back() == '1' ? '|' : '<';
    return fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", order, c.code, shape);
  }
  throw Error(
      fmt::format("{} cannot be written as .npy", tensor.str()),
      tensor.dtype() == DType::bfloat16 ? "the format has no bfloat16; Cast it to FLOAT, which loses nothing" : "");
}

// Any byte but 0 and 1 would be no bool to C++.
void check_bools(const std::byte* values, size_t count, const std::string& path) {
  for (size_t i = 0; i < count; ++i)
    require(std::to_integer<int>(values[i]) <= 1, "{} has the value {} where a bool, 0 or 1, is due", path,
            std::to_integer<int>(values[i]));
}

}  // namespace

NpyFile::NpyFile(ByteSourcePtr bytes) : bytes_(std::move(bytes)) {
  const std::string& path = bytes_->name();
  constexpr uint64_t kStart = 10;
  require(bytes_->size() >= kStart && bytes_->text_at(0, kMagic.size()) == kMagic, "{} is not a .npy file", path);
  const auto version = bytes_->value_at<uint8_t>(6);
  require(version >= 1 && version <= 3, "{} has version {} of the .npy format; 1 to 3 are read", path, version);
  const uint64_t begin = version == 1 ? kStart : kStart + 2;
  const uint32_t length = version == 1 ? bytes_->value_at<uint16_t>(8) : bytes_->value_at<uint32_t>(8);
  require(length <= kLongestHeader, "{} has a header of {} bytes, which is too long", path, length);
  const HeaderParser header(bytes_->text_at(begin, length), path);
  begin_ = begin + length;
  dtype_ = header.dtype();
  shape_ = header.shape();
  has_rows_ = !header.fortran_order() || shape_.rank() <= 1;
  const uint64_t held = bytes_->size() - begin_;
  int64_t due = 0;
  const bool counted = !__builtin_mul_overflow(shape_.size(), static_cast<int64_t>(dtype_size(dtype_)), &due);
  require(counted && static_cast<uint64_t>(due) == held, "{} should hold {}{}, but has {} bytes of elements", path,
          dtype_name(dtype_), shape_, held);
}

void NpyFile::read(int64_t first, int64_t count, std::byte* to) const {
  const auto width = static_cast<uint64_t>(dtype_size(dtype_));
  const size_t bytes = static_cast<size_t>(count) * width;
  if (bytes == 0) return;
  bytes_->read_at(begin_ + static_cast<uint64_t>(first) * width, to, bytes);
  if (dtype_ == DType::boolean) check_bools(to, bytes, bytes_->name());
}

Tensor read_npy(const NpyFile& file) {
  Tensor tensor = Tensor::empty(file.dtype(), file.shape());
  if (file.has_rows()) {
    file.read(0, tensor.size(), tensor.raw());
    return tensor;
  }
  std::vector<std::byte> elements(tensor.bytes());
  file.read(0, tensor.size(), elements.data());
  transpose(elements, tensor);
  return tensor;
}

void write_npy(const FilePlace& place, const Tensor& tensor) {
  const Tensor host = on_device(tensor, {});
  std::string header = header_of(host);
  constexpr size_t kStart = 10, kAlignment = 64;
  header.append(kAlignment - (kStart + header.size()) % kAlignment, ' ');
  header.back() = '\n';
  const auto length = static_cast<uint16_t>(header.size());  // at most 8 dimensions, so it always fits
  AtomicFile file(place);
  file.write(kMagic);
  file.write(std::string_view("\x01\x00", 2));
  file.write(&length, sizeof(length));
  file.write(header);
  file.write(host.raw(), host.bytes());
  file.commit();
}

}  // namespace stepnet
