// Batches of samples, from columns: some samples at a time, in an order that changes from epoch to epoch.
//
// Threads: SampleBatches as BatchSource; the rest pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/data/batch_source.h"
#include "core/data/column.h"
#include "stepnet/op_spec.h"

namespace stepnet {

// A column, and what of the net it is fed to.
struct FedColumn {
  std::string blob;
  std::string name;  // of the column, for messages
  std::shared_ptr<const Column> column;
  int axis = 0;  // the dimension of the blob along which samples stand
  DType dtype = DType::float32;
  // For each index of a sample's last dimension what is subtracted from its values, and what they are then divided by;
  // empty: they are fed as they are.
  std::vector<double> mean = {}, deviation = {};
};

// What a column is fed as unless something else is asked for: float for all floating types, int32 for integers, bool.
DType fed_type(DType column);

// The blob's type for so many samples. Throws Error if there is no such dimension.
TensorType fed_type(const FedColumn& fed, int64_t samples);

// Samples [begin, end).
struct SampleRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Sets the column's mean and deviation to those of these samples: the deviation is the root of the mean square, and 1
// where all values are equal. Source: B. P. Welford, Note on a method for calculating corrected sums of squares and
// products, 1962.
void normalize(FedColumn& fed, SampleRange range);

// How many samples all columns have. Throws Error if they do not agree, or there are none.
int64_t count_samples(const std::vector<FedColumn>& columns);

// Fills the batch with these samples, in the memory that it has if that is enough, else in memory for as many as
// `most`. Throws Error that names file, sample and place of a value that is not finite, or no value of the blob's type.
void read_samples(const std::vector<FedColumn>& columns, const std::vector<int64_t>& samples, Batch& batch,
                  int64_t most = 0);

// The position counts batches from the start of the first epoch on. Each epoch has every sample once; its last batch is
// smaller if the samples are no multiple of the batch. Nothing goes on from one batch to the next.
class SampleBatches final : public BatchSource {
 public:
  // `shuffled`: the order of an epoch is drawn from the seed and the epoch's number; otherwise it is that of the files.
  SampleBatches(std::vector<FedColumn> columns, SampleRange range, int64_t batch, bool shuffled, uint64_t seed);

  void next(Batch& batch) override;
  int64_t position() const override { return position_; }
  void set_position(int64_t position) override;

  int64_t batches() const { return (range_.size() + batch_ - 1) / batch_; }  // of an epoch

 private:
  void draw_order(int64_t epoch);

  std::vector<FedColumn> columns_;
  SampleRange range_;
  int64_t batch_, position_ = 0;
  bool shuffled_;
  uint64_t seed_;
  int64_t drawn_ = -1;          // the epoch that order_ is of
  std::vector<int64_t> order_;  // samples
};

}  // namespace stepnet
