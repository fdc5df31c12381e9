// `stepnet expand`: prints a net or plan in its full form, as the public format's readers take it.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/io/files.h"
#include "core/operator/nets_inside.h"
#include "stepnet/error.h"
#include "stepnet/gradients.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct ExpandOptions {
  std::string file, output, loss;
  ReadAs as = ReadAs::automatic;
  std::vector<std::string> tangents;
  bool gradients = false;
  bool binary = false, strict = false;
};

// What the public format has no place for.
void drop_extensions(NetDef& net) {
  for_each_net(net, [](NetDef& inner) { inner.ClearExtension(model); });
}

void append_gradients(LoadedFile& file, const std::string& loss) {
  require(!file.is_plan(), "--gradients takes a net, but the file holds a plan");
  require(!loss.empty(), "--gradients needs --loss BLOB, the blob to differentiate");
  GradientRequest request;
  request.targets = {{loss, ""}};
  add_gradient_operators(file.net(), request);
}

// Of the loss alone, if one is named. Returns its tangent.
std::string add_tangents(LoadedFile& file, const ExpandOptions& options) {
  require(!file.is_plan(), "--tangents takes a net, but the file holds a plan");
  TangentRequest request;
  for (const std::string& name : options.tangents) request.given[name] = "";
  if (!options.loss.empty()) request.wanted = {options.loss};
  const TangentResult result = add_tangent_operators(file.net(), request);
  const auto tangent = result.tangents.find(options.loss);
  require(options.loss.empty() || tangent != result.tangents.end(), "\"{}\" depends on none of --tangents {}",
          options.loss, fmt::join(options.tangents, ", "));
  return options.loss.empty() ? "" : tangent->second;
}

void expand(const ExpandOptions& options) {
  LoadedFile file = load_expanded(options.file, options.as);
  Warnings warnings;
  check_structure(file, warnings);
  warnings.report(options.strict);
  require(options.gradients || !options.tangents.empty() || options.loss.empty(),
          "--loss is only used with --gradients or --tangents");
  std::string loss = options.loss;
  if (!options.tangents.empty()) loss = add_tangents(file, options);
  if (options.gradients) append_gradients(file, loss);
  for (NetDef* net : nets_of(file)) drop_extensions(*net);
  const std::string out = options.binary ? (file.is_plan() ? to_binary(file.plan()) : to_binary(file.net()))
                                         : (file.is_plan() ? to_text(file.plan()) : to_text(file.net()));
  if (options.output.empty()) {
    std::cout << out << std::flush;
    return;
  }
  write_file(options.output, out);
}

}  // namespace

void add_expand_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("expand", "Print a net or plan in the full form of the public format");
  auto o = std::make_shared<ExpandOptions>();  // shared with the callback, which runs after this returns
  command->add_option("FILE", o->file, "The net or plan")->required()->type_name("");
  command->add_option("--as", o->as, "What FILE holds: auto, net or plan")
      ->transform(CLI::CheckedTransformer(read_as_names()).description(""))
      ->type_name("KIND");
  command
      ->add_option("--tangents", o->tangents,
                   "Put in the operators that compute how outputs, or --loss, change where this blob moves along a "
                   "direction, its tangent; may be repeated")
      ->allow_extra_args(false)
      ->type_name("BLOB");
  command->add_flag("--gradients", o->gradients,
                    "Append the gradient operators of --loss, or with --tangents those of its tangent");
  command->add_option("--loss", o->loss, "The blob to differentiate")->type_name("BLOB");
  command->add_option("-o,--output", o->output, "Write to this file instead of standard output")->type_name("FILE");
  command->add_flag("--binary", o->binary, "Write the binary form");
  add_strict_option(*command, o->strict);
  command->callback([o] { expand(*o); });
}

}  // namespace stepnet::tools
