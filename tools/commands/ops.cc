// `stepnet ops`: what operators there are, and all that is known of one.
#include <CLI/CLI.hpp>
#include <memory>

#include "core/io/files.h"
#include "tools/commands/commands.h"
#include "tools/reference/op_reference.h"
#include "tools/reference/typed_calls.h"

namespace stepnet::tools {
namespace {

struct OpsOptions {
  std::vector<std::string> names;
  std::string output;
  bool markdown = false, cpp = false;
};

// A line each, of the first sentence.
std::string list_text() {
  std::string text;
  for (const std::string& type : op_types()) {
    const std::string& doc = op_spec(type).doc;
    text += fmt::format("{:<28} {}\n", type, doc.substr(0, doc.find(". ")));
  }
  return text;
}

std::string text_of(const OpsOptions& options) {
  if (options.cpp) return typed_calls();
  if (options.names.empty() && !options.markdown) return list_text();
  std::vector<OpReference> references;
  for (const std::string& type : options.names.empty() ? op_types() : options.names)
    references.push_back(reference_of(op_spec(type)));
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
  command->add_flag("--cpp", o->cpp, "Write a C++ header with a typed function for each operator on tensors")
      ->excludes(markdown);
  command->add_option("-o,--output", o->output, "Write to this file instead of standard output")->type_name("FILE");
  command->callback([o] { show_ops(*o); });
}

}  // namespace stepnet::tools
