// `stepnet evaluate`: the loss and the metrics of a trained model on samples, and pictures of what it predicts.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/io/files.h"
#include "core/io/json.h"
#include "recurrent/report/outcome_plots.h"
#include "recurrent/train/sample_data.h"
#include "recurrent/train/trained_model.h"
#include "stepnet/error.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/trained.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

// A file that a metric's outcomes are shown in.
struct Shown {
  std::string metric, path;
};

// [METRIC=]FILE, where FILE has one of these endings. Without a metric it is the model's first one of that kind.
Shown read_shown(const std::string& text, OutcomeKind kind, const std::vector<std::string>& endings,
                 const Model& model) {
  const size_t equals = text.find('=');
  const bool named = equals != std::string::npos;
  Shown shown{text.substr(0, named ? equals : 0), text.substr(named ? equals + 1 : 0)};
  const bool ends_well = std::ranges::any_of(endings, [&](const std::string& e) { return shown.path.ends_with(e); });
  require(ends_well, "the file's name must end in {}, but is \"{}\"", fmt::join(endings, " or "), shown.path);
  require_writable_folder_of(shown.path);
  const auto fits = [&](const MetricLink& m) {
    return named ? shown_name(m) == shown.metric : outcome_kind(m.name()) == kind;
  };
  const auto found = std::ranges::find_if(model.metrics, fits);
  const char* what = kind == OutcomeKind::classes ? "classes, such as accuracy" : "numbers, such as r2";
  require(found != model.metrics.end(), "the model has no metric {}",
          named ? fmt::format("\"{}\"", shown.metric) : fmt::format("of {}", what));
  require(outcome_kind(found->name()) == kind, "\"{}\" is no metric of {}", shown.metric, what);
  shown.metric = shown_name(*found);
  return shown;
}

bool is_table(const Shown& shown) { return shown.path.ends_with(".csv"); }

struct EvaluateCommand {
  TrainedOptions trained;
  double holdout = 1;
  std::string fold, confusion, scatter;
  bool json = false;

  void run() const;
  void print(const TrainedModel::Evaluation& e) const;
};

void EvaluateCommand::run() const {
  if (!fold.empty()) check_fold(fold);
  const std::unique_ptr<TrainedModel> model = load_trained(trained);
  EvaluationOptions options{.holdout = holdout, .fold = fold};
  Shown matrix_file, plot_file;
  std::optional<ConfusionMatrix> matrix;
  ScatterPlot plot;
  if (!confusion.empty()) {
    matrix_file = read_shown(confusion, OutcomeKind::classes, {".csv", ".svg"}, model->model());
    matrix.emplace(is_table(matrix_file) ? ConfusionMatrix::kMost : ConfusionMatrix::kMostDrawn);
    options.outcomes[matrix_file.metric] = [&](const Outcome& outcome) { matrix->add(outcome); };
  }
  if (!scatter.empty()) {
    plot_file = read_shown(scatter, OutcomeKind::numbers, {".svg"}, model->model());
    options.outcomes[plot_file.metric] = [&](const Outcome& outcome) { plot.add(outcome); };
  }
  const TrainedModel::Evaluation e = model->evaluate(trained.data, options);
  const auto title = [&](const Shown& shown) {
    const auto value = std::ranges::find(e.metrics, shown.metric, &std::pair<std::string, double>::first);
    return fmt::format("{} {:.6g}", shown.metric, value->second);
  };
  if (matrix) write_file(matrix_file.path, is_table(matrix_file) ? matrix->csv() : matrix->svg(title(matrix_file)));
  if (!scatter.empty()) write_file(plot_file.path, plot.svg(title(plot_file)));
  print(e);
}

void EvaluateCommand::print(const TrainedModel::Evaluation& e) const {
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
  command->add_option("--fold", o->fold, "Only fold number I, counted from 1, of N, as for train")->type_name("I/N");
  command
      ->add_option("--confusion", o->confusion,
                   "A file for the confusion matrix: how often targets of each class (rows) are predicted as each "
                   "(columns); of the model's first metric of classes unless one is named")
      ->type_name("[METRIC=]FILE.csv|FILE.svg");
  command
      ->add_option("--scatter", o->scatter,
                   "A picture of predictions over targets; of the model's first metric of numbers unless one is named")
      ->type_name("[METRIC=]FILE.svg");
  command->add_flag("--json", o->json, "Print one JSON object");
  command->callback([o] { o->run(); });
}

}  // namespace stepnet::tools
