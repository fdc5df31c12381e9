#include "recurrent/form/attention_chunks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/net/dataflow.h"
#include "core/operator/in_place.h"
#include "recurrent/form/sample_rows.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {
namespace {

using Names = std::vector<std::string>;

template <class Range, class Value>
bool holds(const Range& range, const Value& value) {
  return std::ranges::find(range, value) != range.end();
}

// Who writes each blob of a net, and how often each is read. Operators read and write what the nets in them do, even
// where they do not say so.
struct Uses {
  explicit Uses(const NetDef& net) {
    for (int i = 0; i < net.op_size(); ++i) {
      for (const std::string& name : net.op(i).output())
        if (!name.empty()) writers[name].push_back(i);
      for (const std::string& name : net.op(i).input())
        if (!name.empty()) readers[name].push_back(i);
      add_nets_of(net.op(i), i, true);
    }
  }
  // A step net in short form writes nothing outside.
  void add_nets_of(const OperatorDef& op, int place, bool writes) {
    for (const Argument& arg : op.arg()) {
      if (arg.has_n()) add_net(arg.n(), place, writes);
      for (const NetDef& net : arg.nets()) add_net(net, place, writes);
    }
    if (op.HasExtension(recurrent)) add_net(op.GetExtension(recurrent).step_net(), place, false);
  }
  void add_net(const NetDef& net, int place, bool writes) {
    const auto add = [&](auto& uses, const std::string& name) {
      if (name.empty()) return;
      if (std::vector<int>& places = uses[name]; places.empty() || places.back() != place) places.push_back(place);
    };
    for (const OperatorDef& op : net.op()) {
      for (const std::string& name : op.input()) add(readers, name);
      if (writes)
        for (const std::string& name : op.output()) add(writers, name);
      add_nets_of(op, place, writes);
    }
  }
  // -1 if nobody writes it, or several do.
  int writer(const std::string& name) const {
    const auto found = writers.find(name);
    return found == writers.end() || found->second.size() != 1 ? -1 : found->second[0];
  }
  bool is_written(const std::string& name) const { return writers.count(name) > 0; }
  // -1 if nobody reads it, or it is read several times.
  int only_reader(const std::string& name) const {
    const auto found = readers.find(name);
    return found == readers.end() || found->second.size() != 1 ? -1 : found->second[0];
  }

  std::map<std::string, std::vector<int>> writers, readers;
};

// --- Which networks may be taken apart ---------------------------------------------------------------------------

bool holds_nets(const OperatorDef& op) {
  return op.HasExtension(recurrent) ||
         std::ranges::any_of(op.arg(), [](const Argument& arg) { return arg.has_n() || arg.nets_size() > 0; });
}

// An operator on tensors whose values follow from its inputs' values, on the CPU.
bool is_plain(const OperatorDef& op) {
  const OpSpec* spec = find_op(op.type());
  if (!spec || spec->blob_kernel || spec->random || spec->side_effect || holds_nets(op)) return false;
  return !op.has_device_option() || op.device_option().device_type() == CPU;
}

bool is_enabled(const OperatorDef& network) {
  return std::ranges::all_of(network.arg(), [](const Argument& arg) {
    return arg.name() == "disabled_passes" && !holds(arg.strings(), "attention");
  });
}

std::string scope_of(const OperatorDef& network) {
  return network.name().empty() ? network.output(0) + "_rnn" : network.name();
}

// The names of its own that a network gives to what it works on.
bool is_named_inside(const NetDef& net, const Uses& outside, const std::string& scope) {
  const auto is_own = [&](const std::string& name) { return name.starts_with(scope + "/"); };
  const auto uses_own = [&](const auto& use) { return is_own(use.first); };
  return std::ranges::any_of(outside.readers, uses_own) || std::ranges::any_of(outside.writers, uses_own) ||
         std::ranges::any_of(net.external_output(), is_own);
}

// Every blob has one value in a timestep, whose writer stands before its readers.
bool writes_once(const RecurrentDef& def, const Uses& uses) {
  Names given = {def.timestep()};
  for (const SequenceLink& s : def.sequence()) given.push_back(s.inner());
  for (const StateLink& s : def.state()) given.push_back(s.input());
  if (std::set<std::string>(given.begin(), given.end()).size() != given.size()) return false;
  if (std::ranges::any_of(given, [&](const std::string& name) { return uses.is_written(name); })) return false;
  return std::ranges::all_of(uses.writers, [&](const auto& written) {
    const auto readers = uses.readers.find(written.first);
    return written.second.size() == 1 && (readers == uses.readers.end() || readers->second[0] > written.second[0]);
  });
}

// What the network reads stays as it is, and what it writes nobody else writes.
bool is_alone(const NetDef& net, int network, const Uses& outside, const Uses& inside) {
  const OperatorDef& op = net.op(network);
  const auto stays = [&](const std::string& name) {
    const auto written = outside.writers.find(name);
    return written == outside.writers.end() || written->second.back() < network;
  };
  for (const std::string& name : op.output())
    if (!name.empty() && outside.writer(name) != network) return false;
  return std::ranges::all_of(op.input(), stays) &&
         std::ranges::all_of(inside.readers, [&](const auto& read) { return stays(read.first); });
}

bool may_change(const NetDef& net, int network, const Uses& outside) {
  const OperatorDef& op = net.op(network);
  if (op.type() != "RecurrentNetwork" || !op.HasExtension(recurrent) || op.output_size() == 0 || !is_enabled(op))
    return false;
  const RecurrentDef& def = op.GetExtension(recurrent);
  if (!def.has_step_net() || def.has_lengths() || def.recompute_size() > 0 || def.sequence_size() == 0) return false;
  if (device_of(op, net).kind != DeviceKind::cpu || def.step_net().has_device_option()) return false;
  if (!std::ranges::all_of(def.step_net().op(), is_plain)) return false;
  const Uses inside(def.step_net());
  return writes_once(def, inside) && is_alone(net, network, outside, inside) &&
         !is_named_inside(net, outside, scope_of(op));
}

// --- Matrix states -----------------------------------------------------------------------------------------------

// A network's timestep with what is known of its blobs.
struct Step {
  Step(const OperatorDef& op, const SampleBlobs& around)
      : network(op), def(op.GetExtension(recurrent)), outside(around), uses(def.step_net()) {}

