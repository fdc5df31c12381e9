#include "recurrent/form/sensitivities.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/net/dataflow.h"
#include "core/operator/in_place.h"
#include "core/operator/nets_inside.h"
#include "core/passes/defined_operators.h"
#include "core/passes/inner_gradients.h"
#include "recurrent/form/layer_ops.h"
#include "recurrent/form/read_back.h"
#include "recurrent/form/short_form.h"
#include "recurrent/form/spec.h"
#include "recurrent/form/tangents.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/gradients.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

using Ints = std::vector<int64_t>;

bool is_network(const OperatorDef& op) { return has_short_form(op) || op.type() == kRecurrentNetwork; }

// What the operators of a net read, nets inside them too.
std::vector<std::string> inputs_of(const OperatorDef& op) {
  std::vector<std::string> names(op.input().begin(), op.input().end());
  const auto add = [&](const NetDef& net) {
    for (const std::string& name : read_from_outside(net)) names.push_back(name);
  };
  for (const Argument& arg : op.arg()) {
    if (arg.has_n()) add(arg.n());
    for (const NetDef& inner : arg.nets()) add(inner);
  }
  if (has_short_form(op)) add(op.GetExtension(recurrent).step_net());
  return names;
}

// The same without inputs of which it reads the shape alone.
std::vector<std::string> read_by(const OperatorDef& op) {
  if (is_network(op) || op_spec(op.type()).blob_kernel) return inputs_of(op);
  const std::vector<bool> reads = element_reads(op_spec(op.type()), op);
  std::vector<std::string> names;
  for (int k = 0; k < op.input_size(); ++k)
    if (reads[k]) names.push_back(op.input(k));
  return names;
}

// What the blobs in front of a network depend on.
class Outside {
 public:
  Outside(const NetDef& net, int end, const std::set<std::string>& parameters) : parameters_(parameters) {
    for (int i = 0; i < end; ++i) {
      OutsideSources made;
      for (const std::string& name : read_by(net.op(i))) {
        const OutsideSources s = sources(name);
        made.parameters.insert(s.parameters.begin(), s.parameters.end());
        made.data.insert(s.data.begin(), s.data.end());
      }
      // What is drawn anew is another one in every chunk.
      const bool is_random = !is_network(net.op(i)) && op_spec(net.op(i).type()).random;
      if (is_random && net.op(i).output_size() > 0) made.data.insert(net.op(i).output(0));
      for (const std::string& name : net.op(i).output()) {
        sources_[name] = made;
        writers_[name] = &net.op(i);
      }
    }
  }

  OutsideSources sources(const std::string& name) const {
    if (const auto found = sources_.find(name); found != sources_.end()) return found->second;
    if (name.empty()) return {};
    return parameters_.count(name) > 0 ? OutsideSources{{name}, {}} : OutsideSources{{}, {name}};
  }
  const OperatorDef* writer(const std::string& name) const {
    const auto found = writers_.find(name);
    return found == writers_.end() ? nullptr : found->second;
  }

 private:
  const std::set<std::string>& parameters_;
  std::map<std::string, OutsideSources> sources_;
  std::map<std::string, const OperatorDef*> writers_;
};

// Operators for the net around a network, on its device, which write names that are free.
class Writer {
 public:
  Writer(std::string prefix, const OperatorDef& network) : prefix_(std::move(prefix)), network_(network) {}

  std::string fresh(const std::string& base) {
    std::string name = prefix_ + base;
    for (int n = 1; !names_.insert(name).second; ++n) name = fmt::format("{}{}_{}", prefix_, base, n);
    return name;
  }

  const std::string& add(const std::string& type, const std::vector<std::string>& inputs, const std::string& output,
                         const std::vector<Argument>& args = {}) {
    OperatorDef op;
    op.set_type(type);
    op.mutable_input()->Add(inputs.begin(), inputs.end());
    op.add_output(fresh(output));
    op.mutable_arg()->Add(args.begin(), args.end());
    return put(op).output(0);
  }
  OperatorDef& put(const OperatorDef& op) {
    ops_.push_back(op);
    if (network_.has_device_option()) *ops_.back().mutable_device_option() = network_.device_option();
    return ops_.back();
  }

