// Recurrent networks whose sequences, states and weights are all of a half type.
#include <gtest/gtest.h>

#include <cmath>

#include "recurrent/form/passes.h"
#include "recurrent/form/short_form.h"
#include "recurrent/form/spec.h"
#include "stepnet/gradients.h"
#include "stepnet/half.h"
#include "tests/recurrent/layers.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::half_networks_test {
namespace {

template <class To, class From>
Tensor converted(const Tensor& from) {
  Tensor to = Tensor::empty(dtype_of<To>(), from.shape());
  for (int64_t i = 0; i < from.size(); ++i)
    to.data<To>()[i] = static_cast<To>(static_cast<float>(from.data<From>()[i]));
  return to;
}

// Floats as values of the half type, in that type or still in float.
template <class Half>
Feeds fed(Feeds feeds, bool as_half) {
  for (auto& [name, value] : feeds) {
    if (value.dtype() != DType::float32) continue;
    const Tensor half = converted<Half, float>(value);
    value = as_half ? half : converted<float, Half>(half);
  }
  return feeds;
}

// Weights of variance 1 would make a network of this width chaotic: small differences grow from step to step.
Feeds smaller(Feeds feeds) {
  for (auto& [name, value] : feeds)
    if (value.dtype() == DType::float32)
      for (float& element : value.span<float>()) element *= 0.25F;
  return feeds;
}

// The outputs of the last operator, and the gradients of the sum of their products with themselves (the squares' is 2
// y).
std::map<std::string, Tensor> run_with_squares(NetDef net, const Feeds& feeds) {
  GradientRequest request;
  for (const std::string& name : net.op(net.op_size() - 1).output())
    if (!name.empty()) request.targets.emplace_back(name, name);
  expand_recurrent(net);
  for (const auto& [name, value] : feeds)
    if (is_floating(value.dtype())) request.wanted.insert(name);
  const GradientResult gradients = add_gradient_operators(net, request);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  RunContext run;
  net.clear_external_output();
  Net(net, workspace).run(run);
  std::map<std::string, Tensor> results;
  for (const auto& [name, target] : request.targets) results[name] = workspace.fetch(name).clone();
  for (const auto& [name, gradient] : gradients.gradients)
    if (gradient.defined()) results[name + " gradient"] = workspace.fetch(gradient.dense).clone();
  return results;
}

template <class Half>
void check_near(const NetDef& net, const Feeds& feeds, double tolerance) {
  const auto expected = run_with_squares(net, fed<Half>(feeds, false));
  const auto halves = run_with_squares(net, fed<Half>(feeds, true));
  EXPECT_EQ(halves.size(), expected.size());
  EXPECT_GE(halves.size(), 6u);
  for (const auto& [name, value] : halves) {
    ASSERT_EQ(value.dtype(), dtype_of<Half>()) << name;
    EXPECT_EQ(compare(converted<float, Half>(value), expected.at(name), tolerance), "") << name;
    EXPECT_NE(compare(converted<float, Half>(value), expected.at(name), 0), "") << name << " is float's";
  }
}

TEST(HalfNetworks, LayersAreNearThoseOfFloat) {
  for (const CellKind cell : {CellKind::rnn, CellKind::gru, CellKind::lstm})
    for (const bool lengths : {false, true}) {
      const Layers l{.cell = cell, .layers = 2, .directions = 2, .lengths = lengths, .width = 16, .inputs = 8};
      const Feeds feeds = smaller(feeds_of(l, DType::float32, 6, 3));
      SCOPED_TRACE(name_of(l));
      check_near<bfloat16>(net_of(l), feeds, 0.06);
      check_near<float16>(net_of(l), feeds, 0.008);
    }
}

const CellState kH = {"h_prev", "h", "h0", "h_all", "h_last"};
const Lines kElman = {"s = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "p = Sum(s, r)", "h = Tanh(p)"};

Feeds elman_feeds(int64_t steps, int64_t batch) {
  return {{"X", normal<float>({steps, batch, 3}, 1)},
          {"h0", normal<float>({1, batch, 3}, 2)},
          {"W", normal<float>({3, 3}, 11)},
          {"U", normal<float>({3, 3}, 12)},
          {"b", normal<float>({3}, 13)}};
}

TEST(HalfNetworks, ACustomCellIsNearThatOfFloat) {
  for (const int64_t steps : {1, 2, 9}) {
    const Feeds feeds = elman_feeds(steps, 2);
    check_near<bfloat16>(recurrent_net({kElman, {kH}}, feeds), feeds, 0.06);
    check_near<float16>(recurrent_net({kElman, {kH}}, feeds), feeds, 0.008);
  }
}

// What is read from them has one element for each row, and what is computed of that changes them.
TEST(HalfNetworks, MatricesOfSamplesAreNearThoseOfFloat) {
  const Cell cell = {
      .step = {"kept = Mul(S_prev, decay)", "r = BatchMatMul(kept, k)", "e = Sub(r, x)", "b = Mul(e, beta)",
               "change = BatchMatMul(b, row)", "S = Sub(kept, change)", "y = BatchMatMul(S, k)"},
      .states = {{"S_prev", "S", "S0", "S_all", "S_last"}},
      .outputs = {{"y", "y_all"}}};
  for (const int64_t columns : {8, 20, 40}) {
    const Feeds feeds = smaller({{"X", normal<float>({5, 2, 9, 1}, 1)},
                                 {"S0", normal<float>({1, 2, 9, columns}, 2)},
                                 {"decay", normal<float>({1, 2, 1, 1}, 3)},
                                 {"k", normal<float>({1, 2, columns, 1}, 4)},
                                 {"row", normal<float>({1, 2, 1, columns}, 5)},
                                 {"beta", normal<float>({1, 2, 1, 1}, 6)}});
    check_near<bfloat16>(recurrent_net(cell, feeds), feeds, 0.06);
    check_near<float16>(recurrent_net(cell, feeds), feeds, 0.008);
  }
}

// The definition, rounded where an operator of the cell writes.
template <class Half>
std::vector<float> naive_elman(const Feeds& feeds, int64_t steps, int64_t batch) {
  std::map<std::string, const Half*> of;
  for (const auto& [name, value] : feeds) of[name] = value.template data<Half>();
  std::vector<Half> h(of["h0"], of["h0"] + batch * 3);
  std::vector<float> all;
  for (int64_t t = 0; t < steps; ++t) {
    std::vector<Half> next;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t j = 0; j < 3; ++j) {
        double s = of["b"][j], r = of["b"][j];
        for (int64_t k = 0; k < 3; ++k) {
          s += double{of["W"][j * 3 + k]} * double{of["X"][(t * batch + b) * 3 + k]};
          r += double{of["U"][j * 3 + k]} * double{h[b * 3 + k]};
        }
        const Half p = Half(static_cast<float>(s)) + Half(static_cast<float>(r));
        next.push_back(std::tanh(float{p}));
      }
    h = next;
    all.insert(all.end(), h.begin(), h.end());
  }
  return all;
}

template <class Half>
void check_naive(double last_place) {
  constexpr int64_t kSteps = 12, kBatch = 3;
  const Feeds feeds = fed<Half>(elman_feeds(kSteps, kBatch), true);
  Cell cell{kElman, {kH}};
  cell.disabled_passes = pass_names();
  const auto results = run_with_squares(recurrent_net(cell, feeds), feeds);
  const std::vector<float> expected = naive_elman<Half>(feeds, kSteps, kBatch);
  const Tensor all = converted<float, Half>(results.at("h_all"));
  int different = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const float got = all.data<float>()[i];
    different += got != expected[i] ? 1 : 0;
    EXPECT_NEAR(got, expected[i], 4 * last_place * std::fabs(expected[i])) << i;
  }
  // Sums of float may be rounded to the other neighbour where double's are next to the middle.
  EXPECT_LE(different, 2);
}

TEST(HalfNetworks, ValuesAreThoseOfTheDefinitionRoundedAtTheSamePlaces) {
  check_naive<bfloat16>(0x1p-8);
  check_naive<float16>(0x1p-11);
}

TEST(HalfNetworks, MixedInputsAreRefusedWithAHint) {
  Feeds feeds = fed<bfloat16>(elman_feeds(2, 1), true);
  feeds[2].second = normal<float>({3, 3}, 11);
  const std::string error = error_of([&] { run_with_squares(recurrent_net({kElman, {kH}}, feeds), feeds); });
  EXPECT_NE(error.find("must have the same type"), std::string::npos) << error;
  EXPECT_NE(error.find("with Cast"), std::string::npos) << error;
}

}  // namespace
}  // namespace stepnet::testing::half_networks_test
