#include "core/passes/operator_definition.h"

#include <algorithm>

#include "core/nearest.h"
#include "core/operator/extensions.h"
#include "core/operator/in_place.h"
#include "core/operator/nets_inside.h"
#include "core/passes/defined_operators.h"
#include "core/passes/inner_gradients.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

using Names = std::set<std::string>;

constexpr const char* kGradientNet = "gradient_net";
constexpr const char* kNoGradient = "no_gradient";

[[noreturn]] void refuse_operator(const NetDef& net, int i, Error error) {
  add_op_context(error, {net.op(i), nullptr, nullptr, {}, net.name(), i});
  throw Error(std::move(error));
}

void check_names(const NetDef& net) {
  Names inputs, outputs;
  for (const std::string& name : net.external_input()) {
    require(!name.empty(), "an input has an empty name");
    require(inputs.insert(name).second, "the input \"{}\" is given twice", name);
  }
  for (const std::string& name : net.external_output()) {
    require(!name.empty(), "an output has an empty name");
    require(outputs.insert(name).second, "the output \"{}\" is given twice", name);
  }
  if (outputs.empty()) throw Error("it has no outputs", "name them, in their order, by external_output");
}

void check_header(const NetDef& net) {
  if (net.name().empty()) throw Error("a definition has no name", "its name is the type of the operator");
  if (find_op(net.name()))
    throw Error(fmt::format("there is an operator \"{}\" already", net.name()), "give the definition another name");
  for (const auto& [is_set, what] : {std::pair{net.has_type(), "a type"},
                                     {net.has_device_option(), "a device"},
                                     {net.partition_info_size() > 0, "partitions"},
                                     {net.HasExtension(model), "a model"}})
    if (is_set) fail("a definition has operators, inputs, outputs and arguments, but this one has {}", what);
  check_names(net);
}

void take_arguments(const NetDef& net, OperatorDefinition& d, NetDef& gradient_net, Names& without) {
  Names names;
  for (const Argument& arg : net.arg()) {
    if (holds_definitions(arg)) throw Error("it has definitions of its own", "put them into the net, before it");
    require(names.insert(arg.name()).second, "the argument \"{}\" is given twice", arg.name());
    if (arg.name() == kGradientNet) {
      if (!arg.has_n()) fail("the argument \"{}\" must be a net (n)", kGradientNet);
      gradient_net = arg.n();
      d.has_gradient_net = true;
    } else if (arg.name() == kNoGradient) {
      require(arg.strings_size() > 0, "the argument \"{}\" must be names of inputs (strings)", kNoGradient);
      without.insert(arg.strings().begin(), arg.strings().end());
    } else {
      d.parameters.emplace(arg.name(), arg);
    }
  }
  for (const std::string& name : without)
    require(std::ranges::count(net.external_input(), name) > 0,
            "\"{}\", which is said to have no gradient, is none of its inputs.{}", name,
            Nearest{name, net.external_input()});
  require(without.empty() || d.has_gradient_net, "the argument \"{}\" is for a definition with a \"{}\"", kNoGradient,
          kGradientNet);
}

bool refers_to_parameter(const Argument& arg) { return arg.has_s() && arg.s().starts_with("$"); }

template <class Fn>
void each_argument(OperatorDef& op, const Fn& fn) {
  const auto inside = [&](NetDef& net) {
    for (OperatorDef& inner : *net.mutable_op()) each_argument(inner, fn);
  };
  for (Argument& arg : *op.mutable_arg()) {
    if (arg.has_n()) inside(*arg.mutable_n());
    fn(arg);
  }
  if (has_short_form(op)) inside(*op.MutableExtension(recurrent)->mutable_step_net());
}

