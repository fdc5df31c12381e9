#include "core/data/sequences.h"

#include <algorithm>
#include <utility>

#include "stepnet/error.h"

namespace stepnet {
namespace {

Shape with_rows(int64_t rows, const Shape& row) {
  std::vector<int64_t> dims = {rows};
  dims.insert(dims.end(), row.begin(), row.end());
  return Shape(dims);
}

class SequenceColumn final : public Column {
 public:
  SequenceColumn(std::shared_ptr<const Column> rows, std::vector<int64_t> starts, int64_t longest)
      : rows_(std::move(rows)), starts_(std::move(starts)), shape_(with_rows(longest, rows_->shape())) {}

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return static_cast<int64_t>(starts_.size()) - 1; }
  const std::string& file() const override { return rows_->file(); }
  bool varies() const override { return true; }
  int64_t length(int64_t sample) const override {
    return starts_[static_cast<size_t>(sample) + 1] - starts_[static_cast<size_t>(sample)];
  }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    const int64_t begin = starts_[static_cast<size_t>(first)];
    rows_->read(begin, starts_[static_cast<size_t>(first + count)] - begin, to);
  }

 private:
  std::shared_ptr<const Column> rows_;
  std::vector<int64_t> starts_;  // of each sample, and the end
  Shape shape_;
};

class WindowColumn final : public Column {
 public:
  WindowColumn(std::shared_ptr<const Column> rows, const WindowChoice& choice, int64_t samples)
      : rows_(std::move(rows)), choice_(choice), samples_(samples), shape_(with_rows(choice.window, rows_->shape())) {}

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return samples_; }
  bool has_time() const override { return true; }
  const std::string& file() const override { return rows_->file(); }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    const size_t bytes = sample_bytes(*this);
    for (int64_t i = 0; i < count; ++i, to += bytes)
      rows_->read((first + i) * choice_.stride + choice_.shift, choice_.window, to);
  }

 private:
  std::shared_ptr<const Column> rows_;
  WindowChoice choice_;
  int64_t samples_ = 0;
  Shape shape_;
};

}  // namespace

std::shared_ptr<const Column> sequences(std::shared_ptr<const Column> rows, const std::vector<int64_t>& lengths,
                                        const std::string& source) {
  require(!rows->varies(), "the rows of {} have lengths of their own, so they are no sequences' rows", rows->file());
  std::vector<int64_t> starts = {0};
  int64_t longest = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    require(lengths[i] >= 0 && lengths[i] <= rows->samples() - starts.back(),
            "{}: sample {} has {} rows, but {} of the {} rows of {} are left", source, i, lengths[i],
            rows->samples() - starts.back(), rows->samples(), rows->file());
    starts.push_back(starts.back() + lengths[i]);
    longest = std::max(longest, lengths[i]);
  }
  require(starts.back() == rows->samples(), "{}: the lengths of {} samples add up to {}, but {} has {} rows", source,
          lengths.size(), starts.back(), rows->file(), rows->samples());
  return std::make_shared<SequenceColumn>(std::move(rows), std::move(starts), longest);
}

int64_t count_windows(const WindowChoice& choice, int64_t rows) {
  require(choice.window >= 1 && choice.stride >= 1 && choice.shift >= 0,
          "windows of {} rows, each {} behind the one before and shifted by {}: the first two must be at least 1, the "
          "third at least 0",
          choice.window, choice.stride, choice.shift);
  return rows < choice.reach() ? 0 : (rows - choice.reach()) / choice.stride + 1;
}

std::shared_ptr<const Column> windows(std::shared_ptr<const Column> rows, const WindowChoice& choice, int64_t samples) {
  require(!rows->varies(), "{} has sequences of different lengths, of which no windows are taken", rows->file());
  const int64_t all = count_windows(choice, rows->samples());
  require(all > 0 && all >= samples, "{} has {} rows, too few for {} windows of {} rows shifted by {}", rows->file(),
          rows->samples(), std::max<int64_t>(samples, 1), choice.window, choice.shift);
  return std::make_shared<WindowColumn>(std::move(rows), choice, samples);
}

}  // namespace stepnet
