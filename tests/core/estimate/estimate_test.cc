#include "core/estimate/estimate.h"

#include "core/estimate/report.h"
#include "core/operator/op_devices.h"
#include "stepnet/gradients.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/estimate_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::estimate_test {
namespace {

constexpr const char* kMlp = R"(
  name: "mlp" external_input: "X" external_input: "W1" external_input: "b1" external_input: "W2" external_input: "b2"
  external_output: "Y"
  op { type: "FC" input: "X" input: "W1" input: "b1" output: "a" }
  op { type: "Tanh" input: "a" output: "h" }
  op { type: "FC" input: "h" input: "W2" input: "b2" output: "Y" })";

TensorType floats(std::initializer_list<int64_t> dims) { return TensorType::of(DType::float32, Shape(dims)); }

ForwardOptions mlp_feeds() {
  return {.feeds = {{"X", floats({32, 17})},
                    {"W1", floats({33, 17})},
                    {"b1", floats({33})},
                    {"W2", floats({5, 33})},
                    {"b2", floats({5})}}};
}

TEST(Estimate, EqualsARealRunOfAnMlp) {
  const NetDef net = parse_net_text(kMlp, "mlp");
  EXPECT_EQ(compare_with_real([&] { return forward_session(net, mlp_feeds()); }), "");
  ForwardOptions keep = mlp_feeds();
  keep.keep_all = true;
  EXPECT_EQ(compare_with_real([&] { return forward_session(net, keep); }), "");
}

TEST(Estimate, CountsAsTheClaimedDevicesAllocatorDoes) {
  for (const auto& [device, bytes] : {std::pair{DeviceKind::cpu, 64}, {DeviceKind::cuda, 512}}) {
    DryScope scope(device);
    const Tensor t = Tensor::empty(DType::float32, {3});
    EXPECT_EQ(scope.counters().live, bytes);
    EXPECT_EQ(Tensor::empty(DType::float32, {3, 0}).raw(), nullptr);
  }
}

TEST(Estimate, TensorsMayOutliveTheirScope) {
  Tensor t;
  {
    DryScope scope;
    t = Tensor::zeros(DType::float32, {1000});
  }
  EXPECT_TRUE(t.is_dry());
  expect_contains(error_text([&] { t.span<float>(); }), "a dry run has none");
  t = Tensor::zeros(DType::float32, {2});
  EXPECT_FALSE(t.is_dry());
  EXPECT_EQ(t.span<float>()[1], 0);
}

TEST(Estimate, ADryValueIsNeverGuessed) {
  DryScope scope;
  Tensor dry = Tensor::zeros(DType::float32, {1});
  expect_contains(error_text([&] { dry.item<float>(); }), "the elements of float[1] are needed");
  EXPECT_EQ(Tensor::scalar<int64_t>(7).item<int64_t>(), 7);  // it is known
  const Tensor copy = Tensor::scalar<int64_t>(7).clone();
  EXPECT_EQ(copy.item<int64_t>(), 7);
  expect_contains(error_text([&] { Tensor::empty(DType::int32, {4}).span<int32_t>(); }), "a dry run has none");
}

TEST(Estimate, SizesThatOverflowAreErrors) {
  {
    const DryScope scope;
    const int64_t huge = int64_t{1} << 58;
    const Tensor most = Tensor::empty(DType::float32, {huge});
    expect_contains(error_text([&] { Tensor::empty(DType::float32, {huge}); }), "more than can be counted");
  }
  DryScope scope;
  const NetDef net = parse_net_text("op { type: 'FC' input: 'X' input: 'W' input: 'b' output: 'Y' }");
  const ForwardOptions options{.feeds = {{"X", floats({int64_t{1} << 40, 1})},
                                         {"W", floats({int64_t{1} << 40, 1})},
                                         {"b", floats({int64_t{1} << 40})}}};
  expect_contains(error_text([&] {
                    const auto session = forward_session(net, options);
                    estimate_session(*session, scope);
                  }),
                  "64 bits");
}

TEST(Estimate, ShapesFollowFromShapes) {
  const NetDef net = parse_net_text(R"(
    op { type: "Shape" input: "X" output: "shape" }
    op { type: "GivenTensorIntFill" output: "four" arg { name: "shape" ints: 1 } arg { name: "values" ints: 4 } }
    op { type: "ConstantFill" input: "shape" output: "Y" arg { name: "input_as_shape" i: 1 } }
    op { type: "Reshape" input: "X" output: "flat" output: "old" arg { name: "shape" ints: -1 } }
    op { type: "Reshape" input: "flat" input: "old" output: "again" output: "older" })");
  DryScope scope;
  const auto session = forward_session(net, {.feeds = {{"X", floats({20, 30})}}, .keep_all = true});
  const Estimate estimate = estimate_session(*session, scope);
  EXPECT_EQ(session->blobs.fetch("Y").shape(), (Shape{20, 30}));
  EXPECT_EQ(session->blobs.fetch("again").shape(), (Shape{20, 30}));
  EXPECT_EQ(session->blobs.fetch("four").item<int32_t>(), 4);
}