// What the step net of a short form reads by name from the net around, and the names that it has.
void find_names(const RecurrentDef& def, std::vector<std::string>& reads, Names& inside) {
  Names known = {def.timestep(), ""};
  for (const SequenceLink& sequence : def.sequence()) known.insert(sequence.inner());
  for (const StateLink& state : def.state()) known.insert(state.input());
  for (const OperatorDef& op : def.step_net().op()) {
    std::vector<std::string> read(op.input().begin(), op.input().end());
    if (has_short_form(op)) find_names(op.GetExtension(recurrent), read, inside);
    inside.insert(read.begin(), read.end());
    std::ranges::copy_if(read, std::back_inserter(reads), [&](const auto& name) { return known.count(name) == 0; });
    known.insert(op.output().begin(), op.output().end());
  }
  inside.insert(known.begin(), known.end());
}

bool holds_nets(const OperatorDef& op) {
  const auto& args = op_spec(op.type()).args;
  return op.type() != kWithGradient && std::ranges::any_of(op.arg(), [&](const Argument& arg) {
           const auto spec = std::ranges::find(args, arg.name(), &ArgSpec::name);
           return arg.has_n() || arg.nets_size() > 0 || (spec != args.end() && spec->holds_net);
         });
}

// Walks a definition's operators in their order.
class Walk {
 public:
  explicit Walk(OperatorDefinition& d) : d_(d), known_(d.net.external_input().begin(), d.net.external_input().end()) {
    for (const std::string& name : known_) shows_[name] = {name};
    known_.insert("");
  }

  void check() {
    for (int i = 0; i < d_.net.op_size(); ++i) check(i);
    for (const std::string& name : d_.net.external_output())
      require(known_.count(name) > 0, "no operator writes the output \"{}\".{}", name, Nearest{name, known_});
    for (const std::string& name : d_.net.external_input()) d_.copied.push_back(overwritten_.count(name) > 0);
  }

 private:
  void check(int i) {
    const OperatorDef& op = d_.net.op(i);
    const OpSpec& spec = op_spec(op.type());
    if (holds_nets(op))
      refuse_operator(
          d_.net, i,
          Error("it holds a net, which an operator of a definition may not", "a network in short form is allowed"));
    std::vector<std::string> reads(op.input().begin(), op.input().end());
    std::ranges::copy(op.control_input(), std::back_inserter(reads));
    if (has_short_form(op)) find_names(op.GetExtension(recurrent), reads, d_.inside);
    for (const std::string& name : reads)
      if (known_.count(name) == 0)
        refuse_operator(d_.net, i,
                        Error(fmt::format("it reads \"{}\", which is no input of the definition and which no "
                                          "operator has written before.{}",
                                          name, Nearest{name, known_}),
                              "a definition reads its inputs alone: name it by external_input"));
    known_.insert(op.output().begin(), op.output().end());
    if (op.type() == kGradients) overwritten_.insert(d_.net.external_input().begin(), d_.net.external_input().end());
    for (int o = 0; o < op.output_size(); ++o) write(op, o, aliased_input(spec, o));
  }

  void write(const OperatorDef& op, int o, int source) {
    if (op.output(o).empty()) return;
    Names& shown = shows_[op.output(o)];
    overwritten_.insert(shown.begin(), shown.end());
    if (source < 0 || source >= op.input_size()) return;
    const Names of = shows_[op.input(source)];
    shown.insert(of.begin(), of.end());
  }

  OperatorDefinition& d_;
  Names known_;
  std::map<std::string, Names> shows_;  // by name: the inputs whose bytes it may show
  Names overwritten_;                   // inputs
};

// The gradient net with names of its own, which no net around it has.
class GradientNet {
 public:
  GradientNet(const OperatorDefinition& d, const NetDef& written, const Names& without)
      : d_(d), net_(written), without_(without) {
    if (net_.name().empty()) net_.set_name("gradient net of " + d.type);
  }

