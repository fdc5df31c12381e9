#include "core/data/csv.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::csv_test {
namespace {

class Csv : public ::testing::Test {
 protected:
  Table read(const std::string& text, const std::string& name = "t.csv") {
    write_all(folder_.file(name), text);
    return read_table(folder_.file(name));
  }
  std::string refusal(const std::string& text) {
    std::string said = error_text([&] { read(text); });
    const size_t at = said.find(folder_.path());
    if (at != said.npos) said.replace(at, folder_.path().size() + 1, "");
    return said.substr(0, said.find('\n'));
  }
  TempFolder folder_;
};

TEST_F(Csv, ColumnsHaveNamesAndValues) {
  const Table table = read("a, \"b \"\"c\"\"\"\r\n1,2.5\r\n\"-7\", 1e3 \r\n");
  EXPECT_EQ(table.names, (std::vector<std::string>{"a", "b \"c\""}));
  EXPECT_EQ(table.columns[0], (std::vector<double>{1, -7}));
  EXPECT_EQ(table.columns[1], (std::vector<double>{2.5, 1000}));
}

TEST_F(Csv, TabsPartFieldsOfATsv) {
  const Table table = read("a b\tc\n1\t+2\n", "t.tsv");
  EXPECT_EQ(table.names, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(table.columns[1][0], 2);
}

TEST_F(Csv, AMarkOfUtf8AndAMissingLastLineBreakAreNoMatter) {
  const Table table = read("\xEF\xBB\xBFx\n3");
  EXPECT_EQ(table.names, std::vector<std::string>{"x"});
  EXPECT_EQ(table.columns[0][0], 3);
}

TEST_F(Csv, IsReadInParts) {
  std::string text = "n\n";
  for (int i = 0; i < 50000; ++i) text += std::to_string(i) + "\n";
  const std::vector<double> n = read(text).columns[0];
  ASSERT_EQ(n.size(), 50000);
  for (size_t i = 0; i < n.size(); ++i) ASSERT_EQ(n[i], static_cast<double>(i));
}

TEST_F(Csv, AnEmptyFieldIsAMissingValue) {
  const Table table = read("a,b\n1,\n,2\n\"\",3\n");
  EXPECT_EQ(table.columns[0][0], 1);
  EXPECT_TRUE(std::isnan(table.columns[1][0]) && std::isnan(table.columns[0][1]) && std::isnan(table.columns[0][2]));
  EXPECT_EQ(table.columns[1][2], 3);
}

TEST_F(Csv, MistakesAreNamedByRowAndColumn) {
  EXPECT_EQ(refusal("a,b\n1,2\n3\n"), "row 2 of t.csv has 1 fields, but there are 2 names");
  EXPECT_EQ(refusal("a,b\n1,2,3\n"), "row 1 of t.csv has 3 fields, but there are 2 names");
  EXPECT_EQ(refusal("a,b\n1,x1\n"), "row 1 of t.csv has \"x1\" where column \"b\" needs a finite number");
  EXPECT_EQ(refusal("a\n1\nnan\n"), "row 2 of t.csv has \"nan\" where column \"a\" needs a finite number");
  EXPECT_EQ(refusal("a\n1\n1e999\n"), "row 2 of t.csv has \"1e999\" where column \"a\" needs a finite number");
  EXPECT_EQ(refusal("a,a\n1,2\n"), "t.csv names two columns \"a\"");
  EXPECT_EQ(refusal("a,\n1,2\n"), "t.csv has no name for column 2: its first row must name all");
  EXPECT_EQ(refusal("a,b\n"), "t.csv has no rows of numbers below a row of names");
  EXPECT_EQ(refusal(""), "t.csv has no rows of numbers below a row of names");
  EXPECT_NE(refusal("a\n\"1\n").find("t.csv is no table"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::csv_test
