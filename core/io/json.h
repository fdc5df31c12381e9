// Json: a value of JSON, made to be written. All JSON of the library and its command is written and read here.
//
// Members of an object stay in the order in which they were added. Names of blobs may be any bytes: what is no UTF-8 is
// written as U+FFFD. A number that is not finite is null. Threads: as a container of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace stepnet {

class Json {
 public:
  Json(std::nullptr_t);
  Json(bool value);
  Json(int value) : Json(int64_t{value}) {}
  Json(int64_t value);
  Json(size_t value);
  Json(double value);
  Json(std::string_view text);
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(const char* text) : Json(std::string_view(text)) {}
  static Json count(double value);  // an integer, if it fits one
  static Json object();
  static Json list();
  ~Json();
  Json(Json&& other) noexcept;
  Json& operator=(Json&& other) noexcept;

  Json& add(std::string_view name, Json value);  // to an object
  Json& append(Json value);                      // to a list

  std::string line() const;    // without spaces and line breaks
  std::string pretty() const;  // a member on each line, and a line break at the end

 private:
  struct Value;
  explicit Json(Value value);
  std::unique_ptr<Value> value_;  // never null, but in what was moved from
};

// The number as it is written with so many decimals, or with so many digits.
double rounded_to_decimals(double value, int decimals);
double rounded_to_digits(double value, int digits);

// A member of the object that the text is; nothing if it is no object of JSON, or its member no integer.
std::optional<int64_t> json_integer(std::string_view object, std::string_view member);
// Its members that are numbers; nothing if the text is no object of JSON. Their order is that of names.
std::optional<std::map<std::string, double>> json_numbers(std::string_view object);
// All of its members, which are texts; nothing if the text is no object of JSON, or a member something else.
std::optional<std::map<std::string, std::string>> json_texts(std::string_view object);

}  // namespace stepnet