  NetDef read() {
    name_blobs();
    check_ends();
    for (int i = 0; i < net_.op_size(); ++i) {
      check(i);
      rename(*net_.mutable_op(i), i);
    }
    for (const auto& [name, as] : results_)
      if (without_.count(name) == 0)
        require(known_.count(name + "_grad") > 0, "no operator of the gradient net writes \"{}_grad\"", name);
    net_.clear_external_input();
    net_.clear_external_output();
    net_.clear_arg();
    return std::move(net_);
  }

 private:
  void name_blobs() {
    for (int i = 0; i < d_.net.external_input_size(); ++i) {
      know(d_.net.external_input(i), fmt::format("$x{}", i));
      results_.emplace(d_.net.external_input(i), fmt::format("$x{}_grad", i));
    }
    for (int o = 0; o < d_.net.external_output_size(); ++o) {
      const std::string& name = d_.net.external_output(o);
      know(name, fmt::format("$y{}", o));
      know(name + "_grad", fmt::format("$y{}_grad", o));
    }
    for (const auto& [name, as] : results_)
      require(known_.count(name + "_grad") == 0, "the gradient net would have two blobs \"{}_grad\"", name);
  }

  void know(const std::string& name, const std::string& as) {
    if (known_.emplace(name, as).second) return;
    throw Error(fmt::format("with a gradient net, \"{}\" would mean two things", name),
                "let inputs, outputs and the outputs' gradients, NAME_grad, all have different names");
  }

  void check_ends() const {
    for (const std::string& name : net_.external_input())
      require(known_.count(name) > 0,
              "the gradient net's input \"{}\" is no input or output of the operator, and no gradient of an output.{}",
              name, suggest(name, names()));
    Names given;
    for (const std::string& name : net_.external_output()) {
      const auto is_it = [&](const auto& result) { return result.first + "_grad" == name; };
      require(std::ranges::any_of(results_, is_it),
              "the gradient net's output \"{}\" is no gradient of an input, which is called NAME_grad", name);
      require(given.insert(name).second, "the gradient net's output \"{}\" is given twice", name);
    }
    for (const auto& [name, as] : results_) {
      const bool is_given = given.count(name + "_grad") > 0, has_none = without_.count(name) > 0;
      if (is_given && has_none)
        fail("the gradient net gives the gradient of \"{}\", which is said to have no gradient", name);
      if (!is_given && !has_none)
        throw Error(fmt::format("the gradient net gives no gradient of the input \"{}\"", name),
                    fmt::format("let it write \"{}_grad\" and name that by external_output, or list \"{}\" in the "
                                "argument \"{}\" if it has none",
                                name, name, kNoGradient));
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, as] : known_) names.push_back(name);
    return names;
  }

  void check(int i) const {
    const OperatorDef& op = net_.op(i);
    const OpSpec& spec = op_spec(op.type());
    const auto refuse = [&](std::string fact, const char* fix = "") {
      refuse_operator(net_, i, Error(std::move(fact), fix));
    };
    if (holds_nets(op) || has_short_form(op) || spec.blob_kernel)
      refuse("an operator of a gradient net may hold no nets and work on tensors alone");
    if (spec.random || spec.side_effect)
      refuse("an operator of a gradient net may not be random, print, or write files");
    if (std::ranges::any_of(spec.in_place, &InPlaceRule::enforced))
      refuse("it works in place, which an operator of a gradient net may not");
    if (op.has_device_option() || op.has_engine() || op.control_input_size() > 0)
      refuse("an operator of a gradient net may have no device, engine or control input");
    const auto& listed = net_.external_input();
    for (const std::string& name : op.input()) {
      if (name.empty()) continue;
      if (known_.count(name) == 0)
        refuse(
            fmt::format("it reads \"{}\", which is no input or output of the operator, no gradient of an output, and "
                        "which no operator has written before.{}",
                        name, suggest(name, names())));
      if (!listed.empty() && written_.count(name) == 0 && std::ranges::count(listed, name) == 0)
        refuse(fmt::format("it reads \"{}\", which the gradient net's external_input does not list", name));
    }
    for (const std::string& name : op.output())
      if (known_.count(name) > 0)
        refuse(fmt::format("it writes \"{}\" again", name), "an operator of a gradient net writes names of its own");
  }

  void rename(OperatorDef& op, int i) {
    for (std::string& name : *op.mutable_input())
      if (!name.empty()) name = known_.at(name);
    for (int o = 0; o < op.output_size(); ++o) {
      const std::string name = op.output(o);
      if (name.empty()) continue;
      std::string as = fmt::format("$t{}_{}", i, o);
      for (const auto& [input, result] : results_)
        if (input + "_grad" == name) as = result;
      known_.emplace(name, as);
      written_.insert(name);
      op.set_output(o, as);
    }
  }

  const OperatorDefinition& d_;
  NetDef net_;
  const Names& without_;
  std::map<std::string, std::string> known_, results_;  // by name, what it is called; results by input
  Names written_;
};

