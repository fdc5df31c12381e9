#include "core/estimate.h"

#include "core/io/text.h"
#include "core/passes/gradients.h"
#include "tests/core/errors.h"
#include "tests/core/estimate_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {
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

}  // namespace
}  // namespace stepnet::testing
