// Values that are added up over time, where they are sums of others in the backward step net: which are opened, and
// that neither long nets nor sums of sums take time or memory without bound.
#include <gtest/gtest.h>

#include "recurrent/form/backward_net.h"
#include "tests/core/gradient_testing.h"

namespace stepnet::testing::split_sums_test {
namespace {

// Opens the sums of `values`, each of which has its own number, and returns the terms with these.
std::string opened(NetDef& net, const std::vector<std::string>& values) {
  std::vector<SummedValue> all;
  for (const std::string& name : values) all.push_back({name, all.size()});
  std::string text;
  for (const SummedValue& v : open_sums(net, std::move(all))) text += fmt::format(" {}:{}", v.name, v.gradient);
  return text;
}

TEST(OpenSums, TermsStandWhereTheirSumStood) {
  NetDef net = net_of_lines({"a = Tanh(x)", "b = Tanh(y)", "c = Relu(x)", "s = Sum(a, b)", "t = Sum(s, c)"});
  EXPECT_EQ(opened(net, {"b", "t", "c", "t"}), " b:0 a:1 b:1 c:1 c:2 a:3 b:3 c:3");
  EXPECT_EQ(net.op_size(), 3);
}

TEST(OpenSums, NotWhatOthersReadOrWrite) {
  NetDef read = net_of_lines({"a = Tanh(x)", "b = Tanh(y)", "s = Sum(a, b)", "r = Relu(s)"});
  EXPECT_EQ(opened(read, {"s"}), " s:0");
  NetDef overwritten = net_of_lines({"a = Tanh(x)", "b = Tanh(y)", "s = Sum(a, b)", "a = Relu(b)"});
  EXPECT_EQ(opened(overwritten, {"s"}), " s:0");
  NetDef another_name =
      net_of_lines({"a = Tanh(x)", "z = Alias(a)", "b = Tanh(y)", "s = Sum(a, b)", "z = Relu(b)", "q = Relu(z)"});
  EXPECT_EQ(opened(another_name, {"s"}), " s:0");
  NetDef outside = net_of_lines({"a = Tanh(x)", "s = Sum(a, x)"});
  EXPECT_EQ(opened(outside, {"s"}), " s:0");
  NetDef none = net_of_lines({"a = Tanh(x)", "s = Sum(a, a)"});
  EXPECT_EQ(opened(none, {"a"}), " a:0");
}

TEST(OpenSums, InPlaceOneAfterTheOther) {
  NetDef net = net_of_lines({"t = Tanh(x)", "a = Tanh(y)", "b = Relu(y)", "t = Sum(t, a)", "t = Sum(t, b)"});
  EXPECT_EQ(opened(net, {"t"}), " t:0 a:0 b:0");
  EXPECT_EQ(net.op_size(), 3);
}

// There would be 2^40 terms.
TEST(OpenSums, OfOneValueTwice) {
  std::vector<std::string> lines = {"s0 = Tanh(x)"};
  for (int i = 0; i < 40; ++i) lines.push_back(fmt::format("s{1} = Sum(s{0}, s{0})", i, i + 1));
  NetDef net = net_of_lines(lines);
  const size_t values = open_sums(net, {{"s40", 0}}).size();
  EXPECT_LE(values, 1000U);
  EXPECT_GE(net.op_size(), 30);
}

// The square of their number would not end.
TEST(OpenSums, OneOfAnother) {
  constexpr int kMany = 30'000;
  std::vector<std::string> lines = {"s0 = Tanh(x)"};
  for (int i = 0; i < kMany; ++i) {
    lines.push_back(fmt::format("t{} = Tanh(x)", i));
    lines.push_back(fmt::format("s{1} = Sum(s{0}, t{0})", i, i + 1));
  }
  NetDef net = net_of_lines(lines);
  EXPECT_EQ(open_sums(net, {{fmt::format("s{}", kMany), 0}}).size(), size_t{kMany} + 1);
  EXPECT_EQ(net.op_size(), kMany + 1);
}

}  // namespace
}  // namespace stepnet::testing::split_sums_test
