// What a training step of an LSTM takes at its peak, to the byte: the formulas of docs/memory.md, for each way to write
// the cell. Every block of the allocator is rounded up to 64 bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "core/compute/threads.h"
#include "stepnet/gradients.h"
#include "stepnet/matmul.h"
#include "tests/recurrent/full_form.h"

namespace stepnet::testing::training_memory_test {
namespace {

struct Sizes {
  int64_t t, b, i, h;  // timesteps, batch, inputs, width
};

const Sizes kSizes[] = {{50, 16, 24, 32}, {7, 5, 3, 16}, {300, 4, 8, 9}, {2, 1, 4, 8}, {1, 3, 5, 8}};

const CellState kH = {"h_prev", "h", "h0", "h_all", "h_last"};
const CellState kC = {"c_prev", "c", "c0", "", "c_last"};

template <class T>
Feeds feeds_of(const Sizes& s) {
  return {{"X", normal<T>({s.t, s.b, s.i}, 1)}, {"h0", normal<T>({1, s.b, s.h}, 2)},
          {"c0", normal<T>({1, s.b, s.h}, 3)},  {"Wx", normal<T>({4 * s.h, s.i}, 4)},
          {"bx", normal<T>({4 * s.h}, 5)},      {"Wh", normal<T>({4 * s.h, s.h}, 6)},
          {"bh", normal<T>({4 * s.h}, 7)},      {"dh_all", normal<T>({s.t, s.b, s.h}, 8)}};
}

const std::vector<std::string> kDifferentiated = {"X", "h0", "c0", "Wx", "bx", "Wh", "bh"};

template <class T>
NetDef short_form(const Sizes& s) {
  const Cell cell = {{"a = FC(x, Wx, bx) axis=2", "r = FC(h_prev, Wh, bh) axis=2", "gates = Sum(a, r)",
                      "h, c = LSTMUnit(h_prev, c_prev, gates, timestep) sequence_lengths=0"},
                     {kH, kC}};
  return expanded_net(cell, feeds_of<T>(s));
}

template <class T>
NetDef composed(const Sizes& s) {
  const Cell cell = {
      {"a = FC(x, Wx, bx) axis=2", "r = FC(h_prev, Wh, bh) axis=2", "gates = Sum(a, r)",
       "si, sf, so, sg = Split(gates) axis=2", "i = Sigmoid(si)", "f = Sigmoid(sf)", "o = Sigmoid(so)", "g = Tanh(sg)",
       "kept = Mul(f, c_prev)", "added = Mul(i, g)", "c = Add(kept, added)", "tc = Tanh(c)", "h = Mul(o, tc)"},
      {kH, kC}};
  return expanded_net(cell, feeds_of<T>(s));
}

// As the public format's builder writes it: the inputs' product in front of the network, whose sequence it is.
template <class T>
NetDef full_form(const Sizes& s) {
  const FullForm form = {
      .inputs = {"i2h", "h0", "c0", "Wh", "bh"},
      .outputs = {"h_all", "h_last", "c_last"},
      .states = {"S = h0", "C = c0"},
      .links = {"h_prev = S[0]", "h = S[1]", "c_prev = C[0]", "c = C[1]", "input_t = i2h[0]"},
      .views = {"h_all = S[1]", "h_last = S[-1]", "c_last = C[-1]"},
      .step = {"gates_t = FC(h_prev, Wh, bh) axis=2", "gates_t = Sum(gates_t, input_t)",
               "h, c = LSTMUnit(h_prev, c_prev, gates_t, timestep) sequence_lengths=0"},
      .backward = {"h_prev_grad, c_prev_grad, gates_t_grad = LSTMUnitGradient(h_prev, c_prev, gates_t, timestep, h, c, "
                   "h_grad, c_grad) sequence_lengths=0",
                   "Wh_grad, bh_grad, h_prev_fc = FCGradient(h_prev, Wh, gates_t_grad) axis=2",
                   "h_prev_grad = Sum(h_prev_grad, h_prev_fc)"},
      .backward_links = {"h_grad = S_grad[1]", "h_prev_grad = S_grad[0]", "c_grad = C_grad[1]",
                         "c_prev_grad = C_grad[0]", "gates_t_grad = i2h_grad[0]"},
      .params = {"Wh = Wh_grad", "bh = bh_grad"},
      .outputs_with_grads = {0, 1, 2}};
  NetDef net = full_net(form, feeds_of<T>(s));
  const OperatorDef loop = net.op(0);
  *net.mutable_op(0) = make_op("FC", {"X", "Wx", "bx"}, {"i2h"}, {make_arg("axis", 2)});
  *net.add_op() = loop;
  return net;
}

int64_t live() { return allocator({}).counters().live; }

// Largest number of bytes at once in the third training step, everything included; in the first, it must not be more.
template <class T>
int64_t peak_bytes(NetDef net, const Sizes& s, int64_t* products = nullptr) {
  const int64_t before = live();
  Workspace workspace;
  for (auto& [name, value] : feeds_of<T>(s)) workspace.tensor(name) = std::move(value);
  add_gradient_operators(
      net, {.targets = {{"h_all", "dh_all"}}, .wanted = {kDifferentiated.begin(), kDifferentiated.end()}, .stop = {}});
  Net bound(net, workspace);
  int64_t first = 0;
  for (int i = 0; i < 3; ++i) {
    allocator({}).reset_peak();
    const int64_t allocations = allocator({}).counters().allocations;
    RunContext run;
    bound.run(run);
    EXPECT_EQ(allocator({}).counters().allocations > allocations, i == 0);
    if (i == 0) first = allocator({}).counters().peak;
  }
  const int64_t peak = allocator({}).counters().peak;
  EXPECT_LE(first, peak);
  if (products) *products = product_bytes();
  return peak - before;
}

template <class T>
class Formula {
 public:
  explicit Formula(const Sizes& s) : s_(s) {}

