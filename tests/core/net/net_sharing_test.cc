// Names of one storage in nets: an operator in place changes what all of them show, and any other writes apart.
#include <gtest/gtest.h>

#include "core/passes/recompute.h"
#include "tests/core/gradient_testing.h"
#include "tests/core/planned_runs.h"

namespace stepnet::testing::net_sharing_test {
namespace {

Feeds feeds() { return {{"x", normal<double>({3, 3}, 1)}, {"w", normal<double>({3, 3}, 2)}}; }

const Tensor& fed(const std::string& name) {
  static const Feeds all = feeds();
  return name == "x" ? all[0].second : all[1].second;
}

// What `blob` shows after so many runs of the net, with what the feeds have become by then.
Tensor after_runs(const Lines& lines, const std::string& blob, int runs = 1, const NetOptions& options = {}) {
  NetDef net = net_of_lines(lines);
  for (const auto& feed : feeds()) net.add_external_input(feed.first);
  NetRuns r(net, feeds(), options);
  for (int i = 0; i < runs; ++i) r.run();
  return r.workspace().fetch(blob).clone();
}

Tensor of_op(const std::string& type, const std::vector<std::string>& inputs) {
  return run_op_on(make_op(type, inputs, {"y"}), feeds())[0];
}

TEST(NetSharing, InPlaceUnderEitherName) {
  const Tensor tanh = of_op("Tanh", {"x"});
  EXPECT_EQ(compare(after_runs({"k = Alias(x)", "k = Tanh(k)"}, "x"), tanh, 0), "");
  EXPECT_EQ(compare(after_runs({"k = Alias(x)", "x = Tanh(k)"}, "k"), tanh, 0), "");
}

TEST(NetSharing, WrittenAnewTheOtherNameStays) {
  const Lines lines = {"k = Alias(x)", "k = Tanh(w)"};
  EXPECT_EQ(compare(after_runs(lines, "x", 3), fed("x"), 0), "");
  EXPECT_EQ(compare(after_runs(lines, "k", 3), of_op("Tanh", {"w"}), 0), "");
}

// A product cannot be written over its factor, which has another name here.
TEST(NetSharing, ReadWhileItsOtherNameIsWritten) {
  const Lines lines = {"u = Copy(x)", "k = Alias(u)", "u = MatMul(k, w)", "y = Copy(k)"};
  EXPECT_EQ(compare(after_runs(lines, "u"), of_op("MatMul", {"x", "w"}), 0), "");
  EXPECT_EQ(compare(after_runs(lines, "y"), fed("x"), 0), "");
}

TEST(NetSharing, OutputsOfOneOperator) {
  const Lines lines = {"s, i = Concat(x, w) axis=0", "a = Copy(w)", "b = Alias(a)", "a, b = Split(s) axis=0"};
  EXPECT_EQ(compare(after_runs(lines, "a"), fed("x"), 0), "");
  EXPECT_EQ(compare(after_runs(lines, "b"), fed("w"), 0), "");
}

// What a name still shows of the run before does not make the first write of a run one in place.
TEST(NetSharing, LeftByTheRunBefore) {
  for (const bool release : {false, true}) {
    const NetOptions options = {.release_intermediates = release, .keep = {"x", "y"}};
    const Lines lines = {"h = Negative(x)", "y = Copy(h)", "h = Alias(x)"};
    EXPECT_EQ(compare(after_runs(lines, "x", 3, options), fed("x"), 0), "");
    EXPECT_EQ(compare(after_runs(lines, "y", 3, options), of_op("Negative", {"x"}), 0), "");
  }
}

TEST(NetSharing, ParametersOfOneStorageInPlace) {
  const Lines lines = {"p = Copy(x)", "m = Alias(p)", "g, m, p = MomentumSGDUpdate(w, m, rate, p)"};
  NetDef net = net_of_lines(lines), apart = net_of_lines({lines[0], "m = Copy(p)", lines[2]});
  Feeds all = feeds();
  all.emplace_back("rate", Tensor::of<double>({1}, {0.5}));
  NetRuns shared(net, all, {}), expected(apart, all, {});
  shared.run();
  expected.run();
  EXPECT_EQ(compare(shared.workspace().fetch("g"), expected.workspace().fetch("g"), 0), "");
  EXPECT_EQ(compare(shared.workspace().fetch("p"), expected.workspace().fetch("p"), 0), "");
}

TEST(NetSharing, AnotherSizeInPlaceIsAnError) {
  const std::string text = error_of([] {
    after_runs({"s = SumElements(x)", "k = Alias(s)", "s = Add(w, k) broadcast=1"}, "s");
  });
  EXPECT_EQ(text,
            "Add: \"s\" shows the bytes of another name that it is to be written over, but has another size: "
            "double[3, 3]\n"
            "  in  operator 2 of net \"lines\"\n"
            "  op  s = Add(w, k)\n"
            "  fix write to another blob");
}

// Recomputation and dry runs see the same storages.
TEST(NetSharing, CountsOfWhatIsWrittenAnew) {
  const NetDef net = net_of_lines({"k = Alias(x)", "k = Tanh(w)", "y = Mul(k, x)"});
  MemoryQuestion question;
  for (const auto& [name, value] : feeds()) question.feeds[name] = TensorType::of(value.dtype(), value.shape());
  EXPECT_EQ(dry_run_bytes(net, question).peak, 4 * 128);
  EXPECT_EQ(value_net(net, net.op_size(), question).lasting, 2 * 128);
}

TEST(NetSharing, NoBytesToRecompute) {
  const Backward b = differentiate({"y = Tanh(x)"}, {{"y", ""}}, {"x"});
  MemoryQuestion question;
  question.feeds["x"] = TensorType::of(DType::float64, {0, 3});
  EXPECT_EQ(RecomputePlanner(b.net, b.result.first_gradient_op, question).curve(3).size(), 1u);
}

}  // namespace
}  // namespace stepnet::testing::net_sharing_test
