// References of matrix products.
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

// A matrix in a tensor's elements, from `first` on; op() is it or its transpose.
struct Matrix {
  const Numbers* v = nullptr;
  int64_t rows = 0, columns = 0;  // as it is stored
  bool transposed = false;
  int64_t first = 0;
  int64_t height() const { return transposed ? columns : rows; }
  int64_t width() const { return transposed ? rows : columns; }
  Counted at(int64_t i, int64_t j) const {
    return (*v)[static_cast<size_t>(first + (transposed ? j * columns + i : i * columns + j))];
  }
};

Matrix matrix(const CountedTensor& t, int64_t axis, bool transposed) {
  const CountedRows rows = rows_before(t.shape, canonical_axis(axis, t.shape.rank()));
  return {&t.v, rows.count, rows.size, transposed};
}

// y += a b
void add_product(const Matrix& a, const Matrix& b, Numbers& y, int64_t first = 0) {
  for (int64_t i = 0; i < a.height(); ++i)
    for (int64_t j = 0; j < b.width(); ++j)
      for (int64_t k = 0; k < a.width(); ++k) y[first + i * b.width() + j] += a.at(i, k) * b.at(k, j);
}

void matmul(CountedCall& c) {
  add_product(matrix(c.x(0), c.whole("axis_a", 1), c.whole("trans_a", 0) != 0),
              matrix(c.x(1), c.whole("axis_b", 1), c.whole("trans_b", 0) != 0), c.y(0));
}

Matrix matrix_of_batch(const CountedTensor& t, bool transposed) {
  const int rank = t.shape.rank();
  return {&t.v, t.shape[rank - 2], t.shape[rank - 1], transposed};
}

// Only counted where batches are repeated.
void batch_matmul(CountedCall& c) {
  Matrix a = matrix_of_batch(c.x(0), c.whole("trans_a", 0) != 0),
         b = matrix_of_batch(c.x(1), c.whole("trans_b", 0) != 0);
  const Shape &batches = c.out[0].shape, &sa = c.x(0).shape, &sb = c.x(1).shape;
  const int64_t count = batches.size_between(0, batches.rank() - 2);
  c.compares = sa.size_between(0, sa.rank() - 2) == count && sb.size_between(0, sb.rank() - 2) == count;
  for (int64_t n = 0; n < count; ++n) {
    if (c.compares) a.first = n * a.rows * a.columns, b.first = n * b.rows * b.columns;
    add_product(a, b, c.y(0), n * a.height() * b.width());
  }
}

void linear_attention(CountedCall& c) {
  const Shape& shape = c.x(0).shape;
  const int64_t steps = shape[0], pairs = shape[1] * shape[2], keys = shape[3], values = c.x(2).shape[3];
  const bool leaving = c.whole("leaving", 0) != 0, decays = c.x(3).there;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    bool zero = !c.x(4).there;
    Numbers state;
    for (int64_t i = 0; i < keys * values; ++i) state.push_back(c.x(4).at(pair * keys * values + i));
    Counted factor;
    for (int64_t n = 0; n < steps; ++n) {
      const int64_t row = (c.whole("reverse", 0) != 0 ? steps - 1 - n : n) * pairs + pair;
      const Counted own = decays ? exp(c.x(3).at(row)) : Counted(1);
      const bool multiplies = decays && !zero && (!leaving || n > 0);
      for (int64_t i = 0; i < keys; ++i)
        for (int64_t j = 0; j < values; ++j) {
          Counted& cell = state[static_cast<size_t>(i * values + j)];
          if (multiplies) cell = (leaving ? factor : own) * cell;
          const Counted term = c.x(1).at(row * keys + i) * c.x(2).at(row * values + j);
          cell = zero ? term : cell + term;
          if (c.wants(0)) c.y(0)[static_cast<size_t>(row * values + j)] += c.x(0).at(row * keys + i) * cell;
        }
      zero = false;
      factor = own;
    }
    for (int64_t i = 0; c.wants(1) && i < keys * values; ++i) {
      const Counted cell = state[static_cast<size_t>(i)];
      c.put(1, pair * keys * values + i, leaving && decays && steps > 0 ? factor * cell : cell);
    }
  }
}

void linear_attention_decay(CountedCall& c) {
  const Shape& shape = c.x(0).shape;
  const int64_t steps = shape[0], pairs = shape[1] * shape[2], keys = shape[3], values = c.x(2).shape[3];
  const bool leaving = c.whole("leaving", 0) != 0;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const auto row = [&](int64_t n) { return (c.whole("reverse", 0) != 0 ? steps - 1 - n : n) * pairs + pair; };
    std::vector<Numbers> kept;
    Numbers factors;
    const auto initial = [&](int input, int64_t cell) {
      return c.x(input).there ? c.x(input).at(pair * keys * values + cell) : Counted(0);
    };
    const auto add = [&](int64_t n, int rows, int other, Numbers& to) {
      for (int64_t i = 0; i < keys * values; ++i)
        to[i] += c.x(rows).at(row(n) * keys + i / values) * c.x(other).at(row(n) * values + i % values);
    };
    Numbers state, gradient;
    for (int64_t i = 0; i < keys * values; ++i) state.push_back(initial(5, i)), gradient.push_back(initial(6, i));
    for (int64_t n = 0; n < steps; ++n) {
      factors.push_back(exp(c.x(3).at(row(n))));
      if (leaving) add(n, 1, 2, state);
      for (Counted& cell : state) cell = factors.back() * cell;
      kept.push_back(state);
      if (!leaving) add(n, 1, 2, state);
    }
    for (int64_t n = steps - 1; n >= 0; --n) {
      if (!leaving) add(n, 0, 4, gradient);
      for (int64_t i = 0; i < keys * values; ++i) c.y(0)[row(n)] += kept[n][i] * gradient[i];
      for (Counted& cell : gradient) cell = factors[n] * cell;
      if (leaving) add(n, 0, 4, gradient);
    }
  }
}