  std::string transposed(const std::string& name, const Ints& axes) {
    return add("Transpose", {name}, "turned", {make_arg("axes", axes)});
  }
  // Along the units of [1, B, N], so often.
  std::string repeated(const std::string& name, int parts) {
    if (parts == 1) return name;
    return add("Concat", std::vector<std::string>(parts, name), "repeated", {make_arg("axis", 2)});
  }
  std::string unmoved(const std::string& name) {
    return add("Sub", {name, add("StopGradient", {name}, "stopped")}, "unmoved", {make_arg("equal_shapes", true)});
  }

  // Gives the blob a name that was fresh.
  void name_last(const std::string& name, const std::string& wanted) {
    if (!ops_.empty() && ops_.back().output(0) == name) return ops_.back().set_output(0, wanted);
    OperatorDef copy;
    copy.set_type("Copy");
    copy.add_input(name);
    copy.add_output(wanted);
    put(copy);
  }

  std::vector<OperatorDef> take() { return std::exchange(ops_, {}); }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string prefix_;
  const OperatorDef& network_;
  std::set<std::string> names_;
  std::vector<OperatorDef> ops_;
};

// What a sensitivity is to.
struct Ending {
  std::string name;             // for people, and for names
  std::string parameter;        // in the net outside: weights, a bias, or values of [1, B, parts N]
  int drive = -1, direct = -1;  // which of the paths' it is of
  bool is_weight = false;
  int parts = 1;
};

class Learner {
 public:
  Learner(OperatorDef network, const Outside& outside, LearningRule rule, const std::string& prefix)
      : network_(std::move(network)),
        def_(*network_.MutableExtension(recurrent)),
        given_(def_),
        outside_(outside),
        rule_(rule),
        writer_(prefix, network_) {}

  // The operators that stand in the place of the network.
  std::vector<OperatorDef> run(Sensitivities& result) {
    check();
    paths_ = find_state_paths(given_, {.rule = rule_,
                                       .sources = [&](const auto& name) { return outside_.sources(name); },
                                       .writer = [&](const auto& name) { return outside_.writer(name); }});
    for (int s = 0; s < states(); ++s)
      if (paths_.is_carried[s]) check_initial(given_.state(s));
    compute_outside();
    list_endings();
    find_reached();
    name_carried(result);
    if (carried_.empty()) return {network_};
    write_start(result);
    attach();
    std::vector<OperatorDef> ops = writer_.take();
    build_second();
    ops.push_back(network_);
    std::vector<OperatorDef> behind = differentiate_second();
    std::ranges::move(behind, std::back_inserter(ops));
    write_last();
    behind = writer_.take();
    std::ranges::move(behind, std::back_inserter(ops));
    return ops;
  }

 private:
  int states() const { return given_.state_size(); }
  void check() const {
    const std::string fix = "train with truncated backpropagation";
    if (given_.forward_only()) throw Error("the network is forward_only, so that nothing learns", "leave that out");
    if (given_.has_lengths()) throw Error("sensitivities are not carried for samples of different lengths", fix);
    if (given_.reverse()) throw Error("sensitivities are not carried from the last timestep to the first", fix);
  }
  void check_initial(const StateLink& state) const;
  void compute_outside();
  void list_endings();
  void find_reached();
  void name_carried(Sensitivities& result);
  void write_start(Sensitivities& result);
  void attach();
  std::string attached(const Ending& e, const std::string& first);
  std::string shown(const std::string& blob);
  std::string diagonal(const std::string& weight, int parts);
  std::string repeated_parameter(int number);
  void build_second();
  void add_second_op(int i, NetDef& step);
  void add_feedback(const Drive& drive, NetDef& step);
  std::vector<OperatorDef> differentiate_second();
  void write_last();
  std::string last_of(int state, size_t ending);
  std::string contribution(int state, const Ending& e);
  std::string outside_name(const std::string& blob) const {
    const auto found = outside_names_.find(blob);
    return found == outside_names_.end() ? blob : found->second;
  }
  bool has(int state, size_t ending) const { return carried_.count({state, ending}) > 0; }