  const OperatorDef& op(int i) const { return def.step_net().op(i); }
  const Shape* shape(const std::string& name) const {
    const TensorType& type = known.at(name).type;
    return type.known ? &type.shape : nullptr;
  }
  bool is_shown(const std::string& name) const {
    return std::ranges::any_of(def.output(), [&](const OutputLink& o) { return o.inner() == name; }) ||
           std::ranges::any_of(def.state(), [&](const StateLink& s) { return s.output() == name; });
  }
  // The operator that writes the blob, if `reader` alone reads it.
  int writer_for(int reader, const std::string& name) const {
    return uses.only_reader(name) == reader && !is_shown(name) ? uses.writer(name) : -1;
  }

  const OperatorDef& network;
  const RecurrentDef& def;
  const SampleBlobs& outside;
  Uses uses;
  SampleBlobs known = {};
  int64_t timesteps = 0;
};

std::optional<Step> trace_step(const OperatorDef& network, const SampleBlobs& outside) {
  const RecurrentDef& def = network.GetExtension(recurrent);
  const TensorType& sequence = outside.at(def.sequence(0).outer()).type;
  if (!sequence.known || sequence.shape.rank() < 2 || sequence.shape[1] == 0) return std::nullopt;
  Step step(network, outside);
  step.timesteps = sequence.shape[0];
  step.known = enter_step_net(def, outside);
  for (const OperatorDef& op : def.step_net().op()) trace_samples(op, step.known);
  return step;
}

// S = f S_prev + a b^T and y = S q, by the step's names.
struct MatrixState {
  int state = 0;
  std::set<int> ops;  // that make S of S_prev and read it
  std::string column, row, query, factor, read;
  double scale = 1;         // of Scale, if there is no factor
  bool has_factor = false;  // either
  bool keys_first = false;  // the column is the key, and the row the value
  int64_t heads = 1, rows = 0, columns = 0;

