#include "tools/commands/cli/net_file.h"

#include <CLI/CLI.hpp>

#include "core/operator/arg_names.h"
#include "core/passes/defined_operators.h"
#include "recurrent/form/short_form.h"
#include "stepnet/error.h"
#include "stepnet/net.h"
#include "stepnet/plan.h"
#include "tools/commands/cli/printing.h"

namespace stepnet::tools {

const std::map<std::string, ReadAs>& read_as_names() {
  static const std::map<std::string, ReadAs> names = {
      {"auto", ReadAs::automatic}, {"net", ReadAs::net}, {"plan", ReadAs::plan}};
  return names;
}

LoadedFile load_expanded(const std::string& path, ReadAs as) {
  LoadedFile file = load_net_or_plan(path, as);
  for (NetDef* net : nets_of(file)) expand_recurrent(*net);
  return file;
}

NetDef load_expanded_net(const std::string& path) {
  NetDef net = load_net(path);
  expand_recurrent(net);
  return net;
}

NetDef load_short_net(const std::string& path) {
  NetDef net = load_net(path);
  expand_defined_operators(net);
  return net;
}

std::vector<NetDef*> nets_of(LoadedFile& file) {
  if (!file.is_plan()) return {&file.net()};
  std::vector<NetDef*> nets;
  for (NetDef& net : *file.plan().mutable_network()) nets.push_back(&net);
  return nets;
}

void Warnings::print() {
  for (const std::string& warning : list)
    if (printed_.insert(warning).second) print_note("warning: {}\n", warning);
}

void Warnings::refuse() const {
  if (list.empty()) return;
  const size_t more = list.size() - 1;
  throw Error(fmt::format("{}{}", list[0], more == 0 ? "" : fmt::format(" (and {} more warnings)", more)),
              "correct it, or leave out --strict");
}

void Warnings::report(bool strict) {
  if (strict) refuse();
  print();
}

std::function<void(const std::string&)> warn_of_runs(bool strict) {
  return [strict](const std::string& warning) {
    Warnings one;
    one.list = {warning};
    one.report(strict);
  };
}

void report_unknown_args(std::initializer_list<const NetDef*> nets, bool strict) {
  Warnings warnings;
  for (const NetDef* net : nets) check_arg_names(*net, &warnings.list);
  warnings.report(strict);
}

void add_strict_option(CLI::App& command, bool& strict) {
  command.add_flag("--strict", strict, "Treat warnings as errors");
}

void check_structure(LoadedFile& file, Warnings& warnings) {
  if (file.is_plan())
    check_plan(file.plan(), &warnings.list);
  else
    check_net(file.net(), nullptr, &warnings.list);
}

}  // namespace stepnet::tools
