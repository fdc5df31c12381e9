#include "recurrent/form/state_paths.h"

#include <algorithm>

#include "core/net/dataflow.h"
#include "core/operator/in_place.h"
#include "recurrent/form/expansion.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

constexpr const char* kProduct = "FC";
constexpr int kColumns = 2;  // the dimension of [T, B, N] that products and parts are along

// What a step blob depends on.
struct Sources {
  bool state = false, time = false;
  std::set<std::string> parameters;
  bool is_constant() const { return !state && parameters.empty(); }
  void add(const Sources& s) {
    state = state || s.state;
    time = time || s.time;
    parameters.insert(s.parameters.begin(), s.parameters.end());
  }
};

int64_t axis_of(const OperatorDef& op) {
  const Argument* axis = find_arg(op, "axis");
  return axis ? axis->i() : 1;
}

bool is_product(const OperatorDef& op) { return op.type() == kProduct; }
bool takes_parts(const OperatorDef& op) {
  return (op.type() == "Split" && op.input_size() == 1) || op.type() == "SplitByRows";
}
bool is_elementwise(const OperatorDef& op) {
  const OpSpec& spec = op_spec(op.type());
  return (spec.elementwise || lays_operands_over(spec)) && !spec.random && op.output_size() == 1;
}
// A unit of states whose gates have a row of so many parts.
int gates_of(const OperatorDef& op) { return op.type() == "LSTMUnit" ? 4 : 0; }

class Walk {
 public:
  Walk(const RecurrentDef& def, const PathsRequest& request) : def_(def), step_(def.step_net()), request_(request) {}

  StatePaths run() {
    check_names();
    find_sources();
    find_carried();
    for (int s = 0; s < def_.state_size(); ++s)
      if (paths_.is_carried[s]) need(def_.state(s).output(), 1, -1);
    for (int i = step_.op_size() - 1; i >= 0; --i) visit(i);
    for (const SequenceLink& s : def_.sequence())
      if (parts_.count(s.inner()) > 0) end_at_sequence(s);
    std::ranges::sort(paths_.drives, {}, &Drive::op);
    find_ends();
    for (const auto& [name, sources] : sources_)
      if (!sources.is_constant()) paths_.varying.insert(name);
    return std::move(paths_);
  }

 private:
  bool exact() const { return request_.rule == LearningRule::rtrl; }
  const Sources& sources(const std::string& blob) const { return sources_.at(blob); }
  int writer(const std::string& blob) const {
    const auto found = writers_.find(blob);
    return found == writers_.end() ? -1 : found->second;
  }

  [[noreturn]] void refuse(int op, Error error) const {
    add_op_context(error, bind_op(step_.op(op), step_.name(), op));
    throw Error(std::move(error));
  }

  // From a blob to the state that it reaches: `"u" -> "z" -> "h"`.
  std::string path_from(std::string blob) const {
    std::string text = fmt::format("\"{}\"", blob);
    for (auto by = reached_by_.find(blob); by != reached_by_.end() && by->second >= 0; by = reached_by_.find(blob)) {
      const OperatorDef& op = step_.op(by->second);
      const auto next = std::ranges::find_if(op.output(), [&](const auto& o) { return parts_.count(o) > 0; });
      if (next == op.output().end()) break;
      blob = *next;
      text += fmt::format(" -> {} -> \"{}\"", op.type(), blob);
    }
    return text;
  }

  // Each name has one value, and operators hold no nets, whose reads have no names here.
  void check_names() {
    std::set<std::string> given = {def_.timestep()};
    for (const SequenceLink& s : def_.sequence()) given.insert(s.inner());
    for (const StateLink& s : def_.state()) given.insert(s.input());
    for (int i = 0; i < step_.op_size(); ++i) {
      const OperatorDef& op = step_.op(i);
      const OpSpec& spec = op_spec(op.type());
      if (spec.blob_kernel || op.HasExtension(recurrent))
        refuse(i, Error("sensitivities are not carried through operators that hold nets in a step net",
                        "train with truncated backpropagation"));
      if (spec.side_effect) refuse(i, Error("an operator with a side effect in the step net would run twice"));
      for (const std::string& name : op.output()) {
        if (name.empty()) continue;
        if (given.count(name) > 0 || read_.count(name) > 0 || !writers_.emplace(name, i).second)
          refuse(i, Error(fmt::format("it writes \"{}\", which holds another value before", name),
                          "let it write to a blob of its own"));
      }
      read_.insert(op.input().begin(), op.input().end());
    }
  }

