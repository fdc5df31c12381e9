// The kernels of LSTMUnit: the same bits for every instruction set, place and set of wanted outputs; odd numbers.
#include "operators/cells/lstm_gates.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace stepnet::lstm_gates_test {
namespace {

template <class T>
using Values = std::vector<T>;

template <class T>
struct Row {
  int d;
  Values<T> c_prev, gates, c, dh, dc, h, c_out, dc_prev, dgates;

  // With places before and behind every array that must not be touched.
  Row(int d, int place, double spread)
      : d(d), h(d + 32, T(7)), c_out(d + 32, T(7)), dc_prev(d + 32, T(7)), dgates(4 * d + 32, T(7)) {
    std::mt19937 random(5);
    std::normal_distribution<double> normal(0, spread);
    for (Values<T>* v : {&c_prev, &gates, &c, &dh, &dc}) {
      v->assign(4 * d + 32, T(7));
      for (int i = 0; i < (v == &gates ? 4 * d : d); ++i) (*v)[place + i] = static_cast<T>(normal(random));
    }
  }

  LstmRow<T> forward(int place) { return {d, T(0.5), &c_prev[place], &gates[place], &h[place], &c_out[place]}; }
  LstmGradientRow<T> gradient(int place) {
    return {d,          T(0.5),     &c_prev[place],  &gates[place], &c[place],
            &dh[place], &dc[place], &dc_prev[place], &dgates[place]};
  }
};

// To the bit, so that NaN equals NaN and zeros keep their signs.
template <class T>
bool same(const T* a, const T* b, int size) {
  return std::equal(a, a + size, b, [](T x, T y) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    return std::bit_cast<Bits>(x) == std::bit_cast<Bits>(y) || (std::isnan(x) && std::isnan(y));
  });
}

template <class T>
void expect_same_bits(const LstmKernels& a, const LstmKernels& b) {
  for (int d = 0; d <= 70; ++d) {
    const int place = d % 9;
    Row<T> x(d, 0, 3), y(d, place, 3);
    a.forward(x.forward(0));
    b.forward(y.forward(place));
    a.gradient(x.gradient(0));
    b.gradient(y.gradient(place));
    EXPECT_TRUE(same(x.h.data(), &y.h[place], d)) << d;
    EXPECT_TRUE(same(x.c_out.data(), &y.c_out[place], d)) << d;
    EXPECT_TRUE(same(x.dc_prev.data(), &y.dc_prev[place], d)) << d;
    EXPECT_TRUE(same(x.dgates.data(), &y.dgates[place], 4 * d)) << d;
    for (const Values<T>* v : {&y.h, &y.c_out, &y.dc_prev}) {
      EXPECT_EQ((*v)[place + d], T(7)) << d;
      EXPECT_EQ((*v)[place == 0 ? d : place - 1], T(7)) << d;
    }
    EXPECT_EQ(y.dgates[place + 4 * d], T(7)) << d;
  }
}

TEST(LstmGates, PlaceDoesNotMatter) {
  expect_same_bits<float>(lstm_kernels_plain(), lstm_kernels_plain());
  expect_same_bits<double>(lstm_kernels_plain(), lstm_kernels_plain());
}

TEST(LstmGates, InstructionSetDoesNotMatter) {
  if (!lstm_kernels_wide()) GTEST_SKIP() << "this CPU is not x86-64-v4";
  expect_same_bits<float>(lstm_kernels_plain(), *lstm_kernels_wide());
  expect_same_bits<double>(lstm_kernels_plain(), *lstm_kernels_wide());
}

// What is missing or unwanted changes nothing else; the gates' gradients may overwrite the gates.
TEST(LstmGates, MissingGradientsAndUnwantedOutputs) {
  for (const int d : {1, 5, 31, 100}) {
    Row<double> all(d, 0, 1), some(d, 0, 1);
    lstm_kernels().forward(all.forward(0));
    for (const bool wants_h : {false, true}) {
      LstmRow<double> r = some.forward(0);
      (wants_h ? r.c : r.h) = nullptr;
      lstm_kernels().forward(r);
    }
    EXPECT_TRUE(same(all.h.data(), some.h.data(), d + 32));
    EXPECT_TRUE(same(all.c_out.data(), some.c_out.data(), d + 32));

    std::fill(all.dh.begin(), all.dh.end(), 0.0);
    lstm_kernels().gradient(all.gradient(0));
    LstmGradientRow<double> r = some.gradient(0);
    r.dh = nullptr;
    r.dgates = nullptr;
    lstm_kernels().gradient(r);
    r.dgates = some.gates.data();
    r.dc_prev = nullptr;
    lstm_kernels().gradient(r);
    EXPECT_TRUE(same(all.dc_prev.data(), some.dc_prev.data(), d + 32));
    EXPECT_TRUE(same(all.dgates.data(), some.gates.data(), 4 * d));
  }
}