  int64_t keys() const { return keys_first ? rows : columns; }
  int64_t values() const { return keys_first ? columns : rows; }
};

bool has_no_axis(const OperatorDef& op) {
  return std::ranges::all_of(op.arg(), [](const Argument& arg) { return arg.name() == "broadcast"; });
}

bool find_sizes(const Step& step, const StateLink& link, MatrixState& m) {
  const TensorType& type = step.known.at(link.input()).type;
  if (!type.known || (type.dtype != DType::float32 && type.dtype != DType::float64)) return false;
  const Shape& s = type.shape;
  if ((s.rank() != 4 && s.rank() != 5) || s.size() == 0 || s[0] != 1 || s[1] != step.known.samples) return false;
  if (link.has_initial()) {
    const TensorType& initial = step.outside.at(link.initial()).type;
    if (!initial.known || !(initial.shape == s)) return false;
  }
  m.heads = s.rank() == 5 ? s[2] : 1;
  m.rows = s[s.rank() - 2];
  m.columns = s[s.rank() - 1];
  return true;
}

// One number for each matrix, in a timestep or for all of them.
bool is_factor(const Shape& f, const Shape& state) {
  if (f.size() == 1 && f.rank() <= state.rank()) return true;
  const int before = state.rank() - f.rank();
  if (before < 0 || f.rank() < 3 || f[f.rank() - 1] != 1 || f[f.rank() - 2] != 1) return false;
  for (int d = 0; d + 2 < f.rank(); ++d)
    if (f[d] != state[before + d] && !(before == 0 && d < 2 && f[0] == 1 && f[1] == 1)) return false;
  return true;
}

bool find_kept(const Step& step, const std::string& before, const std::string& kept, int update, MatrixState& m) {
  if (kept == before) return true;
  const int i = step.writer_for(update, kept);
  if (i < 0) return false;
  const OperatorDef& op = step.op(i);
  m.ops.insert(i);
  m.has_factor = true;
  if (op.type() == "Scale") {
    const Argument* scale = find_arg(op, "scale");
    m.scale = scale ? scale->f() : 1;
    return op.input(0) == before && m.scale > 0 && std::isfinite(m.scale);
  }
  if (op.type() != "Mul" || !has_no_axis(op)) return false;
  if (op.input(0) != before && op.input(1) != before) return false;
  m.factor = op.input(op.input(0) == before ? 1 : 0);
  const Shape* f = step.shape(m.factor);
  return m.factor != before && f && is_factor(*f, *step.shape(before));
}

// Whether the second to last dimension, or the last, is all that a blob has of a matrix of the state's.
bool is_line(const Step& step, const std::string& name, Shape state, int other) {
  state.set(state.rank() - other, 1);
  const Shape* shape = step.shape(name);
  return shape && *shape == state;
}

bool find_added(const Step& step, const std::string& added, int update, MatrixState& m) {
  const int i = step.writer_for(update, added);
  if (i < 0) return false;
  const OperatorDef& op = step.op(i);
  m.ops.insert(i);
  const Shape& state = *step.shape(added);
  if (op.type() == "Mul" && has_no_axis(op)) {
    for (const int column : {0, 1})
      if (is_line(step, op.input(column), state, 1) && is_line(step, op.input(1 - column), state, 2)) {
        m.column = op.input(column);
        m.row = op.input(1 - column);
        return true;
      }
    return false;
  }
  const BoundOp bound = bind_op(op, "", 0);
  if (!bound.spec->outer_product) return false;
  const std::vector<TensorType> in = {step.known.at(op.input(0)).type, step.known.at(op.input(1)).type};
  if (bound.spec->outer_product(bound.args.get(), ShapeCall(in, {})) != m.rows) return false;
  m.column = op.input(0);
  m.row = op.input(1);
  return true;
}

bool find_update(const Step& step, const StateLink& link, MatrixState& m) {
  const int update = step.uses.writer(link.output()), from = step.uses.only_reader(link.input());
  if (update < 0 || from < 0 || step.is_shown(link.input())) return false;
  const OperatorDef& op = step.op(update);
  const bool adds = op.type() == "Add" || find_op(op.type())->role == Role::sum;
  if (!adds || op.input_size() != 2 || !has_no_axis(op) || op.input(0) == op.input(1)) return false;
  const Shape& state = *step.shape(link.input());
  for (const std::string& name : op.input())
    if (const Shape* shape = step.shape(name); !shape || !(*shape == state)) return false;
  for (const int kept : {0, 1}) {
    MatrixState found = m;
    found.ops.insert(update);
    if (!find_kept(step, link.input(), op.input(kept), update, found)) continue;
    if (!find_added(step, op.input(1 - kept), update, found)) continue;
    m = found;
    return true;
  }
  return false;
}

bool find_reading(const Step& step, const StateLink& link, MatrixState& m) {
  const int reading = step.uses.only_reader(link.output());
  const auto shows = [&](const auto& o) { return o.inner() == link.output(); };
  const auto states = std::ranges::count(step.def.state(), link.output(), &StateLink::output);
  if (reading < 0 || states != 1 || std::ranges::any_of(step.def.output(), shows)) return false;
  const OperatorDef& op = step.op(reading);
  const BoundOp bound = bind_op(op, "", 0);
  if (!bound.spec->matrix_vector || op.input_size() != 2) return false;
  const int matrices = op.input(0) == link.output() ? 0 : 1;
  const std::vector<TensorType> in = {step.known.at(op.input(0)).type, step.known.at(op.input(1)).type};
  const MatrixVector how = bound.spec->matrix_vector(bound.args.get(), ShapeCall(in, {}));
  if (how.matrices != matrices) return false;
  m.ops.insert(reading);
  m.query = op.input(1 - matrices);
  m.read = op.output(0);
  m.keys_first = how.columns;
  return true;
}

std::optional<MatrixState> find_matrix_state(const Step& step, int state, const AttentionSize& least) {
  const StateLink& link = step.def.state(state);
  MatrixState m;
  m.state = state;
  if (link.has_all() || !find_sizes(step, link, m)) return std::nullopt;
  if (step.timesteps < least.timesteps || m.rows * m.columns < least.state) return std::nullopt;
  if (!find_update(step, link, m) || !find_reading(step, link, m)) return std::nullopt;
  return m;
}

// --- What takes the network's place ------------------------------------------------------------------------------

OperatorDef operator_of(const std::string& type, const Names& inputs, const Names& outputs,
                        const std::vector<Argument>& args = {}) {
  OperatorDef op;
  op.set_type(type);
  op.mutable_input()->Add(inputs.begin(), inputs.end());
  op.mutable_output()->Add(outputs.begin(), outputs.end());
  op.mutable_arg()->Add(args.begin(), args.end());
  return op;
}

// Operators in the place of a network with a matrix state.
class Apart {
 public:
  Apart(const NetDef& net, int place, const Uses& outside, const Step& step, const MatrixState& m)
      : net_(net), place_(place), outside_(outside), step_(step), m_(m), scope_(scope_of(step.network)) {
    for (const auto* names : {&outside.writers, &outside.readers})
      for (const auto& [name, ops] : *names) taken_.insert(name);
    taken_.insert(net.external_input().begin(), net.external_input().end());
  }

  // Empty if the network must stay as it is.
  std::vector<OperatorDef> run() {
    if (!sort_operators() || !find_logarithm() || !choose_rest()) return {};
    if (!trace_behind() || !show_outputs()) return {};
    for (int i = 0; i < ops(); ++i)
      if (step_.timesteps == 0 && is_outside(i) && needs_timestep(i)) return {};
    if (has_rest()) {
      ops_.push_back(rest());
      if (!stands_alone(ops_.back())) return {};
    }
    for (int i = 0; i < ops(); ++i)
      if (kinds_[i] != Kind::behind && is_lifted(i)) lift(i);
    attend();
    for (int i = 0; i < ops(); ++i)
      if (kinds_[i] == Kind::behind && needed_.count(i) > 0) lift(i);
    for (const auto& [from, to] : copies_) ops_.push_back(operator_of(op_with_role(Role::copy).type, {from}, {to}));
    if (step_.network.has_device_option())
      for (OperatorDef& op : ops_)
        if (!op.has_device_option()) *op.mutable_device_option() = step_.network.device_option();
    return std::move(ops_);
  }

