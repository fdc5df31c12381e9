// The cells once more, in float64 and from plain formulas, on matrices that remember how they were made, to
// differentiate what is made of them. Slow, short and plain.
#include "tools/bench/cell_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/matmul.h"

namespace stepnet::bench {
namespace {

struct Matrix {
  int64_t rows, columns;
  std::vector<double> value, gradient;
  std::function<void()> pull;  // adds to the gradients of what this one was made of

  double& at(int64_t r, int64_t c) { return value[static_cast<size_t>(r * columns + c)]; }
};

class Tape {
 public:
  using Var = Matrix*;  // stays where it is as long as the tape lives

  Var leaf(int64_t rows, int64_t columns, std::span<const float> values);
  // a w^T + b: a [m, k], w [n, k], b [1, n]
  Var affine(Var a, Var w, Var b);
  Var add(Var a, Var b);
  Var sub(Var a, Var b);
  Var mul(Var a, Var b);
  Var sigmoid(Var a);
  Var tanh(Var a);
  Var columns(Var a, int64_t begin, int64_t count);
  // Each row less its mean, divided by sqrt(variance + epsilon), times the row `gain`, plus the row `shift`.
  Var normalize(Var a, Var gain, Var shift, double epsilon);

  // From the gradients that were put into some matrices.
  void pull_all();

 private:
  Var make(int64_t rows, int64_t columns);
  // y = f(a) with the derivative slope(y).
  template <class Fn, class Slope>
  Var map(Var a, Fn fn, Slope slope);

  std::deque<Matrix> all_;
};

// What normalize() keeps: rows without gain and shift, and what each was divided by.
struct Normalized {
  std::vector<double> rows, scale;
};

Normalized normalized(const Matrix& a, double epsilon) {
  Normalized result{a.value, {}};
  const auto n = static_cast<double>(a.columns);
  for (int64_t r = 0; r < a.rows; ++r) {
    const std::span<double> row(result.rows.data() + r * a.columns, static_cast<size_t>(a.columns));
    double mean = 0, variance = 0;
    for (const double v : row) mean += v / n;
    for (const double v : row) variance += (v - mean) * (v - mean) / n;
    result.scale.push_back(std::sqrt(variance + epsilon));
    for (double& v : row) v = (v - mean) / result.scale.back();
  }
  return result;
}

Tape::Var Tape::make(int64_t rows, int64_t columns) {
  const auto size = static_cast<size_t>(rows * columns);
  return &all_.emplace_back(Matrix{rows, columns, std::vector<double>(size), std::vector<double>(size), [] {}});
}

Tape::Var Tape::leaf(int64_t rows, int64_t columns, std::span<const float> values) {
  const Var y = make(rows, columns);
  std::copy(values.begin(), values.end(), y->value.begin());
  return y;
}

Tape::Var Tape::affine(Var a, Var w, Var b) {
  const int64_t m = a->rows, n = w->rows, k = a->columns;
  const Var y = make(m, n);
  for (int64_t r = 0; r < m; ++r) std::copy(b->value.begin(), b->value.end(), y->value.begin() + r * n);
  matmul(false, true, m, n, k, a->value.data(), w->value.data(), y->value.data(), true);
  y->pull = [=] {
    const double* dy = y->gradient.data();
    matmul(false, false, m, k, n, dy, w->value.data(), a->gradient.data(), true);
    matmul(true, false, n, k, m, dy, a->value.data(), w->gradient.data(), true);
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < n; ++c) b->gradient[static_cast<size_t>(c)] += dy[r * n + c];
  };
  return y;
}

Tape::Var Tape::add(Var a, Var b) {
  const Var y = make(a->rows, a->columns);
  for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] + b->value[i];
  y->pull = [=] {
    for (size_t i = 0; i < y->value.size(); ++i) {
      a->gradient[i] += y->gradient[i];
      b->gradient[i] += y->gradient[i];
    }
  };
  return y;
}

Tape::Var Tape::sub(Var a, Var b) {
  const Var y = make(a->rows, a->columns);
  for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] - b->value[i];
  y->pull = [=] {
    for (size_t i = 0; i < y->value.size(); ++i) {
      a->gradient[i] += y->gradient[i];
      b->gradient[i] -= y->gradient[i];
    }
  };
  return y;
}

Tape::Var Tape::mul(Var a, Var b) {
  const Var y = make(a->rows, a->columns);
  for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] * b->value[i];
  y->pull = [=] {
    for (size_t i = 0; i < y->value.size(); ++i) {
      a->gradient[i] += y->gradient[i] * b->value[i];
      b->gradient[i] += y->gradient[i] * a->value[i];
    }
  };
  return y;
}

