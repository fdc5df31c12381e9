// The cells: their nets and parameters. tools/bench/exact_cells.cc has their formulas.
#include "stepnet/error.h"
#include "tools/bench/cell_case.h"

namespace stepnet::bench {
namespace {

Cell lstm() {
  return {"lstm",
          {{"lstm", "tools/bench/nets/lstm.pbtxt"}, {"lstm_composed", "tools/bench/nets/lstm_composed.pbtxt.in"}},
          {{"W_x", 4, Fan::inputs}, {"b_x", 4, Fan::none}, {"W_h", 4, Fan::hidden}, {"b_h", 4, Fan::none}},
          {"h0", "c0"}};
}

// A small gain where the state comes in again, as published for cells that are normalised there: with 1 the cell is
// chaotic, and rounding grows from step to step.
Cell lstm_layer_norm() {
  return {"lstm_layer_norm",
          {{"lstm_layer_norm", "tools/examples/cells/lstm_layer_norm.pbtxt"}},
          {{"W_x", 4, Fan::inputs},
           {"b_x", 4, Fan::none},
           {"W_h", 4, Fan::hidden},
           {"b_h", 4, Fan::none},
           {"s_x", 4, Fan::none, 1},
           {"d_x", 4, Fan::none},
           {"s_h", 4, Fan::none, 0.1F},
           {"d_h", 4, Fan::none},
           {"s_c", 1, Fan::none, 1},
           {"d_c", 1, Fan::none}},
          {"h0", "c0"}};
}

Cell gru() {
  return {"gru",
          {{"gru", "tools/bench/nets/gru.pbtxt.in"}, {"gru_unit", "tools/examples/cells/gru.pbtxt"}},
          {{"W_x", 3, Fan::inputs}, {"b_x", 3, Fan::none}, {"W_h", 3, Fan::hidden}, {"b_h", 3, Fan::none}},
          {"h0"}};
}

Cell twin() {
  return {"twin",
          {{"twin", "tools/bench/nets/twin.pbtxt.in"}},
          {{"W_x", 5, Fan::inputs},
           {"b_x", 5, Fan::none},
           {"W_h", 5, Fan::hidden},
           {"b_h", 5, Fan::none},
           {"W_c", 1, Fan::hidden},
           {"b_c", 1, Fan::none}},
          {"h0", "c0"}};
}

}  // namespace

int Cell::rows(Fan fan) const {
  int sum = 0;
  for (const ParameterInfo& parameter : parameters)
    if (parameter.fan == fan) sum += parameter.rows;
  return sum;
}

const std::vector<Cell>& cells() {
  static const std::vector<Cell> all = {lstm(), lstm_layer_norm(), gru(), twin()};
  return all;
}

const Cell& cell(std::string_view name) {
  for (const Cell& cell : cells())
    if (cell.name == name) return cell;
  fail("there is no cell \"{}\"", name);
}

}  // namespace stepnet::bench