 private:
  // `apart`: for all timesteps at once. `constant`: the same in all of them. `held`: only in the step net.
  enum class Kind { held, constant, apart, matched, behind };
  static constexpr int64_t kPretended = 3;  // timesteps while it is found which operators keep them apart

  int ops() const { return step_.def.step_net().op_size(); }

  // --- Which operators are what

  std::string outer_of(const std::string& inner) const {
    for (const SequenceLink& s : step_.def.sequence())
      if (s.inner() == inner) return s.outer();
    return "";
  }
  bool is_state(const std::string& name) const {
    return std::ranges::any_of(step_.def.state(), [&](const StateLink& s) { return s.input() == name; });
  }
  bool is_reference(const std::string& name) const {
    return !step_.uses.is_written(name) && outer_of(name).empty() && !is_state(name) && name != step_.def.timestep();
  }
  bool is_behind(const std::string& name) const {
    const int i = step_.uses.writer(name);
    return name == m_.read || (i >= 0 && kinds_[i] == Kind::behind);
  }
  bool is_constant(const std::string& name) const {
    const int i = step_.uses.writer(name);
    return name.empty() || is_reference(name) || (i >= 0 && kinds_[i] == Kind::constant);
  }

  // A row of each timestep, one after the other.
  static SampleBlob rows_of(const TensorType& row) {
    SampleBlob rows{.type = row, .inner = SampleBlob::kMixed};
    if (!row.known || row.shape.rank() < 2 || row.shape[0] != 1) return {};
    rows.type.shape = row.shape.with(0, kPretended);
    rows.inner = row.shape.size();
    return rows;
  }

  // Takes the operator over all timesteps at once; false if it does not say that this is the same.
  bool trace_apart(const OperatorDef& op) {
    for (const std::string& name : op.input())
      if (!name.empty() && !apart_.at(name).type.known) return false;
    std::vector<SampleBlob> made;
    try {
      made = traced_outputs(op, apart_);
    } catch (const Error&) {
      return false;
    }
    const bool fills = op_spec(op.type()).role == Role::fill_like && int_arg(op, "input_as_shape", 0) == 0;
    for (int o = 0; o < op.output_size(); ++o) {
      if (op.output(o).empty()) continue;
      const SampleBlob rows = rows_of(step_.known.at(op.output(o)).type);
      const bool same = rows.type.known && made[o].type.known && made[o].type.shape == rows.type.shape &&
                        made[o].type.dtype == rows.type.dtype &&
                        (made[o].inner == rows.inner || fills || lays_rows_over(op, rows.type.shape));
      if (!same) return false;
      apart_.blobs[op.output(o)] = rows;
    }
    return true;
  }

  // Operands are aligned at their ends, so that rows meet only where one of them has all dimensions but no row for
  // each.
  bool lays_rows_over(const OperatorDef& op, const Shape& out) const {
    if (!lays_operands_over(op_spec(op.type())) || !has_no_axis(op)) return false;
    return std::ranges::all_of(op.input(), [&](const std::string& name) {
      const SampleBlob& blob = apart_.at(name);
      const Shape& shape = blob.type.shape;
      if (blob.inner == 0) return shape.rank() < out.rank() || shape[0] == 1;
      return shape.rank() == out.rank() && shape[0] == kPretended;
    });
  }

  bool may_be_apart(const OperatorDef& op) const {
    return std::ranges::all_of(op.input(), [&](const std::string& name) {
      const int i = step_.uses.writer(name);
      return is_constant(name) || !outer_of(name).empty() || (i >= 0 && kinds_[i] == Kind::apart);
    });
  }

  bool sort_operators() {
    apart_.samples = kPretended;
    for (const auto& [name, reads] : step_.uses.readers)
      if (is_reference(name)) apart_.blobs[name] = {.type = step_.known.at(name).type, .inner = 0};
    for (const SequenceLink& s : step_.def.sequence())
      apart_.blobs[s.inner()] = rows_of(step_.known.at(s.inner()).type);
    kinds_.assign(ops(), Kind::held);
    for (int i = 0; i < ops(); ++i) {
      const OperatorDef& op = step_.op(i);
      const bool reads_behind =
          std::ranges::any_of(op.input(), [&](const std::string& name) { return is_behind(name); });
      if (m_.ops.count(i) > 0)
        kinds_[i] = Kind::matched;
      else if (reads_behind)
        kinds_[i] = Kind::behind;
      else if (op.input_size() > 0 && std::ranges::all_of(op.input(), [&](const auto& n) { return is_constant(n); }))
        kinds_[i] = Kind::constant;
      else if (may_be_apart(op) && trace_apart(op))
        kinds_[i] = Kind::apart;
      if (kinds_[i] == Kind::constant) trace_constant(op);
    }
    return std::ranges::none_of(Names{m_.column, m_.row, m_.query, m_.factor},
                                [&](const std::string& name) { return is_behind(name); });
  }
  void trace_constant(const OperatorDef& op) {
    for (const std::string& name : op.output())
      if (!name.empty()) apart_.blobs[name] = {.type = step_.known.at(name).type, .inner = 0};
  }

  // --- The factor's logarithm

  // The writer of what `name` has the elements of, in the same order; -1 if it has none that the net says.
  static int maker(const NetDef& net, const Uses& uses, std::string& name) {
    for (int i = uses.writer(name);; i = uses.writer(name)) {
      if (i < 0 || !op_spec(net.op(i).type()).reshapes || net.op(i).output(0) != name) return i;
      name = net.op(i).input(0);
    }
  }
  static bool has_logarithm(const OperatorDef& op) { return op.type() == "Exp" || op.type() == "Sigmoid"; }

