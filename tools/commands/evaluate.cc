// `stepnet evaluate`: the loss and the metrics of a trained model on samples.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "recurrent/train/trained_model.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/trained.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct EvaluateCommand {
  TrainedOptions trained;
  double holdout = 1;
  bool json = false;

  void run() {
    const TrainedModel::Evaluation e = load_trained(trained)->evaluate(trained.data, holdout);
    if (json) {
      Json out = Json::object();
      out.add("samples", e.samples).add("loss", e.loss);
      for (const auto& [name, value] : e.metrics) out.add(name, value);
      print_text("{}", out.pretty());
      return;
    }
    print_text("{:<24} {}\n{:<24} {:.6g}\n", "samples", e.samples, "loss", e.loss);
    for (const auto& [name, value] : e.metrics) print_text("{:<24} {:.6g}\n", name, value);
  }
};

}  // namespace

void add_evaluate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("evaluate", "Tell the loss and the metrics of a trained model on samples");
  auto o = std::make_shared<EvaluateCommand>();  // shared with the callback, which runs after this returns
  add_trained_options(*command, o->trained);
  command
      ->add_option("--holdout", o->holdout,
                   "Only this share of the samples, at their end: those that a run with the same --holdout has not "
                   "been trained on; else all")
      ->check(number_above(0))
      ->default_str("");
  command->add_flag("--json", o->json, "Print one JSON object");
  command->callback([o] { o->run(); });
}

}  // namespace stepnet::tools
