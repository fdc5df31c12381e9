// What is saved during a capture: when hooks unpack it, where regions are computed again, and tangents.
#include <gtest/gtest.h>

#include <optional>

#include "stepnet/rerun.h"
#include "stepnet/saved_value.h"
#include "tests/core/autograd/net/capture_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::autograd::testing::capture_saved_test {
namespace {

using stepnet::testing::normal;
using Variables = std::vector<Variable>;
using Events = std::vector<std::string>;

// Hooks that leave values on a shelf, in the bytes that they are in, and write down what they do.
SavedValueHooks shelf(Events& events) {
  auto next = std::make_shared<int>(0);
  return {[&events, next](const Tensor& t) -> std::any {
            events.push_back(fmt::format("pack {}", ++*next));
            return std::pair(*next, t);
          },
          [&events](const std::any& object) {
            const auto& [number, tensor] = *std::any_cast<std::pair<int, Tensor>>(&object);
            events.push_back(fmt::format("unpack {}", number));
            return tensor;
          }};
}

// The gradient of tanh(tanh(tanh(x))), each of whose nodes saves one value and says when it runs.
Variables watched_chain(const Variable& x, const Variable& dy, Events& events) {
  const SavedValueHooksScope scope(shelf(events));
  Variable y = x;
  for (int i = 1; i <= 3; ++i) {
    y = apply("Tanh", {y});
    y.grad_fn()->register_pre_hook([&events, i](const Gradients&) {
      events.push_back(fmt::format("before {}", i));
      return Gradients{};
    });
    y.grad_fn()->register_post_hook([&events, i](const Gradients&, const Gradients&) {
      events.push_back(fmt::format("after {}", i));
      return Gradients{};
    });
  }
  return {grad({y}, {x}, {.grad_outputs = {dy}})[0].dense};
}

TEST(CaptureSaved, HooksUnpackInTheirNodesTurnAsInAnEagerPass) {
  const Events expected = {"pack 1",   "pack 2",   "pack 3",  "before 3", "unpack 3", "after 3",
                           "before 2", "unpack 2", "after 2", "before 1", "unpack 1", "after 1"};
  Events eager, captured;
  const Variable x(normal<double>({2, 3}), true), dy(normal<double>({2, 3}));
  watched_chain(x, dy, eager);
  EXPECT_EQ(eager, expected);
  expect_captured([&](const Variables& in) { return watched_chain(in[0], dy, captured); }, {x});
  EXPECT_EQ(captured, expected);
}

constexpr int64_t kElements = 1 << 12;

// The gradient of a chain of `regions` times `length` operators that save their outputs; 0 regions: nothing is computed
// again.
Captured captured_chain(int regions, int length) {
  const auto part = [length](const Variables& in) {
    Variable y = in[0];
    for (int i = 0; i < length; ++i) y = apply("Tanh", {y});
    return Variables{y};
  };
  const Variable x(normal<double>({kElements}), true);
  return capture(
      [&](const Variables& in) {
        Variable y = in[0];
        for (int r = 0; r < std::max(1, regions); ++r) y = regions == 0 ? part({y})[0] : checkpoint(part, {y})[0];
        return Variables{grad({sum_of(y)}, {in[0]})[0].dense};
      },
      {x});
}

// A region is computed again in front of the gradients that read it, and not before those of the region behind it.
TEST(CaptureSaved, RegionsAreComputedAgainInTheirTurn) {
  const Captured c = captured_chain(3, 2);
  std::string order;
  for (const OperatorDef& op : c.net.op())
    if (op.type().starts_with("Tanh")) order += op.type() == "Tanh" ? 'f' : 'b';
  EXPECT_EQ(order,
            "ffffff"
            "ffbb"
            "ffbb"
            "ffbb");
}

// The most bytes in values of the chain that a run takes beside its input and what is there before it.
double peak_of(const Captured& captured) {
  Workspace workspace;
  feed(captured, {normal<double>({kElements})}, workspace);
  NetOptions options;
  options.plan_memory = true;
  Net net(captured.net, workspace, options);
  RunContext context;
  const int64_t before = live_bytes();
  allocator(Device{}).reset_peak();
  net.run(context);
  return static_cast<double>(allocator(Device{}).counters().peak - before) / (kElements * 8);
}

// In planned memory the net takes what regions take on the tape: k + n / k + 1 values instead of n + 2.
TEST(CaptureSaved, RegionsTakeNoMoreMemoryThanOnTheTape) {
  const double plain = peak_of(captured_chain(0, 16)), regions = peak_of(captured_chain(4, 4));
  EXPECT_GE(plain, 16);
  EXPECT_LE(plain, 18.1);
  EXPECT_LE(regions, 9.1);
}

// A captured function is a node whose values are unpacked one by one, when its operators read them.
TEST(CaptureSaved, ACapturedFunctionAsANodeUnpacksInTurn) {
  const auto chain = [](const Variables& in) {
    Variable y = in[0];
    for (int i = 0; i < 3; ++i) y = apply("Tanh", {y});
    return Variables{y};
  };
  const Variable x(normal<double>({2, 3}), true);
  const Captured c = capture(chain, {x});
  const NetFunction node(c.net, c.inputs, c.outputs);
  Events events;
  Variable y;
  {
    const SavedValueHooksScope scope(shelf(events));
    y = node({x})[0];
  }
  const size_t packed = events.size();
  EXPECT_EQ(packed, 3U);
  const Variable g = grad({sum_of(y)}, {x})[0].dense;
  EXPECT_EQ(Events(events.begin() + static_cast<int64_t>(packed), events.end()),
            (Events{"unpack 3", "unpack 2", "unpack 1"}));
  EXPECT_EQ(values_of(g), values_of(grad({sum_of(chain({x})[0])}, {x})[0].dense));
}

// Forward mode and its derivatives, with hooks on what they save.
TEST(CaptureSaved, TangentsAreCapturedToo) {
  const Variable x(normal<double>({2, 3}), true), v(normal<double>({2, 3})), w(normal<double>({2, 3}), true);
  const auto fn = [&](const Variables& in) {
    return Variables{sum_of(apply("Mul", {w, apply("Tanh", {apply("Exp", {in[0]})})}))};
  };
  for (const bool hooks : {false, true})
    expect_captured(
        [&](const Variables& in) {
          Events events;
          std::optional<SavedValueHooksScope> scope;
          if (hooks) scope.emplace(shelf(events));
          const Jvp slope = jvp(fn, in, {v});
          const Hvp curve = hvp(fn, in, {v});
          const Gradients third = grad({sum_of(apply("Sqr", {curve.products[0]}))}, {in[0], w});
          return Variables{slope.tangents[0], curve.value,    curve.gradients[0],
                           curve.products[0], third[0].dense, third[1].dense};
        },
        {x});
}

}  // namespace
}  // namespace stepnet::autograd::testing::capture_saved_test
