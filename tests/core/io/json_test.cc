// Writing JSON, and reading a number of it.
#include "core/io/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stepnet::json_test {
namespace {

TEST(JsonValues, AreWrittenInTheOrderInWhichTheyWereAdded) {
  Json list = Json::list();
  list.append(1).append(nullptr).append("two");
  Json json = Json::object();
  json.add("z", int64_t{-3}).add("a", 0.5).add("m", true).add("list", std::move(list)).add("none", Json::object());
  EXPECT_EQ(json.line(), R"({"z":-3,"a":0.5,"m":true,"list":[1,null,"two"],"none":{}})");
  EXPECT_EQ(
      json.pretty(),
      "{\n \"z\": -3,\n \"a\": 0.5,\n \"m\": true,\n \"list\": [\n  1,\n  null,\n  \"two\"\n ],\n \"none\": {}\n}\n");
}

TEST(JsonValues, AnyBytesAreAText) {
  EXPECT_EQ(Json("a\"b\\c\n\x01").line(), R"("a\"b\\c\n\u0001")");
  EXPECT_EQ(Json("gr\xC3\xB6\xC3\x9F"
                 "e")
                .line(),
            "\"gr\xC3\xB6\xC3\x9F"
            "e\"");
  EXPECT_EQ(Json("a\xFFz").line(), "\"a\xEF\xBF\xBDz\"");
  Json named = Json::object();
  named.add("\xC3", 1);
  EXPECT_EQ(named.line(), "{\"\xEF\xBF\xBD\":1}");
}

TEST(JsonValues, NumbersAreRead) {
  for (const double value : std::initializer_list<double>{NAN, HUGE_VAL, -HUGE_VAL}) {
    EXPECT_EQ(Json(value).line(), "null");
    EXPECT_EQ(Json::count(value).line(), "null");
    EXPECT_EQ(Json(rounded_to_decimals(value, 3)).line(), "null");
  }
  EXPECT_EQ(Json::count(12345678901.4).line(), "12345678901");
  EXPECT_EQ(Json::count(1e20).line(), "1e+20");
  EXPECT_EQ(Json(rounded_to_decimals(2.0004999, 3)).line(), "2.0");
  EXPECT_EQ(Json(rounded_to_digits(0.00312345678, 6)).line(), "0.00312346");
  EXPECT_EQ(Json(std::numeric_limits<size_t>::max()).line(), "18446744073709551615");
}

TEST(JsonValues, AMemberThatIsAnIntegerIsRead) {
  EXPECT_EQ(json_integer(R"({"a": [1], "iteration": 7})", "iteration"), 7);
  for (const char* text : {"", "[7]", R"({"iteration": 7)", R"({"iteration": 7.5})", R"({"iteration": "7"})", "{}", "7",
                           R"({"iteration": 7} {})"})
    EXPECT_EQ(json_integer(text, "iteration"), std::nullopt) << text;
}

TEST(JsonValues, MembersThatAreTextsAreRead) {
  const std::map<std::string, std::string> texts = {{"a", "x\n"}, {"b", ""}};
  EXPECT_EQ(json_texts(R"({"b": "", "a": "x\n"})"), texts);
  EXPECT_EQ(json_texts("{}")->size(), 0U);
  for (const char* text :
       {"", "[]", R"("a")", R"({"a": "x")", R"({"a": "x", "b": 1})", R"({"a": ["x"]})", "{\"a\": \"\xFF\"}"})
    EXPECT_EQ(json_texts(text), std::nullopt) << text;
}

}  // namespace
}  // namespace stepnet::json_test
