#include "recurrent/layers/vendor_weights.h"

#include <algorithm>
#include <cstring>

#include "recurrent/layers/recurrent_op.h"
#include "stepnet/error.h"
#include "stepnet/operator.h"

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

// RecurrentParamSet and RecurrentParamGet: one matrix or bias of the vector of weights of Recurrent.
//
// They copy elements, so that a weight can be given to Recurrent and taken from it by its name in the public format.
namespace {

constexpr int64_t kMostInputs = int64_t{1} << 31;

// Names of the gates in the order of the vector.
std::vector<std::string> gate_names(CellKind cell) {
  if (cell == CellKind::lstm) return {"input_gate", "forget_gate", "cell", "output_gate"};
  if (cell == CellKind::gru) return {"reset_gate", "update_gate", "cell"};
  return {"cell"};
}

void shape(const FlatArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const int64_t size = flat_size(flat_weights(args, call.shape(0)));
  if (call.known(1) && call.shape(1).size() != size)
    fail("these layers have {} weights for X {}, but all_params is {}", size, call.shape(0), call.shape(1));
  const Shape parameter = named_place(args, call.shape(0)).shape;
  if (call.inputs() < 3) {
    if (call.known(1)) call.set(0, call.dtype(1), parameter);
    return;
  }
  if (call.known(2) && call.shape(2).size() != parameter.size())
    fail("{} of layer {} is {}, but the values are {}", args.param_type, args.layer, parameter, call.shape(2));
  call.set_like(0, 1);
}

void move(const Tensor& from, size_t from_at, Tensor& to, size_t to_at, size_t bytes) {
  if (bytes == 0 || to.is_dry()) return;
  allocator(to.device()).copy_within(to.raw() + to_at, from.raw() + from_at, bytes);
}

}  // namespace

FlatWeights flat_weights(const FlatArgs& args, const Shape& x) {
  require(x.rank() == 3, "X must be [T, B, I], but has shape {}", x);
  require(x[2] <= kMostInputs, "X has {} values at each timestep, more than the {} that are possible", x[2],
          kMostInputs);
  const bool skip = args.input_mode == "skip";
  require(!skip || x[2] == args.hidden, "with the input_mode skip X must have {} values at each timestep, but has {}",
          args.hidden, x[2]);
  return {args.cell(), args.layers, args.directions(), x[2], args.hidden, skip};
}

uint64_t flat_key(const FlatArgs& args, uint64_t random_key) {
  return random_key ^ (static_cast<uint64_t>(args.seed) * 0x9E3779B97F4A7C15);
}

FlatPlace named_place(const FlatArgs& args, const Shape& x) {
  require(args.layer < args.parts(), "layer is {}, but {} layers in {} directions are numbered from 0 to {}",
          args.layer, args.layers, args.directions(), args.parts() - 1);
  const std::vector<std::string> names = gate_names(args.cell());
  std::vector<std::string> known;
  for (const char* kind : {"_w", "_b"})
    for (const std::string& name : names) known.push_back(name + kind);
  const auto found = std::ranges::find(known, args.param_type);
  if (found == known.end())
    fail("param_type is \"{}\", but with rnn_mode {} must be {}", args.param_type, args.mode, fmt::join(known, " or "));
  const auto gates = static_cast<int64_t>(names.size());
  const int64_t index = found - known.begin();
  const int64_t gate = index % gates + (args.input_type == "recurrent" ? gates : 0);
  const FlatWeights w = flat_weights(args, x);
  return index < gates ? flat_matrix(w, args.layer, gate) : flat_bias(w, args.layer, gate);
}

void set_parameter(const FlatArgs& args, Call& call) {
  const FlatPlace place = named_place(args, call.in(0).shape());
  const size_t element = dtype_size(call.out(0).dtype());
  if (call.out(0).raw() != call.in(1).raw()) call.out(0).copy_from(call.in(1));
  move(call.in(2), 0, call.out(0), static_cast<size_t>(place.offset) * element, call.in(2).bytes());
}

void get_parameter(const FlatArgs& args, Call& call) {
  const FlatPlace place = named_place(args, call.in(0).shape());
  const size_t element = dtype_size(call.out(0).dtype());
  move(call.in(1), static_cast<size_t>(place.offset) * element, call.out(0), 0, call.out(0).bytes());
}

void check_flat_lengths(const Tensor& lengths, const Shape& x) {
  for (const int32_t length : lengths.span<int32_t>())
    require(length >= 0 && length <= x[0], "a sample has {} timesteps, but X has {}", length, x[0]);
}

namespace {

OpBuilder<FlatArgs>& declare_access(OpBuilder<FlatArgs>& b) {
  return declare_layers(b)
      .arg("layer", &FlatArgs::layer, int64_t{0}, "its number; of layers in both directions layer * 2 + direction",
           at_least(0))
      .required_arg(
          "param_type", &FlatArgs::param_type,
          "the gate, and w for its matrix or b for its bias: of lstm input_gate_w, forget_gate_w, cell_w, "
          "output_gate_w, input_gate_b and so on; of gru reset_gate_w, update_gate_w, cell_w; of others cell_w")
      .arg("input_type", &FlatArgs::input_type, std::string(),
           "recurrent: what is applied to the state; anything else: to the input")
      .accepts("dropout", "weights do not depend on it")
      .accepts("seed", "weights do not depend on it")
      .accepts("is_test", "weights do not depend on it")
      .input("input", "X [T, B, I]")
      .shape_only()
      .input("all_params", "all weights of Recurrent, in any shape");
}

REGISTER(recurrent_param_set) {
  auto spec = op<FlatArgs>("RecurrentParamSet");
  return declare_access(spec)
      .doc("Writes one matrix or bias into the weights of Recurrent.")
      .input("param", "a matrix [H, inputs] or a bias [H], in any shape")
      .output("all_params_out", "all_params with it", like("all_params"))
      .must_be_in_place("all_params", "all_params_out")
      .shape(shape)
      .cpu_for<float>(set_parameter)
      .cpu_for<double>(set_parameter)
      .example({"input=1,1,2", "all_params=20", "param=1,2"},
               {"rnn_mode=lstm", "hidden_size=1", "num_layers=1", "input_mode=linear", "param_type=cell_w"})
      .no_gradient("it sets weights; the gradient of Recurrent's weights is one vector, too");
}

REGISTER(recurrent_param_get) {
  auto spec = op<FlatArgs>("RecurrentParamGet");
  return declare_access(spec)
      .doc("Reads one matrix or bias out of the weights of Recurrent.")
      .output("param", "a matrix [H, inputs] or a bias [H]")
      .shape(shape)
      .cpu_for<float>(get_parameter)
      .cpu_for<double>(get_parameter)
      .example({"input=1,1,2", "all_params=20"},
               {"rnn_mode=lstm", "hidden_size=1", "num_layers=1", "input_mode=linear", "param_type=forget_gate_b"})
      .no_gradient("it copies weights; the gradient of Recurrent's weights is one vector, too");
}

}  // namespace

}  // namespace stepnet