// References to parameters, and parameters that nothing refers to, which are words misspelt.
void check_parameters(OperatorDefinition& d, NetDef& gradient_net) {
  Names used;
  const auto check = [&](Argument& arg) {
    if (!refers_to_parameter(arg)) return;
    const std::string name = arg.s().substr(1);
    require(d.parameters.count(name) > 0,
            "the argument \"{}\" is to be that of the definition that is called \"{}\", but it has none", arg.name(),
            name);
    used.insert(name);
  };
  for (NetDef* net : {&d.net, &gradient_net})
    for (int i = 0; i < net->op_size(); ++i) {
      try {
        each_argument(*net->mutable_op(i), check);
      } catch (Error& e) {
        refuse_operator(*net, i, std::move(e));
      }
    }
  for (const auto& [name, arg] : d.parameters)
    if (used.count(name) == 0)
      throw Error(fmt::format("no operator of the definition has a value from its argument \"{}\"", name),
                  fmt::format("let one say s: \"${}\"", name));
}

// With their defaults, so that a mistake is said before a use of it.
void bind_operators(const OperatorDefinition& d, const NetDef& net) {
  if (std::ranges::any_of(d.parameters, [](const auto& p) { return is_without_value(p.second); })) return;
  for (int i = 0; i < net.op_size(); ++i) {
    if (has_short_form(net.op(i))) continue;
    OperatorDef op = net.op(i);
    give_parameters(op, d.parameters);
    bind_op(op, net.name(), i);
  }
}

}  // namespace

bool is_without_value(const Argument& arg) {
  Argument value = arg;
  value.clear_name();
  return value.ByteSizeLong() == 0;
}

void give_parameters(OperatorDef& op, const std::map<std::string, Argument>& parameters) {
  each_argument(op, [&](Argument& arg) {
    if (!refers_to_parameter(arg)) return;
    const auto found = parameters.find(arg.s().substr(1));
    if (found == parameters.end()) return;
    const std::string name = arg.name();
    arg = found->second;
    arg.set_name(name);
  });
}

OperatorDefinition read_definition(const NetDef& written, const std::function<void(NetDef&)>& expand) {
  OperatorDefinition d{.type = written.name(),
                       .net = written,
                       .parameters = {},
                       .copied = {},
                       .inside = {},
                       .has_gradient_net = false,
                       .gradient_net = {}};
  NetDef gradient_net;
  Names without;
  check_header(written);
  take_arguments(written, d, gradient_net, without);
  d.net.clear_arg();
  expand(d.net);
  Walk(d).check();
  if (d.has_gradient_net) {
    expand(gradient_net);
    gradient_net = GradientNet(d, gradient_net, without).read();
  }
  check_parameters(d, gradient_net);
  bind_operators(d, d.net);
  bind_operators(d, gradient_net);
  d.gradient_net = std::move(gradient_net);
  return d;
}

}  // namespace stepnet
