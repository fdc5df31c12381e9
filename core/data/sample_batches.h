// Batches of samples, from columns: some samples at a time, in an order that changes from epoch to epoch.
//
// Threads: SampleBatches as BatchSource; the rest pure functions.
#pragma once

#include <cstdint>
#include <map>
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
  // For each feature (features_of) what is subtracted from its values, and what they are then divided by; empty: they
  // are fed as they are.
  std::vector<double> mean = {}, deviation = {};
  // Of samples that vary in length: a batch is as long as its longest sample, the others end in `pad`; and the blob
  // int32 [samples] that is fed their lengths, if one is named.
  double pad = 0;
  bool to_longest = false;  // a batch is as long as the longest of all samples, instead
  std::string lengths = {};
  // The blob of floats, as large, that is fed 1 where there are values, and 0 at padding and at values that are missing
  // (nan), in whose place `pad` stands; without one, a value that is missing is an error.
  std::string mask = {};
};

// What all of them are fed to, for so many samples.
std::map<std::string, TensorType> fed_types(const std::vector<FedColumn>& columns, int64_t samples);

// What a column is fed as unless something else is asked for: float for all floating types, int32 for integers, bool.
DType fed_type(DType column);

// The blob's type for so many samples, of the greatest length if they vary. Throws Error if there is no such dimension.
TensorType fed_type(const FedColumn& fed, int64_t samples);

// Samples [begin, end) but for those of [gap_begin, gap_end), which are between others of them, or none.
struct SampleRange {
  int64_t begin = 0, end = 0, gap_begin = 0, gap_end = 0;
  int64_t gap() const { return gap_end - gap_begin; }
  int64_t size() const { return end - begin - gap(); }
  int64_t at(int64_t i) const { return begin + i < gap_begin ? begin + i : begin + i + gap(); }  // number i of them
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

// The order of an epoch.
//   given     that of the files
//   shuffled  drawn from the seed and the epoch's number
//   bucketed  the same, and then samples of like length are brought together, so that little of a batch is padding
//   streams   the samples are parted into as many streams as a batch has samples, and a batch has the next one of each:
//             it goes on where the batch before ended; samples that are left over at the end are left out, and there
//             may be no gap
enum class SampleOrder { given, shuffled, bucketed, streams };
std::vector<std::string> sample_order_names();
SampleOrder sample_order(const std::string& name);  // throws Error

// The position counts batches from the start of the first epoch on. Each epoch has every sample once; its last batch is
// smaller if the samples are no multiple of the batch. But for streams, nothing goes on from one batch to the next.
class SampleBatches final : public BatchSource {
 public:
  // Throws Error: no samples, fewer than a batch has in streams, streams with a gap, a batch below 1.
  // Of each batch this reads the shard's part; one without any, of a last batch smaller than there are shards, has the
  // batch's first sample and a share of 0.
  SampleBatches(std::vector<FedColumn> columns, SampleRange range, int64_t batch, SampleOrder order, uint64_t seed,
                Shard shard = {});

  void next(Batch& batch) override;
  int64_t position() const override { return position_; }
  void set_position(int64_t position) override;

  int64_t batches() const;  // of an epoch

 private:
  void draw_order(int64_t epoch);
  void shuffle(int64_t epoch, std::vector<int64_t>& values, const char* what) const;
  void bring_together(int64_t epoch);

  std::vector<FedColumn> columns_;
  SampleRange range_;
  int64_t batch_, position_ = 0;
  SampleOrder how_;
  uint64_t seed_;
  Shard shard_;
  int64_t drawn_ = -1;          // the epoch that order_ is of
  std::vector<int64_t> order_;  // samples
};

}  // namespace stepnet
