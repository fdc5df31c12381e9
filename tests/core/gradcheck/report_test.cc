// A report as JSON has every member, whatever is wrong; and its text.
#include "core/gradcheck/gradient_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace stepnet::testing::report_test {
namespace {

using Parsed = nlohmann::json;

Parsed parsed(const GradientReport& report) { return Parsed::parse(report_json(report).pretty()); }

std::set<std::string> members(const Parsed& object) {
  std::set<std::string> names;
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}

const std::set<std::string> kMembers = {"right",     "rows",     "broken", "refused",
                                        "operators", "searched", "blamed", "unsearched"};

TEST(GradientReport, OfNothingHasAllMembers) {
  const Parsed json = parsed({});
  EXPECT_EQ(members(json), kMembers);
  EXPECT_EQ(json["right"], true);
  EXPECT_EQ(json["searched"], false);
  for (const char* list : {"rows", "broken", "operators", "blamed"}) EXPECT_EQ(json[list], Parsed::array()) << list;
  for (const char* object : {"refused", "unsearched"}) EXPECT_EQ(json[object], Parsed::object()) << object;
}

TEST(GradientReport, TellsEverything) {
  GradientReport report;
  GradientRow row{"W\"", 2, false, 0.5, "[1, 2]", 1.25, -0.75, 12, 1};
  row.elements = 13;
  report.rows.push_back(row);
  report.broken = {"a promise"};
  report.refused = {{"x", "it has none"}};
  report.operators = {"Mul", "Tanh"};
  report.searched = true;
  report.blamed = {{"op 1 (Mul) \"y\"", "Mul", "one\ntwo\n"}};
  report.unsearched = {{"op 2 (If)", "it is"}};
  const Parsed json = parsed(report);
  EXPECT_EQ(members(json), kMembers);
  EXPECT_EQ(json["right"], false);
  const Parsed expected = {{"check", "gradient"}, {"input", "W\""},       {"order", 2},    {"right", false},
                           {"error", 0.5},        {"where", "[1, 2]"},    {"tried", 12},   {"kinks", 1},
                           {"derivative", 1.25},  {"differences", -0.75}, {"elements", 13}};
  EXPECT_EQ(json["rows"][0], expected);
  EXPECT_EQ(json["broken"], Parsed({"a promise"}));
  EXPECT_EQ(json["refused"], Parsed({{"x", "it has none"}}));
  EXPECT_EQ(json["operators"], Parsed({"Mul", "Tanh"}));
  EXPECT_EQ(json["searched"], true);
  const Parsed blamed = {{"path", "op 1 (Mul) \"y\""}, {"type", "Mul"}, {"what", "one\ntwo\n"}};
  EXPECT_EQ(json["blamed"][0], blamed);
  EXPECT_EQ(json["unsearched"], Parsed({{"op 2 (If)", "it is"}}));
  EXPECT_EQ(report.str(),
            "second derivative of \"W\"\" at [1, 2]: the derivative is 1.25, but differences are -0.75\n"
            "a promise\n"
            "op 1 (Mul) \"y\" is wrong alone: one\n    two\n"
            "op 2 (If) cannot be checked alone: it is\n");
}

TEST(GradientReport, NumbersThatAreNotFiniteAreNull) {
  GradientReport report;
  report.rows.push_back({"x", 1, false, HUGE_VAL, "[0]", NAN, 0, 1, 0});
  const Parsed json = parsed(report);
  EXPECT_TRUE(json["rows"][0]["error"].is_null());
  EXPECT_TRUE(json["rows"][0]["derivative"].is_null());
}

TEST(GradientReport, HasTheOptions) {
  GradientCheckOptions options;
  const Parsed plain = Parsed::parse(options_json(options).line());
  const std::set<std::string> names = {"order",         "forward",   "hessian", "directions",
                                       "many_elements", "tolerance", "step",    "seed"};
  EXPECT_EQ(members(plain), names);
  EXPECT_TRUE(plain["directions"].is_null());
  options.directions = 0;
  options.hessian = true;
  const Parsed given = Parsed::parse(options_json(options).line());
  EXPECT_EQ(given["directions"], 0);
  EXPECT_EQ(given["hessian"], true);
  EXPECT_EQ(given["order"], 1);
}

}  // namespace
}  // namespace stepnet::testing::report_test
