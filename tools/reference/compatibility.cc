#include "tools/reference/compatibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/operator/arg_names.h"
#include "stepnet/op_spec.h"
#include "tools/reference/markdown.h"
#include "tools/reference/op_reference.h"

namespace stepnet::tools {
namespace {

constexpr const char* kIntroduction =
    "# Compatibility\n\n"
    "Written by `stepnet ops --compatibility` from the registrations: for each operator of the public format (Caffe2 "
    "1.x) that Stepnet has, every argument that the format knows. An argument is\n\n"
    "- **implemented**: it does what it does there;\n"
    "- **accepted**: no result depends on it, here, so it may be there and is not read;\n"
    "- **refused**: it would change results and is not implemented, so a net that has it is an error, which says "
    "where, what the argument would do and which value of it, if any, does nothing and is accepted;\n"
    "- **Stepnet's own**: the format's operator does not have it.\n\n"
    "An argument of any other name is not read by the format's operator either. It is a warning with the nearest "
    "names, which `--strict` makes an error, and always an error if it is a misspelling (two letters at most) of an "
    "argument that is implemented or refused. An operator that is not on this page or among Stepnet's own is an error "
    "with the nearest names. Engines, and arguments of nets such as those of executors, are accepted.\n\n";

// A row for each argument.
std::string rows_of(const OpSpec& spec) {
  std::string text;
  for (const bool own : {false, true})
    for (const ArgSpec& a : spec.args)
      if (a.own == own) text += markdown_row({a.name, own ? "Stepnet's own" : "implemented", a.doc});
  for (const ArgFamily& f : spec.arg_families) text += markdown_row({f.prefix + "*", "implemented", f.doc});
  for (const AcceptedArg& a : spec.accepted_args) text += markdown_row({a.name, "accepted", a.why});
  for (const RefusedArg& a : spec.refused_args)
    text += markdown_row(
        {a.name, "refused", "it " + a.would + (a.harmless ? "; accepted if it is " + value_text(*a.harmless) : "")});
  return text;
}

std::string part_of(const OpSpec& spec) {
  const std::string rows = rows_of(spec);
  if (rows.empty()) return "";
  return fmt::format("\n### {}\n\n{}{}{}", spec.type, markdown_row({"argument", "is", "what it says, or why"}),
                     markdown_row({"---", "---", "---"}), rows);
}

}  // namespace

std::string compatibility_page() {
  std::vector<std::string> own, plain;
  std::string parts;
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    if (spec.own) {
      own.push_back(type);
      continue;
    }
    const std::string part = part_of(spec);
    if (part.empty()) plain.push_back(type);
    parts += part;
  }
  std::string text = kIntroduction;
  text += "## Arguments that every operator may have\n\nAccepted:\n\n";
  text += markdown_row({"argument", "why"}) + markdown_row({"---", "---"});
  for (const AcceptedArg& a : common_args()) text += markdown_row({a.name, a.why});
  text += fmt::format("\n## Operators without arguments of their own\n\n{}.\n", fmt::join(plain, ", "));
  text += fmt::format("\n## Operators with arguments\n{}", parts);
  return text + fmt::format("\n## Stepnet's own operators\n\nThe public format does not have these: {}.\n",
                            fmt::join(own, ", "));
}

}  // namespace stepnet::tools
