// AddCMul and AddCDiv against plain loops and central differences.
#include "tests/operators/add_c_check.h"

namespace stepnet::testing::add_c_test {
namespace {

TEST(AddCMul, ValuesAndGradients) { EXPECT_EQ(check_add_c("AddCMul", std::multiplies<double>()), ""); }

TEST(AddCMul, EachGradientReadsTheOtherFactorAlone) {
  const OperatorDef def = add_c("AddCMul", 2);
  EXPECT_EQ(gradient_reads(def, "T"), "");
  EXPECT_EQ(gradient_reads(def, "A"), "B");
  EXPECT_EQ(gradient_reads(def, "B"), "A");
}

TEST(AddCMul, InPlaceLosesWhatTheOtherGradientReads) {
  const Feeds feeds = add_c_feeds<double>({3});
  EXPECT_EQ(check_gradient(add_c("AddCMul", 2, "A"), feeds, {"T", "A"}), "");
  EXPECT_EQ(check_gradient(add_c("AddCMul", 2, "B"), feeds, {"T", "B"}), "");
  EXPECT_NE(error_of([&] {
              check_gradient(add_c("AddCMul", 2, "A"), feeds, {"B"});
            }).find("\"A\" is overwritten in place, but the gradient of \"B\" is computed from it"),
            std::string::npos);
}

TEST(AddCMul, BadShapesAreNamed) {
  Feeds feeds = add_c_feeds<float>({2, 3});
  feeds[2].second = normal<float>({3});
  EXPECT_NE(
      error_of([&] { run_op_on(add_c("AddCMul", 1), feeds); }).find("T is [2, 3], but B [3]; they must have one shape"),
      std::string::npos);
}

TEST(AddCDiv, ValuesAndGradients) { EXPECT_EQ(check_add_c("AddCDiv", std::divides<double>()), ""); }

TEST(AddCDiv, OnlyTheDivisorsGradientReadsA) {
  const OperatorDef def = add_c("AddCDiv", 2);
  EXPECT_EQ(gradient_reads(def, "T"), "");
  EXPECT_EQ(gradient_reads(def, "A"), "B");
  EXPECT_EQ(gradient_reads(def, "B"), "A B");
}

TEST(AddCDiv, InPlaceLosesWhatAGradientReads) {
  const Feeds feeds = add_c_feeds<double>({3});
  EXPECT_EQ(check_gradient(add_c("AddCDiv", 2, "A"), feeds, {"T", "A"}), "");
  EXPECT_EQ(check_gradient(add_c("AddCDiv", 2, "B"), feeds, {"T"}), "");
  for (const char* input : {"A", "B"})
    EXPECT_NE(error_of([&] {
                check_gradient(add_c("AddCDiv", 2, "B"), feeds, {input});
              }).find("\"B\" is overwritten in place, but the gradient of"),
              std::string::npos);
}

TEST(AddCDiv, BadShapesAreNamed) {
  Feeds feeds = add_c_feeds<float>({2, 3});
  feeds[1].second = normal<float>({2, 1});
  EXPECT_NE(error_of([&] {
              run_op_on(add_c("AddCDiv", 1), feeds);
            }).find("T is [2, 3], but A [2, 1]; they must have one shape"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::add_c_test
