#include "recurrent/train/text_batches.h"

namespace stepnet {
namespace {

class TextBatches final : public BatchSource {
 public:
  TextBatches(const Model& model, TextStreams streams)
      : input_(model.input), target_(model.target), streams_(std::move(streams)) {}

  void next(Batch& batch) override {
    batch.samples = streams_.batch();
    batch.starts = streams_.at_start();
    streams_.next(batch.blobs[input_], batch.blobs[target_]);
  }
  int64_t position() const override { return streams_.position(); }
  void set_position(int64_t position) override { streams_.set_position(position); }

 private:
  std::string input_, target_;
  TextStreams streams_;
};

}  // namespace

std::unique_ptr<BatchSource> text_batches(const Model& model, TextStreams streams) {
  return std::make_unique<TextBatches>(model, std::move(streams));
}

}  // namespace stepnet