  OperatorDef network_;
  RecurrentDef& def_;
  const RecurrentDef given_;
  const Outside& outside_;
  const LearningRule rule_;
  Writer writer_;
  StatePaths paths_;
  std::map<std::string, std::string> outside_names_;  // of what the step net computes of references alone
  std::vector<std::string> values_;                   // of direct parameters: [1, B, parts N]
  std::vector<Ending> endings_;
  std::vector<std::set<int>> reached_;  // by state: those that it depends on at any time before
  std::map<std::pair<int, size_t>, CarriedSensitivity> carried_;  // by state and ending
  OperatorDef second_;                                            // of all states
  std::map<std::string, std::string> shown_;                      // step blob to its rows in the net outside
  std::vector<std::string> driven_, multiplied_;                  // of drives: their rows, and those of their x
  std::map<int, std::string> last_;                               // the second network's states
  std::map<int, std::map<std::string, std::string>> slopes_;      // by state: gradients of the sum of its last
};

void Learner::check_initial(const StateLink& state) const {
  const int uses = static_cast<int>(
      std::ranges::count_if(given_.state(), [&](const StateLink& s) { return s.initial() == state.initial(); }));
  require(uses == 1, "\"{}\" is the initial value of {} states", state.initial(), uses);
  if (outside_.writer(state.initial()))
    throw Error(fmt::format("\"{}\", the initial value of state \"{}\", is computed in the net", state.initial(),
                            state.input()),
                "let it come from outside: the last state of the chunk before");
  const std::vector<std::string> read = read_from_outside(given_.step_net());
  require(std::ranges::count(read, state.initial()) == 0,
          "the step net reads \"{}\", the initial value of state \"{}\"", state.initial(), state.input());
  const OutsideSources s = outside_.sources(state.initial());
  require(s.parameters.empty(),
          "\"{}\", the initial value of state \"{}\", is a parameter, but is to be the last state "
          "of the chunk before",
          state.initial(), state.input());
}

// Once for all timesteps, with the net's references as they are.
void Learner::compute_outside() {
  for (const int i : paths_.outside_ops) {
    OperatorDef op = given_.step_net().op(i);
    for (std::string& name : *op.mutable_input()) name = outside_name(name);
    for (std::string& name : *op.mutable_output()) {
      if (name.empty()) continue;
      name = outside_names_[name] = writer_.fresh(name);
    }
    writer_.put(op);
  }
  for (size_t p = 0; p < paths_.parameters.size(); ++p) values_.push_back(repeated_parameter(static_cast<int>(p)));
}

// As the operator that reads it would repeat it.
std::string Learner::repeated_parameter(int number) {
  const DirectParameter& p = paths_.parameters[number];
  const OperatorDef& op = given_.step_net().op(p.op);
  const auto ends =
      std::ranges::find_if(paths_.ends, [&](const PathEnds& e) { return e.parameters.count(number) > 0; });
  const StateLink& state = given_.state(static_cast<int>(ends - paths_.ends.begin()));
  const std::string zeros = writer_.repeated(writer_.add("ZerosLike", {state.initial()}, "zeros"), p.parts);
  std::vector<Argument> args;
  for (const Argument& arg : op.arg())
    for (const char* name : {"broadcast", "axis", "axis_str", "order"})
      if (arg.name() == name) args.push_back(arg);
  std::vector<std::string> operands = {zeros, outside_name(p.blob)};
  if (p.input == 0) std::swap(operands[0], operands[1]);
  return writer_.add("Add", operands, p.blob + "_repeated", args);
}