  void find_sources() {
    sources_[def_.timestep()].time = true;
    sources_[""] = {};
    for (const SequenceLink& s : def_.sequence()) {
      sources_[s.inner()].time = true;
      // What reaches the network through sequences is followed within the chunk by the approximations.
      if (exact()) sources_[s.inner()].parameters = request_.sources(s.outer()).parameters;
    }
    for (const StateLink& s : def_.state()) sources_[s.input()].state = true;
    for (const OperatorDef& op : step_.op()) {
      for (const std::string& name : op.input())
        if (sources_.count(name) == 0) sources_[name].parameters = reference(name);
      const std::vector<bool> reads = element_reads(op_spec(op.type()), op);
      Sources made;
      for (int k = 0; k < op.input_size(); ++k) {
        const Sources& s = sources_[op.input(k)];
        made.time = made.time || s.time || s.state;
        if (reads[k]) made.add(s);
      }
      if (op_spec(op.type()).random) made.time = true;
      for (const std::string& name : op.output())
        if (!name.empty()) sources_[name] = made;
    }
    for (const StateLink& s : def_.state())
      if (sources_.count(s.output()) == 0) sources_[s.output()].parameters = reference(s.output());
  }

  std::set<std::string> reference(const std::string& name) const {
    const OutsideSources s = request_.sources(name);
    if (!s.parameters.empty() && !s.data.empty())
      throw Error(
          fmt::format("the step net reads \"{}\", which depends on the parameter \"{}\" and on \"{}\", which is "
                      "none, so that it is another one in every chunk",
                      name, *s.parameters.begin(), *s.data.begin()),
          "name what is a parameter, or train with truncated backpropagation");
    return s.parameters;
  }

  void find_carried() {
    for (const StateLink& s : def_.state()) read_.insert(s.output());
    for (const StateLink& s : def_.state()) {
      paths_.is_carried.push_back(read_.count(s.input()) > 0);
      if (paths_.is_carried.back() && !s.has_initial())
        throw Error(
            fmt::format("the state \"{}\" starts at zero in every chunk, so that there is nothing to carry", s.input()),
            "give it an initial value, which is the last of the chunk before");
    }
  }

  void need(const std::string& blob, int parts, int by) {
    if (blob.empty()) return;
    const Sources& s = sources(blob);
    if (s.is_constant()) return need_constant(blob);
    if (const auto known = parts_.find(blob); known != parts_.end() && known->second != parts)
      throw Error(fmt::format("\"{}\" has {} parts of a state's size for one operator and {} for another", blob,
                              known->second, parts));
    const bool is_state = std::ranges::any_of(def_.state(), [&](const StateLink& l) { return l.input() == blob; });
    if (is_state && parts != 1)
      refuse(by, Error(fmt::format("the state \"{}\" is taken apart, so that its Jacobian is not diagonal", blob),
                       "make each part a state of its own"));
    parts_.emplace(blob, parts);
    reached_by_.emplace(blob, by);
    if (writer(blob) < 0 && !is_state && !s.time)
      throw Error(fmt::format("the parameter \"{}\" is a state as it is", blob), "let an operator compute the state");
  }

  void need_constant(const std::string& blob) {
    if (blob == def_.timestep()) return;
    if (sources(blob).time)
      paths_.constants.insert(blob);
    else
      need_outside(blob);
  }

  // What is the same in all timesteps is computed outside.
  void need_outside(const std::string& blob) {
    if (blob.empty() || !paths_.outside.insert(blob).second) return;
    const int op = writer(blob);
    if (op < 0) return;
    paths_.outside_ops.insert(op);
    for (const std::string& name : step_.op(op).input()) need_outside(name);
  }

  bool is_parameter(const std::string& blob) const {
    return !blob.empty() && !sources(blob).is_constant() && !sources(blob).state && !sources(blob).time;
  }

  void need_operand(int op, int input, int parts) {
    const std::string& blob = step_.op(op).input(input);
    if (!is_parameter(blob)) return need(blob, parts, op);
    need_outside(blob);
    paths_.parameters.push_back({blob, op, input, parts});
  }

