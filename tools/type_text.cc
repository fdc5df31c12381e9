#include "tools/type_text.h"

#include <charconv>

namespace stepnet::tools {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& text) {
  throw Error(fmt::format("{} must be BLOB=TYPE[SIZE,...], but is \"{}\"", option, text),
              "write it as in X=float[32,128], without a blank; one element is X=float[]");
}

int64_t parse_size(const std::string& option, const std::string& text, std::string_view size) {
  int64_t value = -1;
  const auto [end, mistake] = std::from_chars(size.data(), size.data() + size.size(), value);
  if (mistake != std::errc() || end != size.data() + size.size() || value < 0) refuse(option, text);
  return value;
}

}  // namespace

std::pair<std::string, TensorType> parse_type(const std::string& option, const std::string& text) {
  const size_t open = text.rfind('[');
  const size_t equals = open == std::string::npos ? open : text.rfind('=', open);
  if (equals == std::string::npos || equals == 0 || text.back() != ']') refuse(option, text);
  const DType dtype = dtype_from_name(text.substr(equals + 1, open - equals - 1));
  std::vector<int64_t> sizes;
  std::string_view rest(text.data() + open + 1, text.size() - open - 2);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    sizes.push_back(parse_size(option, text, rest.substr(0, comma)));
    if (comma + 1 == rest.size()) refuse(option, text);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  const Shape shape(sizes);
  byte_size(dtype, shape);  // must be countable
  return {text.substr(0, equals), TensorType::of(dtype, shape)};
}

}  // namespace stepnet::tools
