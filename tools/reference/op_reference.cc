#include "tools/reference/op_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>

#include "core/gradcheck/input_text.h"
#include "core/operator/arg_names.h"
#include "stepnet/error.h"
#include "tools/reference/markdown.h"

namespace stepnet::tools {
namespace {

struct Family {
  std::string_view title;
  std::vector<std::string_view> folders;
};

// In the order of the page. Operators of other folders, such as those of plugins, come after these.
const std::vector<Family>& families() {
  static const std::vector<Family> all = {{"Recurrent networks", {"network", "layers", "form"}},
                                          {"Units of recurrent cells", {"cells"}},
                                          {"Products", {"products"}},
                                          {"Convolutions and pools", {"convolution"}},
                                          {"Element by element", {"pointwise"}},
                                          {"Sums and other reductions", {"reduce"}},
                                          {"Normalisation", {"norm"}},
                                          {"Losses", {"loss"}},
                                          {"Shapes, types and copies", {"shape"}},
                                          {"Indices", {"index"}},
                                          {"Sequences of different lengths", {"segments"}},
                                          {"Fills and random numbers", {"fill"}},
                                          {"Optimizers", {"optimizer"}},
                                          {"Files and databases", {"data"}},
                                          {"Several processes", {"collective"}},
                                          {"Control", {"control"}}};
  return all;
}

std::string family_title(const OpSpec& spec) {
  for (const Family& family : families())
    if (std::ranges::find(family.folders, spec.family) != family.folders.end()) return std::string(family.title);
  return spec.family;
}

size_t family_place(const std::string& title) {
  return static_cast<size_t>(std::ranges::find(families(), title, &Family::title) - families().begin());
}

bool is_gradient(std::string_view type) { return type.ends_with("Gradient") || type.ends_with("Grad"); }

// Of the operators of its family, the one with the longest name that the gradient's begins with.
std::string operator_of_gradient(const OpSpec& spec) {
  std::string longest;
  if (!is_gradient(spec.type)) return longest;
  for (const std::string& type : op_types())
    if (type.size() < spec.type.size() && spec.type.starts_with(type) && !is_gradient(type) &&
        type.size() > longest.size() && op_spec(type).family == spec.family)
      longest = type;
  return longest;
}

std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ") {
  return fmt::format("{}", fmt::join(items, separator));
}

std::string types_of(const ParamSpec& param) {
  if (param.object) return "an object";
  if (param.any) return "any type";
  if (param.types.empty()) return "T";
  std::vector<std::string> names;
  for (const DType type : param.types) names.emplace_back(dtype_name(type));
  return joined(names, " or ");
}

std::string count_of(const ParamSpec& param) {
  if (param.variadic) return fmt::format("{} or more", param.at_least);
  return param.optional ? "optional" : "one";
}

ReferenceTable params_table(std::string title, const std::vector<ParamSpec>& params) {
  ReferenceTable table{std::move(title), {"name", "type", "how many", "what it is"}, {}};
  for (const ParamSpec& p : params)
    table.rows.push_back({p.name, types_of(p), count_of(p), p.doc + (p.shape_only ? " (only its shape is read)" : "")});
  return table;
}

ReferenceTable args_table(const OpSpec& spec) {
  ReferenceTable table{"Arguments", {"name", "type", "default", "what it says"}, {}};
  for (const ArgSpec& a : spec.args) {
    const std::string fallback = a.required ? "required" : a.default_text.empty() ? "none" : a.default_text;
    table.rows.push_back(
        {a.name, a.type, a.type == "string" && a.default_text.empty() && !a.required ? "\"\"" : fallback, a.doc});
  }
  for (const ArgFamily& f : spec.arg_families) table.rows.push_back({f.prefix + "*", "any", "none", f.doc});
  return table;
}

ReferenceTable more_args_table(const OpSpec& spec) {
  ReferenceTable table{"Arguments of the public format that it does not read", {"name", "what happens", "why"}, {}};
  for (const AcceptedArg& a : spec.accepted_args) table.rows.push_back({a.name, "accepted", a.why});
  for (const RefusedArg& a : spec.refused_args)
    table.rows.push_back(
        {a.name, a.harmless ? "refused, unless it is " + value_text(*a.harmless) : "refused", "it " + a.would});
  return table;
}

// An operator that has every input and output by its declared name, and the arguments of its first example.
OperatorDef full_call(const OpSpec& spec) {
  OperatorDef def;
  def.set_type(spec.type);
  if (!spec.examples.empty())
    for (const std::string& text : spec.examples[0].args) *def.add_arg() = parse_arg(spec, text);
  for (const ParamSpec& p : spec.inputs) def.add_input(p.name);
  for (const ParamSpec& p : spec.outputs) def.add_output(p.name);
  return def;
}

std::vector<std::string> names_where(const std::vector<bool>& marks, const std::vector<ParamSpec>& params) {
  std::vector<std::string> names;
  for (size_t i = 0; i < marks.size() && i < params.size(); ++i)
    if (marks[i]) names.push_back(params[i].name);
  return names;
}

// The gradient of one input alone.
std::vector<std::string> derivative_row(const OpSpec& spec, const std::string& input) {
  const OperatorDef def = full_call(spec);
  std::vector<bool> wanted(spec.inputs.size(), false);
  wanted[static_cast<size_t>(spec.input_index(input))] = true;
  try {
    const auto args = parse_args(spec, def);
    const GradientProgram program =
        record_gradient(spec, def, args.get(), wanted, std::vector<bool>(spec.outputs.size(), true));
    std::vector<std::string> reads = names_where(program.reads_input, spec.inputs);
    for (std::string& name : names_where(program.reads_output, spec.outputs)) reads.push_back(std::move(name));
    std::vector<std::string> steps;
    for (const GradientProgram::Step& step : program.steps) steps.push_back(step.type);
    return {input, steps.empty() ? "the output's gradient itself" : joined(steps, ", then "),
            reads.empty() ? "nothing" : joined(reads)};
  } catch (const Error&) {
    return {input, "depends on the arguments", "depends on the arguments"};
  }
}

ReferenceTable derivatives_table(const OpSpec& spec) {
  ReferenceTable table{"Derivatives", {"of", "computed by", "reads of the forward pass"}, {}};
  for (const DerivativeSpec& derivative : spec.derivatives)
    for (const std::string& input : derivative.inputs) table.rows.push_back(derivative_row(spec, input));
  return table;
}

// Whether it has an input, not of integers alone, without a derivative of its own.
bool leaves_derivatives(const OpSpec& spec) {
  return std::ranges::any_of(spec.inputs, [&](const ParamSpec& p) {
    const bool integer =
        !p.types.empty() && std::ranges::none_of(p.types, [](DType type) { return is_floating(type); });
    return !integer && !p.object && std::ranges::none_of(spec.derivatives, [&](const DerivativeSpec& d) {
      return std::ranges::find(d.inputs, p.name) != d.inputs.end();
    });
  });
}

std::string gradient_note(const OpSpec& spec) {
  if (spec.whole_derivative)
    return "It is differentiated as a whole; which values that reads depends on its arguments.";
  if (spec.composed && leaves_derivatives(spec))
    return fmt::format("Its {}derivatives follow from the small operators that it is composed of.",
                       spec.derivatives.empty() ? "" : "other ");
  if (!spec.derivatives.empty()) return "";
  switch (spec.gradient_rule) {
    case GradientRule::stop:
      return "Gradients end here.";
    case GradientRule::refuse:
      return fmt::format("It has no gradient: {}.", spec.no_gradient_reason);
    default:
      return "It has no gradient.";
  }
}

std::string device_note(const OpSpec& spec) {
  if (spec.blob_kernel) return "It runs on the host.";
  std::set<std::string> cpu, cuda;
  for (const Kernel& kernel : spec.kernels)
    (kernel.device == DeviceKind::cpu ? cpu : cuda)
        .insert(kernel.dtype == DType::undefined ? "any type" : std::string(dtype_name(kernel.dtype)));
  const auto text = [](const std::set<std::string>& types) { return fmt::format("{}", fmt::join(types, ", ")); };
  std::string note = cpu.empty() ? "" : fmt::format("T on the CPU: {}.", text(cpu));
  if (!cuda.empty()) note += fmt::format("{}T on GPUs: {}.", note.empty() ? "" : " ", text(cuda));
  return note;
}

std::string in_place_note(const OpSpec& spec, const InPlaceRule& rule) {
  const bool any_element = rule.anywhere && spec.inputs[spec.input_index(rule.in)].variadic;
  std::string note = fmt::format("{} {} in place of {}{}", rule.out, rule.enforced ? "must be" : "may be",
                                 any_element ? "any of " : "", rule.in);
  if (!rule.forbidden_if_wanted.empty())
    note += fmt::format(", unless the gradient of {} is wanted", joined(rule.forbidden_if_wanted, " or "));
  return note + ".";
}

std::string precision_note(const OpSpec& spec) {
  switch (spec.precision) {
    case Precision::float32:
      return "Mixed precision computes it in float32.";
    case Precision::half:
      return "Mixed precision computes it in the half type.";
    default:
      return "";
  }
}

std::vector<std::string> notes_of(const OpSpec& spec) {
  std::vector<std::string> notes;
  for (const InPlaceRule& rule : spec.in_place) notes.push_back(in_place_note(spec, rule));
  for (const AliasRule& rule : spec.aliases)
    notes.push_back(fmt::format("{} may be another name for the bytes of {}.", rule.out, rule.in));
  if (spec.random) notes.emplace_back("It draws random numbers, by the seed of the run.");
  if (const std::string note = precision_note(spec); !note.empty()) notes.push_back(note);
  for (std::string note : {gradient_note(spec), device_note(spec)})
    if (!note.empty()) notes.push_back(std::move(note));
  return notes;
}

// Of those with gradients, as others have nothing to check.
std::vector<std::string> example_lines(const OpSpec& spec) {
  std::vector<std::string> lines;
  if (spec.derivatives.empty()) return lines;
  for (const OpExample& example : spec.examples) {
    if (!example.net.empty()) continue;
    std::string line = "stepnet gradcheck " + spec.type;
    for (const std::string& input : example.inputs) line += " --input " + input;
    for (const std::string& arg : example.args) line += " --arg " + arg;
    if (example.outputs > 1) line += fmt::format(" --outputs {}", example.outputs);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<size_t> widths_of(const ReferenceTable& table) {
  std::vector<size_t> widths;
  for (const std::string& head : table.head) widths.push_back(head.size());
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  return widths;
}

std::string padded_row(const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  std::string line = " ";
  for (size_t i = 0; i < cells.size(); ++i)
    line += i + 1 == cells.size() ? " " + cells[i] : fmt::format(" {:<{}} ", cells[i], widths[i]);
  return line + "\n";
}

std::string anchor_of(std::string heading) {
  std::string anchor;
  for (const char c : heading)
    if (c == ' ' || c == '-')
      anchor += '-';
    else if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return anchor;
}

std::string link_to(const std::string& heading) { return fmt::format("[{}](#{})", heading, anchor_of(heading)); }

std::string markdown(const OpReference& reference) {
  const bool folded = !reference.gradient_of.empty();
  std::string text = folded ? fmt::format("<details><summary>{}</summary>\n\n####", reference.type) : "###";
  text += fmt::format(" {}\n\n{}\n", reference.type, reference.doc);
  for (const ReferenceTable& table : reference.tables) {
    text += fmt::format("\n{}:\n\n{}", table.title, markdown_row(table.head));
    text += markdown_row(std::vector<std::string>(table.head.size(), "---"));
    for (const auto& row : table.rows) text += markdown_row(row);
  }
  if (!reference.notes.empty()) text += "\n";
  for (const std::string& note : reference.notes) text += fmt::format("- {}\n", note);
  if (!reference.examples.empty()) text += fmt::format("\n```sh\n{}\n```\n", joined(reference.examples, "\n"));
  return text + (folded ? "\n</details>\n" : "");
}

// A row for each family, of links to its operators without those for gradients.
std::string index_of(const std::vector<OpReference>& references) {
  std::string text = "| family | operators |\n| --- | --- |\n";
  for (size_t i = 0; i < references.size();) {
    const std::string& family = references[i].family;
    std::vector<std::string> links;
    for (; i < references.size() && references[i].family == family; ++i)
      if (references[i].gradient_of.empty()) links.push_back(link_to(references[i].type));
    text += fmt::format("| {} | {} |\n", link_to(family), joined(links, " "));
  }
  return text;
}

}  // namespace

OpReference reference_of(const OpSpec& spec) {
  OpReference reference{spec.type, spec.doc,       family_title(spec), operator_of_gradient(spec),
                        {},        notes_of(spec), example_lines(spec)};
  for (ReferenceTable table : {params_table("Inputs", spec.inputs), params_table("Outputs", spec.outputs),
                               args_table(spec), more_args_table(spec), derivatives_table(spec)})
    if (!table.rows.empty()) reference.tables.push_back(std::move(table));
  return reference;
}

std::vector<OpReference> by_family(std::vector<OpReference> references) {
  const auto key = [](const OpReference& r) {
    const std::string& below = r.gradient_of.empty() ? r.type : r.gradient_of;
    return std::make_tuple(family_place(r.family), r.family, below, !r.gradient_of.empty(), r.type);
  };
  std::ranges::sort(references, {}, key);
  return references;
}

std::string plain_text(const OpReference& reference) {
  std::string text = fmt::format("{}: {}\n", reference.type, reference.doc);
  for (const ReferenceTable& table : reference.tables) {
    const std::vector<size_t> widths = widths_of(table);
    text += fmt::format("\n{}:\n{}", table.title, padded_row(table.head, widths));
    for (const auto& row : table.rows) text += padded_row(row, widths);
  }
  if (!reference.notes.empty()) text += "\n";
  for (const std::string& note : reference.notes) text += note + "\n";
  for (const std::string& line : reference.examples) text += "  " + line + "\n";
  return text;
}

std::string list_text(const std::vector<OpReference>& references) {
  std::string text, family;
  for (const OpReference& reference : by_family(references)) {
    if (family != reference.family) {
      text += fmt::format("{}{}:\n", family.empty() ? "" : "\n", reference.family);
      family = reference.family;
    }
    const std::string name = (reference.gradient_of.empty() ? "  " : "    ") + reference.type;
    text += fmt::format("{:<36} {}\n", name, reference.doc.substr(0, reference.doc.find(". ")));
  }
  return text;
}

std::string markdown(const std::vector<OpReference>& references) {
  const std::vector<OpReference> ordered = by_family(references);
  std::string text =
      "# Operators\n\nWritten by `stepnet ops --markdown` from the registrations. T is the one type that "
      "an operator's inputs share. Where it may be float, it may be float16 or bfloat16, too, and is "
      "computed in float. Operators that compute gradients are folded below the operator that they belong "
      "to.\n\n";
  text += index_of(ordered);
  std::string family;
  for (const OpReference& reference : ordered) {
    if (family != reference.family) text += fmt::format("\n## {}\n", reference.family);
    family = reference.family;
    text += "\n" + markdown(reference);
  }
  return text;
}

}  // namespace stepnet::tools