  bool find_logarithm() {
    if (m_.factor.empty()) return true;
    std::string name = m_.factor;
    if (const int i = maker(step_.def.step_net(), step_.uses, name); i >= 0) {
      if (!has_logarithm(step_.op(i))) return false;
      exponent_ = step_.op(i).input(0);
      is_sigmoid_ = step_.op(i).type() == "Sigmoid";
      return fits(step_.known.at(exponent_).type, 1);
    }
    outer_changes_ = !outer_of(name).empty();
    if (!outer_changes_ && !is_reference(name)) return false;
    if (outer_changes_) name = outer_of(name);
    const int i = outer_maker(name);
    if (i < 0 || !has_logarithm(net_.op(i))) return false;
    outer_exponent_ = net_.op(i).input(0);
    is_sigmoid_ = net_.op(i).type() == "Sigmoid";
    return stays_before(outer_exponent_, i) && fits(step_.outside.at(outer_exponent_).type, step_.timesteps);
  }
  // One element for each matrix in each timestep, or, if it is the same in all of them, for each head or for all.
  bool fits(const TensorType& type, int64_t timesteps) const {
    if (!type.known) return false;
    const Shape& x = type.shape;
    if (!factor_changes()) return x.size() == 1 || (x.size() == m_.heads && is_for_heads());
    return x.rank() >= 2 && x[0] == timesteps && x[1] == batch() && x.size() == timesteps * batch() * m_.heads;
  }
  bool is_for_heads() const {
    const Shape& f = *step_.shape(m_.factor);
    return f.rank() >= 3 && f[f.rank() - 3] == m_.heads;
  }
  // Whether what the operator reads is still there where the network stands.
  bool stays_before(const std::string& name, int reader) const {
    const int writer = outside_.writer(name);
    return writer >= 0 ? writer < reader : !outside_.is_written(name);
  }
  // The operators between the exponent and the network are passed by, so nobody else may ask for gradients with respect
  // to what they write.
  int outer_maker(std::string& name) const {
    for (int reader = place_;;) {
      const int i = outside_.writer(name);
      if (i < 0 || i >= reader || !is_read_only_by(reader, name)) return -1;
      const OpSpec* spec = find_op(net_.op(i).type());
      if (!spec || net_.op(i).output(0) != name) return -1;
      if (!spec->reshapes) return i;
      name = net_.op(i).input(0);
      reader = i;
    }
  }
  bool is_read_only_by(int reader, const std::string& name) const {
    const auto readers = outside_.readers.find(name);
    return readers == outside_.readers.end() ||
           std::ranges::all_of(readers->second, [&](int i) { return i == reader; });
  }
  bool factor_changes() const {
    if (!outer_exponent_.empty()) return outer_changes_;
    return !m_.factor.empty() && !is_constant(m_.factor);
  }

  // --- What stays in a network

  bool has_rest() const { return step_.def.state_size() > 1; }

  // The blob that has the same elements in the same order, and still a row for each sample, before operators gave it
  // another shape.
  std::string before_reshapes(std::string name) const {
    for (int i = step_.uses.writer(name); i >= 0 && kinds_[i] != Kind::matched; i = step_.uses.writer(name)) {
      const OperatorDef& op = step_.op(i);
      const bool same = op_spec(op.type()).reshapes && op.output(0) == name && has_rows(op.input(0));
      if (!same || is_constant(op.input(0))) break;
      name = op.input(0);
    }
    return name;
  }
  bool has_rows(const std::string& name) const {
    const Shape* shape = step_.shape(name);
    return shape && shape->rank() >= 2 && (*shape)[0] == 1 && (*shape)[1] == batch();
  }

  // Puts the writer of a blob, and of all that it is made of, into the network that is left.
  bool keep_in_rest(const std::string& name) {
    const int i = step_.uses.writer(name);
    if (i < 0) return name != step_.def.state(m_.state).input();
    if (kinds_[i] == Kind::matched || kinds_[i] == Kind::behind || !has_rest()) return false;
    if (!rest_.insert(i).second) return true;
    return std::ranges::all_of(step_.op(i).input(), [&](const std::string& in) { return keep_in_rest(in); });
  }
  // True if operators outside can have the blob, of which those of the network that is left are known.
  bool want(const std::string& name) {
    if (name.empty() || is_behind(name) || !wanted_.insert(name).second) return true;
    if (name == step_.def.timestep()) return false;
    const int i = step_.uses.writer(name);
    if (i < 0 || is_of_rest(name)) return true;
    if (kinds_[i] != Kind::apart && kinds_[i] != Kind::constant) return false;
    return std::ranges::all_of(step_.op(i).input(), [&](const std::string& in) { return want(in); });
  }

  // The operators behind the reading that somebody outside is shown.
  void need(const std::string& name) {
    const int i = step_.uses.writer(name);
    if (i < 0 || kinds_[i] != Kind::behind || !needed_.insert(i).second) return;
    for (const std::string& in : step_.op(i).input()) need(in);
  }

