// EventLog, read back record by record with checksums of the test's own.
#include "recurrent/train/event_log.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "core/io/npy.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::event_log_test {
namespace {

using Message = google::protobuf::UnknownFieldSet;

// Bit by bit.
uint32_t plain_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82F63B78 & (0 - (crc & 1)));
  }
  return ~crc;
}

uint32_t masked(std::string_view bytes) {
  const uint32_t crc = plain_crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

template <class T>
T value_at(const std::string& bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

const google::protobuf::UnknownField* field(const Message& message, int number) {
  for (int i = 0; i < message.field_count(); ++i)
    if (message.field(i).number() == number) return &message.field(i);
  return nullptr;
}

struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, squares = 0;
  std::vector<double> limits, buckets;
};

struct Event {
  int64_t step = 0;
  std::string version;
  bool starts = false;
  std::map<std::string, float> scalars;
  std::map<std::string, Histogram> histograms;
};

std::vector<double> doubles(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Histogram histogram(const std::string& bytes) {
  Message m;
  EXPECT_TRUE(m.ParseFromString(bytes));
  const auto number = [&](int f) { return std::bit_cast<double>(field(m, f)->fixed64()); };
  return {number(1),
          number(2),
          number(3),
          number(4),
          number(5),
          doubles(field(m, 6)->length_delimited()),
          doubles(field(m, 7)->length_delimited())};
}

Event parse(const std::string& bytes) {
  Message m;
  Event event;
  EXPECT_TRUE(m.ParseFromString(bytes));
  EXPECT_GT(std::bit_cast<double>(field(m, 1)->fixed64()), 1e9);
  event.step = static_cast<int64_t>(field(m, 2)->varint());
  if (const auto* version = field(m, 3)) event.version = version->length_delimited();
  if (const auto* session = field(m, 7)) event.starts = session->length_delimited() == "\x08\x01";
  const auto* summary = field(m, 5);
  if (!summary) return event;
  Message values;
  EXPECT_TRUE(values.ParseFromString(summary->length_delimited()));
  for (int i = 0; i < values.field_count(); ++i) {
    Message value;
    EXPECT_TRUE(value.ParseFromString(values.field(i).length_delimited()));
    const std::string tag = field(value, 1)->length_delimited();
    if (const auto* scalar = field(value, 2)) event.scalars[tag] = std::bit_cast<float>(scalar->fixed32());
    if (const auto* h = field(value, 5)) event.histograms[tag] = histogram(h->length_delimited());
  }
  return event;
}

std::vector<Event> read_events(const std::string& path) {
  const std::string bytes = read_all(path);
  std::vector<Event> events;
  for (size_t at = 0; at < bytes.size();) {
    const auto size = value_at<uint64_t>(bytes, at);
    EXPECT_EQ(value_at<uint32_t>(bytes, at + 8), masked(std::string_view(bytes).substr(at, 8)));
    if (at + 16 + size > bytes.size()) {
      ADD_FAILURE() << "a record is cut off";
      break;
    }
    const std::string record = bytes.substr(at + 12, size);
    EXPECT_EQ(value_at<uint32_t>(bytes, at + 12 + size), masked(record));
    events.push_back(parse(record));
    at += 16 + size;
  }
  return events;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

TEST(EventLog, ChecksumsAreThoseOfThePaper) {
  EXPECT_EQ(crc32c_of("123456789"), 0xE3069283);  // the polynomial's check value
  EXPECT_EQ(crc32c_of(""), 0);
  EXPECT_EQ(crc32c_of(std::string(32, '\0')), 0x8A9136AA);  // RFC 3720, B.4
}

TEST(EventLog, RecordsAreReadBack) {
  const TempFolder folder;
  const std::string runs = folder.file("a/b");
  EventLog log(runs, 6, Unit::sample);
  log.training(7, 0.5, 1000, 0.01);
  log.validation(7, NAN, {{"accuracy", 0.75}});
  log.parameter(7, "W", Tensor::of<float>({5}, {-1, 0, 3, std::numeric_limits<float>::infinity(), -1}));
  log.parameter(7, "b", Tensor::of<double>({2}, {2, 2}));
  log.parameter(7, "none", Tensor::empty(DType::float32, {0}));
  EXPECT_FALSE(log.failure());
  ASSERT_EQ(files_in(runs).size(), 1);
  EXPECT_NE(log.path().find("events.out.tfevents."), std::string::npos);
  const std::vector<Event> events = read_events(log.path());
  ASSERT_EQ(events.size(), 6);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_TRUE(events[1].starts);
  EXPECT_EQ(events[1].step, 7);  // later iterations of another file do not count
  EXPECT_EQ(events[2].step, 7);
  const std::map<std::string, float> training = {
      {"train/loss", 0.5F}, {"train/learning_rate", 0.01F}, {"train/samples_per_second", 1000.0F}};
  EXPECT_EQ(events[2].scalars, training);
  EXPECT_TRUE(std::isnan(events[3].scalars.at("validation/loss")));
  EXPECT_EQ(events[3].scalars.at("validation/accuracy"), 0.75F);
  const Histogram& w = events[4].histograms.at("parameters/W");
  EXPECT_EQ((std::vector<double>{w.min, w.max, w.count, w.sum, w.squares}), (std::vector<double>{-1, 3, 4, 1, 11}));
  ASSERT_EQ(w.limits.size(), w.buckets.size());
  EXPECT_EQ(w.limits.front(), -1);
  EXPECT_EQ(w.limits.back(), 3);
  EXPECT_TRUE(std::ranges::is_sorted(w.limits));
  EXPECT_EQ(w.buckets[0], 0);
  EXPECT_EQ(w.buckets[1], 2);
  EXPECT_EQ(w.buckets[11], 1);  // 0 is a quarter of the way
  EXPECT_EQ(w.buckets.back(), 1);
  const Histogram& b = events[5].histograms.at("parameters/b");
  EXPECT_EQ(b.limits, (std::vector<double>{2}));
  EXPECT_EQ(b.buckets, (std::vector<double>{2}));
}

TEST(EventLog, OfATextHasBits) {
  const TempFolder folder;
  EventLog log(folder.path(), 0, Unit::byte);
  log.training(1, std::log(2.0), 10, 1);
  log.validation(1, std::log(4.0), {});
  const std::vector<Event> events = read_events(log.path());
  ASSERT_EQ(events.size(), 4);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].scalars.at("train/bits_per_char"), 1);
  EXPECT_EQ(events[2].scalars.at("train/chars_per_second"), 10);
  EXPECT_EQ(events[3].scalars.at("validation/bits_per_char"), 2);
}

TEST(EventLog, AFolderThatIsNoneIsRefused) {
  const TempFolder folder;
  write_all(folder.file("a"), "");
  expect_contains(error_text([&] { EventLog(folder.file("a"), 0, Unit::byte); }), folder.file("a"));
}

TEST(EventLog, ARunThatGoesOnHasAnotherFile) {
  const TempFolder folder;
  Tensor x = Tensor::empty(DType::float32, {40, 1});
  for (int i = 0; i < 40; ++i) x.data<float>()[i] = static_cast<float>(i) / 40;
  write_npy(folder.file("x.npy"), x);
  const NetDef net = parse_net_text(R"(name: "line"
      op { type: "FC" input: "x" input: "W" input: "b" output: "y" }
      op { type: "MSELoss" input: "y" input: "x" output: "loss" }
      [stepnet.model] {
        init { op { type: "ConstantFill" output: "W" arg { name: "shape" ints: 1 ints: 1 } }
               op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } } }
        loss: "loss" batch: 8 data { column: "x" } })");
  TrainOptions options;
  options.data = {"x=" + folder.file("x.npy")};
  options.out = folder.file("run");
  options.tensorboard = folder.file("board");
  options.iterations = 4;
  Trainer(net, options, {}).run();
  options.iterations = 6;
  options.resume = true;
  const TrainResult result = Trainer(net, options, {}).run();
  const std::vector<std::string> files = files_in(folder.file("board"));
  ASSERT_EQ(files.size(), 2);
  int steps = 0;
  for (const Event& event : read_events(files[1])) {
    if (event.starts) {
      EXPECT_EQ(event.step, 5);
    }
    if (event.scalars.contains("train/loss")) {
      EXPECT_EQ(event.step, 5 + steps);
      EXPECT_EQ(event.scalars.at("train/learning_rate"), static_cast<float>(options.optimizer.lr));
      ++steps;
    }
    if (event.scalars.contains("validation/loss") && event.step == 6) {
      EXPECT_EQ(event.scalars.at("validation/loss"), static_cast<float>(*result.validation_loss));
    }
    if (event.histograms.contains("parameters/W")) {
      EXPECT_EQ(event.histograms.at("parameters/W").count, 1);
    }
  }
  EXPECT_EQ(steps, 2);
}

}  // namespace
}  // namespace stepnet::testing::event_log_test