  // X, dX, the gradient of h_all; h0 and c0, whose gradients are rows of the states' gradients.
  int64_t given() const { return 2 * bytes(s_.t * s_.b * s_.i) + bytes(s_.t * s_.b * s_.h) + 2 * bytes(s_.b * s_.h); }
  int64_t states() const { return 2 * bytes((s_.t + 1) * s_.b * s_.h); }
  int64_t state_gradients() const { return 2 * bytes(2 * s_.b * s_.h); }
  int64_t parameters() const {  // and their gradients
    return 2 * (bytes(4 * s_.h * s_.i) + bytes(4 * s_.h * s_.h) + 2 * bytes(4 * s_.h));
  }
  static int64_t timesteps() { return 2 * 64; }  // the number of the present one, forward and backward
  int64_t everywhere() const { return given() + states() + state_gradients() + parameters() + timesteps(); }
  int64_t slab(int64_t width) const { return bytes(s_.t * s_.b * width * s_.h); }
  // 4H of as many timesteps as have so many rows.
  int64_t block(int64_t rows) const { return bytes(std::min(s_.t, (rows + s_.b - 1) / s_.b) * s_.b * 4 * s_.h); }

 private:
  static int64_t bytes(int64_t elements) { return (elements * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64; }
  Sizes s_;
};

class TrainingMemory : public ::testing::TestWithParam<Sizes> {
 protected:
  SerialScope serial_;  // lanes have timesteps of their own
};

TEST_P(TrainingMemory, OfTheShortForm) {
  const Formula<double> f(GetParam());
  EXPECT_EQ(peak_bytes<double>(short_form<double>(GetParam()), GetParam()), f.everywhere() + f.slab(4));
}

TEST_P(TrainingMemory, OfTheFullForm) {
  const Formula<double> f(GetParam());
  EXPECT_EQ(peak_bytes<double>(full_form<double>(GetParam()), GetParam()), f.everywhere() + 3 * f.slab(4));
}

TEST_P(TrainingMemory, OfTheComposedCell) {
  const Formula<double> f(GetParam());
  EXPECT_EQ(peak_bytes<double>(composed<double>(GetParam()), GetParam()),
            f.everywhere() + 5 * f.slab(1) + f.block(128) + f.block(256));
}

// Products of float take memory of their own, which is counted. On a thread of its own, whose products are all in use.
TEST_P(TrainingMemory, OfFloats) {
  const Formula<float> f(GetParam());
  const std::pair<NetDef, int64_t> nets[] = {
      {short_form<float>(GetParam()), f.slab(4)},
      {full_form<float>(GetParam()), 3 * f.slab(4)},
      {composed<float>(GetParam()), 5 * f.slab(1) + f.block(128) + f.block(256)}};
  std::thread([&] {
    const SerialScope serial;
    for (const auto& [net, kept] : nets) {
      peak_bytes<float>(net, GetParam());  // makes what all products of a thread share
      const int64_t shared = product_bytes();
      int64_t most = 0;
      const int64_t peak = peak_bytes<float>(net, GetParam(), &most);
      EXPECT_EQ(peak, f.everywhere() + kept + most - shared);
    }
  }).join();
}

INSTANTIATE_TEST_SUITE_P(Sizes, TrainingMemory, ::testing::ValuesIn(kSizes), [](const auto& info) {
  const Sizes& s = info.param;
  return fmt::format("T{}B{}I{}H{}", s.t, s.b, s.i, s.h);
});

}  // namespace
}  // namespace stepnet::testing::training_memory_test
