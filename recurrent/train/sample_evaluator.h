// SampleEvaluator: the loss and the metrics of samples that are held out.
//
// Samples run in batches, in the order of the files, and each counts once: the loss, which is a mean over a batch, is
// weighted by the batch's samples. With a model that carries states they run in streams, from which some are left out
// (core/data/sample_batches.h). Between two calls of loss() it holds no blobs.
// Threads: one thread at a time.
#pragma once

#include "core/data/sample_batches.h"
#include "recurrent/report/scores.h"
#include "recurrent/train/held_out.h"
#include "recurrent/train/model.h"
#include "stepnet/workspace.h"

namespace stepnet {

class SampleEvaluator final : public HeldOut {
 public:
  SampleEvaluator(const Model& model, Workspace& parameters, std::vector<FedColumn> columns, SampleRange range,
                  bool plan_memory = true);

  // Lets the function be called, in the next loss(), for each target of a metric that counts.
  void watch(size_t metric, OutcomeFunction outcome) { outcomes_[metric] = std::move(outcome); }
  int64_t samples() const { return samples_; }  // that the last loss() is of

  double loss() override;
  double estimate_seconds() override;
  std::vector<std::pair<std::string, double>> scores() const override;

 private:
  // Runs batches until `most` are done, or all. Returns the sum of the samples' losses.
  double run(int64_t most);
  void add_scores(const Workspace& blobs, int64_t samples);
  DType dtype_of_parameters() const;

  Model model_;
  Workspace& parameters_;
  std::vector<FedColumn> columns_;
  SampleRange range_;
  bool plan_memory_;
  int64_t samples_ = 0;  // of the last run
  std::vector<Score> scores_;
  std::map<size_t, OutcomeFunction> outcomes_;  // by metric
};

}  // namespace stepnet
