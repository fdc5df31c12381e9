#include "tools/check_inputs.h"

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "core/random.h"

namespace stepnet::tools {
namespace {

std::optional<std::pair<double, double>> parse_range(const std::string& text) {
  const size_t dots = text.find("..");
  double low = 0, high = 0;
  if (dots == std::string::npos) return std::nullopt;
  if (!CLI::detail::lexical_cast(text.substr(0, dots), low) ||
      !CLI::detail::lexical_cast(text.substr(dots + 2), high) || !(low <= high))
    fail("\"{}\" is no range; it is written LOW..HIGH", text);
  return std::pair{low, high};
}

template <class T>
Tensor filled(const Shape& shape, const std::function<double(uint64_t)>& value) {
  Tensor t = Tensor::empty(dtype_of<T>(), shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<T>()[i] = static_cast<T>(value(static_cast<uint64_t>(i)));
  return t;
}

template <class T>
std::vector<T> list_of(const std::string& text) {
  std::vector<T> values;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    T value{};
    require(CLI::detail::lexical_cast(part, value), "\"{}\" is no number", part);
    values.push_back(value);
  }
  return values;
}

template <class T>
T number_of(const std::string& text) {
  const std::vector<T> values = list_of<T>(text);
  require(values.size() == 1, "\"{}\" is not one number", text);
  return values[0];
}

Argument typed_arg(const std::string& name, const std::string& type, const std::string& text) {
  if (type == "float") return make_arg(name, number_of<float>(text));
  if (type == "string") return make_arg(name, text);
  if (type == "bool") return make_arg(name, number_of<int64_t>(text == "true" ? "1" : text == "false" ? "0" : text));
  if (type == "ints") return make_arg(name, list_of<int64_t>(text));
  if (type == "floats") return make_arg(name, list_of<float>(text));
  if (type == "strings") return make_arg(name, CLI::detail::split(text, ','));
  require(type.starts_with("int"), "arguments of type {} can be given in a net only", type);
  return make_arg(name, number_of<int64_t>(text));
}

}  // namespace

InputText parse_input(const std::string& option, const std::string& text, DType type) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos && equals > 0, "{} takes NAME=[TYPE,]SIZE,SIZE,..., but is \"{}\"", option, text);
  std::vector<int64_t> dims;
  std::optional<std::pair<double, double>> range;
  for (const std::string& part : CLI::detail::split(text.substr(equals + 1), ',')) {
    int64_t size = 0;
    if (const auto found = parse_range(part))
      range = found;
    else if (CLI::detail::lexical_cast(part, size))
      dims.push_back(size);
    else if (!part.empty())
      type = dtype_from_name(part);
  }
  return {text.substr(0, equals), TensorType::of(type, Shape(std::span<const int64_t>(dims))), range};
}

std::pair<std::string, std::string> parse_feed(const std::string& text) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos && equals > 0 && equals + 1 < text.size(),
          "--feed takes BLOB=FILE.npy, but is \"{}\"", text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Tensor random_values(const InputText& input, uint64_t key) {
  const auto [low, high] = input.range.value_or(std::pair{0.0, 1.0});
  const bool normal = !input.range;
  const auto real = [=, low = low, high = high](uint64_t i) {
    return normal ? random_normal(key, i) : low + (high - low) * random_uniform(key, i);
  };
  const auto whole = [=, low = low, high = high](uint64_t i) {
    return static_cast<double>(random_int(key, i, static_cast<int64_t>(low), static_cast<int64_t>(high)));
  };
  const Shape& shape = input.type.shape;
  switch (input.type.dtype) {
    case DType::float64:
      return filled<double>(shape, real);
    case DType::float32:
      return filled<float>(shape, real);
    case DType::int32:
      return filled<int32_t>(shape, whole);
    case DType::int64:
      return filled<int64_t>(shape, whole);
    case DType::boolean:
      return filled<bool>(shape, whole);
    case DType::uint8:
      return filled<uint8_t>(shape, whole);
    default:
      fail("no values are made for {}", input.type.str());
  }
}

Argument parse_arg(const OpSpec& spec, const std::string& text) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos && equals > 0, "--arg takes NAME=VALUE, but is \"{}\"", text);
  const std::string name = text.substr(0, equals);
  std::vector<std::string> names;
  for (const ArgSpec& arg : spec.args) {
    if (arg.name == name) return typed_arg(name, arg.type, text.substr(equals + 1));
    names.push_back(arg.name);
  }
  fail("{} has no argument \"{}\".{}", spec.type, name, suggest(name, names));
}

}  // namespace stepnet::tools