void Learner::list_endings() {
  for (size_t d = 0; d < paths_.drives.size(); ++d) {
    const Drive& drive = paths_.drives[d];
    for (const auto& [blob, is_weight] : {std::pair{drive.weight, true}, std::pair{drive.bias, false}}) {
      const bool is_trained =
          drive.op < 0 ? !outside_.sources(blob).parameters.empty() : paths_.varying.count(blob) > 0;
      if (!is_trained) continue;
      endings_.push_back(
          {blob, drive.op < 0 ? blob : outside_name(blob), static_cast<int>(d), -1, is_weight, drive.parts});
    }
  }
  for (size_t p = 0; p < paths_.parameters.size(); ++p)
    endings_.push_back(
        {paths_.parameters[p].blob, values_[p], -1, static_cast<int>(p), false, paths_.parameters[p].parts});
}

void Learner::find_reached() {
  for (int s = 0; s < states(); ++s) reached_.push_back(paths_.ends[s].states);
  for (bool grows = true; grows;) {
    grows = false;
    for (std::set<int>& reached : reached_)
      for (const int via : std::set<int>(reached))
        for (const int s : reached_[via]) grows = reached.insert(s).second || grows;
  }
  for (int s = 0; s < states(); ++s) reached_[s].insert(s);
}

void Learner::name_carried(Sensitivities& result) {
  for (int s = 0; s < states(); ++s)
    for (size_t e = 0; e < endings_.size(); ++e) {
      const Ending& ending = endings_[e];
      const bool depends = std::ranges::any_of(reached_[s], [&](int via) {
        const PathEnds& ends = paths_.ends[via];
        return ending.drive >= 0 ? ends.drives.count(ending.drive) > 0 : ends.parameters.count(ending.direct) > 0;
      });
      if (!paths_.is_carried[s] || !depends) continue;
      const std::string first = writer_.fresh(given_.state(s).input() + "/" + ending.name);
      const CarriedSensitivity carried{first, writer_.fresh(first.substr(writer_.prefix().size()) + "_last"),
                                       given_.state(s).initial(), given_.state(s).last(), ending.name};
      carried_[{s, e}] = carried;
      result.carried.push_back(carried);
    }
}

// Zeros of the sensitivities' shapes: [B, parts N, K] of weights, [1, B, parts N] of others.
void Learner::write_start(Sensitivities& result) {
  Writer start(writer_.prefix() + "start/", network_);
  for (const auto& [key, carried] : carried_) {
    const Ending& e = endings_[key.second];
    std::string zeros = start.repeated(start.add("ZerosLike", {carried.state}, "zeros"), e.parts);
    OperatorDef op;
    op.set_type(e.is_weight ? "Add" : "Copy");
    if (e.is_weight) zeros = start.transposed(zeros, {1, 2, 0});
    op.add_input(zeros);
    if (e.is_weight) op.add_input(start.add("ZerosLike", {e.parameter}, "zeros"));
    op.add_output(carried.first);
    start.put(op);
  }
  for (OperatorDef& op : start.take()) *result.start.add_op() = std::move(op);
}

// Another initial value of each state: the same number, with a gradient.
void Learner::attach() {
  std::map<std::string, std::string> unmoved;
  for (int s = 0; s < states(); ++s) {
    const std::string initial = given_.state(s).initial();
    std::vector<std::string> terms = {initial};
    for (size_t e = 0; e < endings_.size(); ++e) {
      if (!has(s, e)) continue;
      std::string& moved = unmoved[endings_[e].parameter];
      if (moved.empty()) moved = writer_.unmoved(endings_[e].parameter);
      Ending of = endings_[e];
      of.parameter = moved;
      terms.push_back(attached(of, carried_.at({s, e}).first));
    }
    if (terms.size() == 1) continue;
    const std::string name = writer_.add("Sum", terms, given_.state(s).input() + "_first");
    def_.mutable_state(s)->set_initial(name);
    std::replace(network_.mutable_input()->begin(), network_.mutable_input()->end(), initial, name);
  }
}

