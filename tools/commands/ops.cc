// `stepnet ops`: what operators there are, and all that is known of one.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>

#include "core/io/files.h"
#include "tools/commands/commands.h"
#include "tools/reference/compatibility.h"
#include "tools/reference/op_reference.h"
#include "tools/reference/typed_calls.h"

namespace stepnet::tools {
namespace {

struct OpsOptions {
  std::vector<std::string> names;
  std::string output;
  bool markdown = false, cpp = false, compatibility = false;
};

std::vector<OpReference> all_references() {
  std::vector<OpReference> references;
  for (const std::string& type : op_types()) references.push_back(reference_of(op_spec(type)));
  return references;
}

// The operators of these names, each before those that compute its gradients.
std::vector<OpReference> references_of(const std::vector<std::string>& names) {
  const std::vector<OpReference> all = by_family(all_references());
  std::vector<OpReference> references;
  for (const std::string& name : names) {
    const std::string& type = op_spec(name).type;
    std::ranges::copy_if(all, std::back_inserter(references),
                         [&](const OpReference& r) { return r.type == type || r.gradient_of == type; });
  }
  return references;
}

std::string text_of(const OpsOptions& options) {
  if (options.cpp) return typed_calls();
  if (options.compatibility) return compatibility_page();
  if (options.names.empty()) return options.markdown ? markdown(all_references()) : list_text(all_references());
  const std::vector<OpReference> references = references_of(options.names);
  if (options.markdown) return markdown(references);
  std::vector<std::string> texts;
  for (const OpReference& reference : references) texts.push_back(plain_text(reference));
  return fmt::format("{}", fmt::join(texts, "\n"));
}

void show_ops(const OpsOptions& options) {
  const std::string text = text_of(options);
  if (options.output.empty())
    fmt::print("{}", text);
  else
    write_file(options.output, text);
}

}  // namespace

void add_ops_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ops", "List operators, or print what is known of some");
  auto o = std::make_shared<OpsOptions>();  // shared with the callback, which runs after this returns
  command->add_option("NAME", o->names, "Operators; all if none is given")->type_name("");
  CLI::Option* markdown = command->add_flag("--markdown", o->markdown, "Write a reference page in Markdown");
  CLI::Option* cpp =
      command->add_flag("--cpp", o->cpp, "Write a C++ header with a typed function for each operator on tensors");
  cpp->excludes(markdown);
  command
      ->add_flag("--compatibility", o->compatibility,
                 "Write a page in Markdown on the arguments of the public format's operators")
      ->excludes(markdown)
      ->excludes(cpp);
  command->add_option("-o,--output", o->output, "Write to this file instead of standard output")->type_name("FILE");
  command->callback([o] { show_ops(*o); });
}

}  // namespace stepnet::tools
