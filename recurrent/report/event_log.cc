// The messages are few and their numbers do not change, so they are put together field by field: Event and Summary of
// TensorFlow's event.proto and summary.proto.
#include "recurrent/report/event_log.h"

#include <google/protobuf/unknown_field_set.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/io/files.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

using Message = google::protobuf::UnknownFieldSet;

// Numbers of fields.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kGraph = 4, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr int kValue = 1, kTag = 1, kScalar = 2, kHistogram = 5;
}
namespace histogram {
constexpr int kMin = 1, kMax = 2, kCount = 3, kSum = 4, kSumOfSquares = 5, kLimits = 6, kBuckets = 7;
}
constexpr uint64_t kSessionStart = 1;  // the value of a session log's first field, its status

constexpr size_t kBucketCount = 40;  // of a histogram, as wide as each other

void add_double(Message& message, int field, double value) {
  message.AddFixed64(field, std::bit_cast<uint64_t>(value));
}

void add_doubles(Message& message, int field, const std::vector<double>& values) {
  message.AddLengthDelimited(field)->assign(reinterpret_cast<const char*>(values.data()),
                                            values.size() * sizeof(double));
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void begin_event(Message& message, int64_t step) {
  add_double(message, event::kWallTime, wall_seconds());
  message.AddVarint(event::kStep, static_cast<uint64_t>(step));
}

std::string bytes_of(const Message& message) {
  std::string bytes;
  message.SerializeToString(&bytes);
  return bytes;
}

// Masked, as a checksum of bytes that have checksums in them is weak.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c_of(bytes), 15) + 0xA282EAD8; }

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Its length, that one's checksum, the bytes, and theirs.
std::string record_of(const std::string& bytes) {
  std::string record;
  append(record, uint64_t{bytes.size()});
  append(record, masked_crc(record));
  record += bytes;
  append(record, masked_crc(bytes));
  return record;
}

std::vector<double> finite_values(const Tensor& tensor) {
  const Tensor host = on_device(tensor, {});
  std::vector<double> values;
  values.reserve(static_cast<size_t>(host.size()));
  const auto take = [&]<class T>(T) {
    for (const T value : host.span<T>())
      if (std::isfinite(static_cast<double>(value))) values.push_back(static_cast<double>(value));
  };
  if (!with_type(host.dtype(), take)) with_half(host.dtype(), take);
  return values;
}

std::string histogram_of(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  const double width = (most - least) / static_cast<double>(kBucketCount);
  // Each limit is the upper end of a bucket; the first one, which is empty, says where the second begins.
  std::vector<double> limits = {least}, buckets = {0};
  if (width > 0 && std::isfinite(width)) {
    for (size_t b = 1; b <= kBucketCount; ++b) limits.push_back(least + width * static_cast<double>(b));
    limits.back() = most;
  }
  buckets.resize(limits.size(), 0);
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
    const auto bucket = static_cast<size_t>(limits.size() > 1 ? (value - least) / width : 0);
    buckets[std::min(bucket + 1, limits.size() - 1)] += 1;
  }
  Message message;
  add_double(message, histogram::kMin, least);
  add_double(message, histogram::kMax, most);
  add_double(message, histogram::kCount, static_cast<double>(values.size()));
  add_double(message, histogram::kSum, sum);
  add_double(message, histogram::kSumOfSquares, squares);
  add_doubles(message, histogram::kLimits, limits);
  add_doubles(message, histogram::kBuckets, buckets);
  return bytes_of(message);
}

// Names are in the order of time, in which viewers read files.
FilePlace new_file(const std::string& folder) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  for (;;) {
    const auto now = static_cast<int64_t>(wall_seconds() * 1e6);
    const std::string name = fmt::format("events.out.tfevents.{:010d}.{:06d}.{}.{}", now / 1'000'000, now % 1'000'000,
                                         ::getpid(), host.data());
    const FilePlace place = FilePlace(folder).in_folder(name);
    struct stat info {};
    if (!look_at(place, info)) return place;
  }
}

}  // namespace

