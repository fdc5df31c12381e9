#include "recurrent/layers/vendor_weights.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace stepnet {
namespace {

constexpr int kPerPart = 4;

int64_t inputs_of(const FlatWeights& w, int64_t layer) { return layer == 0 ? w.inputs : w.directions * w.hidden; }
bool is_skipped(const FlatWeights& w, int64_t part) { return w.skip && part < w.directions; }

// Elements of all matrices of a part.
int64_t matrices_of(const FlatWeights& w, int64_t part) {
  const int64_t inputs = is_skipped(w, part) ? 0 : inputs_of(w, part / w.directions);
  return gates_of(w.cell) * w.hidden * (inputs + w.hidden);
}

int64_t all_matrices(const FlatWeights& w) {
  int64_t sum = 0;
  for (int64_t part = 0; part < w.layers * w.directions; ++part) sum += matrices_of(w, part);
  return sum;
}

CellWeights layers_of(const FlatWeights& w) {
  return {w.cell, static_cast<int>(w.layers), static_cast<int>(w.directions)};
}

Shape shape_of(const FlatWeights& w, int64_t part, int kind) {
  const int64_t rows = gates_of(w.cell) * w.hidden;
  if (kind >= 2) return {rows};
  return {rows, kind == 0 ? inputs_of(w, part / w.directions) : w.hidden};
}

// Where tensor `kind` of the part begins; its gates follow one another.
int64_t offset_of(const FlatWeights& w, int64_t part, int kind) {
  const int64_t gate = kind % 2 == 0 ? 0 : gates_of(w.cell);
  return (kind < 2 ? flat_matrix(w, part, gate) : flat_bias(w, part, gate)).offset;
}

template <class T>
void fill_identity(Tensor& t) {
  std::ranges::fill(t.span<T>(), T(0));
  for (int64_t row = 0, columns = t.dim(1); row < t.dim(0); ++row) t.data<T>()[row * columns + row % columns] = 1;
}

Tensor identities(const FlatWeights& w, DType dtype) {
  Tensor t = Tensor::empty(dtype, shape_of(w, 0, 0));
  if (!t.is_dry()) dtype == DType::float64 ? fill_identity<double>(t) : fill_identity<float>(t);
  return t;
}

void check_size(const FlatWeights& w, const Tensor& flat) {
  require(flat.size() == flat_size(w), "the weights are {}, but these layers have {} in all", flat, flat_size(w));
}

}  // namespace

int64_t gates_of(CellKind cell) { return cell == CellKind::lstm ? 4 : cell == CellKind::gru ? 3 : 1; }

int64_t flat_size(const FlatWeights& w) {
  return all_matrices(w) + 2 * w.layers * w.directions * gates_of(w.cell) * w.hidden;
}

FlatPlace flat_matrix(const FlatWeights& w, int64_t part, int64_t gate) {
  FlatPlace place;
  for (int64_t before = 0; before < part; ++before) place.offset += matrices_of(w, before);
  const int64_t gates = gates_of(w.cell), inputs = is_skipped(w, part) ? 0 : inputs_of(w, part / w.directions);
  const int64_t of_input = std::min(gate, gates), of_state = std::max<int64_t>(gate - gates, 0);
  place.offset += w.hidden * (of_input * inputs + of_state * w.hidden);
  place.shape = gate >= gates ? Shape{w.hidden, w.hidden} : Shape{is_skipped(w, part) ? 0 : w.hidden, inputs};
  return place;
}

FlatPlace flat_bias(const FlatWeights& w, int64_t part, int64_t gate) {
  return {all_matrices(w) + (2 * gates_of(w.cell) * part + gate) * w.hidden, {w.hidden}};
}

std::vector<Tensor> from_flat(const FlatWeights& w, const Tensor& flat) {
  check_size(w, flat);
  std::vector<Tensor> parts;
  for (int64_t part = 0; part < w.layers * w.directions; ++part)
    for (int kind = 0; kind < kPerPart; ++kind) {
      const Shape shape = shape_of(w, part, kind);
      if (kind == 0 && is_skipped(w, part)) {
        parts.push_back(identities(w, flat.dtype()));
      } else if (flat.is_dry() || !flat.storage()) {
        parts.push_back(Tensor::empty(flat.dtype(), shape));
      } else {
        const auto at = static_cast<size_t>(offset_of(w, part, kind)) * dtype_size(flat.dtype());
        parts.push_back(Tensor::view(flat.storage(), flat.offset() + at, flat.dtype(), shape));
      }
    }
  // Its order of gates is PyTorch's.
  return flat.is_dry() ? parts : convert_weights(layers_of(w), WeightOrder::pytorch, WeightOrder::stepnet, parts);
}

void to_flat(const FlatWeights& w, const std::vector<Tensor>& weights, Tensor& flat) {
  check_size(w, flat);
  std::vector<Tensor> all = weights;
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].defined()) all[i] = Tensor::zeros(flat.dtype(), shape_of(w, static_cast<int64_t>(i) / kPerPart, i % 4));
  all = convert_weights(layers_of(w), WeightOrder::stepnet, WeightOrder::pytorch, all);
  if (flat.is_dry()) return;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t part = static_cast<int64_t>(i) / kPerPart;
    const int kind = static_cast<int>(i) % kPerPart;
    if (all[i].size() == 0 || (kind == 0 && is_skipped(w, part))) continue;
    const auto at = static_cast<size_t>(offset_of(w, part, kind)) * dtype_size(flat.dtype());
    std::memcpy(flat.raw() + at, all[i].raw(), all[i].bytes());
  }
}

}  // namespace stepnet
