// Half types on the command line.
#include <gtest/gtest.h>

#include "core/io/npy.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"
#include "tests/tools/command.h"

namespace stepnet::half_command_test {
namespace {

using testing::expect_command;
using testing::expect_contains;
using testing::write_all;

class HalfCommandTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_all(folder_.file(name), text);
    return folder_.file(name);
  }
  testing::TempFolder folder_;
};

TEST_F(HalfCommandTest, OperatorsRunOnFeedsAndPrintValues) {
  const std::string net = file("net.pbtxt", R"(
    op { type: "GivenTensorFill" output: "x" arg { name: "shape" ints: 3 } arg { name: "dtype" i: 16 }
         arg { name: "values" floats: 1.00390625 floats: -2.5 floats: 300.5 } }
    op { type: "Relu" input: "x" output: "y" }
    op { type: "Print" input: "y" }
    op { type: "Cast" input: "y" output: "h" arg { name: "to" s: "FLOAT16" } }
  )");
  const std::string out = expect_command("run " + net + " --fetch x --fetch h", 0, "y bfloat16[3]: 1 0 300");
  expect_contains(out, "x is bfloat16[3]\n  1 -2.5 300");
  expect_contains(out, "h is float16[3]\n  1 0 300");
}

TEST_F(HalfCommandTest, NpyHasFloat16Alone) {
  const Tensor half = Tensor::zeros(DType::float16, {2});
  write_npy(folder_.file("half.npy"), half);
  EXPECT_EQ(read_npy(folder_.file("half.npy")).str(), "float16[2]");
  const std::string error =
      testing::error_text([&] { write_npy(folder_.file("b.npy"), Tensor::zeros(DType::bfloat16, {2})); });
  expect_contains(error, "the format has no bfloat16; Cast it to FLOAT");
}

TEST_F(HalfCommandTest, TrainsAndSamples) {
  const std::string net = file("tiny.pbtxt", testing::tiny_net_text()), text = file("text", testing::tiny_text());
  const std::string train = "train " + net + " --text " + text + " --iterations 6 --threads 1 --device cpu --lr 0.02 ";
  for (const char* precision : {"bfloat16", "float16"}) {
    const std::string folder = folder_.file(precision);
    expect_command(train + "--precision " + precision + " --out " + folder, 0, "trained 6 iterations");
    expect_command("sample --length 20 --out " + folder, 0, "");
  }
  expect_command(train + "--precision float16 --loss-scale 1e38", 0,
                 "iteration 1: gradients overflowed, so nothing was updated; the loss scale is 1e+38 now");
  expect_command(train + "--loss-scale big", 2, "must be dynamic, none or a number above 0");
  expect_command(train + "--precision int8", 2, "");
}

TEST_F(HalfCommandTest, TheEstimateSaysTheKernelAndTheMemory) {
  const std::string net = file("tiny.pbtxt", testing::tiny_net_text());
  const std::string out = expect_command("estimate --train --precision bfloat16 " + net, 0, "float kernel on casts");
  expect_contains(out, "Cast");
}

}  // namespace
}  // namespace stepnet::half_command_test
