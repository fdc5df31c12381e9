// Values that are not finite: they are in no checkpoint and no best one, metrics stay JSON, and the operator that made
// the first one is named.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "core/operator/anomaly.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"
#include "tests/tools/command.h"

namespace stepnet::not_finite_command_test {
namespace {

using testing::expect_command;
using testing::expect_contains;
using testing::read_all;
using testing::write_all;

class NotFiniteCommand : public ::testing::Test {
 protected:
  NotFiniteCommand() { write_all(text_, testing::tiny_text()); }

  std::string train(const std::string& more) const {
    write_all(file_, net_);
    return "train " + file_ + " --threads 1 --text " + text_ + " " + more;
  }
  void replace(const std::string& from, const std::string& to) {
    ASSERT_NE(net_.find(from), net_.npos);
    net_.replace(net_.find(from), from.size(), to);
  }
  // The rate is infinite in iteration 3, whose loss is that of finite parameters.
  std::string diverging() const {
    return train("--lr 10 --lr-policy step --lr-stepsize 2 --lr-gamma 1e38 --checkpoint-every 1 --iterations 6 --out " +
                 out_);
  }

  testing::TempFolder folder_;
  std::string net_ = testing::tiny_net_text(), file_ = folder_.file("tiny.pbtxt"), text_ = folder_.file("text"),
              out_ = folder_.file("run");
};

void expect_finite(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors) EXPECT_TRUE(range_of(tensor).finite()) << name;
}

TEST_F(NotFiniteCommand, TheLastFiniteCheckpointStays) {
  const std::string printed =
      expect_command(diverging() + " --validate-every 100", 2, " after iteration 3; nothing of ");
  expect_contains(printed, "error: the parameter \"");
  expect_contains(printed, "in  a run whose last checkpoint is that of iteration 2, in \"" + out_ + "\"\n");
  expect_contains(printed, "--detect-anomaly names the operator");
  const auto loaded = load_latest(out_);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_TRUE(loaded->path.ends_with("/iteration-2.ckpt")) << loaded->path;
  expect_finite(loaded->contents);
  expect_command(train("--resume --out " + out_), 2, "going on after iteration 2\n");
}

TEST_F(NotFiniteCommand, AValidationThatIsNoNumberIsNeverTheBest) {
  expect_command(diverging() + " --validate-every 3", 2, " after iteration 3; nothing of ");
  EXPECT_FALSE(std::filesystem::exists(out_ + "/best/best.ckpt"));
  std::istringstream lines(read_all(out_ + "/metrics.jsonl"));
  std::string line, last;
  for (; std::getline(lines, line); last = line) {
    EXPECT_EQ(line.find("nan"), line.npos) << line;
    EXPECT_EQ(line.find("inf"), line.npos) << line;
  }
  EXPECT_EQ(last, "{\"iteration\":3,\"validation_bpc\":null}");
}

// So a mask of infinities is, which somebody made so.
TEST_F(NotFiniteCommand, ParametersThatStartWithInfinitiesMayHaveThem) {
  replace(
      "output: \"logits\" arg { name: \"axis\" i: 2 } }",
      "output: \"scores\" arg { name: \"axis\" i: 2 } }\nop { type: \"Add\" input: \"scores\" input: \"mask\" output: "
      "\"logits\" arg { name: \"broadcast\" i: 1 } }");
  replace(
      "init {",
      "init { op { type: \"GivenTensorFill\" output: \"mask\" arg { name: \"shape\" ints: 32 } arg { name: "
      "\"values\" " +
          [] {
            std::string all;
            for (int i = 0; i < 32; ++i) all += i == 31 ? "floats: -inf " : "floats: 0 ";
            return all;
          }() +
          "} }");
  expect_command(train("--iterations 4 --detect-anomaly --out " + out_), 0, "trained 4 iterations");
}

TEST_F(NotFiniteCommand, AForwardOperatorInAStepIsNamed) {
  replace("output: \"gates\" }", "output: \"sums\" }\n      op { type: \"Log\" input: \"sums\" output: \"gates\" }");
  const std::string printed =
      expect_command(train("--iterations 4 --detect-anomaly"), 2, "error: Log: \"gates\" is nan at [0, ");
  expect_contains(printed,
                  ", though all inputs are finite\n  in  " + file_ + ":12:7, operator 2 of net \"tiny_step\"\n");
  expect_contains(printed, "  op  gates = Log(sums), sums is float[1, 4, 48], from -");
  expect_contains(printed, "  in  timestep 0 of step net \"tiny_step\"\n");
  expect_contains(printed, "  in  iteration 1\n");
}

// The derivative of the root at 0.
TEST_F(NotFiniteCommand, ABackwardOperatorIsNamed) {
  replace("op { type: \"FC\" input: \"h_all\"",
          "op { type: \"Sub\" input: \"h_all\" input: \"h_all\" output: \"zero\" }\n"
          "op { type: \"Sqrt\" input: \"zero\" output: \"root\" }\n"
          "op { type: \"Add\" input: \"h_all\" input: \"root\" output: \"h_more\" }\n"
          "op { type: \"FC\" input: \"h_more\"");
  const std::string printed =
      expect_command(train("--iterations 4 --detect-anomaly"), 2, "though all inputs are finite; it ");
  expect_contains(printed, "error: Div: \"");
  expect_contains(printed, "  in  " + file_ + ":21:1, operator ");
}

// Steps that are skipped for their scale are no anomalies.
TEST_F(NotFiniteCommand, GradientsThatOverflowByTheirScaleAreNotReported) {
  expect_command(train("--iterations 3 --detect-anomaly --precision float16 --loss-scale 1e30"), 0,
                 "iteration 3: gradients overflowed");
}

TEST_F(NotFiniteCommand, RunNamesTheTimestep) {
  write_all(file_, R"(
name: "growth"
op { type: "ConstantFill" output: "x" arg { name: "shape" ints: 4 ints: 1 ints: 2 } arg { name: "value" f: 1e15 } }
op { type: "ConstantFill" output: "h0" arg { name: "shape" ints: 1 ints: 1 ints: 2 } arg { name: "value" f: 1e10 } }
op {
  type: "RecurrentNetwork" input: "x" input: "h0" output: "h_all" output: "h_last"
  [stepnet.recurrent] {
    step_net {
      name: "growth_step"
      op { type: "Mul" input: "h_prev" input: "x_t" output: "more" }
      op { type: "Relu" input: "more" output: "h" }
    }
    sequence { outer: "x" inner: "x_t" }
    state { input: "h_prev" output: "h" initial: "h0" all: "h_all" last: "h_last" }
  }
}
)");
  expect_command("run " + file_, 0, "");
  const std::string printed =
      expect_command("run " + file_ + " --detect-anomaly", 2, "error: Mul: \"more\" is inf at [0, 0, 0], though all ");
  expect_contains(printed, "  in  " + file_ + ":10:7, operator 0 of net \"growth_step\"\n");
  expect_contains(printed, "  in  timestep 1 of step net \"growth_step\"\n");
}

}  // namespace
}  // namespace stepnet::not_finite_command_test
