// `stepnet draw`: a net as a picture, or as text for the program that makes it.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>

#include "core/io/files.h"
#include "core/nearest.h"
#include "core/visible_text.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "tools/commands/cli/blob_text.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/commands.h"
#include "tools/commands/draw_net.h"

extern char** environ;

namespace stepnet::tools {
namespace {

struct DrawOptions {
  std::string file, init, output, loss;
  std::vector<std::string> feeds;
  bool strict = false;
};

using Types = std::map<std::string, TensorType>;

// What the model block says of inputs: parameters by its init net, the rest by its sizes.
void add_model_types(const ModelDef& model, Types& types) {
  types.merge(infer_net(model.init(), {}));
  const int64_t steps = model.timesteps(), batch = model.batch();
  types.emplace(model.input(), TensorType::of(DType::int32, {steps, batch}));
  types.emplace(model.target(), TensorType::of(DType::int32, {steps * batch}));
  for (const auto& carry : model.carry())
    types.emplace(carry.to(), TensorType::of(DType::float32, {1, batch, carry.size()}));
}

Types types_of_inputs(const DrawOptions& options, const NetDef& net) {
  Types types;
  std::set<std::string> names;
  for (const OperatorDef& op : net.op()) names.insert(op.input().begin(), op.input().end());
  for (auto& [name, type] : parse_types("--feed", options.feeds)) {
    require(names.count(name) > 0, "--feed {}={}: the net does not read \"{}\".{}", name, type, name,
            Nearest{name, names});
    types.emplace(name, type);
  }
  if (!options.init.empty()) types.merge(infer_net(load_expanded_net(options.init), {}));
  if (net.HasExtension(model)) add_model_types(net.GetExtension(model), types);
  return types;
}

// Runs Graphviz on the text. Nothing of it is read by a shell.
std::string svg_of(const std::string& dot) {
  const TemporaryFolder folder;
  const std::string source = folder.file("net.dot"), target = folder.file("net.svg"), said = folder.file("messages");
  write_file(source, dot);
  std::vector<std::string> words = {"dot", "-Tsvg", "-o", target, source};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t process = 0;
  const int mistake = posix_spawnp(&process, "dot", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (mistake != 0)
    throw Error(fmt::format("SVG is made by the program \"dot\", which cannot be run: {}", std::strerror(mistake)),
                "install Graphviz, or write DOT with -o FILE.dot");
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  const auto content = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::string svg = content(target);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || svg.empty())
    throw Error(fmt::format("the program \"dot\" has made no SVG: {}", content(said)), "write DOT with -o FILE.dot");
  return svg;
}

bool is_svg(const std::string& path) {
  if (path.ends_with(".svg")) return true;
  if (!path.empty() && !path.ends_with(".dot") && !path.ends_with(".gv"))
    throw Error(fmt::format("-o \"{}\" ends in none of .dot, .gv and .svg", path),
                "the end of the name says what is written");
  return false;
}

void draw(const DrawOptions& options) {
  const bool svg = is_svg(options.output);
  LoadedFile file = load_expanded(options.file, ReadAs::net);
  Warnings warnings;
  check_structure(file, warnings);
  warnings.report(options.strict);
  NetDef& net = file.net();
  if (!options.loss.empty()) {
    GradientRequest request;
    request.targets = {{options.loss, ""}};
    add_gradient_operators(net, request);
  }
  const std::string dot = draw_net(net, types_of_inputs(options, net));
  if (options.output.empty())
    std::cout << visible_text(dot) << std::flush;
  else
    write_file(options.output, svg ? svg_of(dot) : dot);
}

}  // namespace

void add_draw_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("draw", "Draw a net as a graph, with step nets as clusters");
  auto o = std::make_shared<DrawOptions>();  // shared with the callback, which runs after this returns
  command->add_option("FILE", o->file, "The net")->required()->type_name("");
  command->add_option("--feed", o->feeds, "The type of an input, for types, bytes and FLOPs; may be repeated")
      ->allow_extra_args(false)
      ->type_name("BLOB=TYPE[SIZE,...]");
  command->add_option("--init", o->init, "A net that makes parameters, whose types are taken")->type_name("NET");
  command->add_option("--loss", o->loss, "Draw the gradient operators of this blob too")->type_name("BLOB");
  command->add_option("-o,--output", o->output, "Write to this file; else DOT to standard output")
      ->type_name("FILE.dot|FILE.svg");
  add_strict_option(*command, o->strict);
  command->callback([o] { draw(*o); });
}

}  // namespace stepnet::tools
