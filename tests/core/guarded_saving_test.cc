// Guarded saving in nets: of the forward pass stays what the wanted gradients read, to the byte, and nothing else; and
// a value that was overwritten is an error only if a gradient that will run reads it.
//
// The two programs are those of the change that brought guarded saving to tensor libraries: an expression whose
// product is with a constant, and a buffer that is written again every round. Each has its negative twin.
#include <gtest/gtest.h>

#include "stepnet/net.h"
#include "stepnet/operator.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::guarded_saving_test {
namespace {

int64_t live_now() { return allocator(Device{}).counters().live; }

// The live bytes that the last RecordLiveBytes saw.
int64_t live_recorded = 0;

void record_live(const NoArgs&, BlobCall&) { live_recorded = live_now(); }

REGISTER(record_live_bytes) {
  return op("RecordLiveBytes").doc("Of tests: looks at the allocator's counter.").side_effect().blobs(record_live);
}

const Shape kX = {2, 3, 10, 10};
constexpr int64_t kBlockOfX = 2432;  // 600 floats, rounded up to 64 bytes

const Lines kExpression = {"a = Add(x, c) broadcast=1", "p = Mul(a, m) broadcast=1 axis=1", "z = SumElements(p)"};

class Expression : public ::testing::Test {
 protected:
  Expression() {
    workspace_.tensor("x") = normal<float>(kX, 1);
    workspace_.tensor("c") = Tensor::of<float>(Shape{1}, {2});
    workspace_.tensor("m") = Tensor::of<float>(Shape{3}, {5, 6, 7});
    RunContext run;
    run_net_once(net_of_lines({"z = SumElements(x)"}), workspace_, run);
  }

  // Runs the expression and its backward pass as one net, and returns how many more bytes live between the two than
  // before.
  int64_t bytes_kept(const Lines& lines, const std::set<std::string>& wanted) {
    backward_ = differentiate(lines, {{"z", ""}}, wanted);
    NetDef net;
    net.set_name("both");
    for (int i = 0; i < backward_.net.op_size(); ++i) {
      if (i == backward_.result.first_gradient_op) net.add_op()->set_type("RecordLiveBytes");
      *net.add_op() = backward_.net.op(i);
    }
    NetOptions options;
    options.release_intermediates = true;
    for (const auto& [blob, name] : backward_.map)
      if (wanted.count(blob) > 0) options.keep.insert(name);
    Net bound(net, workspace_, options);
    const int64_t before = live_now();
    RunContext run;
    bound.run(run);
    const int64_t kept = live_recorded - before;
    before_second_run_ = live_now();
    bound.run(run);
    EXPECT_EQ(live_now(), before_second_run_);  // a run leaves behind what the one before it did
    return kept;
  }

  const Tensor& gradient(const std::string& blob) const { return workspace_.fetch(backward_.map.at(blob)); }

