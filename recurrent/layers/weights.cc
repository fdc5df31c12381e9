#include "recurrent/layers/weights.h"

#include <algorithm>
#include <cstring>

#include "stepnet/error.h"

namespace stepnet {
namespace {

using Strings = std::vector<std::string>;

constexpr int kPerDirection = 4;

// Which of Stepnet's gates stand in the order's places.
std::vector<int> gates_of(CellKind cell, WeightOrder order) {
  if (cell == CellKind::rnn) return {0};
  if (cell == CellKind::gru) return order == WeightOrder::onnx ? std::vector<int>{1, 0, 2} : std::vector<int>{0, 1, 2};
  if (order == WeightOrder::pytorch) return {0, 1, 3, 2};
  return order == WeightOrder::onnx ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2, 3};
}

void copy_bytes(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count) {
  const size_t size = dtype_size(from.dtype());
  if (count > 0 && !to.is_dry()) std::memcpy(to.raw() + to_at * size, from.raw() + from_at * size, count * size);
}

// Blocks of rows from one order of gates to another.
Tensor reordered(const Tensor& t, const std::vector<int>& from, const std::vector<int>& to) {
  Tensor result = Tensor::empty(t.dtype(), t.shape());
  const int64_t block = t.size() / static_cast<int64_t>(from.size());
  for (size_t place = 0; place < to.size(); ++place) {
    const auto source = std::ranges::find(from, to[place]) - from.begin();
    copy_bytes(t, source * block, result, static_cast<int64_t>(place) * block, block);
  }
  return result;
}

// `count` equal parts of the leading dimension, which they lose if it is a direction.
std::vector<Tensor> cut(const Tensor& t, int64_t count, const Shape& shape) {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < count; ++i) {
    parts.push_back(Tensor::empty(t.dtype(), shape));
    copy_bytes(t, i * shape.size(), parts.back(), 0, shape.size());
  }
  return parts;
}

Tensor stacked(const std::vector<Tensor>& parts, const Shape& shape) {
  Tensor whole = Tensor::empty(parts[0].dtype(), shape);
  int64_t at = 0;
  for (const Tensor& part : parts) {
    copy_bytes(part, 0, whole, at, part.size());
    at += part.size();
  }
  return whole;
}

void check(const std::string& name, const Tensor& t, const Shape& expected) {
  require(t.shape() == expected, "{} is {}, but must be {}", name, t, expected);
}

// H from a matrix of [..., G * H, inputs].
int64_t width_of(const std::string& name, const Tensor& w, int rank, size_t gates) {
  require(w.rank() == rank, "{} is {}, but must have {} dimensions", name, w, rank);
  const int64_t rows = w.dim(rank - 2), g = static_cast<int64_t>(gates);
  require(rows % g == 0, "{} is {}, but its {} rows do not divide into {} gates", name, w, rows, g);
  return rows / g;
}

// From one layer of ONNX to the matrices and vectors of each direction.
std::vector<Tensor> split_layer(const std::vector<Tensor>& layer, const Strings& names, int directions, size_t gates) {
  const int64_t h = width_of(names[0], layer[0], 3, gates), rows = static_cast<int64_t>(gates) * h;
  check(names[0], layer[0], {directions, rows, layer[0].dim(2)});
  check(names[1], layer[1], {directions, rows, h});
  check(names[2], layer[2], {directions, 2 * rows});
  const auto w = cut(layer[0], directions, {rows, layer[0].dim(2)}), r = cut(layer[1], directions, {rows, h});
  const auto b = cut(layer[2], 2 * directions, {rows});
  std::vector<Tensor> all;
  for (int d = 0; d < directions; ++d) all.insert(all.end(), {w[d], r[d], b[2 * d], b[2 * d + 1]});
  return all;
}

std::vector<Tensor> join_layer(const std::vector<Tensor>& layer, int directions) {
  std::vector<Tensor> w, r, b;
  for (int d = 0; d < directions; ++d) {
    w.push_back(layer[kPerDirection * d]);
    r.push_back(layer[kPerDirection * d + 1]);
    b.insert(b.end(), {layer[kPerDirection * d + 2], layer[kPerDirection * d + 3]});
  }
  const int64_t rows = w[0].dim(0);
  return {stacked(w, w[0].shape().prepend(directions)), stacked(r, r[0].shape().prepend(directions)),
          stacked(b, {directions, 2 * rows})};
}

void check_layer(const std::vector<Tensor>& layer, const Strings& names, size_t gates) {
  for (size_t i = 0; i < layer.size(); i += kPerDirection) {
    const int64_t h = width_of(names[i], layer[i], 2, gates), rows = static_cast<int64_t>(gates) * h;
    check(names[i], layer[i], layer[0].shape());
    check(names[i + 1], layer[i + 1], {rows, h});
    check(names[i + 2], layer[i + 2], {rows});
    check(names[i + 3], layer[i + 3], {rows});
  }
}

}  // namespace

std::vector<std::string> weight_names(const CellWeights& cell, WeightOrder order) {
  Strings names;
  for (int layer = 0; layer < cell.layers; ++layer) {
    if (order == WeightOrder::onnx) {
      for (const char* kind : {"W", "R", "B"}) names.push_back(fmt::format("{}_l{}", kind, layer));
      continue;
    }
    for (int d = 0; d < cell.directions; ++d)
      for (const char* kind : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"})
        names.push_back(fmt::format("{}_l{}{}", kind, layer, d == 0 ? "" : "_reverse"));
  }
  return names;
}

std::vector<Tensor> convert_weights(const CellWeights& cell, WeightOrder from, WeightOrder to,
                                    const std::vector<Tensor>& weights) {
  const Strings names = weight_names(cell, from);
  require(weights.size() == names.size(), "layers: {}, directions: {} have {} tensors ({}), but {} are given",
          cell.layers, cell.directions, names.size(), fmt::join(names, ", "), weights.size());
  for (size_t i = 0; i < weights.size(); ++i)
    require(weights[i].dtype() == weights[0].dtype(), "{} is {}, but {} is {}: all must have one type", names[i],
            weights[i], names[0], weights[0]);
  const std::vector<int> from_gates = gates_of(cell.cell, from), to_gates = gates_of(cell.cell, to);
  const size_t per_layer = names.size() / static_cast<size_t>(cell.layers);
  std::vector<Tensor> result;
  for (size_t at = 0; at < weights.size(); at += per_layer) {
    std::vector<Tensor> layer(weights.begin() + at, weights.begin() + at + per_layer);
    const Strings layer_names(names.begin() + at, names.begin() + at + per_layer);
    if (from == WeightOrder::onnx) {
      layer = split_layer(layer, layer_names, cell.directions, from_gates.size());
    } else {
      check_layer(layer, layer_names, from_gates.size());
    }
    for (Tensor& t : layer) t = reordered(t, from_gates, to_gates);
    if (to == WeightOrder::onnx) layer = join_layer(layer, cell.directions);
    result.insert(result.end(), layer.begin(), layer.end());
  }
  return result;
}

}  // namespace stepnet