// <S, W - W'>, for each unit: [1, B, N].
std::string Learner::attached(const Ending& e, const std::string& first) {
  std::string term = writer_.add("Mul", {first, e.parameter}, "moved");
  if (e.is_weight) {
    term = writer_.add("ReduceSum", {term}, "moved", {make_arg("axes", Ints{2}), make_arg("keepdims", false)});
    term = writer_.add("ExpandDims", {term}, "moved", {make_arg("dims", Ints{0})});
  }
  if (e.parts == 1) return term;
  OperatorDef split;
  split.set_type("Split");
  split.add_input(term);
  for (int p = 0; p < e.parts; ++p) split.add_output(writer_.fresh("part"));
  *split.add_arg() = make_arg("axis", 2);
  const OperatorDef& put = writer_.put(split);
  return writer_.add("Sum", {put.output().begin(), put.output().end()}, "moved");
}

// The rows of a step blob, as an output of the network, unless they are there as a sequence.
std::string Learner::shown(const std::string& blob) {
  for (const SequenceLink& s : given_.sequence())
    if (s.inner() == blob) return s.outer();
  std::string& name = shown_[blob];
  if (!name.empty()) return name;
  for (const OutputLink& o : given_.output())
    if (o.inner() == blob) return name = o.outer();
  name = writer_.fresh(blob + "_rows");
  network_.add_output(name);
  OutputLink& output = *def_.add_output();
  output.set_inner(blob);
  output.set_outer(name);
  return name;
}

// Of square weights, or of several below each other: where the columns counted are the rows counted.
std::string Learner::diagonal(const std::string& weight, int parts) {
  std::vector<std::string> squares = {weight}, diagonals;
  if (parts > 1) {
    OperatorDef split;
    split.set_type("Split");
    split.add_input(weight);
    for (int p = 0; p < parts; ++p) split.add_output(writer_.fresh("square"));
    *split.add_arg() = make_arg("axis", 0);
    const OperatorDef& put = writer_.put(split);
    squares = {put.output().begin(), put.output().end()};
  }
  for (const std::string& square : squares) {
    const std::string ones = writer_.add("ConstantFill", {square}, "ones", {make_arg("value", 1.0F)});
    const std::string rows = writer_.add("Cumsum", {ones}, "rows", {make_arg("axis", 0)});
    const std::string columns = writer_.add("Cumsum", {ones}, "columns", {make_arg("axis", 1)});
    const std::string is_diagonal = writer_.add("EQ", {rows, columns}, "is_diagonal");
    const std::string chosen = writer_.add("Mul", {square, writer_.add("CastLike", {is_diagonal, square}, "mask")},
                                           "chosen", {make_arg("equal_shapes", true)});
    diagonals.push_back(
        writer_.add("ReduceSum", {chosen}, "diagonal", {make_arg("axes", Ints{1}), make_arg("keepdims", false)}));
  }
  return parts == 1 ? diagonals[0] : writer_.add("Concat", diagonals, "diagonals", {make_arg("axis", 0)});
}

// u = u' + r (x - x'), where u' is its value, and x' is x without a gradient: the value is the same.
void Learner::add_feedback(const Drive& drive, NetDef& step) {
  const auto add = [&](const std::string& type, const std::vector<std::string>& inputs, const std::string& output,
                       const std::vector<Argument>& args) {
    OperatorDef& op = *step.add_op();
    op.set_type(type);
    op.mutable_input()->Add(inputs.begin(), inputs.end());
    op.add_output(output);
    op.mutable_arg()->Add(args.begin(), args.end());
    return output;
  };
  const std::string base = writer_.fresh(drive.blob), equal = "equal_shapes";
  add("StopGradient", {drive.x}, base + "/stopped", {});
  std::string moved = add("Sub", {drive.x, base + "/stopped"}, base + "/moved", {make_arg(equal, true)});
  if (drive.parts > 1)
    moved = add("Concat", std::vector<std::string>(drive.parts, moved), base + "/repeated", {make_arg("axis", 2)});
  add("Mul", {moved, diagonal(outside_name(drive.weight), drive.parts)}, base + "/fed_back", {});
  add("Add", {base + "/value", base + "/fed_back"}, drive.blob, {make_arg(equal, true)});
  SequenceLink& sequence = *second_.MutableExtension(recurrent)->add_sequence();
  sequence.set_inner(base + "/value");
}

