#include "core/io/byte_source.h"

#include <cstring>
#include <utility>

#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

void require_bytes(const ByteSource& source, uint64_t offset, uint64_t bytes) {
  require(offset <= source.size() && bytes <= source.size() - offset,
          "{} ends at byte {}, but {} bytes are needed from byte {} on", source.name(), source.size(), bytes, offset);
}

class FileBytes final : public ByteSource {
 public:
  explicit FileBytes(const FilePlace& place) : file_(place) {}
  const std::string& name() const override { return file_.path(); }
  uint64_t size() const override { return file_.size(); }
  void read_at(uint64_t offset, void* to, size_t bytes) const override { file_.read_at(offset, to, bytes); }

 private:
  FileReader file_;
};

class PartOfBytes final : public ByteSource {
 public:
  PartOfBytes(ByteSourcePtr whole, uint64_t begin, uint64_t size, std::string name)
      : whole_(std::move(whole)), begin_(begin), size_(size), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  uint64_t size() const override { return size_; }
  void read_at(uint64_t offset, void* to, size_t bytes) const override {
    require_bytes(*this, offset, bytes);
    whole_->read_at(begin_ + offset, to, bytes);
  }

 private:
  ByteSourcePtr whole_;
  uint64_t begin_, size_;
  std::string name_;
};

class MemoryBytes final : public ByteSource {
 public:
  MemoryBytes(std::vector<std::byte> bytes, std::string name) : bytes_(std::move(bytes)), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  uint64_t size() const override { return bytes_.size(); }
  void read_at(uint64_t offset, void* to, size_t bytes) const override {
    require_bytes(*this, offset, bytes);
    if (bytes > 0) std::memcpy(to, bytes_.data() + offset, bytes);
  }

 private:
  std::vector<std::byte> bytes_;
  std::string name_;
};

}  // namespace

std::string ByteSource::text_at(uint64_t offset, size_t bytes) const {
  require_bytes(*this, offset, bytes);
  std::string text(bytes, '\0');
  read_at(offset, text.data(), bytes);
  return text;
}

ByteSourcePtr file_bytes(const FilePlace& place) { return std::make_shared<FileBytes>(place); }

ByteSourcePtr part_of(ByteSourcePtr whole, uint64_t begin, uint64_t size, const std::string& name) {
  require_bytes(*whole, begin, size);
  return std::make_shared<PartOfBytes>(std::move(whole), begin, size, name);
}

ByteSourcePtr memory_bytes(std::vector<std::byte> bytes, const std::string& name) {
  return std::make_shared<MemoryBytes>(std::move(bytes), name);
}

}  // namespace stepnet