  void visit(int i) {
    const OperatorDef& op = step_.op(i);
    const auto needed = std::ranges::find_if(op.output(), [&](const auto& o) { return parts_.count(o) > 0; });
    if (needed == op.output().end()) return;
    const int parts = parts_.at(*needed);
    if (is_product(op)) return visit_product(i, parts);
    paths_.ops.insert(i);
    if (takes_parts(op)) return visit_parts(i);
    if (const int gates = gates_of(op)) return visit_unit(i, gates);
    if (!is_elementwise(op)) refuse_operator(i);
    check_broadcast(i);
    for (int k = 0; k < op.input_size(); ++k) need_operand(i, k, parts);
  }

  [[noreturn]] void refuse_operator(int i) const {
    const OperatorDef& op = step_.op(i);
    const Sources& s = sources(op.output(0));
    const std::string path =
        path_from(*std::ranges::find_if(op.output(), [&](auto& o) { return parts_.count(o) > 0; }));
    if (s.state)
      refuse(i, Error(fmt::format("it stands between a state before the timestep and one after it ({}) and does not "
                                  "work element by element, so that the state's Jacobian is not diagonal",
                                  path),
                      "train with truncated backpropagation, or use FC and operators that work element by element"));
    refuse(i, Error(fmt::format("between the parameter \"{}\" and a state ({}) it neither works element by element nor "
                                "is an FC",
                                *s.parameters.begin(), path),
                    "train with truncated backpropagation, or use FC and operators that work element by element"));
  }

  // What is laid over a constant from a dimension on would be laid over it otherwise when it is repeated.
  void check_broadcast(int i) const {
    const OperatorDef& op = step_.op(i);
    if (!find_arg(op, "axis") && !find_arg(op, "axis_str")) return;
    if (!lays_operands_over(op_spec(op.type())) || op.input_size() < 2) return;
    const bool has_constant = sources(op.input(0)).is_constant() || sources(op.input(1)).is_constant();
    if (has_constant && (is_parameter(op.input(0)) || is_parameter(op.input(1))))
      refuse(i, Error("a parameter and a constant are laid over each other from a dimension on",
                      "leave out \"axis\", which aligns both at the end"));
  }

  void visit_parts(int i) {
    const OperatorDef& op = step_.op(i);
    if (axis_of(op) != kColumns && axis_of(op) != -1)
      refuse(i, Error(fmt::format("it takes parts of dimension {}, but a state's units are along dimension {}",
                                  axis_of(op), kColumns)));
    for (const Argument& arg : op.arg())
      if (arg.name() != "axis" && arg.name() != "split")
        refuse(i, Error(fmt::format("sensitivities are not carried for a Split with the argument \"{}\"", arg.name())));
    int sum = 0;
    for (const std::string& name : op.output()) {
      const auto found = parts_.find(name);
      if (found == parts_.end())
        refuse(i, Error(fmt::format("no state depends on its part \"{}\", whose size is not known", name),
                        "take only parts that states are made of"));
      sum += found->second;
    }
    need_operand(i, 0, sum);
    // Of SplitByRows the others are there for their shapes.
    for (int k = 1; k < op.input_size(); ++k) need_outside(op.input(k));
  }

  void visit_unit(int i, int gates) {
    const OperatorDef& op = step_.op(i);
    const Argument* lengths = find_arg(op, "sequence_lengths");
    if (!lengths || lengths->i() != 0)
      refuse(i, Error("sensitivities are not carried for samples of different lengths",
                      "give it the argument sequence_lengths: 0"));
    for (const std::string& name : op.output())
      if (const auto found = parts_.find(name); found != parts_.end() && found->second != 1)
        refuse(i, Error("its outputs are parts of what states are made of"));
    need_operand(i, 0, 1);
    need_operand(i, 1, 1);
    need_operand(i, 2, gates);
  }

  void visit_product(int i, int parts) {
    const OperatorDef& op = step_.op(i);
    for (const Argument& arg : op.arg())
      if (arg.name() != "axis")
        refuse(i, Error(fmt::format("sensitivities are not carried for an FC with the argument \"{}\"", arg.name())));
    if (axis_of(op) != kColumns)
      refuse(i, Error(fmt::format("its axis is {}, but blobs of a step are [1, B, N]", axis_of(op)),
                      "give it the argument axis: 2"));
    const std::string &x = op.input(0), &weight = op.input(1);
    const std::string bias = op.input_size() > 2 ? op.input(2) : "";
    for (const std::string& name : {weight, bias}) {
      if (name.empty()) continue;
      if (sources(name).state || sources(name).time)
        refuse(i, Error(fmt::format("its \"{}\" is another one in each timestep", name),
                        "train with truncated backpropagation"));
      need_outside(name);
    }
    check_input(i);
    Drive drive{i, op.output(0), x, weight, bias, parts, false};
    if (sources(x).state && request_.rule == LearningRule::snap1) {
      drive.feeds_back = true;
      paths_.ops.insert(i);
      need(x, 1, i);
    }
    paths_.drives.push_back(std::move(drive));
  }

