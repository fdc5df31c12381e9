#include "core/io/json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "stepnet/error.h"

namespace stepnet {

using Ordered = nlohmann::ordered_json;

struct Json::Value {
  Ordered json;
};

Json::Json(Value value) : value_(std::make_unique<Value>(std::move(value))) {}
Json::Json(std::nullptr_t) : Json(Value{nullptr}) {}
Json::Json(bool value) : Json(Value{value}) {}
Json::Json(int64_t value) : Json(Value{value}) {}
Json::Json(size_t value) : Json(Value{value}) {}
Json::Json(double value) : Json(Value{value}) {}
Json::Json(std::string_view text) : Json(Value{std::string(text)}) {}
Json Json::count(double value) {
  constexpr double kMost = 9e18;  // of an int64
  return std::abs(value) < kMost ? Json(static_cast<int64_t>(std::llround(value))) : Json(value);
}
Json Json::object() { return Json(Value{Ordered::object()}); }
Json Json::list() { return Json(Value{Ordered::array()}); }
Json::~Json() = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json&& other) noexcept = default;

Json& Json::add(std::string_view name, Json value) {
  value_->json[std::string(name)] = std::move(value.value_->json);
  return *this;
}

Json& Json::append(Json value) {
  value_->json.push_back(std::move(value.value_->json));
  return *this;
}

namespace {

std::string text_of(const Ordered& json, int indent) {
  return json.dump(indent, ' ', false, Ordered::error_handler_t::replace);
}

// In no locale but C's.
double read_back(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

std::string Json::line() const { return text_of(value_->json, -1); }
std::string Json::pretty() const { return text_of(value_->json, 1) + "\n"; }

double rounded_to_decimals(double value, int decimals) { return read_back(fmt::format("{:.{}f}", value, decimals)); }
double rounded_to_digits(double value, int digits) { return read_back(fmt::format("{:.{}g}", value, digits)); }

std::optional<int64_t> json_integer(std::string_view object, std::string_view member) {
  const nlohmann::json json = nlohmann::json::parse(object, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto found = json.find(std::string(member));
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

std::optional<std::map<std::string, double>> json_numbers(std::string_view object) {
  const nlohmann::json json = nlohmann::json::parse(object, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : json.items())
    if (value.is_number()) numbers[name] = value.get<double>();
  return numbers;
}

std::optional<std::map<std::string, std::string>> json_texts(std::string_view object) {
  const nlohmann::json json = nlohmann::json::parse(object, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) return std::nullopt;
    texts[name] = value.get<std::string>();
  }
  return texts;
}

}  // namespace stepnet
