// The formulas of the cells, and the loop over layers and time.
#include "tools/bench/exact_cells.h"

#include <fmt/format.h>

#include "core/error.h"
#include "tools/bench/tape.h"

namespace stepnet::bench {
namespace {

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
