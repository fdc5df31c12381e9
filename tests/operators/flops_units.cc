// References of LSTMUnit and GRUUnit. A row past its length is counted like the others.
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

// The states' elements and their gates: element j of row n stands at n d + j, its gate g at (n gates + g) d + j.
struct Unit {
  int64_t d = 0, rows = 0, columns = 0, gates = 0;
  const CountedTensor *lengths = nullptr, *timestep = nullptr;

  // `first`: the input of the sequence lengths, or without these of the timestep.
  Unit(const CountedCall& c, const Shape& state, int64_t gates, int first, bool both) : gates(gates) {
    d = state[state.rank() - 1], columns = state[state.rank() - 2], rows = state.size_between(0, state.rank() - 1);
    if (both) lengths = &c.x(first);
    timestep = &c.x(first + (both ? 1 : 0));
  }
  bool over(int64_t n) const { return lengths && !(timestep->v[0] < lengths->v[n % columns]); }
  int64_t gate(int64_t n, int64_t g, int64_t j) const { return (n * gates + g) * d + j; }
};

bool has_lengths(const CountedCall& c) { return c.whole("sequence_lengths", 1) != 0; }
bool drops(const CountedCall& c) { return c.whole("drop_states", 0) != 0; }

// In a row that is over the output is `held`, or with drop_states zero.
void put(CountedCall& c, int o, int64_t at, Counted value, bool over, Counted held = 0) {
  if (c.wants(o)) c.y(o)[at] = !over ? value : drops(c) ? Counted() : held;
}

template <class Fn>
void each_element(const Unit& unit, Fn fn) {
  for (int64_t n = 0; n < unit.rows; ++n)
    for (int64_t j = 0; j < unit.d; ++j) fn(n, j, n * unit.d + j);
}

void lstm(CountedCall& c) {
  const Unit unit(c, c.x(1).shape, 4, 3, has_lengths(c));
  each_element(unit, [&](int64_t n, int64_t j, int64_t at) {
    const auto sum = [&](int64_t g) { return c.x(2).v[unit.gate(n, g, j)]; };
    const bool over = unit.over(n);
    const Counted i = sigmoid(sum(0)), f = sigmoid(sum(1) + c.arg("forget_bias", 0)), o = sigmoid(sum(2));
    const Counted g = tanh(sum(3)), state = f * c.x(1).v[at] + i * g;
    put(c, 0, at, o * tanh(state), over, c.x(0).v[at]);
    put(c, 1, at, state, over, c.x(1).v[at]);
  });
  c.compares = !c.wants(2);
}

void lstm_gradient(CountedCall& c) {
  const bool both = has_lengths(c), active = c.whole("activated_gates", 0) != 0;
  const Unit unit(c, c.x(1).shape, 4, 3, both);
  const int of_c = both ? 6 : 5;
  const CountedTensor &dh = c.x(of_c + 1), &dc = c.x(of_c + 2);
  each_element(unit, [&](int64_t n, int64_t j, int64_t at) {
    const auto sum = [&](int64_t g) { return c.x(2).v[unit.gate(n, g, j)]; };
    const bool over = unit.over(n);
    const Counted i = active ? sum(0) : sigmoid(sum(0)), o = active ? sum(2) : sigmoid(sum(2));
    const Counted f = active ? sum(1) : sigmoid(sum(1) + c.arg("forget_bias", 0)), g = active ? sum(3) : tanh(sum(3));
    const Counted t = tanh(c.x(of_c).v[at]), e = dc.at(at) + dh.at(at) * o * (1 - t * t);
    put(c, 0, at, 0, over, dh.at(at));
    put(c, 1, at, e * f, over, dc.at(at));
    const Counted by[] = {e * g * i * (1 - i), e * c.x(1).v[at] * f * (1 - f), dh.at(at) * t * o * (1 - o),
                          e * i * (1 - g * g)};
    for (int64_t k = 0; k < 4; ++k) put(c, 2, unit.gate(n, k, j), by[k], over);
  });
}

void gru(CountedCall& c) {
  const Unit unit(c, c.x(0).shape, 3, 2, has_lengths(c));
  each_element(unit, [&](int64_t n, int64_t j, int64_t at) {
    const Counted u = sigmoid(c.x(1).v[unit.gate(n, 1, j)]), o = tanh(c.x(1).v[unit.gate(n, 2, j)]);
    put(c, 0, at, u * c.x(0).v[at] + (1 - u) * o, unit.over(n), c.x(0).v[at]);
    if (c.wants(1)) c.y(1)[at] = !unit.over(n) ? u : drops(c) ? Counted() : Counted(1);
    if (c.wants(2)) c.y(2)[at] = !unit.over(n) ? o : Counted(1);
  });
}

void gru_gradient(CountedCall& c) {
  const bool both = has_lengths(c);
  const Unit unit(c, c.x(0).shape, 3, 2, both);
  const CountedTensor& dhs = c.x(both ? 5 : 4);
  each_element(unit, [&](int64_t n, int64_t j, int64_t at) {
    const bool over = unit.over(n);
    const Counted u = sigmoid(c.x(1).v[unit.gate(n, 1, j)]), dh = dhs.v[at];
    put(c, 0, at, dh * u, over, dh);
    if (!c.wants(1)) return;
    const Counted o = tanh(c.x(1).v[unit.gate(n, 2, j)]);
    put(c, 1, unit.gate(n, 1, j), dh * (c.x(0).v[at] - o) * u * (1 - u), over);
    put(c, 1, unit.gate(n, 2, j), dh * (1 - u) * (1 - o * o), over);
  });
}

void gru_activated_gradient(CountedCall& c) {
  const Unit unit(c, c.x(0).shape, 3, 5, has_lengths(c));
  each_element(unit, [&](int64_t n, int64_t j, int64_t at) {
    const bool over = unit.over(n);
    const Counted u = c.x(2).v[at], dh = c.x(4).v[at];
    if (c.wants(0)) put(c, 0, at, dh * u, over, dh);
    if (!c.wants(1)) return;
    const Counted o = c.x(3).v[at];
    put(c, 1, unit.gate(n, 1, j), dh * (c.x(0).v[at] - o) * u * (1 - u), over);
    put(c, 1, unit.gate(n, 2, j), dh * (1 - u) * (1 - o * o), over);
  });
}

}  // namespace

void add_unit_references(References& r) {
  r["LSTMUnit"] = lstm;
  r["LSTMUnitGradient"] = lstm_gradient;
  r["GRUUnit"] = gru;
  r["GRUUnitGradient"] = gru_gradient;
  r["GRUUnitActivatedGradient"] = gru_activated_gradient;
}

}  // namespace stepnet::testing
