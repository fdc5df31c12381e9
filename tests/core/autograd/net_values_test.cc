// Nets as nodes: when their saved values come into memory and leave it, and what hooks on them may do.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "stepnet/offload.h"
#include "stepnet/rerun.h"
#include "tests/core/autograd/net_testing.h"
#include "tests/core/temp_folder.h"

namespace stepnet::autograd::testing::net_values_test {
namespace {

using stepnet::testing::TempFolder;

using Names = std::vector<std::string>;

constexpr int64_t kElements = 1 << 13, kBytes = kElements * 8;

// y = tanh(tanh(... x)), as one operation.
NetFunction chain(int length) {
  std::string text;
  for (int i = 0; i < length; ++i)
    text += op_text("Tanh", {i == 0 ? "x" : fmt::format("t{}", i)}, {fmt::format("t{}", i + 1)});
  return NetFunction(net_from(text), {"x"}, {fmt::format("t{}", length)});
}

Variable eager_chain(const Variable& x, int length) {
  Variable y = x;
  for (int i = 0; i < length; ++i) y = apply("Tanh", {y});
  return y;
}

// Packs values as numbers, and counts the tensors of saved values that are in memory at once.
class Watched {
 public:
  SavedValueHooks hooks() {
    return {[this](const Tensor& t) -> std::any {
              most_packing = std::max(most_packing, add(packing_, t));
              return std::vector<double>(t.span<double>().begin(), t.span<double>().end());
            },
            [this](const std::any& object) {
              const auto& numbers = *std::any_cast<std::vector<double>>(&object);
              Tensor t = Tensor::empty(DType::float64, {static_cast<int64_t>(numbers.size())});
              std::copy(numbers.begin(), numbers.end(), t.data<double>());
              most_unpacked = std::max(most_unpacked, add(unpacked_, t));
              return t;
            }};
  }
  int64_t most_packing = 0, most_unpacked = 0;