void Learner::add_second_op(int i, NetDef& step) {
  const auto drive = std::ranges::find(paths_.drives, i, &Drive::op);
  if (drive != paths_.drives.end()) return add_feedback(*drive, step);
  OperatorDef op = given_.step_net().op(i);
  bool all_vary = op.input_size() > 1, has_repeated = false;
  for (int k = 0; k < op.input_size(); ++k) {
    all_vary = all_vary && paths_.varying.count(op.input(k)) > 0;
    const auto parameter =
        std::ranges::find_if(paths_.parameters, [&](const DirectParameter& p) { return p.op == i && p.input == k; });
    if (parameter != paths_.parameters.end()) {
      op.set_input(k, values_[parameter - paths_.parameters.begin()]);
      has_repeated = true;
    } else {
      op.set_input(k, outside_name(op.input(k)));
    }
  }
  const bool is_laid_over = lays_operands_over(op_spec(op.type()));
  if (is_laid_over && (all_vary || has_repeated)) {
    auto& args = *op.mutable_arg();
    args.erase(std::remove_if(args.begin(), args.end(),
                              [](const Argument& a) {
                                return a.name() == "broadcast" || a.name() == "axis" || a.name() == "axis_str" ||
                                       a.name() == "order" || a.name() == "equal_shapes";
                              }),
               args.end());
  }
  if (is_laid_over && all_vary) *op.add_arg() = make_arg("equal_shapes", true);
  *step.add_op() = op;
}

// The part of the step from drives, parameters and constants to the states, whose values the network shows.
void Learner::build_second() {
  second_.set_type(network_.type());
  if (network_.has_device_option()) *second_.mutable_device_option() = network_.device_option();
  RecurrentDef& def = *second_.MutableExtension(recurrent);
  def.set_timestep(given_.timestep());
  def.mutable_step_net();
  for (const int i : paths_.ops) add_second_op(i, *def.mutable_step_net());
  std::vector<std::string> fed_back;
  for (const SequenceLink& s : def.sequence()) fed_back.push_back(s.inner());
  def.clear_sequence();
  const auto add_sequence = [&](const std::string& outer, const std::string& inner) {
    SequenceLink& s = *def.add_sequence();
    // Each sequence has a gradient of its own.
    s.set_outer(writer_.add("Alias", {outer}, inner + "_of"));
    s.set_inner(inner);
    second_.add_input(s.outer());
    return s.outer();
  };
  size_t next = 0;
  for (const Drive& d : paths_.drives) {
    driven_.push_back(add_sequence(shown(d.blob), d.feeds_back ? fed_back.at(next++) : d.blob));
    multiplied_.push_back(d.op < 0 ? d.x : shown(d.x));
  }
  for (const std::string& blob : paths_.constants) add_sequence(shown(blob), blob);
  if (def.sequence_size() == 0) add_sequence(given_.sequence(0).outer(), given_.sequence(0).inner());
  for (int s = 0; s < states(); ++s) {
    if (!paths_.is_carried[s]) continue;
    StateLink& state = *def.add_state();
    state.set_input(given_.state(s).input());
    state.set_output(outside_name(given_.state(s).output()));
    state.set_initial(given_.state(s).initial());
    second_.add_input(state.initial());
    last_[s] = writer_.fresh(state.input() + "_last");
    state.set_last(last_[s]);
    second_.add_output(last_[s]);
  }
}

