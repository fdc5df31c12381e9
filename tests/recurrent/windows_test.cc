// Links that show several rows, and states with initial values of several rows or of none: values against plain loops,
// gradients against differences.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/recurrent/full_form.h"

namespace stepnet::testing::windows_test {
namespace {

// The last `window` inputs of a step are rows of a state that the step net fills from the sequence, so that the
// network filters the sequence: h_t = w_0 x_{t-W+1} + ... + w_{W-1} x_t, with initial rows x_{-W+1} ... x_{-1}.
FullForm filter(int64_t window) {
  return {.inputs = {"X", "before", "h0", "K", "shape"},
          .outputs = {"x_all", "h_all"},
          .states = {"P = before", "S = h0"},
          .links = {fmt::format("window = P[0:{}]", window), fmt::format("latest = P[{}]", window - 1), "h_prev = S[0]",
                    "h = S[1]", "x = X[0]"},
          .views = {fmt::format("x_all = P[{}]", window - 1), "h_all = S[1]"},
          .step = {"latest = Copy(x)", "flat, shape_before = Reshape(window, shape)", "h = MatMul(K, flat)"}};
}

constexpr int64_t kRow = 2 * 3;  // a batch of 2, a width of 3

Feeds filter_feeds(int64_t window, int64_t steps) {
  return {{"X", normal<double>({steps, 2, 3}, 1)},
          {"before", normal<double>({window - 1, 2, 3}, 2)},
          {"h0", normal<double>({2, 3}, 3)},
          {"K", normal<double>({1, window}, 4)},
          {"shape", Tensor::of<int64_t>({2}, {window, kRow})}};
}

// The outputs against plain loops over the inputs that the state shows.
std::string check_filter(const CellResults& results, const Feeds& feeds, int64_t window) {
  const Tensor &given = feeds[1].second, &kernel = feeds[3].second;
  const Tensor &shown = results.outputs.at("x_all"), &all = results.outputs.at("h_all");
  auto input = [&](int64_t row, int64_t i) {
    const int64_t before = window - 1;
    return row < before ? given.data<double>()[row * kRow + i] : shown.data<double>()[(row - before) * kRow + i];
  };
  Tensor expected = Tensor::zeros(DType::float64, all.shape());
  for (int64_t t = 0; t < all.dim(0); ++t)
    for (int64_t i = 0; i < kRow; ++i)
      for (int64_t k = 0; k < window; ++k)
        expected.data<double>()[t * kRow + i] += kernel.data<double>()[k] * input(t + k, i);
  return compare(all, expected, 1e-12);
}

// Also with initial values of no rows, where the state has a row per timestep and the first window is the first input.
TEST(Windows, FilterASequence) {
  for (const int64_t window : {1, 2, 3})
    for (const int64_t steps : {1, 2, 5, 9}) {
      const Feeds feeds = filter_feeds(window, steps);
      const CellResults results = run_with_gradients(full_net(filter(window), feeds), feeds, {});
      EXPECT_EQ(check_filter(results, feeds, window), "") << window << " " << steps;
      EXPECT_EQ(compare(results.outputs.at("x_all"), feeds[0].second, 0), "");
    }
}

// A fill writes the row itself.
TEST(Windows, FilterWhatTheStepNetDraws) {
  for (const int64_t window : {1, 2, 3}) {
    FullForm form = filter(window);
    form.step[0] = "latest = UniformFill(x) dtype=13";
    const Feeds feeds = filter_feeds(window, 9);
    const CellResults results = run_with_gradients(full_net(form, feeds), feeds, {});
    EXPECT_EQ(check_filter(results, feeds, window), "") << window;
    const Tensor& drawn = results.outputs.at("x_all");
    EXPECT_NE(compare(drawn.rows(1, 1), drawn.rows(0, 1), 1e-3), "");
    EXPECT_NE(compare(drawn.rows(8, 1), drawn.rows(6, 1), 1e-3), "");
  }
}

// h_t = tanh(h_{t-1} * h_{t-2} + x_t): the row that is written two steps ahead, and read by two steps. In the backward
// step net the gradient of the later row is added to what the step after has written there.
FullForm two_before() {
  return {.inputs = {"X", "h0"},
          .outputs = {"h_all", "h_last"},
          .states = {"S = h0"},
          .links = {"h_far = S[0]", "h_near = S[1]", "h = S[2]", "x = X[0]"},
          .views = {"h_all = S[2]", "h_last = S[-1]"},
          .step = {"p = Mul(h_near, h_far)", "s = Sum(p, x)", "h = Tanh(s)"},
          .backward = {"s_grad = TanhGradient(h, h_grad)", "near = Mul(s_grad, h_far)",
                       "h_near_grad = Sum(h_near_grad, near)", "h_far_grad = Mul(s_grad, h_near)"},
          .backward_links = {"h_grad = S_grad[2]", "h_near_grad = S_grad[1]", "h_far_grad = S_grad[0]",
                             "s_grad = X_grad[0]"},
          .outputs_with_grads = {0, 1}};
}

// The same by a link with a window.
FullForm two_before_in_a_window() {
  FullForm form = two_before();
  form.links = {"both = S[0:2]", "h = S[2]", "x = X[0]"};
  form.step = {"h_far, h_near = Split(both) axis=0", "p = Mul(h_near, h_far)", "s = Sum(p, x)", "h = Tanh(s)"};
  return form;
}

Feeds delayed_feeds(int64_t steps, int64_t batch) {
  return {{"X", normal<double>({steps, batch, 3}, 1)}, {"h0", normal<double>({2, batch, 3}, 2)}};
}

Feeds delayed_outside(const FullForm& form, int64_t steps, int64_t batch) {
  Feeds outside;
  for (const int64_t output : form.outputs_with_grads)
    outside.emplace_back(form.outputs[output], normal<double>({output == 0 ? steps : 1, batch, 3}, 7 + output));
  return outside;
}

TEST(Windows, InitialValuesOfTwoRows) {
  for (FullForm form : {two_before(), two_before_in_a_window()})
    for (const std::vector<int64_t>& differentiated : {std::vector<int64_t>{0, 1}, {0}, {1}})
      for (const int64_t steps : {1, 2, 3, 6}) {
        form.outputs_with_grads = differentiated;
        const Feeds feeds = delayed_feeds(steps, 2);
        const NetDef net = full_net(form, feeds);
        EXPECT_EQ(check_differences(net, feeds, delayed_outside(form, steps, 2)), "") << steps;
      }
}

TEST(Windows, OverSeveralBlocks) {
  const Feeds feeds = delayed_feeds(7, 50);
  EXPECT_EQ(check_differences(full_net(two_before(), feeds), feeds, delayed_outside(two_before(), 7, 50)), "");
}

// Without timesteps the last row is the last of the initial value, and its gradient goes there.
TEST(Windows, OfNoTimesteps) {
  const Feeds feeds = delayed_feeds(0, 2);
  const Feeds outside = delayed_outside(two_before(), 0, 2);
  const CellResults results = run_with_gradients(full_net(two_before(), feeds), feeds, outside);
  EXPECT_EQ(compare(results.outputs.at("h_last"), feeds[1].second.rows(1, 1), 0), "");
  EXPECT_EQ(results.outputs.at("h_all").shape(), (Shape{0, 2, 3}));
  const Tensor& gradient = results.gradients.at("h0");
  EXPECT_EQ(compare(gradient.rows(1, 1), outside[1].second, 0), "");
  EXPECT_EQ(compare(gradient.rows(0, 1), Tensor::zeros(DType::float64, {1, 2, 3}), 0), "");
}

// A view from the first row on shows the initial value too, and its gradient counts.
TEST(Windows, AViewOfEverything) {
  FullForm form = two_before();
  form.views[0] = "h_all = S[0]";
  for (const int64_t steps : {0, 1, 4}) {
    const Feeds feeds = delayed_feeds(steps, 2);
    Feeds outside = delayed_outside(form, steps, 2);
    outside[0].second = normal<double>({steps + 2, 2, 3}, 9);
    EXPECT_EQ(check_differences(full_net(form, feeds), feeds, outside), "") << steps;
  }
}

// An initial value of no rows is the start of a state that the step net writes from row 0 on and never reads.
TEST(Windows, InitialValueOfNoRows) {
  const FullForm form = {
      .inputs = {"X", "h0", "W", "b"},
      .outputs = {"h_all", "h_last"},
      .states = {"S = h0"},
      .links = {"h = S[0]", "x = X[0]"},
      .views = {"h_all = S[0]", "h_last = S[-1]"},
      .step = {"s = FC(x, W, b) axis=2", "h = Tanh(s)"},
      .backward = {"s_grad = TanhGradient(h, h_grad)", "W_grad, b_grad, x_grad = FCGradient(x, W, s_grad) axis=2"},
      .backward_links = {"h_grad = S_grad[0]", "x_grad = X_grad[0]"},
      .params = {"W = W_grad", "b = b_grad"},
      .outputs_with_grads = {0, 1}};
  for (const auto& [steps, batch] : {std::pair{1, 2}, {5, 2}, {7, 50}}) {
    const Feeds feeds = {{"X", normal<double>({steps, batch, 3}, 1)},
                         {"h0", Tensor::zeros(DType::float64, {0, batch, 3})},
                         {"W", normal<double>({3, 3}, 2)},
                         {"b", normal<double>({3}, 3)}};
    const Feeds outside = {{"h_all", normal<double>({steps, batch, 3}, 4)},
                           {"h_last", normal<double>({1, batch, 3}, 5)}};
    EXPECT_EQ(check_differences(full_net(form, feeds), feeds, outside), "") << steps << " " << batch;
  }
}

}  // namespace
}  // namespace stepnet::testing::windows_test
