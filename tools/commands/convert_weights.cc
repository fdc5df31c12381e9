// `stepnet convert-weights`: weights of LSTM, GRU and RNN layers between the conventions of Stepnet, PyTorch and ONNX.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "core/io/npy.h"
#include "recurrent/layers/weights.h"
#include "stepnet/error.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct ConvertOptions {
  WeightOrder from = WeightOrder::stepnet, to = WeightOrder::stepnet;
  CellWeights cell;
  bool bidirectional = false;
  std::vector<std::string> files;
  std::string out;
};

const std::map<std::string, WeightOrder>& orders() {
  static const std::map<std::string, WeightOrder> names = {
      {"stepnet", WeightOrder::stepnet}, {"pytorch", WeightOrder::pytorch}, {"onnx", WeightOrder::onnx}};
  return names;
}

const std::map<std::string, CellKind>& cells() {
  static const std::map<std::string, CellKind> names = {
      {"lstm", CellKind::lstm}, {"gru", CellKind::gru}, {"rnn", CellKind::rnn}};
  return names;
}

void convert(const ConvertOptions& o) {
  CellWeights cell = o.cell;
  cell.directions = o.bidirectional ? 2 : 1;
  std::vector<Tensor> weights;
  for (const std::string& file : o.files) weights.push_back(read_npy(file));
  weights = convert_weights(cell, o.from, o.to, weights);
  const std::vector<std::string> names = weight_names(cell, o.to);
  std::filesystem::create_directories(o.out);
  auto path = [&](const std::string& name) { return fmt::format("{}/{}.npy", o.out, name); };
  for (const std::string& name : names)
    if (std::filesystem::exists(path(name)))
      throw Error(fmt::format("{} is already there", path(name)), "name another folder with --out");
  for (size_t i = 0; i < names.size(); ++i) {
    write_npy(path(names[i]), weights[i]);
    print_text("{} is {}\n", path(names[i]), weights[i].str());
  }
}

}  // namespace

void add_convert_weights_command(CLI::App& app) {
  auto o = std::make_shared<ConvertOptions>();  // shared with the callback, which runs after this returns
  CLI::App* command = app.add_subcommand("convert-weights", "Convert weights of LSTM, GRU and RNN layers");
  auto choice = [&](const char* flag, auto& value, const auto& names, const char* words, const char* text) {
    command->add_option(flag, value, fmt::format("{}: {}", text, words))
        ->transform(CLI::CheckedTransformer(names).description(""))
        ->type_name("")
        ->required();
  };
  choice("--from", o->from, orders(), "stepnet, pytorch or onnx", "The convention of FILES");
  choice("--to", o->to, orders(), "stepnet, pytorch or onnx", "The convention to write");
  choice("--cell", o->cell.cell, cells(), "lstm, gru or rnn", "What the weights are of");
  command->add_option("--layers", o->cell.layers, "How many layers")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  command->add_flag("--bidirectional", o->bidirectional, "Each layer has a reverse direction too");
  command->add_option("--out", o->out, "The folder to write to")->required()->type_name("FOLDER");
  command
      ->add_option("FILES", o->files,
                   "Arrays as .npy, by layer and in it by direction: weight_ih weight_hh bias_ih bias_hh; of ONNX by "
                   "layer: W R B")
      ->required()
      ->type_name("");
  command->callback([o] { convert(*o); });
}

}  // namespace stepnet::tools
