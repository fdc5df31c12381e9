#include "tools/commands/cli/type_text.h"

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
  const std::string type = text.substr(equals + 1, open - equals - 1);
  const DType dtype = type.empty() ? DType::float32 : dtype_from_name(type);
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

Types parse_types(const std::string& option, const std::vector<std::string>& texts) {
  Types types;
  for (const std::string& text : texts) {
    auto [name, type] = parse_type(option, text);
    require(types.emplace(name, type).second, "{} gives \"{}\" twice", option, name);
  }
  return types;
}

}  // namespace stepnet::tools