 private:
  using Seen = std::vector<std::weak_ptr<Storage>>;
  static int64_t add(Seen& seen, const Tensor& t) {
    std::erase_if(seen, [](const auto& weak) { return weak.expired(); });
    seen.push_back(t.storage());
    return static_cast<int64_t>(seen.size());
  }
  Seen packing_, unpacked_;
};

TEST(NetValues, AreUnpackedWhenTheyAreReadAndPackedWhenTheyAreMade) {
  const NetFunction f = chain(20);
  const Variable x(numbers({6}, 1), true);
  const Numbers expected = values_of(grad({sum_of(eager_chain(x, 20))}, {x})[0].dense);
  for (const bool keep : {true, false}) {
    Watched watched;
    Variable y;
    {
      const SavedValueHooksScope scope(watched.hooks());
      y = f({x})[0];
    }
    EXPECT_LE(watched.most_packing, 2);  // an operator's input and output
    for (int i = 0; i < (keep ? 2 : 1); ++i)
      EXPECT_EQ(values_of(grad({sum_of(y)}, {x}, {.keep_graph = keep})[0].dense), expected);
    EXPECT_EQ(watched.most_unpacked, 1);
  }
}

// The most bytes above what was live, in values of the chain: forward and backward.
struct Peaks {
  double forward, backward;
};
template <class Fn>
Peaks peaks_of(Fn make) {
  const int64_t before = live_bytes();
  const auto peak = [&] {
    const auto bytes = static_cast<double>(allocator(Device{}).counters().peak - before);
    allocator(Device{}).reset_peak();
    return bytes / static_cast<double>(kBytes);
  };
  allocator(Device{}).reset_peak();
  const Variable root = make();
  const double forward = peak();
  backward(root);
  return {forward, peak()};
}

TEST(NetValues, OffloadHasThePeakOfTheEagerTape) {
  const TempFolder folder;
  OffloadOptions where;
  where.folder = folder.path();
  const Variable x(Tensor::zeros(DType::float64, {kElements}), true);
  for (const int length : {6, 24}) {
    const NetFunction f = chain(length);
    { const Variable first = sum_of(f({x})[0]); }
    for (int round = 0; round < 2; ++round) {
      Variable(x).clear_grad();
      const OffloadScope scope(where);
      const Peaks peaks = peaks_of([&] { return sum_of(f({x})[0]); });
      EXPECT_LE(peaks.forward, 2.01) << length;
      EXPECT_LE(peaks.backward, 4.01) << length;
    }
  }
}

// Gradients of the factors take the place of what was saved, as on the eager tape.
TEST(NetValues, GoAsTheBackwardPassComesToThem) {
  constexpr int kLength = 16;
  std::string text;
  Names inputs = {"t0"};
  std::vector<Variable> variables = {Variable(Tensor::zeros(DType::float64, {kElements}), true)};
  for (int i = 0; i < kLength; ++i) {
    inputs.push_back(fmt::format("w{}", i));
    variables.emplace_back(Tensor::zeros(DType::float64, {kElements}), true);
    text += op_text("Mul", {fmt::format("t{}", i), inputs.back()}, {fmt::format("t{}", i + 1)});
  }
  const NetFunction f(net_from(text), inputs, {fmt::format("t{}", kLength)});
  const Peaks peaks = peaks_of([&] { return sum_of(f(variables)[0]); });
  EXPECT_GE(peaks.backward, kLength);
  EXPECT_LE(peaks.backward, kLength + 4);
}

// Bytes that another name shows are overwritten behind the operator that made them, so they are saved at the end.
TEST(NetValues, ThatAnotherNameOverwritesAreThoseOfTheStaticNet) {
  const NetDef net = net_from(op_text("Exp", {"x"}, {"e"}) + op_text("Alias", {"e"}, {"a"}) +
                              op_text("Mul", {"e", "a"}, {"m"}) + op_text("Tanh", {"m"}, {"y"}));
  const NetFunction f(net, {"x"}, {"y"});
  const Tensor at = numbers({6}, 1), dy = numbers({6}, 2);
  const Tensor expected = run_static(net, {{"x", at}}, {{"y", dy}}, {"x"}, {}).at("x_gradient");
  const Variable x(at.clone(), true);
  Watched watched;
  const SavedValueHooksScope scope(watched.hooks());
  const Variable y = f({x})[0];
  EXPECT_TRUE(same(grad({y}, {x}, {.grad_outputs = {Variable(dy)}})[0].dense.value(), expected));
}

// The second run of a region ends with the last value that the net in it saves.
TEST(NetValues, OfANetInARegionAreMadeAgain) {
  const NetFunction f = chain(6);
  const auto region = [&](const std::vector<Variable>& in) { return f(in); };
  const Variable x(numbers({6}, 1), true);
  const Numbers expected = values_of(grad({sum_of(eager_chain(x, 12))}, {x})[0].dense);
  const Variable y = checkpoint(region, checkpoint(region, {x}))[0];
  for (const bool keep : {true, false})
    EXPECT_EQ(values_of(grad({sum_of(y)}, {x}, {.keep_graph = keep})[0].dense), expected);
}

// When it first unpacks, the hook runs a pass of several threads through the node that asks. There is always a thread
// that does not come to that node, as it waits until it has been come to: often the one that runs the hook.
TEST(NetHooks, MayRunAPassOnSeveralThreadsThroughTheirOwnNode) {
  const NetFunction f = chain(4);
  const Variable x = var({0.5, 0.25});
  const Numbers expected = values_of(grad({sum_of(eager_chain(x, 4))}, {x})[0].dense);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> began = false, came = false;
    Variable root, waits;
    Numbers inner;
    {
      const SavedValueHooksScope scope(
          {[](const Tensor& t) -> std::any { return t.clone(); },
           [&](const std::any& object) {
             if (began.exchange(true))
               came = true;
             else
               inner = values_of(grad({root, waits}, {x}, {.keep_graph = true, .threads = 2})[0].dense);
             return std::any_cast<Tensor>(object);
           }});
      root = sum_of(f({x})[0]);
    }
    waits = own({x}, var({0}), [&](const Gradients&, const NodeRun&) {
      while (!came) std::this_thread::yield();
      return Gradients{var({0, 0}, false)};
    });
    EXPECT_EQ(values_of(grad({root}, {x})[0].dense), expected);
    EXPECT_EQ(inner, expected);
  }
}

}  // namespace
}  // namespace stepnet::autograd::testing::net_values_test