TEST(Estimate, AsksForTheLargestShapeWhereItDependsOnData) {
  const NetDef net = parse_net_text(R"(
    op { type: "PackSegments" input: "lengths" input: "X" output: "packed" }
    op { type: "Tanh" input: "packed" output: "Y" })");
  const ForwardOptions options{.feeds = {{"X", floats({50, 3})}, {"lengths", TensorType::of(DType::int32, Shape{4})}},
                               .keep_all = true};
  DryScope scope;
  const auto session = forward_session(net, options);
  const std::string text = error_text([&] { estimate_session(*session, scope); });
  expect_contains(text, "the shape of \"packed\" depends on data");
  expect_contains(text, "--bound packed=");
  scope.bounds["packed"] = {DType::float32, {4, 20, 3}};
  const auto bounded = forward_session(net, options);
  EXPECT_EQ(estimate_session(*bounded, scope).ops[1].outputs, 960);
  EXPECT_EQ(bounded->blobs.fetch("Y").shape(), (Shape{4, 20, 3}));
}

TEST(Estimate, NamesAllBlobsWhoseShapesAreMissing) {
  const NetDef net = parse_net_text(kMlp, "mlp");
  ForwardOptions options = mlp_feeds();
  options.feeds.erase("W2");
  options.feeds.erase("X");
  DryScope scope;
  const std::string text = error_text([&] { forward_session(net, options); });
  expect_contains(text, "reads blobs whose shapes are not known: X, W2");
  expect_contains(text, "--feed X=float[32,128]");
}

TEST(Estimate, RefusesWhatOnlyDataDecides) {
  const NetDef net = parse_net_text(R"(
    op { type: "If" input: "C" input: "X" output: "Y"
         arg { name: "then_net" n { op { type: "Relu" input: "X" output: "Y" } } } })");
  DryScope scope;
  const auto session =
      forward_session(net, {.feeds = {{"C", TensorType::of(DType::boolean, Shape{1})}, {"X", floats({2})}}});
  const std::string text = error_text([&] { estimate_session(*session, scope); });
  expect_contains(text, "If: what it makes depends on data");
  expect_contains(text, "--bound Y=");
}

TEST(Estimate, StepsThatAreAlikeAreRunOnce) {
  const auto steps = [](int64_t count, int64_t ends) {
    std::vector<std::pair<int64_t, double>> all;
    for (StepsAlike i(count, ends); i.more(); i.next())
      all.emplace_back(*i, DryScope::now() ? DryScope::now()->times : 1);
    return all;
  };
  EXPECT_EQ(steps(100, 1).size(), 100U);
  DryScope scope;
  using Steps = std::vector<std::pair<int64_t, double>>;
  EXPECT_EQ(steps(100, 1), (Steps{{0, 1}, {1, 98}, {99, 1}}));
  EXPECT_EQ(steps(3, 1), (Steps{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(steps(7, 2), (Steps{{0, 1}, {1, 1}, {2, 3}, {5, 1}, {6, 1}}));
  EXPECT_EQ(steps(0, 2), Steps{});
  EXPECT_EQ(scope.times, 1);
}

TEST(Estimate, TellsItInATableAsJsonAndAsAPicture) {
  const NetDef net = parse_net_text(kMlp, "mlp");
  DryScope scope(DeviceKind::cuda);
  const auto session = forward_session(net, mlp_feeds());
  const Estimate estimate = estimate_session(*session, scope);
  const std::string table = estimate_table(estimate), json = estimate_json(estimate, nullptr);
  const bool has_twin = has_kernel(op_spec("FC"), DeviceKind::cuda);
  expect_contains(table, has_twin ? "cuda, float, cuBLASLt\n" : "cuda, float, cuBLASLt (assumed: this build has none)");
  expect_contains(table, "33554432 bytes are cuBLASLt's workspace of one stream");
  expect_contains(json, "\"device\": \"cuda\"");
  expect_contains(json, fmt::format("\"peak\": {}", estimate.peak));
  const std::string svg = estimate_svg(estimate, "a < b");
  expect_contains(svg, "a &lt; b: live bytes");
  expect_contains(svg, "transient values");
  EXPECT_EQ(estimate.product_flops, 2.0 * 32 * (33 * 17 + 5 * 33));
  EXPECT_EQ(estimate.flops, estimate.product_flops + 32 * (33 + 5) + 32 * 33);  // biases, Tanh
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1250000), "1.25 MB");
}

}  // namespace
}  // namespace stepnet::testing::estimate_test
