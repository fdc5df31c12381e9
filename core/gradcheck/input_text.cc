#include "core/gradcheck/input_text.h"

#include <charconv>
#include <functional>

#include "core/operator/arg_names.h"
#include "stepnet/error.h"
#include "stepnet/half.h"
#include "stepnet/random.h"

namespace stepnet {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

template <class T>
T number_of(const std::string& text) {
  T value{};
  require(read_number(text, value), "\"{}\" is no {}", text, std::is_integral_v<T> ? "whole number" : "number");
  return value;
}

template <class T>
std::vector<T> list_of(const std::string& text) {
  std::vector<T> values;
  if (text.empty()) return values;
  for (const std::string& part : split(text, ',')) values.push_back(number_of<T>(part));
  return values;
}

std::optional<std::pair<double, double>> parse_range(const std::string& text) {
  const size_t dots = text.find("..");
  double low = 0, high = 0;
  if (dots == std::string::npos) return std::nullopt;
  if (!read_number(std::string_view(text).substr(0, dots), low) ||
      !read_number(std::string_view(text).substr(dots + 2), high) || !(low <= high))
    fail("\"{}\" is no range; it is written LOW..HIGH", text);
  return std::pair{low, high};
}

template <class T>
Tensor filled(const Shape& shape, const std::function<double(uint64_t)>& value) {
  Tensor t = Tensor::empty(dtype_of<T>(), shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<T>()[i] = static_cast<T>(value(static_cast<uint64_t>(i)));
  return t;
}

Tensor strings_of(const InputText& input) {
  Tensor t = Tensor::empty(DType::string, input.type.shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<std::string>()[i] = input.values[static_cast<size_t>(i)];
  return t;
}

Tensor numbers(const InputText& input, const std::function<double(uint64_t)>& real,
               const std::function<double(uint64_t)>& whole) {
  const Shape& shape = input.type.shape;
  switch (input.type.dtype) {
    case DType::float64:
      return filled<double>(shape, real);
    case DType::float32:
      return filled<float>(shape, real);
    case DType::float16:
      return filled<float16>(shape, real);
    case DType::bfloat16:
      return filled<bfloat16>(shape, real);
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

Argument typed_arg(const std::string& name, const std::string& type, const std::string& text) {
  if (type == "float") return make_arg(name, number_of<float>(text));
  if (type == "string") return make_arg(name, text);
  if (type == "bool") return make_arg(name, number_of<int64_t>(text == "true" ? "1" : text == "false" ? "0" : text));
  if (type == "ints") return make_arg(name, list_of<int64_t>(text));
  if (type == "floats") return make_arg(name, list_of<float>(text));
  if (type == "strings") return make_arg(name, split(text, ','));
  require(type.starts_with("int"), "arguments of type {} can be given in a net only", type);
  return make_arg(name, number_of<int64_t>(text));
}

}  // namespace

InputText parse_input(const std::string& option, const std::string& text, DType type) {
  const size_t equals = text.find('='), colon = text.find(':');
  require(equals != std::string::npos && equals > 0, "{} takes NAME=[TYPE,]SIZE,SIZE,..., but is \"{}\"", option, text);
  std::vector<int64_t> dims;
  std::optional<std::pair<double, double>> range;
  const size_t end = std::min(colon, text.size());
  for (const std::string& part : split(text.substr(equals + 1, end - equals - 1), ',')) {
    int64_t size = 0;
    if (const auto found = parse_range(part))
      range = found;
    else if (read_number(std::string_view(part), size))
      dims.push_back(size);
    else if (part.size() > 1 && part.find_first_not_of("0123456789x*[]") == std::string::npos)
      fail("{} \"{}\": sizes are numbers with commas between them, as in {}=2,3", option, text, text.substr(0, equals));
    else if (!part.empty())
      type = dtype_from_name(part);
  }
  InputText input{text.substr(0, equals), TensorType::of(type, Shape(std::span<const int64_t>(dims))), range};
  if (colon == std::string::npos) return input;
  if (colon + 1 < text.size()) input.values = split(text.substr(colon + 1), ',');
  const auto given = static_cast<int64_t>(input.values.size());
  require(given == input.type.shape.size(), "{} \"{}\" has {} values for {} elements", option, text, given,
          input.type.shape.size());
  return input;
}

Tensor input_value(const InputText& input, uint64_t key) {
  if (!input.values.empty()) {
    if (input.type.dtype == DType::string) return strings_of(input);
    const auto given = [&](uint64_t i) { return number_of<double>(input.values[i]); };
    return numbers(input, given, [&](uint64_t i) { return static_cast<double>(number_of<int64_t>(input.values[i])); });
  }
  const auto [low, high] = input.range.value_or(std::pair{0.0, 1.0});
  const bool normal = !input.range;
  const auto real = [=, low = low, high = high](uint64_t i) {
    return normal ? random_normal(key, i) : low + (high - low) * random_uniform(key, i);
  };
  return numbers(input, real, [=, low = low, high = high](uint64_t i) {
    return static_cast<double>(random_int(key, i, static_cast<int64_t>(low), static_cast<int64_t>(high)));
  });
}

namespace {

// The type that a value shows by itself, for an argument that has none declared.
std::string apparent_type(const std::string& value) {
  int64_t integer = 0;
  double number = 0;
  return read_number(std::string_view(value), integer)  ? "int"
         : read_number(std::string_view(value), number) ? "float"
                                                        : "string";
}

}  // namespace

Argument parse_arg(const OpSpec& spec, const std::string& text) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos && equals > 0, "--arg takes NAME=VALUE, but is \"{}\"", text);
  const std::string name = text.substr(0, equals);
  std::vector<std::string> names;
  for (const ArgSpec& arg : spec.args) {
    if (arg.name == name) return typed_arg(name, arg.type, text.substr(equals + 1));
    names.push_back(arg.name);
  }
  if (arg_family(spec, name)) return typed_arg(name, apparent_type(text.substr(equals + 1)), text.substr(equals + 1));
  fail("{} has no argument \"{}\".{}", spec.type, name, suggest(name, names));
}

}  // namespace stepnet