  void check_input(int i) const {
    const std::string& x = step_.op(i).input(0);
    const Sources& s = sources(x);
    if (s.state && exact())
      refuse(i,
             Error(fmt::format("it multiplies \"{}\", which depends on a state, so that the Jacobian of the state is "
                               "not diagonal: \"{}\" -> {} -> {}",
                               x, x, step_.op(i).type(), path_from(step_.op(i).output(0))),
                   "use snap1, which keeps the diagonal, or eprop, which leaves this path out; or truncated "
                   "backpropagation"));
    if (s.parameters.empty()) return;
    if (s.state)
      refuse(i, Error(fmt::format("it multiplies \"{}\", which depends on a state and, in the same timestep, on the "
                                  "parameter \"{}\"",
                                  x, *s.parameters.begin()),
                      "train with truncated backpropagation"));
    refuse(i, Error(fmt::format("it multiplies \"{}\", which depends on the parameter \"{}\": two layers stand between "
                                "that and the state",
                                x, *s.parameters.begin()),
                    "train with truncated backpropagation, or put the first layer behind a state"));
  }

  // An exact rule has to know the parameters behind a sequence: those of one product.
  void end_at_sequence(const SequenceLink& s) {
    const Sources& of = sources(s.inner());
    const OperatorDef* op = request_.writer(s.outer());
    const std::string fix =
        "use snap1 or eprop, which follow such parameters within a chunk, or truncated "
        "backpropagation";
    if (!op || !is_product(*op) || op->input_size() < 2 || axis_of(*op) != kColumns || op->arg_size() != 1)
      throw Error(fmt::format("the sequence \"{}\" depends on the parameter \"{}\" otherwise than by an FC of axis 2 "
                              "that makes it of what depends on no parameter",
                              s.outer(), *of.parameters.begin()),
                  fix);
    const OutsideSources x = request_.sources(op->input(0));
    if (!x.parameters.empty())
      throw Error(fmt::format("the sequence \"{}\" is made of \"{}\", which depends on the parameter \"{}\"", s.outer(),
                              op->input(0), *x.parameters.begin()),
                  fix);
    for (int k = 1; k < op->input_size(); ++k)
      if (!op->input(k).empty()) reference(op->input(k));
    paths_.drives.push_back({-1, s.inner(), op->input(0), op->input(1), op->input_size() > 2 ? op->input(2) : "",
                             parts_.at(s.inner()), false});
  }

  // What each state is made of, by the operators in their order.
  void find_ends() {
    std::map<std::string, PathEnds> ends;
    for (int s = 0; s < def_.state_size(); ++s) ends[def_.state(s).input()].states.insert(s);
    for (size_t d = 0; d < paths_.drives.size(); ++d) ends[paths_.drives[d].blob].drives.insert(static_cast<int>(d));
    const auto merge = [](PathEnds& into, const PathEnds& from) {
      into.states.insert(from.states.begin(), from.states.end());
      into.drives.insert(from.drives.begin(), from.drives.end());
      into.parameters.insert(from.parameters.begin(), from.parameters.end());
    };
    for (const int i : paths_.ops) {
      PathEnds made;
      for (const std::string& name : step_.op(i).input())
        if (parts_.count(name) > 0) merge(made, ends[name]);
      for (size_t p = 0; p < paths_.parameters.size(); ++p)
        if (paths_.parameters[p].op == i) made.parameters.insert(static_cast<int>(p));
      for (const std::string& name : step_.op(i).output()) merge(ends[name], made);
    }
    for (const StateLink& s : def_.state()) paths_.ends.push_back(ends[s.output()]);
  }

  const RecurrentDef& def_;
  const NetDef& step_;
  const PathsRequest& request_;
  StatePaths paths_;
  std::map<std::string, int> writers_;
  std::set<std::string> read_;
  std::map<std::string, Sources> sources_;
  std::map<std::string, int> parts_;       // of blobs that states are made of
  std::map<std::string, int> reached_by_;  // the operator that was the first to need it; -1: a state
};

}  // namespace

StatePaths find_state_paths(const RecurrentDef& def, const PathsRequest& request) { return Walk(def, request).run(); }

}  // namespace stepnet
