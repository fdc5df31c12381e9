// See the header; the format is in stepnet/checkpoint.h.
#include "tests/fuzz/checkpoint_facts.h"

#include <cstring>

#include "core/io/files.h"
#include "recurrent/train/text_corpus.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {
namespace {

constexpr size_t kHeader = 20, kRecordHead = 12, kSum = 4;  // without their checksums
constexpr uint32_t kEnd = 3;

void put_sum(std::string& file, size_t begin, size_t bytes) {
  const uint32_t sum = crc32_of(file.data() + begin, bytes);
  std::memcpy(file.data() + begin + bytes, &sum, sizeof(sum));
}

}  // namespace

std::string with_checksums(std::string_view given) {
  std::string file(given);
  if (file.size() < kHeader + kSum) return file;
  put_sum(file, 0, kHeader);
  size_t at = kHeader + kSum;
  for (uint64_t records = 0; file.size() - at >= kRecordHead + kSum; ++records) {
    uint32_t kind = 0;
    uint64_t length = 0;
    std::memcpy(&kind, file.data() + at, sizeof(kind));
    std::memcpy(&length, file.data() + at + sizeof(kind), sizeof(length));
    put_sum(file, at, kRecordHead);
    at += kRecordHead + kSum;
    if (file.size() - at < kSum || length > file.size() - at - kSum) break;
    if (kind == kEnd && length == sizeof(records)) std::memcpy(file.data() + at, &records, sizeof(records));
    put_sum(file, at, length);
    at += length + kSum;
  }
  return file;
}

void read_facts(const Checkpoint& checkpoint) {
  may_refuse([&] { check_same_model(saved_model(checkpoint), checkpoint); });
  may_refuse([&] { saved_vocabulary(checkpoint); });
  may_refuse([&] {
    TrainOptions options;
    take_settings(saved_settings(checkpoint), options);
    choose_loss_scale(options);
    check_options(options);
  });
  for (const char* name : {"total", "threads", "seconds", "best-loss"}) {
    may_refuse([&] { checkpoint_int(checkpoint, name); });
    may_refuse([&] { checkpoint_real(checkpoint, name); });
  }
}

}  // namespace stepnet::testing
