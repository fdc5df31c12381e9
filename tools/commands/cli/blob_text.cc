#include "tools/commands/cli/blob_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "stepnet/half.h"
#include "stepnet/shape.h"
#include "stepnet/tensor.h"

namespace stepnet::tools {
namespace {

constexpr int64_t kMostPrinted = 100;

template <class T>
std::string number_text(T value) {
  if constexpr (sizeof(T) == 1)
    return fmt::format("{}", static_cast<int>(value));
  else if constexpr (is_half(dtype_of<T>()))
    return fmt::format("{}", static_cast<float>(value));
  else
    return fmt::format("{}", value);
}

// Calls `fn` with the elements as a typed span; nothing for types that have no plain numbers.
template <class Fn>
bool visit_numbers(const Tensor& t, const Fn& fn) {
  const auto with_zero = [&](auto zero) { fn(t.span<decltype(zero)>()); };
  return with_type(t.dtype(), with_zero) || with_half(t.dtype(), with_zero);
}

std::vector<std::string> element_texts(const Tensor& t) {
  std::vector<std::string> texts;
  if (t.dtype() == DType::string)
    for (const std::string& s : t.span<std::string>()) texts.push_back(fmt::format("\"{}\"", s));
  visit_numbers(t, [&](auto values) {
    for (const auto v : values) texts.push_back(number_text(v));
  });
  return texts;
}

std::string range_text(const Tensor& t) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  double sum = 0;
  int64_t nans = 0;
  const bool numbers = visit_numbers(t, [&](auto values) {
    for (const auto value : values) {
      const auto v = static_cast<double>(value);
      nans += std::isnan(v) ? 1 : 0;
      low = std::min(low, v);
      high = std::max(high, v);
      sum += v;
    }
  });
  if (!numbers || t.size() == 0) return "";
  const std::string text = fmt::format(": min {:.6g}, mean {:.6g}, max {:.6g}", low, sum / t.size(), high);
  return nans == 0 ? text : text + fmt::format(", {} of {} are NaN", nans, t.size());
}

// Rows of the last dimension, one a line.
std::string rows_text(const Tensor& t) {
  const std::vector<std::string> texts = element_texts(t);
  const int64_t width = t.rank() == 0 ? 1 : std::max<int64_t>(t.dim(t.rank() - 1), 1);
  std::string out;
  for (size_t i = 0; i < texts.size(); ++i) out += (i % static_cast<size_t>(width) == 0 ? "\n  " : " ") + texts[i];
  return out;
}

}  // namespace

std::string blob_text(const std::string& name, const Blob& blob) {
  if (blob.empty() || !blob.is_tensor()) return fmt::format("{} is {}", name, blob.type_str());
  const Tensor t = on_device(blob.tensor(), {});
  if (t.size() == 1 || t.size() > kMostPrinted) return blob_summary(name, blob);
  return fmt::format("{} is {}{}", name, t.str(), rows_text(t));
}

std::string blob_summary(const std::string& name, const Blob& blob) {
  if (blob.empty() || !blob.is_tensor()) return fmt::format("{} is {}", name, blob.type_str());
  const Tensor t = on_device(blob.tensor(), {});
  const std::vector<std::string> only = t.size() == 1 ? element_texts(t) : std::vector<std::string>{};
  if (only.size() == 1) return fmt::format("{} = {}", name, only[0]);
  return fmt::format("{} is {}{}", name, t.str(), range_text(t));
}

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
