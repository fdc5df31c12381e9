#include "tools/reference/typed_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "core/gradcheck/examples.h"
#include "core/gradcheck/runs.h"
#include "stepnet/error.h"

namespace stepnet::tools {
namespace {

constexpr size_t kWidth = 120;

bool is_upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool is_lower(char c) { return std::islower(static_cast<unsigned char>(c)) != 0; }

bool is_keyword(const std::string& name) {
  static const std::set<std::string> keywords = {
      "and",      "auto",   "bool",    "break",    "case",     "char",   "class",    "const",   "continue",
      "default",  "delete", "do",      "double",   "else",     "enum",   "explicit", "export",  "extern",
      "float",    "for",    "if",      "inline",   "int",      "long",   "mutable",  "new",     "not",
      "operator", "or",     "private", "public",   "register", "return", "short",    "signed",  "sizeof",
      "static",   "struct", "switch",  "template", "this",     "throw",  "try",      "typedef", "union",
      "unsigned", "using",  "virtual", "void",     "while",    "xor"};
  return keywords.count(name) > 0;
}

std::string identifier(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(c)) : '_';
  const bool taken =
      is_keyword(name) || name == "args" || name == "place" || name == "call" || name == "given" || name == "made";
  return taken ? name + "_" : name;
}

// Comment lines, indented.
std::string comment(const std::string& text, const std::string& indent) {
  std::string lines, line = indent + "//";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string word = text.substr(at, end - at);
    if (line.size() + 1 + word.size() > kWidth) {
      lines += line + "\n";
      line = indent + "//";
    }
    if (!word.empty()) line += " " + word;
    at = end + 1;
  }
  return lines + line + "\n";
}

std::string first_sentence(const std::string& doc) {
  const std::string text = doc.substr(0, doc.find(". "));
  return text.ends_with('.') ? text : text + ".";
}

// What a derivative calls and nobody else has no example.
bool is_called(const OpSpec& spec) {
  const auto holds_net = [](const ArgSpec& a) { return a.holds_net || a.type == "net"; };
  return !spec.blob_kernel && !spec.kernels.empty() && !spec.examples.empty() && !spec.outputs.empty() &&
         std::ranges::none_of(spec.args, holds_net);
}

std::string member_type(const ArgSpec& arg) {
  static const std::map<std::string, std::string> types = {
      {"float", "std::optional<float>"}, {"bool", "std::optional<bool>"},          {"int32", "std::optional<int32_t>"},
      {"int", "std::optional<int64_t>"}, {"string", "std::optional<std::string>"}, {"floats", "ListArg<float>"},
      {"ints", "ListArg<int64_t>"},      {"strings", "ListArg<std::string>"},      {"any", "AnyArg"}};
  return types.at(arg.type);
}

std::string member_name(const ArgSpec& arg) { return is_keyword(arg.name) ? arg.name + "_" : arg.name; }

