// Summarize against a plain loop, and its file.
#include <cmath>

#include "tests/operators/db_test.h"

namespace stepnet::testing::summarize_test {
namespace {

std::vector<double> naive(const Tensor& t) {
  const Tensor x = to_double(t);
  const auto values = x.span<double>();
  long double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const long double mean = sum / static_cast<long double>(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean);
  const double deviation =
      values.size() == 1 ? 0 : static_cast<double>(std::sqrt(squares / static_cast<long double>(values.size() - 1)));
  return {*std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end()),
          static_cast<double>(mean), deviation};
}

const OperatorDef kSummarize = make_op("Summarize", {"X"}, {"Y"});

TEST(Summarize, IsTheFormula) {
  for (const Shape& shape : {Shape{2, 3}, Shape{1}, Shape{}, Shape{1000}}) {
    const Tensor x = normal<double>(shape, 3, 1e6, 2), narrow = normal<float>(shape, 4, -3, 2);
    EXPECT_EQ(compare(run_op_on(kSummarize, {{"X", x}})[0], Tensor::of<double>({4}, naive(x)), 1e-12), "");
    const Tensor y = run_op_on(kSummarize, {{"X", narrow}})[0];
    EXPECT_EQ(y.dtype(), DType::float32);
    EXPECT_EQ(compare(to_double(y), Tensor::of<double>({4}, naive(narrow)), 1e-6), "");
  }
}

TEST(Summarize, NanSpreads) {
  for (const Tensor& x : {Tensor::of<float>({3}, {1, NAN, 2}), Tensor::of<float>({2}, {NAN, 2})}) {
    const Tensor y = run_op_on(kSummarize, {{"X", x}})[0];
    for (const float v : y.span<float>()) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(Summarize, WritesALineForEachRun) {
  const TempFolder folder;
  Workspace w;
  w.root_folder = folder.path();
  w.tensor("net/X") = Tensor::of<float>({3}, {1, 2, 6});
  NetDef def;
  *def.add_op() = make_op("Summarize", {"net/X"}, {}, {make_arg("to_file", 1)});
  RunContext run;
  for (int i = 0; i < 2; ++i) {  // the second net starts the file anew
    Net net(def, w);
    net.run(run);
    net.run(run);
    const std::string line = "1 6 3 2.6457513110645907\n";
    EXPECT_EQ(read_all(folder.file("net#X.summary")), line + line);
  }
  EXPECT_EQ(folder.count(), 1);
}

TEST(Summarize, BadInputIsNamed) {
  const auto error = [](const Tensor& x) { return error_of([&] { run_op_on(kSummarize, {{"X", x}}); }); };
  expect_contains(error(Tensor::of<float>({0, 3}, {})), "\"X\" is float[0, 3] and has no elements");
  expect_contains(error(Tensor::of<int32_t>({1}, {1})), "\"X\" must be float or double, but is int32[1]");
  Workspace w;
  w.create("X").emplace<int>(1);
  EXPECT_FALSE(error_in(w, kSummarize).empty());
  w.at("X").clear();
  expect_contains(error_in(w, kSummarize), "\"X\" must be float or double, but is nothing");
  w.root_folder = "/no/such/folder";
  expect_contains(preflight_error(w, make_op("Summarize", {"X"}, {}, {make_arg("to_file", 1)})), "cannot be used");
}

}  // namespace
}  // namespace stepnet::testing::summarize_test