template <class Fn, class Slope>
Tape::Var Tape::map(Var a, Fn fn, Slope slope) {
  const Var y = make(a->rows, a->columns);
  for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = fn(a->value[i]);
  y->pull = [=] {
    for (size_t i = 0; i < y->value.size(); ++i) a->gradient[i] += y->gradient[i] * slope(y->value[i]);
  };
  return y;
}

Tape::Var Tape::sigmoid(Var a) {
  return map(
      a, [](double x) { return 1 / (1 + std::exp(-x)); }, [](double y) { return y * (1 - y); });
}

Tape::Var Tape::tanh(Var a) {
  return map(
      a, [](double x) { return std::tanh(x); }, [](double y) { return 1 - y * y; });
}

Tape::Var Tape::columns(Var a, int64_t begin, int64_t count) {
  const Var y = make(a->rows, count);
  for (int64_t r = 0; r < a->rows; ++r)
    for (int64_t c = 0; c < count; ++c) y->at(r, c) = a->at(r, begin + c);
  y->pull = [=] {
    for (int64_t r = 0; r < a->rows; ++r)
      for (int64_t c = 0; c < count; ++c)
        a->gradient[static_cast<size_t>(r * a->columns + begin + c)] += y->gradient[static_cast<size_t>(r * count + c)];
  };
  return y;
}

Tape::Var Tape::normalize(Var a, Var gain, Var shift, double epsilon) {
  const Var y = make(a->rows, a->columns);
  const int64_t n = a->columns;
  Normalized u = normalized(*a, epsilon);
  for (size_t i = 0; i < y->value.size(); ++i) {
    const size_t c = i % static_cast<size_t>(n);
    y->value[i] = u.rows[i] * gain->value[c] + shift->value[c];
  }
  y->pull = [=, u = std::move(u)] {
    for (int64_t r = 0; r < a->rows; ++r) {
      double mean = 0, along = 0;  // of du and of du u
      for (int64_t c = 0; c < n; ++c) {
        const auto i = static_cast<size_t>(r * n + c), column = static_cast<size_t>(c);
        gain->gradient[column] += y->gradient[i] * u.rows[i];
        shift->gradient[column] += y->gradient[i];
        mean += y->gradient[i] * gain->value[column] / static_cast<double>(n);
        along += y->gradient[i] * gain->value[column] * u.rows[i] / static_cast<double>(n);
      }
      for (int64_t c = 0; c < n; ++c) {
        const auto i = static_cast<size_t>(r * n + c);
        const double du = y->gradient[i] * gain->value[static_cast<size_t>(c)];
        a->gradient[i] += (du - mean - u.rows[i] * along) / u.scale[static_cast<size_t>(r)];
      }
    }
  };
  return y;
}

void Tape::pull_all() {
  for (auto at = all_.rbegin(); at != all_.rend(); ++at) at->pull();
}

// The formulas of the cells, and the loop over layers and time.

using Var = Tape::Var;
using Vars = std::map<std::string, Var>;

// What a formula sees of a timestep.
struct StepCall {
  Tape& tape;
  const Vars& parameters;
  int64_t hidden;
  Var x, h, c;  // of the input, and of the states before the step; c is null where there is none

  Var gate(Var gates, int64_t index) const { return tape.columns(gates, index * hidden, hidden); }
  Var affine(Var a, const std::string& end) const {
    return tape.affine(a, parameters.at("W_" + end), parameters.at("b_" + end));
  }
};
struct States {
  Var h, c;
};

States lstm(const StepCall& s) {
  Tape& t = s.tape;
  const Var gates = t.add(s.affine(s.x, "x"), s.affine(s.h, "h"));
  const Var i = t.sigmoid(s.gate(gates, 0)), f = t.sigmoid(s.gate(gates, 1)), o = t.sigmoid(s.gate(gates, 2));
  const Var c = t.add(t.mul(f, s.c), t.mul(i, t.tanh(s.gate(gates, 3))));
  return {t.mul(o, t.tanh(c)), c};
}

States lstm_layer_norm(const StepCall& s) {
  Tape& t = s.tape;
  const auto normalized = [&](Var a, const std::string& end) {
    constexpr double kEpsilon = 1e-5;
    return t.normalize(a, s.parameters.at("s_" + end), s.parameters.at("d_" + end), kEpsilon);
  };
  const Var gates = t.add(normalized(s.affine(s.x, "x"), "x"), normalized(s.affine(s.h, "h"), "h"));
  const Var i = t.sigmoid(s.gate(gates, 0)), f = t.sigmoid(s.gate(gates, 1)), o = t.sigmoid(s.gate(gates, 2));
  const Var c = t.add(t.mul(f, s.c), t.mul(i, t.tanh(s.gate(gates, 3))));
  return {t.mul(o, t.tanh(normalized(c, "c"))), c};
}

