#include "recurrent/train/sample_evaluator.h"

#include <algorithm>
#include <set>

#include "recurrent/train/carried_states.h"
#include "recurrent/train/evaluator.h"
#include "recurrent/train/sample_data.h"
#include "stepnet/matmul.h"
#include "stepnet/net.h"
#include "stepnet/profiler.h"

namespace stepnet {
namespace {

std::vector<Score> fresh_scores(const Model& model) {
  std::vector<Score> scores;
  for (const MetricLink& metric : model.metrics) scores.emplace_back(metric.name());
  return scores;
}

}  // namespace

SampleEvaluator::SampleEvaluator(const Model& model, Workspace& parameters, std::vector<FedColumn> columns,
                                 SampleRange range, bool plan_memory)
    : model_(model),
      parameters_(parameters),
      columns_(std::move(columns)),
      range_(range),
      plan_memory_(plan_memory),
      scores_(fresh_scores(model)) {
  run(1);  // what is wrong with the net, the metrics or the first samples shows before training
}

DType SampleEvaluator::dtype_of_parameters() const {
  return parameters_.fetch(parameter_names(model_, parameters_).front()).dtype();
}

double SampleEvaluator::run(int64_t most) {
  scores_ = fresh_scores(model_);
  for (const auto& [metric, outcome] : outcomes_) scores_[metric].watch(outcome);
  Workspace blobs(&parameters_);
  for (const auto& [name, type] : batch_types(model_)) blobs.create_local(name);
  CarriedStates states(model_, dtype_of_parameters(), blobs);
  Net net(evaluation_net(model_, parameters_), blobs, {.plan_memory = plan_memory_, .keep = metric_blobs(model_)});
  double sum = 0;
  samples_ = 0;
  Batch batch;
  const int64_t most_samples = std::min(model_.batch, range_.size());
  SampleBatches batches(columns_, range_, most_samples, order_of(model_), 0);
  for (int64_t k = 0; k < std::min(most, batches.batches()); ++k) {
    batches.next(batch);
    if (batch.starts) states.reset(batch.samples);
    feed(blobs, model_.device, batch);
    RunContext context;
    net.run(context);
    sum += on_device(blobs.fetch(model_.loss), {}).item<double>() * static_cast<double>(batch.samples);
    samples_ += batch.samples;
    add_scores(blobs, batch.samples);
    states.advance();
  }
  forget_products();
  return sum;
}

void SampleEvaluator::add_scores(const Workspace& blobs, int64_t samples) {
  const auto value = [&](const std::string& name) {
    return name.empty() ? Tensor() : on_device(blobs.fetch(name), {});
  };
  for (size_t m = 0; m < scores_.size(); ++m) {
    const MetricLink& metric = model_.metrics[m];
    scores_[m].add(value(metric.prediction()), value(metric.target()), value(metric.mask()), samples);
  }
}

double SampleEvaluator::loss() {
  const double sum = run(range_.size());
  return sum / static_cast<double>(samples_);
}

double SampleEvaluator::estimate_seconds() {
  constexpr int64_t kBatches = 4;
  const int64_t all = (range_.size() + model_.batch - 1) / model_.batch, some = std::min(kBatches, all);
  const double start = now_seconds();
  run(some);
  return (now_seconds() - start) / static_cast<double>(some) * static_cast<double>(all);
}

std::vector<std::pair<std::string, double>> SampleEvaluator::scores() const {
  std::vector<std::pair<std::string, double>> values;
  for (size_t m = 0; m < scores_.size(); ++m) values.emplace_back(shown_name(model_.metrics[m]), scores_[m].value());
  return values;
}

}  // namespace stepnet