uint32_t crc32c_of(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < made.size(); ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) made[i] = (made[i] >> 1) ^ ((made[i] & 1) != 0 ? 0x82F63B78 : 0);
    }
    return made;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

EventLog::EventLog(const std::string& folder, int64_t resumed_at, Unit unit) : unit_(unit) {
  make_folders_of(FilePlace(folder).in_folder("file"));
  const FilePlace place = new_file(folder);
  path_ = place.str();
  fd_ = open_to_write(place, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, path_);
  Message first;
  begin_event(first, 0);
  first.AddLengthDelimited(event::kFileVersion, "brain.Event:2");
  write(bytes_of(first));
  Message start;
  begin_event(start, resumed_at + 1);
  Message session;
  session.AddVarint(1, kSessionStart);
  start.AddLengthDelimited(event::kSessionLog, bytes_of(session));
  write(bytes_of(start));
  if (failure_) {
    ::close(fd_);
    throw Error(*failure_);
  }
}

EventLog::~EventLog() { ::close(fd_); }

void EventLog::write(const std::string& event) {
  if (failure_) return;
  try {
    write_whole(fd_, record_of(event), path_);
  } catch (const Error& e) {
    failure_ = e;
  }
}

void EventLog::scalars(int64_t iteration, const std::vector<std::pair<std::string, double>>& values) {
  Message all;
  for (const auto& [tag, value] : values) {
    Message one;
    one.AddLengthDelimited(summary::kTag, tag);
    one.AddFixed32(summary::kScalar, std::bit_cast<uint32_t>(static_cast<float>(value)));
    all.AddLengthDelimited(summary::kValue, bytes_of(one));
  }
  Message message;
  begin_event(message, iteration);
  message.AddLengthDelimited(event::kSummary, bytes_of(all));
  write(bytes_of(message));
}

void EventLog::training(int64_t iteration, double loss, double units_per_second, double lr) {
  std::vector<std::pair<std::string, double>> values = {{"train/loss", loss}, {"train/learning_rate", lr}};
  if (unit_ == Unit::byte) values.emplace_back("train/bits_per_char", bits_per_char(loss));
  values.emplace_back(unit_ == Unit::byte ? "train/chars_per_second" : "train/samples_per_second", units_per_second);
  scalars(iteration, values);
}

void EventLog::validation(int64_t iteration, double loss, const std::vector<std::pair<std::string, double>>& scores) {
  std::vector<std::pair<std::string, double>> values = {{"validation/loss", loss}};
  if (unit_ == Unit::byte) values.emplace_back("validation/bits_per_char", bits_per_char(loss));
  for (const auto& [name, value] : scores) values.emplace_back("validation/" + name, value);
  scalars(iteration, values);
}

void EventLog::parameter(int64_t iteration, const std::string& name, const Tensor& values) {
  histogram(iteration, "parameters/" + name, values);
}

void EventLog::gradient(int64_t iteration, const std::string& parameter, const Tensor& values) {
  histogram(iteration, "gradients/" + parameter, values);
}

void EventLog::graph(const std::string& graph_def) {
  Message message;
  begin_event(message, 0);
  message.AddLengthDelimited(event::kGraph, graph_def);
  write(bytes_of(message));
}

void EventLog::histogram(int64_t iteration, const std::string& tag, const Tensor& tensor) {
  const std::vector<double> values = finite_values(tensor);
  if (values.empty()) return;
  Message one, all;
  one.AddLengthDelimited(summary::kTag, tag);
  one.AddLengthDelimited(summary::kHistogram, histogram_of(values));
  all.AddLengthDelimited(summary::kValue, bytes_of(one));
  Message message;
  begin_event(message, iteration);
  message.AddLengthDelimited(event::kSummary, bytes_of(all));
  write(bytes_of(message));
}

}  // namespace stepnet