  // What operators outside read of the step.
  Names read_outside() {
    Names names = {column_, row_, query_, exponent_};
    for (const OutputLink& o : step_.def.output()) {
      need(o.inner());
      names.push_back(o.inner());
    }
    for (const int i : needed_) names.insert(names.end(), step_.op(i).input().begin(), step_.op(i).input().end());
    return names;
  }
  bool choose_rest() {
    column_ = before_reshapes(m_.column);
    row_ = before_reshapes(m_.row);
    query_ = before_reshapes(m_.query);
    const auto stays = [&](const std::string& name) { return is_constant(name); };
    if (std::ranges::any_of(Names{column_, row_, query_}, stays)) return false;  // there is one for all timesteps
    for (int i = 0; i < step_.def.state_size(); ++i)
      if (i != m_.state && !keep_in_rest(step_.def.state(i).output())) return false;
    const Names read = read_outside();
    for (const std::string& name : read) {
      const int i = step_.uses.writer(name);
      if (i >= 0 && kinds_[i] == Kind::held && !keep_in_rest(name)) return false;
    }
    return std::ranges::all_of(read, [&](const std::string& name) { return want(name); });
  }
  // By operators outside, not in the network that is left.
  bool is_lifted(int i) const {
    const bool may = kinds_[i] == Kind::constant || (kinds_[i] == Kind::apart && rest_.count(i) == 0);
    const auto& out = step_.op(i).output();
    return may && std::ranges::any_of(out, [&](const std::string& name) { return wanted_.count(name) > 0; });
  }
  bool is_outside(int i) const { return kinds_[i] == Kind::behind ? needed_.count(i) > 0 : is_lifted(i); }
  bool is_of_rest(const std::string& name) const {
    const int i = step_.uses.writer(name);
    return i < 0 ? is_state(name) : rest_.count(i) > 0 && kinds_[i] != Kind::constant;
  }

  bool trace_behind() {
    for (const std::string& name : wanted_)
      if (is_of_rest(name)) apart_.blobs[name] = rows_of(step_.known.at(name).type);
    apart_.blobs[m_.read] = rows_of(step_.known.at(m_.read).type);
    for (const int i : needed_)
      if (!trace_apart(step_.op(i))) return false;
    return true;
  }

  // --- Names outside