// The gates' values, written over their sums, give the gradient the same bits as the sums do.
template <class T>
void expect_activated_gates_do(const LstmKernels& kernels) {
  for (const int d : {1, 5, 31, 100}) {
    Row<T> sums(d, 0, 1), active(d, 0, 1);
    kernels.forward(sums.forward(0));
    LstmRow<T> forward = active.forward(0);
    forward.activated = active.gates.data();
    kernels.forward(forward);
    EXPECT_TRUE(same(sums.h.data(), active.h.data(), d + 32));
    EXPECT_TRUE(same(sums.c_out.data(), active.c_out.data(), d + 32));
    for (const int gate : {0, 1, 2})
      EXPECT_NEAR(active.gates[gate * d], 1 / (1 + std::exp(-(sums.gates[gate * d] + (gate == 1 ? T(0.5) : T(0))))),
                  1e-6);
    kernels.gradient(sums.gradient(0));
    LstmGradientRow<T> gradient = active.gradient(0);
    gradient.activated = true;
    kernels.gradient(gradient);
    EXPECT_TRUE(same(sums.dc_prev.data(), active.dc_prev.data(), d + 32));
    EXPECT_TRUE(same(sums.dgates.data(), active.dgates.data(), 4 * d));
  }
}

TEST(LstmGates, ActivatedGates) {
  for (const LstmKernels* kernels : {&lstm_kernels_plain(), &lstm_kernels()}) {
    expect_activated_gates_do<float>(*kernels);
    expect_activated_gates_do<double>(*kernels);
  }
}

// From the gates' values, the states once more.
template <class T>
void expect_states_again(const LstmKernels& kernels) {
  for (const int d : {1, 5, 31, 100}) {
    Row<T> made(d, 0, 1), again(d, 0, 1);
    LstmRow<T> forward = made.forward(0);
    forward.activated = made.gates.data();
    kernels.forward(forward);
    const LstmRow<T> to = again.forward(0);
    kernels.states({d, to.c_prev, made.gates.data(), to.h, to.c});
    EXPECT_TRUE(same(again.h.data(), made.h.data(), d + 32));
    EXPECT_TRUE(same(again.c_out.data(), made.c_out.data(), d + 32));
    Row<T> alone(d, 0, 1);
    kernels.states({d, to.c_prev, made.gates.data(), nullptr, alone.forward(0).c});
    kernels.states({d, to.c_prev, made.gates.data(), alone.forward(0).h, nullptr});
    EXPECT_TRUE(same(alone.h.data(), made.h.data(), d + 32));
    EXPECT_TRUE(same(alone.c_out.data(), made.c_out.data(), d + 32));
  }
}

TEST(LstmGates, StatesAgain) {
  for (const LstmKernels* kernels : {&lstm_kernels_plain(), &lstm_kernels()}) {
    expect_states_again<float>(*kernels);
    expect_states_again<double>(*kernels);
  }
}

template <class T>
void expect_finite_or_nan() {
  const T inf = std::numeric_limits<T>::infinity(), most = std::numeric_limits<T>::max();
  for (const LstmKernels* kernels : {&lstm_kernels_plain(), &lstm_kernels()}) {
    for (const T extreme : {T(90), T(1000), most, inf}) {
      for (const T sign : {T(-1), T(1)}) {
        Row<T> row(21, 0, 1);
        std::fill(row.gates.begin(), row.gates.end(), sign * extreme);
        kernels->forward(row.forward(0));
        kernels->gradient(row.gradient(0));
        for (const Values<T>* v : {&row.h, &row.c_out, &row.dc_prev, &row.dgates})
          for (const T value : *v) EXPECT_TRUE(std::isfinite(value)) << sign * extreme;
      }
    }
    Row<T> row(21, 0, 1);
    for (int gate = 0; gate < 4; ++gate) row.gates[gate * 21 + 3 + 4 * gate] = std::numeric_limits<T>::quiet_NaN();
    kernels->forward(row.forward(0));
    for (int j = 0; j < 21; ++j) {
      EXPECT_EQ(std::isnan(row.h[j]), j % 4 == 3 && j <= 15) << j;
      EXPECT_EQ(std::isnan(row.c_out[j]), j == 3 || j == 7 || j == 15) << j;
    }
  }
}

TEST(LstmGates, ExtremesAreFiniteAndNaNPasses) {
  expect_finite_or_nan<float>();
  expect_finite_or_nan<double>();
}

}  // namespace
}  // namespace stepnet::lstm_gates_test