// Each state has a network, and a net, of its own: what two gradients of one network write may share bytes, and they
// stop at what goes into it.
std::vector<OperatorDef> Learner::differentiate_second() {
  std::vector<OperatorDef> ops = writer_.take();
  std::set<std::string> wanted(driven_.begin(), driven_.end());
  wanted.insert(values_.begin(), values_.end());
  for (const auto& [s, last] : last_) wanted.insert(given_.state(s).initial());
  for (const auto& [s, last] : last_) {
    NetDef net;
    net.set_name(writer_.fresh("second"));
    OperatorDef& network = *net.add_op();
    network = second_;
    network.set_name(net.name());
    for (const auto& [other, name] : last_)
      if (other != s) drop_output(network, name);
    expand_recurrent(net);
    try {
      const GradientResult made = add_gradient_operators_under(
          net, {.targets = {{last, ""}}, .wanted = wanted, .stop = {}, .fixed_storages = false}, last + "/");
      for (const auto& [blob, gradient] : made.gradients)
        if (gradient.defined()) slopes_[s][blob] = gradient.dense;
    } catch (const NoDependence&) {  // the state is the same whatever these are
    }
    for (OperatorDef& op : *net.mutable_op()) {
      op.clear_is_gradient_op();
      ops.push_back(std::move(op));
    }
  }
  return ops;
}

void Learner::write_last() {
  for (const auto& [key, carried] : carried_) {
    writer_.name_last(last_of(key.first, key.second), carried.last);
  }
}

std::string Learner::last_of(int state, size_t ending) {
  const Ending& e = endings_[ending];
  const std::map<std::string, std::string>& slopes = slopes_[state];
  std::string sum;
  const auto add = [&](const std::string& term) {
    sum = sum.empty() ? term : writer_.add("Add", {sum, term}, "sum", {make_arg("equal_shapes", true)});
  };
  for (const int via : reached_[state]) {
    const auto slope = slopes.find(given_.state(via).initial());
    if (!has(via, ending) || slope == slopes.end()) continue;
    std::string factor = writer_.repeated(slope->second, e.parts);
    if (e.is_weight) factor = writer_.transposed(factor, {1, 2, 0});
    add(writer_.add("Mul", {factor, carried_.at({via, ending}).first}, "kept"));
  }
  if (const std::string made = contribution(state, e); !made.empty()) add(made);
  if (sum.empty()) sum = writer_.add("ZerosLike", {carried_.at({state, ending}).first}, "none");
  return sum;
}

// Of this chunk; "" if there is none.
std::string Learner::contribution(int state, const Ending& e) {
  const std::map<std::string, std::string>& slopes = slopes_[state];
  const auto slope = slopes.find(e.drive >= 0 ? driven_[e.drive] : values_[e.direct]);
  if (slope == slopes.end()) return "";
  if (e.direct >= 0) return slope->second;
  if (!e.is_weight) return writer_.add("ReduceSum", {slope->second}, "made", {make_arg("axes", Ints{0})});
  return writer_.add(
      "BatchMatMul",
      {writer_.transposed(slope->second, {1, 2, 0}), writer_.transposed(multiplied_[e.drive], {1, 0, 2})}, "made");
}

// All that no operator writes and no network has as a state, a sequence or lengths.
std::set<std::string> default_parameters(const NetDef& net) {
  std::set<std::string> written, given, parameters;
  for (const OperatorDef& op : net.op()) {
    if (!is_network(op)) continue;
    const RecurrentDef& def = op.GetExtension(recurrent);
    for (const SequenceLink& s : def.sequence()) given.insert(s.outer());
    for (const StateLink& s : def.state()) given.insert(s.initial());
    given.insert(def.lengths());
  }
  for (const OperatorDef& op : net.op()) {
    for (const std::string& name : inputs_of(op))
      if (!name.empty() && written.count(name) == 0 && given.count(name) == 0) parameters.insert(name);
    written.insert(op.output().begin(), op.output().end());
  }
  return parameters;
}