  Workspace workspace_;
  Backward backward_;
  int64_t before_second_run_ = 0;
};

TEST_F(Expression, AConstantFactorKeepsNothing) {
  EXPECT_EQ(bytes_kept(kExpression, {"x"}), 0);
  for (const int channel : {0, 1, 2}) EXPECT_EQ(gradient("x").data<float>()[channel * 100], 5.0f + channel);
  EXPECT_EQ(backward_.result.kept, (std::set<std::string>{"m"}));
}

TEST_F(Expression, ATrainedFactorKeepsExactlyTheOtherOne) {
  EXPECT_EQ(bytes_kept(kExpression, {"m"}), kBlockOfX);
  EXPECT_EQ(backward_.result.kept, (std::set<std::string>{"a"}));
}

TEST_F(Expression, BothFactorsAreKeptIfBothAreTrained) {
  EXPECT_EQ(bytes_kept(kExpression, {"m", "x"}), kBlockOfX);  // m is the caller's
  EXPECT_EQ(backward_.result.kept, (std::set<std::string>{"a", "m"}));
}

// The sum's derivative reads the shape of p; Add's and Negative's read nothing.
TEST_F(Expression, OperatorsThatReadNothingKeepNothing) {
  EXPECT_EQ(bytes_kept({"a = Add(x, c) broadcast=1", "n = Negative(a)", "s = Sub(n, x)", "z = SumElements(s)"}, {"x"}),
            0);
  EXPECT_EQ(backward_.result.kept, std::set<std::string>{});
}

// Tanh keeps its output and not its input, whatever stands before it.
TEST_F(Expression, OneOutputIsKept) {
  EXPECT_EQ(bytes_kept({"a = Add(x, c) broadcast=1", "t = Tanh(a)", "z = SumElements(t)"}, {"x"}), kBlockOfX);
  EXPECT_EQ(backward_.result.kept, std::set<std::string>{"t"});
}

// In place there is one blob only, and its last version is the one that is read.
TEST_F(Expression, InPlaceKeepsTheSame) {
  EXPECT_EQ(bytes_kept({"a = Add(x, c) broadcast=1", "a = Tanh(a)", "z = SumElements(a)"}, {"x"}), kBlockOfX);
}

// Without gradients nothing stays, although the net computes the same.
TEST_F(Expression, ForwardAloneKeepsNothing) {
  NetDef net = net_of_lines(kExpression);
  net.add_op()->set_type("RecordLiveBytes");
  NetOptions options;
  options.release_intermediates = true;
  Net bound(net, workspace_, options);
  const int64_t before = live_now();
  RunContext run;
  bound.run(run);
  EXPECT_EQ(live_recorded, before);
  EXPECT_EQ(live_now(), before);
}

// One buffer x is written in every round, from mu, and enters the loss multiplied by a factor of its own.
const Lines kRounds = {"x = Add(mu, zero)", "p0 = Mul(x, k0)", "x = Add(mu, one)",    "p1 = Mul(x, k1)",
                       "x = Add(mu, two)",  "p2 = Mul(x, k2)", "s = Sum(p0, p1, p2)", "loss = SumElements(s)"};

TEST(Rounds, ABufferThatNobodyReadsBackMayBeOverwritten) {
  const Backward b = differentiate(kRounds, {{"loss", ""}}, {"mu"});
  Workspace workspace;
  const std::map<std::string, float> feeds = {{"mu", 1}, {"zero", 0}, {"one", 1}, {"two", 2},
                                              {"k0", 0}, {"k1", 1},   {"k2", 2}};
  for (const auto& [name, value] : feeds) workspace.tensor(name) = Tensor::of<float>(Shape{1}, {value});
  RunContext run;
  run_net_once(b.net, workspace, run);
  EXPECT_EQ(workspace.fetch("loss").item<float>(), 0 * 1 + 1 * 2 + 2 * 3);
  EXPECT_EQ(workspace.fetch(b.map.at("mu")).item<float>(), 3.0f);
}

TEST(Rounds, ATrainedFactorOfAnEarlierRoundIsRefused) {
  EXPECT_EQ(error_of([] {
              differentiate(kRounds, {{"loss", ""}}, {"mu", "k1"});
            }),
            "Mul: the gradient reads version 2 of \"x\", but operator 4 (Add) has made it version 3\n"
            "  in  operator 3 of net \"lines\"\n"
            "  op  p1 = Mul(x, k1)\n"
            "  fix let Add write to another blob than \"x\"");
}

TEST(Rounds, ATrainedFactorOfTheLastRoundIsFine) {
  EXPECT_EQ(differentiate(kRounds, {{"loss", ""}}, {"mu", "k2"}).map.count("k2"), 1u);
}

// The same operator is refused or not by which of its gradients is asked for.
TEST(Rounds, OnlyWhatAFormulaReadsMustBeThere) {
  const Lines net = {"y = Mul(a, b)", "a = Negative(a)", "z = Add(y, a)"};
  EXPECT_EQ(differentiate(net, {{"z", "z_grad"}}, {"a"}).lines,
            (Lines{"y_grad = MatchShape(z_grad, y)", "a_grad = MatchShape(z_grad, a)",
                   "_a_grad_autosplit_0 = Negative(a_grad)", "_y_grad_tmp_0 = Mul(y_grad, b)",
                   "a_grad = MatchShape(_y_grad_tmp_0, a)", "a_grad = Sum(a_grad, _a_grad_autosplit_0)"}));
  EXPECT_EQ(error_of([&] {
              differentiate(net, {{"z", "z_grad"}}, {"b"});
            }),
            "Mul: the gradient reads version 0 of \"a\", but operator 1 (Negative) has made it version 1\n"
            "  in  operator 0 of net \"lines\"\n"
            "  op  y = Mul(a, b)\n"
            "  fix let Negative write to another blob than \"a\"");
}

// What the operator itself overwrites is refused by its in-place rule, with the way out.
TEST(Rounds, AnOperatorThatOverwritesWhatItsGradientReads) {
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"a = Mul(a, b)"}, {{"a", "a_grad"}}, {"b"});
            }),
            "Mul: \"a\" is overwritten in place, but the gradient of \"b\" is computed from it\n"
            "  in  operator 0 of net \"lines\"\n"
            "  op  a = Mul(a, b)\n"
            "  fix write the output to another blob");
  EXPECT_EQ(differentiate(Lines{"a = Mul(a, b)"}, {{"a", "given"}}, {"a"}).lines, (Lines{"a_grad = Mul(given, b)"}));
}

}  // namespace
}  // namespace stepnet::testing::guarded_saving_test
