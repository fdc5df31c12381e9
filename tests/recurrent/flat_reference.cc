#include "tests/recurrent/flat_reference.h"

#include <algorithm>
#include <cmath>

#include "stepnet/arguments.h"

namespace stepnet::testing {
namespace {

using Row = std::vector<double>;

// The weights of one layer in one direction: for each gate, of the input and then of the state.
struct Part {
  std::vector<std::vector<Row>> matrices;
  std::vector<Row> biases;
};

class Cursor {
 public:
  explicit Cursor(const Tensor& flat) : values_(to_double(flat)) {}
  Row take(int64_t count) {
    Row row(static_cast<size_t>(count));
    for (double& v : row) v = values_.data<double>()[at_++];
    return row;
  }
  bool at_end() const { return at_ == values_.size(); }

 private:
  Tensor values_;
  int64_t at_ = 0;
};

std::vector<Row> identity(int64_t n) {
  std::vector<Row> rows(static_cast<size_t>(n), Row(static_cast<size_t>(n), 0.0));
  for (size_t i = 0; i < rows.size(); ++i) rows[i][i] = 1;
  return rows;
}

std::vector<Row> take_matrix(Cursor& cursor, int64_t rows, int64_t columns) {
  std::vector<Row> matrix;
  for (int64_t i = 0; i < rows; ++i) matrix.push_back(cursor.take(columns));
  return matrix;
}

std::vector<Part> read_weights(const FlatCase& c, const Tensor& flat) {
  const int64_t gates = reference_gates(c.mode);
  std::vector<Part> parts(static_cast<size_t>(c.layers * c.directions));
  Cursor cursor(flat);
  for (size_t p = 0; p < parts.size(); ++p) {
    const bool first = static_cast<int64_t>(p) < c.directions;
    const int64_t inputs = first ? c.inputs : c.directions * c.hidden;
    for (int64_t g = 0; g < gates; ++g)
      parts[p].matrices.push_back(first && c.skip ? identity(c.hidden) : take_matrix(cursor, c.hidden, inputs));
    for (int64_t g = 0; g < gates; ++g) parts[p].matrices.push_back(take_matrix(cursor, c.hidden, c.hidden));
  }
  for (Part& part : parts)
    for (int64_t g = 0; g < 2 * gates; ++g) part.biases.push_back(cursor.take(c.hidden));
  EXPECT_TRUE(cursor.at_end());
  return parts;
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// W x + b of gate `g`, row `i`.
double affine(const Part& part, size_t g, size_t i, const Row& x) {
  double sum = part.biases[g][i];
  for (size_t k = 0; k < x.size(); ++k) sum += part.matrices[g][i][k] * x[k];
  return sum;
}

// cuDNN's equations for one timestep of one sample.
void step(const FlatCase& c, const Part& p, const Row& x, Row& h, Row& cell) {
  const auto gates = static_cast<size_t>(reference_gates(c.mode));
  const Row before = h;
  for (size_t i = 0; i < h.size(); ++i) {
    auto both = [&](size_t g) { return affine(p, g, i, x) + affine(p, gates + g, i, before); };
    if (c.mode == "lstm") {
      const double in = sigmoid_of(both(0)), forget = sigmoid_of(both(1)), candidate = std::tanh(both(2));
      cell[i] = forget * cell[i] + in * candidate;
      h[i] = sigmoid_of(both(3)) * std::tanh(cell[i]);
    } else if (c.mode == "gru") {
      const double reset = sigmoid_of(both(0)), update = sigmoid_of(both(1));
      const double candidate = std::tanh(affine(p, 2, i, x) + reset * affine(p, gates + 2, i, before));
      h[i] = (1 - update) * candidate + update * before[i];
    } else {
      h[i] = c.mode == "rnn_relu" ? std::max(0.0, both(0)) : std::tanh(both(0));
    }
  }
}

Row row_at(const Tensor& t, int64_t a, int64_t b) {
  const double* data = t.data<double>() + (a * t.dim(1) + b) * t.dim(2);
  return {data, data + t.dim(2)};
}

void put_row(const Row& row, Tensor& t, int64_t a, int64_t b, int64_t column) {
  std::ranges::copy(row, t.data<double>() + (a * t.dim(1) + b) * t.dim(2) + column);
}

}  // namespace

std::string name_of(const FlatCase& c) {
  return fmt::format("{}_{}_layers_{}_directions{}{}{}", c.mode, c.layers, c.directions, c.lengths ? "_lengths" : "",
                     c.skip ? "_skip" : "", c.states ? "" : "_from_zero");
}
void PrintTo(const FlatCase& c, std::ostream* out) { *out << name_of(c); }

int64_t reference_gates(const std::string& mode) { return mode == "lstm" ? 4 : mode == "gru" ? 3 : 1; }

int64_t reference_size(const FlatCase& c) {
  int64_t size = 0;
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const int64_t inputs = layer > 0 ? c.directions * c.hidden : c.skip ? 0 : c.inputs;
    size += c.directions * reference_gates(c.mode) * c.hidden * (inputs + c.hidden + 2);
  }
  return size;
}

OperatorDef recurrent_op(const FlatCase& c) {
  const std::string hidden = c.states ? "hidden" : "", cell = c.states && c.mode == "lstm" ? "cell" : "";
  OperatorDef op =
      make_op("Recurrent", {"X", hidden, cell, "weights"}, {"Y", "last_hidden", "last_cell", "scratch", "states"},
              {make_arg("hidden_size", c.hidden), make_arg("num_layers", c.layers),
               make_arg("bidirectional", static_cast<int>(c.directions - 1)), make_arg("rnn_mode", c.mode),
               make_arg("input_mode", c.skip ? "skip" : "linear")});
  if (c.lengths) op.add_input("lengths");
  return op;
}

Feeds flat_feeds(const FlatCase& c, DType dtype, int64_t steps, int64_t batch) {
  auto draw = [&](const Shape& shape, uint64_t seed) {
    return dtype == DType::float64 ? normal<double>(shape, seed) : normal<float>(shape, seed);
  };
  const int64_t parts = c.layers * c.directions;
  Feeds feeds = {{"X", draw({steps, batch, c.inputs}, 1)}, {"weights", draw({reference_size(c)}, 2)}};
  if (c.states) feeds.emplace_back("hidden", draw({parts, batch, c.hidden}, 3));
  if (c.states && c.mode == "lstm") feeds.emplace_back("cell", draw({parts, batch, c.hidden}, 4));
  if (c.lengths) feeds.emplace_back("lengths", integers<int32_t>({batch}, 0, steps, 5));
  return feeds;
}

Tensor feed_of(const Feeds& feeds, const std::string& name) {
  const auto it = std::ranges::find(feeds, name, &Feeds::value_type::first);
  return it == feeds.end() ? Tensor() : it->second;
}

std::map<std::string, Tensor> run_flat_reference(const FlatCase& c, const Feeds& feeds) {
  const std::vector<Part> parts = read_weights(c, feed_of(feeds, "weights"));
  Tensor below = to_double(feed_of(feeds, "X"));
  const int64_t steps = below.dim(0), batch = below.dim(1);
  const Tensor lengths = feed_of(feeds, "lengths");
  auto initial = [&](const char* name) {
    const Tensor given = feed_of(feeds, name);
    return given.defined() ? to_double(given)
                           : Tensor::zeros(DType::float64, {c.layers * c.directions, batch, c.hidden});
  };
  Tensor hidden = initial("hidden"), cell = initial("cell"), all;
  for (int64_t part = 0; part < c.layers * c.directions; ++part) {
    const int64_t direction = part % c.directions;
    if (direction == 0) all = Tensor::zeros(DType::float64, {steps, batch, c.directions * c.hidden});
    for (int64_t n = 0; n < batch; ++n) {
      Row h = row_at(hidden, part, n), s = row_at(cell, part, n);
      const int64_t length = lengths.defined() ? lengths.data<int32_t>()[n] : steps;
      for (int64_t i = 0; i < length; ++i) {
        const int64_t t = direction == 0 ? i : length - 1 - i;
        step(c, parts[static_cast<size_t>(part)], row_at(below, t, n), h, s);
        put_row(h, all, t, n, direction * c.hidden);
      }
      put_row(h, hidden, part, n, 0);
      put_row(s, cell, part, n, 0);
    }
    if (direction == c.directions - 1) below = all;
  }
  if (c.mode != "lstm") cell.fill_zero();
  return {{"Y", below}, {"last_hidden", hidden}, {"last_cell", cell}};
}

}  // namespace stepnet::testing