// Nothing else may read what carries the history: the gradient that it got there would not be the whole one.
void check_readers(const NetDef& net, int network) {
  for (const StateLink& s : net.op(network).GetExtension(recurrent).state())
    for (int i = 0; s.has_initial() && i < net.op_size(); ++i)
      if (const auto names = inputs_of(net.op(i)); i != network && std::ranges::count(names, s.initial()) > 0)
        throw Error(fmt::format("\"{}\", the initial value of state \"{}\", is read by operator {} ({}) too",
                                s.initial(), s.input(), i, net.op(i).type()),
                    "let the network show what that needs");
}

// The operators of the net that `start` needs, in front of it.
void complete_start(const NetDef& net, NetDef& start) {
  std::set<std::string> needed;
  for (const std::string& name : read_from_outside(start)) needed.insert(name);
  std::vector<OperatorDef> before;
  for (int i = net.op_size() - 1; i >= 0; --i) {
    const OperatorDef& op = net.op(i);
    if (std::ranges::none_of(op.output(), [&](const auto& name) { return needed.count(name) > 0; })) continue;
    for (const std::string& name : inputs_of(op)) needed.insert(name);
    before.push_back(op);
  }
  NetDef all;
  all.set_name(net.name() + "_start");
  for (auto op = before.rbegin(); op != before.rend(); ++op) *all.add_op() = *op;
  all.mutable_op()->MergeFrom(start.op());
  start = std::move(all);
}

constexpr std::pair<const char*, LearningRule> kRules[] = {
    {"rtrl", LearningRule::rtrl}, {"snap1", LearningRule::snap1}, {"eprop", LearningRule::eprop}};

}  // namespace

std::vector<std::string> learning_rule_names() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : kRules) names.emplace_back(name);
  return names;
}

LearningRule learning_rule(const std::string& name) {
  for (const auto& [known, rule] : kRules)
    if (known == name) return rule;
  const std::vector<std::string> names = learning_rule_names();
  fail("there is no learning rule \"{}\"; there are {}.{}", name, fmt::join(names, ", "), suggest(name, names));
}

Sensitivities add_sensitivities(NetDef& net, const SensitivityRequest& request) {
  for (const OperatorDef& op : net.op())
    if (op.is_gradient_op() || op.type() == kRecurrentNetworkGradient)
      throw Error(fmt::format("net \"{}\" has gradient operators, which sensitivities come too late for", net.name()),
                  "derive the gradients after this");
  expand_defined_operators(net);
  expand_cell_operators(net);
  for (OperatorDef& op : *net.mutable_op())
    if (op.type() == kRecurrentNetwork && !has_short_form(op)) op = short_form_of(op, false);
  require(std::ranges::any_of(net.op(), is_network),
          "net \"{}\" has no recurrent network, whose states have sensitivities", net.name());
  const std::set<std::string> parameters = request.parameters.empty() ? default_parameters(net) : request.parameters;
  Sensitivities result;
  NetDef made = net;
  made.clear_op();
  for (int i = 0; i < net.op_size(); ++i) {
    const OperatorDef& op = net.op(i);
    if (!is_network(op)) {
      *made.add_op() = op;
      continue;
    }
    const std::string scope = op.name().empty() ? op.output(0) + "_rnn" : op.name();
    try {
      check_readers(net, i);
      const Outside outside(net, i, parameters);
      Learner learner(op, outside, request.rule, free_prefix(net, scope + "/sensitivity"));
      for (OperatorDef& added : learner.run(result)) *made.add_op() = std::move(added);
    } catch (Error& e) {
      e.add("in", fmt::format("operator {} ({}) of net \"{}\"", i, op.type(), net.name()));
      throw;
    }
  }
  for (const CarriedSensitivity& carried : result.carried) {
    if (made.external_input_size() > 0) made.add_external_input(carried.first);
    if (made.external_output_size() > 0) made.add_external_output(carried.last);
  }
  net = std::move(made);
  complete_start(net, result.start);
  if (net.has_device_option()) *result.start.mutable_device_option() = net.device_option();
  expand_recurrent(net);
  return result;
}

}  // namespace stepnet