// Whether an example runs, and its derivatives, with the operator's first so many outputs.
bool does_with(size_t outputs, GradientSubject example) {
  OperatorDef& op = *example.net.mutable_op(0);
  const int more = op.output_size() - static_cast<int>(outputs);
  if (more <= 0) return true;
  op.mutable_output()->DeleteSubrange(static_cast<int>(outputs), more);
  try {
    find_differentiable(example, 1);
    if (!example.inputs.empty()) run_gradients(example, MovedRuns(example, 1).weights(), 1, example.inputs);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// How many outputs there are if nobody says it: those that it always has, and those that derivatives cannot do without.
size_t usual_outputs(const OpSpec& spec) {
  size_t count = 1;
  for (size_t o = 0; o < spec.outputs.size(); ++o)
    if (!spec.outputs[o].optional) count = o + 1;
  for (const OpExample& example : spec.examples) {
    if (!example.net.empty()) continue;
    const GradientSubject subject = example_subject(spec, example, 1);
    while (!does_with(count, subject)) ++count;
  }
  return count;
}

// A switch with which the operator has fewer outputs than usual, as an example of its own net shows.
struct FewerOutputs {
  std::string arg;
  size_t outputs;
};

std::optional<FewerOutputs> fewer_outputs(const OpSpec& spec, size_t usual) {
  for (const OpExample& example : spec.examples) {
    if (example.net.empty()) continue;
    const GradientSubject subject = example_subject(spec, example, 1);
    for (const OperatorDef& op : subject.net.op()) {
      if (op.type() != spec.type || op.output_size() >= static_cast<int>(usual)) continue;
      for (const ArgSpec& arg : spec.args)
        for (const Argument& given : op.arg())
          if (arg.type == "bool" && given.name() == arg.name && given.i() != 0)
            return FewerOutputs{arg.name, static_cast<size_t>(op.output_size())};
    }
  }
  return {};
}

// One operator's function, or its two.
class Writer {
 public:
  explicit Writer(const OpSpec& spec) : spec_(spec), name_(function_name(spec.type)) {
    lists_ = spec.outputs.back().variadic;
    chooses_ = !lists_ && std::ranges::any_of(spec.outputs, [](const auto& p) { return p.optional; });
    if (chooses_) usual_ = usual_outputs(spec);
    if (chooses_) fewer_ = fewer_outputs(spec, usual_);
    in_place_.assign(spec.outputs.size(), -1);
    for (const InPlaceRule& rule : spec.in_place)
      if (rule.enforced) overwrite(rule);
  }

  std::string text() {
    std::string text = args_struct() + outputs_struct();
    const std::string doc = comment(first_sentence(spec_.doc), "");
    const std::string in_place_name = name_.ends_with('_') ? name_ + "in_place" : name_ + "_";
    if (in_place_[0] >= 0) return text + doc + function(in_place_name);
    text += doc + function(name_);
    for (const InPlaceRule& rule : spec_.in_place)
      if (!(rule.anywhere && spec_.blob_kernel) && !spec_.inputs.empty()) overwrite(rule);
    if (in_place_[0] != 0) return text;
    std::vector<std::string> names;
    for (size_t o = 0; o < most(); ++o)
      if (in_place_[o] >= 0) names.push_back(identifier(spec_.inputs[in_place_[o]].name));
    return text + comment(fmt::format("The same, written over {}.", fmt::join(names, ", ")), "") +
           function(in_place_name);
  }

 private:
  // Output 0 goes over input 0 or over none.
  void overwrite(const InPlaceRule& rule) {
    const int in = spec_.input_index(rule.in), out = spec_.output_index(rule.out);
    if (in_place_[out] >= 0 || (out == 0 && in != 0 && !rule.enforced)) return;
    if (std::ranges::count(in_place_, in) == 0) in_place_[out] = in;
  }

  bool has_args() const { return !spec_.args.empty() || chooses_; }
  std::string args_type() const { return spec_.type + "Args"; }
  std::string result_type() const {
    if (lists_) return "std::vector<Variable>";
    return spec_.outputs.size() == 1 ? "Variable" : spec_.type + "Outputs";
  }

  static std::string member(const ArgSpec& arg) {
    const std::string line = fmt::format("  {} {} = {{}};", member_type(arg), member_name(arg));
    std::string doc = arg.doc;
    if (arg.required)
      doc += "; required";
    else if (arg.type == "bool")
      doc += arg.default_text == "0" ? "; false if not given" : "; true if not given";
    else if (!arg.default_text.empty() && arg.default_text != "[]")
      doc += "; " + arg.default_text + " if not given";
    if (line.size() + 5 + doc.size() <= kWidth && doc.find('\n') == doc.npos) return line + "  // " + doc + "\n";
    return comment(doc, "  ") + line + "\n";
  }

  std::string args_struct() const {
    if (!has_args()) return "";
    std::string text = fmt::format("struct {} {{\n", args_type()), list;
    const bool many = spec_.args.size() > 2;
    for (const ArgSpec& arg : spec_.args) {
      text += member(arg);
      list += fmt::format("{}.add(\"{}\", {})", many ? "\n        " : "", arg.name, member_name(arg));
    }
    if (fewer_)
      text += comment(fmt::format("how many are asked for, the first so many of {}; {} if not given, and with {} {}",
                                  most(), usual_, fewer_->arg, fewer_->outputs),
                      "  ") +
              "  std::optional<int> outputs = {};\n";
    else if (chooses_)
      text += fmt::format("  int outputs = {};  // how many are asked for, the first so many of {}\n", usual_, most());
    if (!many) return text + fmt::format("  ArgList list() const {{ return ArgList(){}; }}\n}};\n", list);
    return text + fmt::format("  ArgList list() const {{\n    return ArgList(){};\n  }}\n}};\n", list);
  }

  size_t most() const { return spec_.outputs.size(); }

  std::string outputs_struct() const {
    if (lists_ || spec_.outputs.size() == 1) return "";
    std::string text = fmt::format("struct {} {{\n", result_type());
    for (const ParamSpec& p : spec_.outputs)
      text += comment(p.doc + (p.optional ? "; undefined if not asked for" : ""), "  ") +
              fmt::format("  Variable {};\n", identifier(p.name));
    if (std::ranges::all_of(spec_.outputs.begin() + 1, spec_.outputs.end(), [](const auto& p) { return p.optional; }))
      text += fmt::format("  operator const Variable&() const {{ return {}; }}\n", identifier(spec_.outputs[0].name));
    return text + "};\n";
  }

  std::string parameters() const {
    std::vector<std::pair<std::string, std::string>> list;  // with the default, "" if there is none
    for (const ParamSpec& p : spec_.inputs)
      if (p.variadic)
        list.emplace_back("const std::vector<Variable>& " + identifier(p.name),
                          p.optional || p.at_least == 0 ? "{}" : "");
      else
        list.emplace_back("const Variable& " + identifier(p.name),
                          p.optional && (in_place_[0] != 0 || &p != spec_.inputs.data()) ? "{}" : "");
    if (lists_) list.emplace_back("int outputs", "");
    const bool required = std::ranges::any_of(spec_.args, [](const ArgSpec& a) { return a.required; });
    if (has_args()) list.emplace_back("const " + args_type() + "& args", required ? "" : "{}");
    list.emplace_back("Place place", "Place::here()");
    bool may_be_left_out = true;
    for (auto it = list.rbegin(); it != list.rend(); ++it) {
      may_be_left_out = may_be_left_out && !it->second.empty();
      if (may_be_left_out) it->first += " = " + it->second;
    }
    std::vector<std::string> texts;
    for (const auto& p : list) texts.push_back(p.first);
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  // The inputs as a span, after a line that makes it if need be.
  std::pair<std::string, std::string> inputs() const {
    if (spec_.inputs.empty()) return {"", "{}"};
    std::vector<std::string> names;
    for (const ParamSpec& p : spec_.inputs) names.push_back(identifier(p.name));
    const bool variadic = spec_.inputs.back().variadic;
    if (names.size() == 1) return {"", variadic ? names[0] : fmt::format("{{&{}, 1}}", names[0])};
    if (!variadic) return {fmt::format("  const Variable given[] = {{{}}};\n", fmt::join(names, ", ")), "given"};
    const std::string list = names.back();
    names.pop_back();
    return {"", fmt::format("joined({{{}}}, {})", fmt::join(names, ", "), list)};
  }

  std::string function(const std::string& name) const {
    std::string in_place;
    if (std::ranges::any_of(in_place_, [](int i) { return i >= 0; }))
      in_place = fmt::format(", {{{}}}", fmt::join(in_place_, ", "));
    const auto [line, span] = inputs();
    const std::string args = has_args() ? "args.list()" : "{}";
    std::string text = fmt::format("inline {} {}({}) {{\n", result_type(), name, parameters());
    text += fmt::format("  static const TypedCall call(\"{}\"{});\n{}", spec_.type, in_place, line);
    if (lists_) return text + fmt::format("  return call.run({}, {}, outputs, place);\n}}\n", span, args);
    if (spec_.outputs.size() == 1) return text + fmt::format("  return call.run1({}, {}, place);\n}}\n", span, args);
    const std::string count = fewer_     ? fmt::format("args.outputs.value_or(args.{}.value_or(false) ? {} : {})",
                                                       fewer_->arg, fewer_->outputs, usual_)
                              : chooses_ ? "args.outputs"
                                         : std::to_string(most());
    text += fmt::format("  std::array<Variable, {}> made;\n  call.run_into(made, {}, {}, {}, place);\n", most(), span,
                        args, count);
    std::vector<std::string> members;
    for (size_t o = 0; o < most(); ++o) members.push_back(fmt::format("std::move(made[{}])", o));
    return text + fmt::format("  return {{{}}};\n}}\n", fmt::join(members, ", "));
  }

  const OpSpec& spec_;
  std::string name_;
  std::vector<int> in_place_;             // per declared output
  bool chooses_ = false, lists_ = false;  // outputs may be left out; are a list
  size_t usual_ = 0;                      // how many there are if nobody says it
  std::optional<FewerOutputs> fewer_;
};

// The space at which a line of code that is too long is broken: after a comma, or, if the names of a function and of
// its result leave no room for one, between these.
size_t break_of(const std::string& line) {
  const size_t comma = line.rfind(", ", kWidth - 1), parenthesis = line.find('(');
  if (comma != line.npos) return comma + 1;
  return parenthesis == line.npos ? line.npos : line.rfind(' ', parenthesis);
}

// Breaks lines of code that are too long.
std::string wrapped(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    while (line.size() > kWidth) {
      const size_t space = break_of(line);
      if (space == line.npos || space < 10) break;
      result += line.substr(0, space) + "\n";
      line = "    " + line.substr(space + 1);
    }
    result += line + "\n";
    at = end + 1;
  }
  return result;
}

const char* const kHead = R"(// Typed calls: operators on tensors as functions of variables, such as ops::mul(a, b).
//
// Written by `stepnet ops --cpp` from the registrations while Stepnet is built; it is not edited by hand.
// Arguments are given by name, as in ops::softmax(x, {.axis = 1}), and those that are not given are the operator's
// defaults. Inputs that may be absent are undefined variables. Outputs that may be absent are there if derivatives
// cannot do without them, or if more are asked for. A function whose name ends with an underscore writes its result
// over its first input and returns that. (C++ keywords have an underscore too: ops::and_, and in place
// ops::and_in_place.) `stepnet ops NAME` says what an operator does in full, and the gradients that it has.
// Threads: as run() in stepnet/record.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/typed_call.h"

// clang-format off
namespace stepnet::ops {

using autograd::AnyArg;
using autograd::ArgList;
using autograd::joined;
using autograd::ListArg;
using autograd::Place;
using autograd::TypedCall;
using autograd::Variable;
)";

}  // namespace

std::string function_name(const std::string& type) {
  static const std::map<std::string, std::string> spelt = {
      {"AddCDiv", "add_cdiv"}, {"AddCMul", "add_cmul"}, {"BAddBMM", "badd_bmm"}, {"FMod", "fmod"}, {"PRelu", "prelu"}};
  if (const auto it = spelt.find(type); it != spelt.end()) return it->second;
  std::string name;
  for (size_t i = 0; i < type.size(); ++i) {
    const bool begins_word =
        i > 0 && is_upper(type[i]) && (!is_upper(type[i - 1]) || (i + 1 < type.size() && is_lower(type[i + 1])));
    if (begins_word) name += '_';
    name += static_cast<char>(std::tolower(type[i]));
  }
  return is_keyword(name) ? name + "_" : name;
}

std::string typed_calls() {
  std::string text = kHead;
  for (const std::string& type : op_types())
    if (const OpSpec& spec = op_spec(type); is_called(spec)) text += "\n" + Writer(spec).text();
  return wrapped(text) + "\n}  // namespace stepnet::ops\n";
}

}  // namespace stepnet::tools