States gru(const StepCall& s) {
  Tape& t = s.tape;
  const Var x = s.affine(s.x, "x"), h = s.affine(s.h, "h");
  const Var r = t.sigmoid(t.add(s.gate(x, 0), s.gate(h, 0))), z = t.sigmoid(t.add(s.gate(x, 1), s.gate(h, 1)));
  const Var n = t.tanh(t.add(s.gate(x, 2), t.mul(r, s.gate(h, 2))));
  return {t.add(n, t.mul(z, t.sub(s.h, n))), nullptr};
}

States twin(const StepCall& s) {
  Tape& t = s.tape;
  const Var gates = t.add(s.affine(s.x, "x"), s.affine(s.h, "h"));
  const Var f = t.sigmoid(s.gate(gates, 0)), i = t.sigmoid(s.gate(gates, 1)), mix = t.sigmoid(s.gate(gates, 2));
  const Var u = t.tanh(s.gate(gates, 3)), v = t.tanh(s.gate(gates, 4));
  const Var candidate = t.add(v, t.mul(mix, t.sub(u, v)));
  const Var c = t.add(t.mul(f, s.c), t.mul(i, candidate));
  const Var o = t.sigmoid(s.affine(c, "c"));
  return {t.add(s.h, t.mul(o, t.sub(t.tanh(c), s.h))), c};
}

using Formula = States (*)(const StepCall&);
Formula formula(const std::string& name) {
  static const std::map<std::string, Formula> formulas = {
      {"lstm", lstm}, {"lstm_layer_norm", lstm_layer_norm}, {"gru", gru}, {"twin", twin}};
  const auto found = formulas.find(name);
  require(found != formulas.end(), "the cell \"{}\" has no formula", name);
  return found->second;
}

// Rows t of a sequence [T, B, width].
std::vector<Var> rows_of(Tape& tape, const std::vector<float>& values, const Size& size, int64_t width) {
  std::vector<Var> rows;
  const auto count = static_cast<size_t>(size.batch * width);
  for (int64_t t = 0; t < size.steps; ++t)
    rows.push_back(tape.leaf(size.batch, width, std::span(values).subspan(static_cast<size_t>(t) * count, count)));
  return rows;
}

Vars leaves(Tape& tape, const Arrays& arrays, const Size& size) {
  Vars vars;
  for (const auto& [name, array] : arrays) {
    int64_t rows = 1, columns = array.shape.back();
    if (array.shape.size() == 2) rows = array.shape[0];
    if (array.shape.size() == 3) rows = size.batch;
    vars[name] = tape.leaf(rows, columns, array.values);
  }
  return vars;
}

std::vector<double> joined(const std::vector<Var>& rows, std::vector<double> Matrix::*part) {
  std::vector<double> all;
  for (const Var row : rows) all.insert(all.end(), (row->*part).begin(), (row->*part).end());
  return all;
}

std::vector<Var> run_layer(Tape& tape, const CellData& data, const Vars& vars, const std::vector<Var>& inputs) {
  const Formula step = formula(data.cell->name);
  States state{vars.at("h0"), vars.count("c0") ? vars.at("c0") : nullptr};
  std::vector<Var> outputs;
  for (const Var x : inputs) {
    state = step({tape, vars, data.size.hidden, x, state.h, state.c});
    outputs.push_back(state.h);
  }
  return outputs;
}

}  // namespace

ExactValues exact_results(const CellData& data) {
  const Size& size = data.size;
  Tape tape;
  const std::vector<Var> inputs = rows_of(tape, data.x, size, size.inputs);
  std::vector<Vars> layers;
  std::vector<Var> top = inputs;
  for (const Arrays& arrays : data.layers) {
    layers.push_back(leaves(tape, arrays, size));
    top = run_layer(tape, data, layers.back(), top);
  }
  auto dy = data.dy.begin();
  for (const Var row : top) {
    std::copy(dy, dy + size.batch * size.hidden, row->gradient.begin());
    dy += size.batch * size.hidden;
  }
  tape.pull_all();
  ExactValues values{{"h_all", joined(top, &Matrix::value)}, {"dx", joined(inputs, &Matrix::gradient)}};
  for (size_t k = 0; k < layers.size(); ++k)
    for (const auto& [name, var] : layers[k]) values[fmt::format("d{}_{}", name, k)] = var->gradient;
  return values;
}

}  // namespace stepnet::bench
