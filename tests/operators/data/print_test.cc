// Print.
#include <cmath>
#include <cstring>
#include <mutex>
#include <sstream>

#include "tests/operators/db_test.h"

namespace stepnet::testing::print_test {
namespace {

std::string printed(Workspace& w, const OperatorDef& def, int runs = 1) {
  NetDef net;
  *net.add_op() = def;
  Net built(net, w);
  std::ostringstream out;
  RunContext run;
  run.out = &out;
  for (int i = 0; i < runs; ++i) built.run(run);
  return out.str();
}

std::string printed(const Tensor& t, const std::vector<Argument>& args = {}) {
  Workspace w;
  w.tensor("x") = t;
  return printed(w, make_op("Print", {"x"}, {}, args));
}

TEST(Print, EveryType) {
  EXPECT_EQ(printed(Tensor::of<float>({2, 2}, {0.1f, -1, 1e20f, INFINITY})), "x float[2, 2]: 0.1 -1 1e+20 inf\n");
  EXPECT_EQ(printed(Tensor::scalar(0.5)), "x double[]: 0.5\n");
  EXPECT_EQ(printed(Tensor::of<bool>({2}, {true, false})), "x bool[2]: true false\n");
  EXPECT_EQ(printed(Tensor::of<int8_t>({1}, {-3})), "x int8[1]: -3\n");
  EXPECT_EQ(printed(Tensor::of<uint8_t>({1}, {200})), "x uint8[1]: 200\n");
  EXPECT_EQ(printed(Tensor::of<int64_t>({1}, {1L << 40})), "x int64[1]: 1099511627776\n");
  EXPECT_EQ(printed(Tensor::of<std::string>({2}, {"a", "b c"})), "x string[2]: a b c\n");
  EXPECT_EQ(printed(Tensor::zeros(DType::int32, {0, 3})), "x int32[0, 3]:\n");
  Tensor half = Tensor::empty(DType::float16, {5});
  const uint16_t bits[] = {0x3c00, 0xc100, 0x0001, 0x7c00, 0x8000};
  std::memcpy(half.raw(), bits, sizeof(bits));
  EXPECT_EQ(printed(half), "x float16[5]: 1 -2.5 5.9604645e-08 inf -0\n");
}

TEST(Print, OtherObjects) {
  Workspace w;
  w.create("m").emplace<std::mutex>();
  w.create("x");
  EXPECT_EQ(printed(w, make_op("Print", {"m"}, {})), "m std::mutex\n");
  EXPECT_EQ(printed(w, make_op("Print", {"x"}, {})), "x nothing\n");
}

TEST(Print, Limits) {
  const Tensor t = Tensor::zeros(DType::int32, {1500});
  EXPECT_EQ(printed(t, {make_arg("limit", 3)}), "x int32[1500]: 0 0 0 ... (1497 more)\n");
  const std::string all = printed(t);
  EXPECT_TRUE(all.ends_with(" 0 ... (500 more)\n"));
  Workspace w;
  w.tensor("x") = t;
  expect_contains(error_in(w, make_op("Print", {"x"}, {}, {make_arg("limit", -1)})), "must be at least 0, but is -1");
}

TEST(Print, EverySoManyRuns) {
  Workspace w;
  w.tensor("x") = Tensor::scalar(1);
  const OperatorDef def = make_op("Print", {"x"}, {}, {make_arg("every_n", 3)});
  EXPECT_EQ(printed(w, def, 7), "x int32[]: 1\nx int32[]: 1\nx int32[]: 1\n");
  EXPECT_EQ(printed(w, def, 3), "x int32[]: 1\n");
}

TEST(Print, ToFile) {
  const TempFolder folder;
  Workspace w;
  w.root_folder = folder.path();
  w.tensor("scope/x") = Tensor::scalar(1);
  const OperatorDef def = make_op("Print", {"scope/x"}, {}, {make_arg("to_file", 1)});
  for (int i = 0; i < 2; ++i) {  // each run of the program starts the file anew
    EXPECT_EQ(printed(w, def, 2), "");
    EXPECT_EQ(read_all(folder.file("scope/x.log")), "scope/x int32[]: 1\nscope/x int32[]: 1\n");
  }
  write_all(folder.file("file"), "");
  w.root_folder = folder.file("file");
  expect_contains(error_in(w, def), "cannot make the folder " + folder.file("file") + "/scope: Not a directory");
}

}  // namespace
}  // namespace stepnet::testing::print_test
