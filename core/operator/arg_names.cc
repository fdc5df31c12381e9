#include "core/operator/arg_names.h"

#include <algorithm>

#include "stepnet/bound_op.h"
#include "stepnet/error.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == name;
}

bool accepts(const std::vector<AcceptedArg>& args, const std::string& name) {
  return std::ranges::any_of(args, [&](const AcceptedArg& a) { return matches(a.name, name); });
}

// A number counts as the same whether it is written as an integer or not.
bool same_value(const Argument& a, const Argument& b) {
  const auto is_number = [](const Argument& v) { return v.has_i() != v.has_f(); };
  const auto number = [](const Argument& v) { return v.has_i() ? static_cast<double>(v.i()) : double{v.f()}; };
  if (is_number(a) && is_number(b)) return number(a) == number(b);
  return a.has_s() && b.has_s() && a.s() == b.s();
}

void refuse(const RefusedArg& refused, const Argument& arg) {
  if (refused.harmless && same_value(*refused.harmless, arg)) return;
  throw Error(fmt::format("the argument \"{}\" is not implemented: it {}", refused.name, refused.would),
              refused.harmless ? fmt::format("leave it out, or set it to {}, with which it does nothing",
                                             value_text(*refused.harmless))
                               : "leave it out");
}

std::vector<std::string> names_that_matter(const OpSpec& spec) {
  std::vector<std::string> names;
  for (const ArgSpec& a : spec.args) names.push_back(a.name);
  for (const RefusedArg& a : spec.refused_args) names.push_back(a.name);
  return names;
}

std::vector<std::string> names_of_hints(const OpSpec& spec) {
  std::vector<std::string> names;
  for (const std::vector<AcceptedArg>* args : {&spec.accepted_args, &common_args()})
    for (const AcceptedArg& a : *args)
      if (a.name.find('*') == std::string::npos) names.push_back(a.name);
  return names;
}

// Of an unknown name that is no misspelling: which of the arguments come nearest.
std::string nearest_text(const OpSpec& spec, const std::string& word) {
  if (std::string near = suggest(word, names_of_hints(spec)); !near.empty()) return near;
  if (spec.args.empty()) return " It has none.";
  constexpr size_t kMost = 3, kLongest = 256;
  std::vector<std::pair<int, std::string>> names;
  for (const ArgSpec& a : spec.args) names.emplace_back(edit_distance(word.substr(0, kLongest), a.name), a.name);
  std::ranges::stable_sort(names, {}, &std::pair<int, std::string>::first);
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", names[i].second);
  return fmt::format(" {} {}.", names.size() > kMost ? "The nearest that it has are" : "It has", text);
}

void check_op(const NetDef& net, int index, std::vector<std::string>* warnings) {
  BoundOp op;
  op.def = net.op(index);
  op.spec = find_op(op.def.type());
  op.net_name = net.name();
  op.index = index;
  if (!op.spec) return;
  const std::string where = source_text(op.def);
  try {
    for (const Argument& arg : op.def.arg()) {
      const std::string warning = check_arg_name(*op.spec, arg);
      if (!warning.empty() && warnings) warnings->push_back(where.empty() ? warning : where + ": " + warning);
    }
  } catch (Error& e) {
    add_op_context(e, op);
    throw;
  }
}

}  // namespace

std::string value_text(const Argument& arg) {
  return arg.has_s() ? arg_text(arg.s()) : arg.has_i() ? arg_text(arg.i()) : arg_text(arg.f());
}

void check_arg_names(const NetDef& net, std::vector<std::string>* warnings) {
  for (int i = 0; i < net.op_size(); ++i) {
    check_op(net, i, warnings);
    check_arg_names_inside(net.op(i), warnings);
  }
  if (net.HasExtension(model) && net.GetExtension(model).has_init())
    check_arg_names(net.GetExtension(model).init(), warnings);
}

void check_arg_names_inside(const OperatorDef& op, std::vector<std::string>* warnings) {
  const OpSpec* spec = find_op(op.type());
  for (const Argument& arg : op.arg()) {
    if (arg.has_n()) check_arg_names(arg.n(), warnings);
    for (const NetDef& inner : arg.nets()) check_arg_names(inner, warnings);
    if (!spec || arg.has_n() || !arg.has_s()) continue;
    const auto declared = std::ranges::find(spec->args, arg.name(), &ArgSpec::name);
    if (declared == spec->args.end() || !declared->holds_net) continue;
    NetArg text;
    read_value(arg, text);
    check_arg_names(text.net, warnings);
  }
  if (op.HasExtension(recurrent)) check_arg_names(op.GetExtension(recurrent).step_net(), warnings);
}

namespace {

std::vector<AcceptedArg> made_common_args() {
  std::vector<AcceptedArg> all = {
      {"order", "an operator that depends on it has an argument of its own"},
      {"use_grad_hack", "no operator of the public format reads it either"},
      {"is_test_mode", "no operator of the public format reads it either"},
  };
  const auto add = [&](std::initializer_list<const char*> names, const std::string& why) {
    for (const char* name : names) all.push_back({name, why});
  };
  add({"cudnn_exhaustive_search", "exhaustive_search", "ws_nbytes_limit", "enable_tensor_core", "use_cudnn",
       "training_mode"},
      "a hint to an engine");
  add({"net_type", "num_workers"}, "a hint to an executor");
  add({"net_pos", "net_position"}, "a note of a tool that rewrites nets");
  add({"Y_scale",
       "Y_zero_point",
       "Y2_scale",
       "activation_p99_threshold",
       "activation_precision",
       "activation_quantization_kind",
       "constant_B",
       "constant_weight",
       "dequantize_output",
       "eltwise_quantization_precision",
       "followed_by",
       "force_scale_power_of_two",
       "measure_quantization_error",
       "preserve_activation_sparsity",
       "preserve_weight_sparsity",
       "quantize_channelwise",
       "requantization_multiplier_precision",
       "weight_p99_threshold",
       "weight_precision",
       "weight_quantization_kind"},
      "it says how the engine DNNLOWP rounds to integers; here nothing is rounded");
  return all;
}

}  // namespace

const std::vector<AcceptedArg>& common_args() {
  static const std::vector<AcceptedArg> all = made_common_args();
  return all;
}

const ArgFamily* arg_family(const OpSpec& spec, const std::string& name) {
  if (std::ranges::find(spec.args, name, &ArgSpec::name) != spec.args.end()) return nullptr;
  const auto family = std::ranges::find_if(
      spec.arg_families, [&](const ArgFamily& f) { return name.starts_with(f.prefix) && name != f.prefix; });
  return family == spec.arg_families.end() ? nullptr : &*family;
}

std::string check_arg_name(const OpSpec& spec, const Argument& arg) {
  const std::string& name = arg.name();
  if (std::ranges::find(spec.args, name, &ArgSpec::name) != spec.args.end()) return "";
  const auto refused = std::ranges::find(spec.refused_args, name, &RefusedArg::name);
  if (refused != spec.refused_args.end()) {
    refuse(*refused, arg);
    return "";
  }
  if (accepts(spec.accepted_args, name) || accepts(common_args(), name) || arg_family(spec, name)) return "";
  const std::string fact = fmt::format("{} has no argument \"{}\".", spec.type, name);
  if (const std::string near = suggest(name, names_that_matter(spec)); !near.empty()) fail("{}{}", fact, near);
  return fmt::format("{}{} It is ignored.", fact, nearest_text(spec, name));
}

}  // namespace stepnet
