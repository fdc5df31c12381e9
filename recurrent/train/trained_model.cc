#include "recurrent/train/trained_model.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "core/operator/nets_inside.h"
#include "recurrent/train/carried_states.h"
#include "recurrent/train/sample_data.h"
#include "recurrent/train/sample_evaluator.h"
#include "recurrent/train/text_corpus.h"
#include "stepnet/net.h"

namespace stepnet {
namespace {

constexpr std::string_view kParameter = "parameter/";

// The operators that the outputs depend on, in evaluation.
NetDef predicting_net(const Model& model, const std::vector<TrainedModel::Output>& outputs) {
  const NetDef whole = expanded_forward(model, Mode::evaluate);
  const std::set<std::string> written = written_names(whole);
  std::vector<std::string> names;
  for (const TrainedModel::Output& output : outputs) {
    require(written.count(output.blob) > 0, "no operator of the net writes \"{}\".{}", output.blob,
            Nearest{output.blob, written});
    names.push_back(output.blob);
  }
  for (const CarryLink& link : model.carry) names.push_back(link.from());
  NetDef net = needed_for(whole, names.front(), {names.begin() + 1, names.end()});
  net.set_name(model.forward.name() + "_predict");
  return net;
}

// Puts a batch's values, whose samples stand along `axis`, into rows of `all` from `first` on. Makes `all` for so many
// samples if it is undefined.
void add_rows(const Tensor& values, const TrainedModel::Output& output, int64_t samples, int64_t first, int64_t count,
              Tensor& all) {
  require(output.axis < values.rank() && values.dim(output.axis) == count,
          "\"{}\" is {} for {} samples, so that they do not stand along dimension {}", output.blob, values, count,
          output.axis);
  std::vector<int64_t> dims(values.shape().begin(), values.shape().end());
  dims.erase(dims.begin() + output.axis);
  dims.insert(dims.begin(), samples);
  if (!all.defined()) all = Tensor::empty(values.dtype(), Shape(dims));
  require(all.shape() == Shape(dims) && all.dtype() == values.dtype(), "\"{}\" is {} for one batch and {} for another",
          output.blob, all, values);
  const int64_t inner = values.shape().size_between(output.axis + 1, values.rank());
  const int64_t outer = values.shape().size_between(0, output.axis);
  const size_t bytes = static_cast<size_t>(inner) * dtype_size(values.dtype());
  for (int64_t s = 0; s < count; ++s)
    for (int64_t o = 0; o < outer; ++o)
      std::memcpy(all.raw() + static_cast<size_t>((first + s) * outer + o) * bytes,
                  values.raw() + static_cast<size_t>(o * count + s) * bytes, bytes);
}

// Says what is predicted, and from which columns.
std::string reading_text(const Model& needed, const std::vector<TrainedModel::Output>& outputs) {
  std::vector<std::string> blobs, columns;
  for (const TrainedModel::Output& output : outputs) blobs.push_back(output.blob);
  for (const DataLink& link : needed.data) columns.push_back(link.column());
  return fmt::format("the prediction of {}, which reads the columns {}", fmt::join(blobs, ", "),
                     fmt::join(columns, ", "));
}

}  // namespace

void load_parameters(const Model& model, const Checkpoint& checkpoint, Workspace& workspace) {
  RunContext run;
  run_net_once(model.init, workspace, run);
  for (const std::string& name : parameter_names(model, workspace)) {
    auto found = checkpoint.tensors.find("state/train/" + name + "_average");
    if (found == checkpoint.tensors.end()) found = checkpoint.tensors.find(std::string(kParameter) + name);
    require(found != checkpoint.tensors.end(), "the checkpoint has no parameter \"{}\"", name);
    Tensor& to = workspace.tensor(name);
    const Tensor& from = found->second;
    require(from.dtype() == to.dtype() && from.shape() == to.shape(),
            "the parameter \"{}\" is {} in the checkpoint, but {} in the net", name, from, to);
    to = from;
  }
}

TrainedModel::TrainedModel(const Checkpoint& checkpoint, FileRootPtr files)
    : TrainedModel(saved_model(checkpoint), checkpoint, std::move(files)) {}

TrainedModel::TrainedModel(const NetDef& net, const Checkpoint& checkpoint, FileRootPtr files)
    : TrainedModel(read_model(net), checkpoint, std::move(files)) {}

TrainedModel::TrainedModel(Model model, const Checkpoint& checkpoint, FileRootPtr files)
    : model_(std::move(model)), saved_(checkpoint.tensors) {
  require(!model_.data.empty(), "the net \"{}\" is trained on a text, not on samples: its model has no data",
          model_.forward.name());
  parameters_.confine(files ? std::move(files) : std::make_shared<const FileRoot>());
  model_.device = {};  // it may have been trained on another one
  use_cpu(model_.init);
  use_cpu(model_.forward);
  load_parameters(model_, checkpoint, parameters_);
}

std::vector<FedColumn> TrainedModel::columns_of(const Model& model, const std::vector<std::string>& data) const {
  std::vector<FedColumn> columns = linked_columns(model, data);
  load_normalization(model, saved_, columns);
  return columns;
}

TrainedModel::Evaluation TrainedModel::evaluate(const std::vector<std::string>& data,
                                                const EvaluationOptions& options) {
  const std::vector<FedColumn> columns = columns_of(model_, data);
  const int64_t all = count_samples(columns);
  const double share = options.holdout;
  require(share > 0 && share <= 1, "a share of the samples is above 0 and at most 1, but {} is given", share);
  require(share == 1 || options.fold.empty(),
          "a share of the samples and a fold of them are given, but only one can count");
  const int64_t samples = held_out_samples(all, share);
  require(samples > 0, "a share of {} of {} samples is none", share, all);
  model_.fed = fed_types(columns, model_.batch);
  const SampleRange range = options.fold.empty() ? SampleRange{all - samples, all} : fold_range(options.fold, all);
  SampleEvaluator evaluator(model_, parameters_, columns, range);
  for (const auto& [name, outcome] : options.outcomes) {
    const auto metric = std::ranges::find(model_.metrics, name, shown_name);
    require(metric != model_.metrics.end(), "the model has no metric \"{}\"", name);
    evaluator.watch(static_cast<size_t>(metric - model_.metrics.begin()), outcome);
  }
  const double loss = evaluator.loss();
  return {evaluator.samples(), loss, evaluator.scores()};
}

std::vector<Tensor> TrainedModel::predict(const std::vector<std::string>& data, const std::vector<Output>& outputs) {
  require(!outputs.empty(), "nothing is to be predicted");
  const NetDef def = predicting_net(model_, outputs);
  const std::vector<std::string> read = read_from_outside(def);
  Model needed = model_;
  const auto is_read = [&](const std::string& blob) { return std::ranges::count(read, blob) > 0; };
  std::erase_if(needed.data, [&](const DataLink& link) { return !is_read(link.blob()) && !is_read(link.lengths()); });
  std::vector<FedColumn> columns;
  try {
    columns = columns_of(needed, data);
  } catch (Error& error) {
    error.add("in", reading_text(needed, outputs));
    throw;
  }
  for (FedColumn& fed : columns) fed.to_longest = true;  // so that all batches' outputs are as long
  const int64_t samples = count_samples(columns);
  Workspace blobs(&parameters_);
  for (const auto& [name, type] : fed_types(columns, 1)) blobs.create_local(name);
  CarriedStates states(needed, parameters_.fetch(parameter_names(model_, parameters_).front()).dtype(), blobs);
  NetOptions options{.plan_memory = true};
  for (const Output& output : outputs) options.keep.insert(output.blob);
  for (const CarryLink& link : model_.carry) options.keep.insert(link.from());
  Net net(def, blobs, options);
  std::vector<Tensor> all(outputs.size());
  Batch batch;
  // States are carried through all samples, one after another.
  const int64_t together = model_.carry.empty() ? model_.batch : 1;
  SampleBatches batches(columns, {0, samples}, together, order_of(model_), 0);
  for (int64_t first = 0; first < samples; first += batch.samples) {
    batches.next(batch);
    if (batch.starts) states.reset(batch.samples);
    feed(blobs, {}, batch);
    RunContext run;
    net.run(run);
    states.advance();
    for (size_t o = 0; o < outputs.size(); ++o)
      add_rows(blobs.fetch(outputs[o].blob), outputs[o], samples, first, batch.samples, all[o]);
  }
  return all;
}

}  // namespace stepnet
