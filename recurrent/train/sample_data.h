// Samples for training: the columns that a model names, in their two parts for a run.
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/data/sample_batches.h"
#include "recurrent/train/model.h"
#include "stepnet/train_options.h"

namespace stepnet {

struct SampleData {
  std::vector<FedColumn> training, held_out;
  SampleRange trained, predicted;  // of each; the second is empty if nothing is held out
  std::string fingerprint;         // of all of it
};

// The order in which samples are evaluated: streams if states are carried from batch to batch.
SampleOrder order_of(const Model& model);

// Columns of the data that the model's links name. Throws Error: a column that is not there or there twice, a type that
// the blob cannot have, columns that do not agree.
std::vector<FedColumn> linked_columns(const Model& model, const std::vector<std::string>& data,
                                      const std::map<std::string, Tensor>& arrays = {});

// What columns that are normalised take for it, as a checkpoint keeps it, and the other way round. Throws Error:
// missing from the checkpoint, or not of the columns' sizes.
void save_normalization(const std::vector<FedColumn>& columns, std::map<std::string, Tensor>& saved);
void load_normalization(const Model& model, const std::map<std::string, Tensor>& saved,
                        std::vector<FedColumn>& columns);

// How many samples are the last share of `samples`.
int64_t held_out_samples(int64_t samples, double share);

// A fold, "I/N", is the I-th of N parts of the samples, counted from 1: sample k, counted from 0, is in the part
// k * N / samples, counted from 0 and rounded down. Throws Error: another form, fewer than two parts, no such part, or
// more parts than samples.
void check_fold(const std::string& fold);
SampleRange fold_range(const std::string& fold, int64_t samples);

// The samples to train on and those to predict, as the options say: held-out data, a fold, or the last share.
SampleData load_samples(const Model& model, const TrainOptions& options);

}  // namespace stepnet
