// TrainedModel: a model with the parameters that training gave it, and what it says of samples.
//
// Threads: one thread at a time.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/data/sample_batches.h"
#include "recurrent/report/scores.h"
#include "recurrent/train/model.h"
#include "stepnet/checkpoint.h"
#include "stepnet/workspace.h"

namespace stepnet {

// Runs the init net, for what it makes beside parameters, and puts the checkpoint's parameters, or their averages if it
// has any, in the place of its own.
// Throws Error if they do not fit.
void load_parameters(const Model& model, const Checkpoint& checkpoint, Workspace& workspace);

// What is evaluated, and what is told of it.
struct EvaluationOptions {
  double holdout = 1;                                    // this share of the samples, at their end
  std::string fold = {};                                 // or "I/N" (sample_data.h) of them; "": by `holdout`
  std::map<std::string, OutcomeFunction> outcomes = {};  // by the names that metrics are shown by (Score::watch)
};

class TrainedModel {
 public:
  // On the CPU. Its nets may open files below `files`, or none if that is null, for a checkpoint need not be trusted.
  // Throws Error also if it was not trained on samples.
  TrainedModel(const Checkpoint& checkpoint, FileRootPtr files);
  // Another net than the one that was trained, whose parameters have the names and the shapes that they have there.
  // Throws Error also if its model has no data.
  TrainedModel(const NetDef& net, const Checkpoint& checkpoint, FileRootPtr files);

  const Model& model() const { return model_; }
  void set_batch(int64_t batch) { model_.batch = batch; }  // of samples that run together

  struct Evaluation {
    int64_t samples = 0;  // that were evaluated; in streams some at the end may be left out
    double loss = 0;
    std::vector<std::pair<std::string, double>> metrics = {};
  };
  // `data`: as open_columns takes them. Throws Error as load_samples does, and if the share has
  // no samples or there is no such metric.
  Evaluation evaluate(const std::vector<std::string>& data, const EvaluationOptions& options = {});

  // A blob of the net, and the dimension of it along which samples stand.
  struct Output {
    std::string blob;
    int axis = 0;
  };
  // What the blobs are for all samples, which the first dimension counts. Only columns that the blobs depend on are
  // read. Throws Error: no such blob, one without a dimension for samples, or data that do not fit.
  std::vector<Tensor> predict(const std::vector<std::string>& data, const std::vector<Output>& outputs);

 private:
  TrainedModel(Model model, const Checkpoint& checkpoint, FileRootPtr files);
  std::vector<FedColumn> columns_of(const Model& model, const std::vector<std::string>& data) const;

  Model model_;
  std::map<std::string, Tensor> saved_;  // what the checkpoint has
  Workspace parameters_;
};

}  // namespace stepnet
