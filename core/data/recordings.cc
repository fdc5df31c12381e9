// Recordings as columns, read by libsndfile: a row of float for each frame, with a value for each channel.
//
// Samples of integers are divided by the largest one, so that they are from -1 to 1.
#include <sndfile.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "core/data/sources.h"
#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

class RecordingColumn final : public Column {
 public:
  explicit RecordingColumn(const std::string& path) : file_(FilePlace(path)) {
    sound_.reset(sf_open_fd(file_.fd(), SFM_READ, &info_, SF_FALSE));
    require(sound_ != nullptr, "{} is no recording that can be read: {}", path, sf_strerror(nullptr));
    require(info_.channels >= 1 && info_.frames >= 0 && info_.seekable != 0,
            "{} is a recording of {} channels and {} frames, which cannot be read", path, info_.channels, info_.frames);
    shape_ = Shape({info_.channels});
    require_whole();
  }

  int rate() const { return info_.samplerate; }
  DType dtype() const override { return DType::float32; }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return info_.frames; }
  const std::string& file() const override { return file_.path(); }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    const std::lock_guard lock(mutex_);
    const bool found = sf_seek(sound_.get(), first, SEEK_SET) == first;
    const sf_count_t got = found ? sf_readf_float(sound_.get(), reinterpret_cast<float*>(to), count) : 0;
    require(found && got == count, "{} has {} frames from frame {} on, but {} were to be read: {}", file(), got, first,
            count, sf_strerror(sound_.get()));
  }

 private:
  // libsndfile takes a file that is cut off for a shorter one.
  void require_whole() const {
    constexpr uint64_t kRiffHeader = 12, kChunkHeader = 8;
    constexpr uint32_t kUnknown = 0xFFFFFFFF;  // of what was written to a pipe
    if (file_.size() < kRiffHeader || file_.text_at(0, 4) != "RIFF") return;
    for (uint64_t at = kRiffHeader; at + kChunkHeader <= file_.size();) {
      const auto bytes = file_.value_at<uint32_t>(at + 4);
      if (file_.text_at(at, 4) == "data") {
        require(bytes == kUnknown || bytes <= file_.size() - at - kChunkHeader,
                "{} is cut off: {} bytes of sound should be there, but {} are", file(), bytes,
                file_.size() - at - kChunkHeader);
        return;
      }
      at += kChunkHeader + bytes + bytes % 2;
    }
  }

  struct Close {
    void operator()(SNDFILE* sound) const { sf_close(sound); }
  };
  FileReader file_;
  mutable std::mutex mutex_;
  SF_INFO info_{};
  std::unique_ptr<SNDFILE, Close> sound_;
  Shape shape_;
};

}  // namespace

Recording open_recording(const std::string& path) {
  auto rows = std::make_shared<RecordingColumn>(path);
  const int rate = rows->rate();
  return {std::move(rows), rate};
}

std::vector<NamedColumn> open_recordings(const SourceName& source) {
  if (source.name.empty() || !source.parts.empty() || !source.id.empty()) refuse_source(source);
  return {{source.name, open_recording(source.path).rows}};
}

}  // namespace stepnet
