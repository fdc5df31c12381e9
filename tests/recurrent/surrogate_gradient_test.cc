// The gradient of spiking neurons, which differences cannot check: against backpropagation through time by hand, with
// the surrogate in the place of the spike's derivative.
#include <gtest/gtest.h>

#include <cmath>

#include "recurrent/form/short_form.h"
#include "tests/recurrent/cell_files.h"

namespace stepnet::testing::surrogate_gradient_test {
namespace {

// A feed or a gradient, as rows of H or I.
class Rows {
 public:
  Rows(const Tensor& t, int64_t columns) : tensor_(t), columns_(columns) {}
  double& operator()(int64_t row, int64_t column) { return tensor_.data<double>()[row * columns_ + column]; }

 private:
  Tensor tensor_;
  int64_t columns_;
};

struct NetSizes {
  int64_t steps, batch, inputs, units;
};

using Tensors = std::map<std::string, Tensor>;

// What the states are after each timestep, [T, B, H].
Tensors states_of(const NetSizes& n, const Tensors& feeds) {
  Tensors all;
  for (const char* state : {"v", "s"}) all[state] = Tensor::zeros(DType::float64, {n.steps, n.batch, n.units});
  Rows x(feeds.at("x"), n.inputs), w_x(feeds.at("W_x"), n.inputs), w_s(feeds.at("W_s"), n.units);
  Rows b(feeds.at("b_x"), 1), beta(feeds.at("beta"), 1), v(all.at("v"), n.units), s(all.at("s"), n.units);
  Rows v0(feeds.at("v0"), n.units), s0(feeds.at("s0"), n.units);
  for (int64_t row = 0; row < n.steps * n.batch; ++row) {
    Rows &v_prev = row < n.batch ? v0 : v, &s_prev = row < n.batch ? s0 : s;
    const int64_t before = row < n.batch ? row : row - n.batch;
    for (int64_t j = 0; j < n.units; ++j) {
      double sum = beta(j, 0) * v_prev(before, j) + b(j, 0) - s_prev(before, j);
      for (int64_t i = 0; i < n.inputs; ++i) sum += w_x(j, i) * x(row, i);
      for (int64_t i = 0; i < n.units; ++i) sum += w_s(j, i) * s_prev(before, i);
      v(row, j) = sum;
      s(row, j) = sum > 1 ? 1 : 0;
    }
  }
  return all;
}

Tensors gradients_of(const NetSizes& n, const Tensors& feeds, const Feeds& outside) {
  const Tensors all = states_of(n, feeds);
  Tensors given(outside.begin(), outside.end()), d;
  for (const auto& [name, value] : feeds) d[name] = Tensor::zeros(DType::float64, value.shape());
  Rows x(feeds.at("x"), n.inputs), w_x(feeds.at("W_x"), n.inputs), w_s(feeds.at("W_s"), n.units);
  Rows beta(feeds.at("beta"), 1), v(all.at("v"), n.units), s(all.at("s"), n.units);
  Rows v0(feeds.at("v0"), n.units), s0(feeds.at("s0"), n.units);
  Rows dx(d.at("x"), n.inputs), dw_x(d.at("W_x"), n.inputs), dw_s(d.at("W_s"), n.units);
  Rows db(d.at("b_x"), 1), dbeta(d.at("beta"), 1);
  // Gradients of the states before the timestep, at the end those of the initial ones.
  Rows dv_prev(d.at("v0"), n.units), ds_prev(d.at("s0"), n.units);
  Rows dv_last(given.at("v_last"), n.units), ds_last(given.at("s_last"), n.units), ds_all(given.at("s_all"), n.units);
  for (int64_t row = n.steps * n.batch - 1; row >= 0; --row) {
    const int64_t sample = row % n.batch, before = row < n.batch ? row : row - n.batch;
    const bool last = row >= (n.steps - 1) * n.batch;
    Rows &v_prev = row < n.batch ? v0 : v, &s_prev = row < n.batch ? s0 : s;
    std::vector<double> dv(n.units);
    for (int64_t j = 0; j < n.units; ++j) {
      const double ds = ds_all(row, j) + (last ? ds_last(sample, j) : ds_prev(sample, j));
      const double far = 1 + std::abs(v(row, j) - 1);
      dv[j] = (last ? dv_last(sample, j) : dv_prev(sample, j)) + ds / (far * far);
    }
    for (int64_t j = 0; j < n.units; ++j) {
      dv_prev(sample, j) = beta(j, 0) * dv[j];
      ds_prev(sample, j) = -dv[j];
      db(j, 0) += dv[j];
      dbeta(j, 0) += dv[j] * v_prev(before, j);
    }
    for (int64_t j = 0; j < n.units; ++j)
      for (int64_t i = 0; i < n.units; ++i) {
        ds_prev(sample, i) += w_s(j, i) * dv[j];
        dw_s(j, i) += dv[j] * s_prev(before, i);
      }
    for (int64_t j = 0; j < n.units; ++j)
      for (int64_t i = 0; i < n.inputs; ++i) {
        dx(row, i) += w_x(j, i) * dv[j];
        dw_x(j, i) += dv[j] * x(row, i);
      }
  }
  return d;
}

TEST(SurrogateGradient, IsThatOfTheFormula) {
  for (const NetSizes& n : {NetSizes{1, 1, 2, 3}, {5, 2, 2, 3}, {20, 3, 4, 8}}) {
    const Feeds feeds =
        cell_feeds("lif", DType::float64, {{'T', n.steps}, {'B', n.batch}, {'I', n.inputs}, {'H', n.units}});
    CellData data{feeds, {}};
    const Shape state{1, n.batch, n.units};
    for (const char* last : {"v_last", "s_last"}) data.outside.emplace_back(last, normal<double>(state, 900));
    data.outside.emplace_back("s_all", normal<double>(state.with(0, n.steps), 902));
    const Tensors expected = gradients_of(n, Tensors(feeds.begin(), feeds.end()), data.outside);
    for (const std::vector<std::string>& passes : pass_choices()) {
      SCOPED_TRACE(fmt::format("T = {}, {}", n.steps, text_of(passes)));
      NetDef net = without_passes(cell_net("lif"), passes);
      expand_recurrent(net);
      const CellResults results = run_in_turn(net, {data})[0];
      for (const auto& [name, value] : expected)
        EXPECT_EQ(compare(results.gradients.at(name), value, 1e-10), "") << name;
    }
  }
}

// Else there would be nothing to be compared.
TEST(SurrogateGradient, SomeNeuronsSpike) {
  const NetSizes n{20, 3, 4, 8};
  const Feeds feeds =
      cell_feeds("lif", DType::float64, {{'T', n.steps}, {'B', n.batch}, {'I', n.inputs}, {'H', n.units}});
  const Tensor spikes = states_of(n, Tensors(feeds.begin(), feeds.end())).at("s");
  double sent = 0;
  for (const double s : spikes.span<double>()) sent += s;
  EXPECT_GT(sent, 0.05 * static_cast<double>(spikes.size()));
  EXPECT_LT(sent, 0.95 * static_cast<double>(spikes.size()));
}

}  // namespace
}  // namespace stepnet::testing::surrogate_gradient_test