  std::string fresh(const std::string& base) {
    const std::string whole = fmt::format("{}_attention/{}", scope_, base);
    std::string name = whole;
    for (int n = 1; !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", whole, n);
    return name;
  }

  // The outputs have their names from the first operator that writes them; others are copies.
  bool show_outputs() {
    for (const OutputLink& o : step_.def.output()) {
      if (!has_rows(o.inner())) return false;  // which the network refuses
      const std::string outer = outer_of(o.inner());
      if (!is_of_rest(o.inner()) && is_constant(o.inner()))
        return false;  // which has one row, not one for each timestep
      if (!outer.empty())
        copies_.emplace_back(outer, o.outer());
      else if (!names_.emplace(o.inner(), o.outer()).second)
        copies_.emplace_back(names_.at(o.inner()), o.outer());
    }
    return true;
  }

  // The blob outside that has a step's blob for all timesteps.
  const std::string& outside(const std::string& name) {
    const auto known = names_.find(name);
    if (known != names_.end()) return known->second;
    std::string own = is_reference(name) ? name : outer_of(name);
    if (own.empty() && !name.empty()) own = fresh(name);
    return names_[name] = own;
  }

  // --- The operators

  OperatorDef rest() {
    OperatorDef op = step_.network;
    op.set_name(scope_);
    RecurrentDef& def = *op.MutableExtension(recurrent);
    def.mutable_state()->DeleteSubrange(m_.state, 1);
    NetDef& net = *def.mutable_step_net();
    net.clear_op();
    net.clear_external_input();
    net.clear_external_output();
    for (const int i : rest_) *net.add_op() = step_.op(i);
    def.clear_output();
    for (const std::string& name : wanted_) {
      if (!is_of_rest(name)) continue;
      OutputLink& link = *def.add_output();
      link.set_inner(name);
      link.set_outer(outside(name));
    }
    keep_what_is_read(def, op);
    return op;
  }
  // A network that shows something, and finds in its step net what its states become.
  static bool stands_alone(const OperatorDef& op) {
    const RecurrentDef& def = op.GetExtension(recurrent);
    std::set<std::string> known = {def.timestep()};
    for (const SequenceLink& s : def.sequence()) known.insert(s.inner());
    for (const StateLink& s : def.state()) known.insert(s.input());
    for (const OperatorDef& inner : def.step_net().op()) {
      known.insert(inner.input().begin(), inner.input().end());
      known.insert(inner.output().begin(), inner.output().end());
    }
    return op.output_size() > 0 &&
           std::ranges::all_of(def.state(), [&](const StateLink& s) { return known.count(s.output()) > 0; });
  }
  // Inputs that are left have gradients of their own, which nothing would add to.
  static void keep_what_is_read(RecurrentDef& def, OperatorDef& op) {
    std::set<std::string> read;
    for (const OperatorDef& inner : def.step_net().op()) read.insert(inner.input().begin(), inner.input().end());
    for (const OutputLink& o : def.output()) read.insert(o.inner());
    for (const StateLink& s : def.state()) read.insert(s.output());
    auto& sequences = *def.mutable_sequence();
    for (int i = sequences.size() - 1; i >= 0 && sequences.size() > 1; --i)
      if (read.count(sequences[i].inner()) == 0) sequences.DeleteSubrange(i, 1);
    std::set<std::string> outer = read;
    op.clear_output();
    for (const SequenceLink& s : sequences) outer.insert(s.outer());
    for (const StateLink& s : def.state()) {
      if (s.has_initial()) outer.insert(s.initial());
      if (s.has_all()) op.add_output(s.all());
      if (s.has_last()) op.add_output(s.last());
    }
    for (const OutputLink& o : def.output()) op.add_output(o.outer());
    auto& inputs = *op.mutable_input();
    inputs.erase(std::remove_if(inputs.begin(), inputs.end(), [&](const auto& name) { return outer.count(name) == 0; }),
                 inputs.end());
  }

  // True if T and B stand in front of what it reads and writes outside; not by chance, as where B is 1.
  bool keeps_rows(int i) const {
    const OperatorDef& op = step_.op(i);
    return kinds_[i] != Kind::constant && op.output_size() == 1 && has_rows(op.input(0)) && has_rows(op.output(0));
  }
  // Where there is no timestep, Reshape finds no size that is left to be found, as it does in a timestep.
  bool needs_timestep(int i) const {
    const OperatorDef& op = step_.op(i);
    if (op_spec(op.type()).role != Role::reshape || kinds_[i] == Kind::constant || keeps_rows(i)) return false;
    const Argument* shape = find_arg(op, "shape");
    return !shape || holds(shape->ints(), -1);
  }

  void lift(int i) {
    OperatorDef op = step_.op(i);
    if (holds(op.input(), m_.read) && names_.count(m_.read) == 0) {
      // What only gives it another shape needs none of the step's shape.
      const bool reshapes =
          op_spec(op.type()).reshapes && op.input(0) == m_.read && op.output_size() == 1 && has_rows(op.output(0));
      const std::string& name = reshapes ? op.output(0) : m_.read;
      ops_.push_back(reshaped(read_, step_.shape(name)->from(2), outside(name)));
      if (reshapes) return;
    }
    if (op_spec(op.type()).role == Role::reshape && keeps_rows(i)) {
      // Without timesteps a size that is left to be found is not known.
      ops_.push_back(reshaped(outside(op.input(0)), step_.shape(op.output(0))->from(2), outside(op.output(0))));
      return;
    }
    for (std::string& name : *op.mutable_input())
      if (!name.empty()) name = outside(name);
    for (std::string& name : *op.mutable_output())
      if (!name.empty()) name = outside(name);
    ops_.push_back(std::move(op));
  }

  // The blob with T, B and these dimensions.
  static OperatorDef reshaped(const std::string& from, const Shape& dims, const std::string& to) {
    std::vector<int64_t> shape = {0, 0};
    shape.insert(shape.end(), dims.begin(), dims.end());
    return operator_of("Reshape", {from}, {to}, {make_arg("shape", shape)});
  }
  std::string add(const std::string& type, const Names& inputs, const std::string& base,
                  const std::vector<Argument>& args = {}) {
    const std::string name = fresh(base);
    ops_.push_back(operator_of(type, inputs, {name}, args));
    return name;
  }

  // A step's blob, as the operator LinearAttention has it: [T, B, dims].
  std::string rows(const std::string& name, const Shape& dims) {
    const std::string& from = outside(name);
    if (*step_.shape(name) == dims.prepend(batch()).prepend(1)) return from;
    const std::string to = fresh(name + "_rows");
    ops_.push_back(reshaped(from, dims, to));
    return to;
  }
  int64_t batch() const { return step_.known.samples; }

  std::string logarithm(const std::string& keys) {
    if (!m_.has_factor) return "";
    std::string x;
    if (m_.factor.empty()) return add("Log", {spread(keys, static_cast<float>(m_.scale))}, "log_decay");
    x = outer_exponent_.empty() ? outside(exponent_) : outer_exponent_;
    if (is_sigmoid_) {
      x = add("Softplus", {add("Negative", {x}, "minus_exponent")}, "minus_log");
      x = add("Negative", {x}, "log");
    }
    if (factor_changes()) {
      const std::string to = fresh("log_decay");
      ops_.push_back(reshaped(x, Shape{m_.heads}, to));
      return to;
    }
    const int64_t count = step_.shape(m_.factor)->size();
    x = add("Reshape", {x}, "log_of_each", {make_arg("shape", std::vector<int64_t>{count})});
    return add("Add", {spread(keys, 0), x}, "log_decay", {make_arg("broadcast", true)});
  }
  // The same number for each timestep, sample and head.
  std::string spread(const std::string& keys, float value) {
    const std::string like =
        add("ReduceSum", {keys}, "like_decay", {make_arg("axes", std::vector<int64_t>{3}), make_arg("keepdims", 0)});
    return add("ConstantFill", {like}, "decay", {make_arg("value", value)});
  }

  // [1, B, rows, columns] or [1, B, N, rows, columns], and [B, N, K, V].
  std::string first_state() {
    const StateLink& link = step_.def.state(m_.state);
    if (!link.has_initial()) return "";
    std::string name = link.initial();
    if (has_heads()) name = add("Squeeze", {name}, "first_rows", {make_arg("dims", std::vector<int64_t>{0})});
    if (const auto axes = turned(); !axes.empty()) name = add("Transpose", {name}, "first", {make_arg("axes", axes)});
    return name;
  }
  bool has_heads() const { return step_.shape(step_.def.state(m_.state).input())->rank() == 5; }
  std::vector<int64_t> turned() const {
    if (has_heads()) return m_.keys_first ? std::vector<int64_t>{} : std::vector<int64_t>{0, 1, 3, 2};
    return m_.keys_first ? std::vector<int64_t>{1, 0, 2, 3} : std::vector<int64_t>{1, 0, 3, 2};
  }
  void show_last(std::string name) {
    const std::string& shown = step_.def.state(m_.state).last();
    const std::vector<int64_t> axes = turned();
    if (!has_heads()) {
      ops_.push_back(operator_of("Transpose", {name}, {shown}, {make_arg("axes", axes)}));
      return;
    }
    if (!axes.empty()) name = add("Transpose", {name}, "last_turned", {make_arg("axes", axes)});
    ops_.push_back(operator_of("ExpandDims", {name}, {shown}, {make_arg("dims", std::vector<int64_t>{0})}));
  }

  void attend() {
    const Shape of_keys{m_.heads, m_.keys()}, of_values{m_.heads, m_.values()};
    const std::string query = rows(query_, of_keys);
    const std::string key = rows(m_.keys_first ? column_ : row_, of_keys);
    const std::string value = rows(m_.keys_first ? row_ : column_, of_values);
    Names inputs = {query, key, value, logarithm(key), first_state()};
    while (inputs.back().empty()) inputs.pop_back();
    const bool shows_last = step_.def.state(m_.state).has_last();
    read_ = fresh("read");
    Names outputs = {read_};
    if (shows_last) outputs.push_back(fresh("last"));
    OperatorDef op = operator_of("LinearAttention", inputs, outputs);
    op.set_name(kAttentionName);
    if (step_.def.reverse()) *op.add_arg() = make_arg("reverse", true);
    if (step_.network.HasExtension(source)) *op.MutableExtension(source) = step_.network.GetExtension(source);
    ops_.push_back(op);
    if (shows_last) show_last(outputs[1]);
    if (names_.count(m_.read) > 0) ops_.push_back(reshaped(read_, step_.shape(m_.read)->from(2), names_.at(m_.read)));
  }

  const NetDef& net_;
  const int place_;
  const Uses& outside_;
  const Step& step_;
  const MatrixState& m_;
  const std::string scope_;
  std::vector<Kind> kinds_;
  SampleBlobs apart_;                 // the step's blobs for some timesteps, as far as operators keep these apart
  std::string column_, row_, query_;  // the step's blobs that have their elements
  std::string exponent_;              // and that of which Exp or Sigmoid makes the factor
  std::string outer_exponent_;        // or one outside
  bool is_sigmoid_ = false, outer_changes_ = false;
  std::set<int> rest_;            // operators of the network that is left
  std::set<int> needed_;          // that depend on what is read of the state
  std::set<std::string> wanted_;  // by operators outside
  std::set<std::string> taken_;
  std::map<std::string, std::string> names_;                 // outside, by the step's
  std::vector<std::pair<std::string, std::string>> copies_;  // of outputs
  std::string read_;
  std::vector<OperatorDef> ops_;
};

void replace(NetDef& net, int place, std::vector<OperatorDef> ops) {
  google::protobuf::RepeatedPtrField<OperatorDef> all;
  for (int i = 0; i < net.op_size(); ++i) {
    if (i != place)
      all.Add()->Swap(net.mutable_op(i));
    else
      for (OperatorDef& op : ops) all.Add()->Swap(&op);
  }
  net.mutable_op()->Swap(&all);
}

std::vector<OperatorDef> taken_apart(const NetDef& net, int place, const SampleBlobs& outside,
                                     const AttentionSize& least) {
  if (!net.op(place).HasExtension(recurrent)) return {};
  const Uses uses(net);
  if (!may_change(net, place, uses)) return {};
  const std::optional<Step> step = trace_step(net.op(place), outside);
  if (!step) return {};
  for (int i = 0; i < step->def.state_size(); ++i)
    if (const auto m = find_matrix_state(*step, i, least))
      if (std::vector<OperatorDef> ops = Apart(net, place, uses, *step, *m).run(); !ops.empty()) return ops;
  return {};
}

// Nothing is known any more of what an operator writes whose types do not fit. Samples do not matter here.
void trace_outside(const OperatorDef& op, SampleBlobs& known) {
  try {
    trace_samples(op, known);
    for (const std::string& name : op.output()) known.blobs[name].inner = 0;
  } catch (const Error&) {
    for (const std::string& name : op.output()) known.blobs.erase(name);
  }
}

void use_batch_of(const OperatorDef& op, SampleBlobs& known) {
  if (!op.HasExtension(recurrent) || op.GetExtension(recurrent).sequence_size() == 0) return;
  const TensorType& sequence = known.at(op.GetExtension(recurrent).sequence(0).outer()).type;
  known.samples = sequence.known && sequence.shape.rank() >= 2 ? sequence.shape[1] : 0;
}

}  // namespace

int attend_in_chunks(NetDef& net, const std::map<std::string, TensorType>& types, AttentionSize least) {
  const bool any = std::ranges::any_of(net.op(), [](const OperatorDef& op) { return op.HasExtension(recurrent); });
  if (!any) return 0;
  SampleBlobs known;
  for (const auto& [name, type] : types) known.blobs[name] = {.type = type, .inner = 0};
  int count = 0;
  for (int i = 0; i < net.op_size(); ++i) {
    use_batch_of(net.op(i), known);
    std::vector<OperatorDef> ops;
    try {
      ops = taken_apart(net, i, known, least);
    } catch (const Error&) {
      // What is wrong with the network is said when it is expanded.
    }
    if (ops.empty()) {
      trace_outside(net.op(i), known);
      continue;
    }
    replace(net, i--, std::move(ops));  // a network that is left may have another such state
    ++count;
  }
  return count;
}

}  // namespace stepnet