void mv(CountedCall& c) {
  const bool transposed = c.whole("trans", 0) != 0;
  add_product(matrix(c.x(0), 1, transposed), {&c.x(1).v, c.x(1).size(), 1}, c.y(0));
}

void ger(CountedCall& c) {
  for (int64_t i = 0; i < c.out[0].size(); ++i) c.y(0)[i] = c.x(0).v[i / c.x(1).size()] * c.x(1).v[i % c.x(1).size()];
}

// beta M + alpha P
void blend(CountedCall& c) {
  for (int64_t i = 0; i < c.out[0].size(); ++i)
    c.y(0)[i] = c.arg("beta", 1) * c.x(0).v[i] + c.arg("alpha", 1) * c.y(0)[i];
}

void add_r(CountedCall& c) {
  for (int64_t i = 0; i < c.out[0].size(); ++i) c.y(0)[i] = c.x(1).v[i / c.x(2).size()] * c.x(2).v[i % c.x(2).size()];
  blend(c);
}

void add_mv(CountedCall& c) {
  add_product(matrix(c.x(1), 1, false), {&c.x(2).v, c.x(2).size(), 1}, c.y(0));
  blend(c);
}

Reference add_batches(bool sum) {
  return [sum](CountedCall& c) {
    Matrix a = matrix_of_batch(c.x(1), false), b = matrix_of_batch(c.x(2), false);
    for (int64_t n = 0; n < c.x(1).shape[0]; ++n) {
      a.first = n * a.rows * a.columns, b.first = n * b.rows * b.columns;
      add_product(a, b, c.y(0), sum ? 0 : n * a.rows * b.columns);
    }
    blend(c);
  };
}

// FC: W is [n, k], or of FCTransposed [k, n].
struct Layer {
  Matrix x, w;
  Layer(const CountedCall& c, bool transposed)
      : x(matrix(c.x(0), c.whole("axis", 1), false)), w(matrix(c.x(1), c.whole("axis_w", 1), !transposed)) {}
};

Reference fc(bool transposed) {
  return [transposed](CountedCall& c) {
    const Layer layer(c, transposed);
    add_product(layer.x, layer.w, c.y(0));
    for (int64_t i = 0; i < c.out[0].size() && c.x(2).there; ++i) c.y(0)[i] += c.x(2).v[i % layer.w.width()];
  };
}

// Inputs are X, W, dY; outputs dW, db, dX.
Reference fc_gradient(bool transposed) {
  return [transposed](CountedCall& c) {
    Layer layer(c, transposed);
    const int64_t n = layer.w.width();
    const Matrix dy{&c.x(2).v, layer.x.rows, n, false}, dy_t{&c.x(2).v, layer.x.rows, n, true};
    if (c.wants(1))
      for (int64_t i = 0; i < c.x(2).size(); ++i) c.y(1)[i % n] += c.x(2).v[i];
    layer.x.transposed = true;
    if (c.wants(0)) {
      if (transposed)
        add_product(layer.x, dy, c.y(0));
      else
        add_product(dy_t, {layer.x.v, layer.x.rows, layer.x.columns}, c.y(0));
    }
    layer.w.transposed = !layer.w.transposed;
    if (c.wants(2)) add_product(dy, layer.w, c.y(2));
  };
}

// A window of W's columns: only counted, as an FC of as many columns as X has.
Reference in_window(const Reference& whole) {
  return [whole](CountedCall& c) {
    c.compares = false;
    CountedTensor& w = c.in[1];
    const int64_t k = rows_before(c.x(0).shape, c.whole("axis", 1)).size;
    w.v.resize(static_cast<size_t>(w.shape[0] * k));
    w.shape = {w.shape[0], k};
    whole(c);
  };
}

}  // namespace

void add_product_references(References& r) {
  r["MatMul"] = matmul;
  r["BatchMatMul"] = batch_matmul;
  r["LinearAttention"] = linear_attention;
  r["LinearAttentionDecay"] = linear_attention_decay;
  r["MV"] = mv;
  r["Ger"] = ger;
  r["AddR"] = add_r;
  r["AddMV"] = add_mv;
  r["AddBMM"] = add_batches(true);
  r["BAddBMM"] = add_batches(false);
  r["FC"] = fc(false);
  r["FCTransposed"] = fc(true);
  r["FCGradient"] = fc_gradient(false);
  r["FCTransposedGradient"] = fc_gradient(true);
  r["FCColumns"] = in_window(fc(false));
  r["FCColumnsGradient"] = in_window(fc_gradient(false));
}

}  // namespace stepnet::testing
