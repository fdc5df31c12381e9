#include "recurrent/train/text_batches.h"

namespace stepnet {
namespace {

class TextBatches final : public BatchSource {
 public:
  TextBatches(const Model& model, TextStreams streams, const Shard& shard)
      : input_(model.input), target_(model.target), streams_(std::move(streams)), shard_(shard) {}

  void next(Batch& batch) override {
    const int64_t first = shard_.begin(streams_.batch()), count = shard_.end(streams_.batch()) - first;
    batch.samples = count;
    batch.share = static_cast<double>(count) / static_cast<double>(streams_.batch());
    batch.starts = streams_.at_start();
    streams_.next(batch.blobs[input_], batch.blobs[target_], first, count);
  }
  int64_t position() const override { return streams_.position(); }
  void set_position(int64_t position) override { streams_.set_position(position); }

 private:
  std::string input_, target_;
  TextStreams streams_;
  Shard shard_;
};

}  // namespace

std::unique_ptr<BatchSource> text_batches(const Model& model, TextStreams streams, const Shard& shard) {
  return std::make_unique<TextBatches>(model, std::move(streams), shard);
}

}  // namespace stepnet
