// EventLog, read back record by record with checksums of the test's own.
#include "recurrent/report/event_log.h"
#include "recurrent/report/event_graph.h"

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
  std::string graph;
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
  if (const auto* graph = field(m, 4)) event.graph = graph->length_delimited();
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

struct Node {
  std::string op;
  std::vector<std::string> inputs;
  std::map<std::string, std::string> attributes;  // as bytes
};

std::map<std::string, Node> nodes_of(const std::string& graph) {
  std::map<std::string, Node> nodes;
  Message m;
  EXPECT_TRUE(m.ParseFromString(graph));
  for (int i = 0; i < m.field_count(); ++i) {
    Message fields;
    EXPECT_EQ(m.field(i).number(), 1);
    EXPECT_TRUE(fields.ParseFromString(m.field(i).length_delimited()));
    const std::string name = field(fields, 1)->length_delimited();
    EXPECT_FALSE(nodes.contains(name)) << name;
    Node& node = nodes[name];
    node.op = field(fields, 2)->length_delimited();
    for (int f = 0; f < fields.field_count(); ++f) {
      if (fields.field(f).number() == 3) node.inputs.push_back(fields.field(f).length_delimited());
      if (fields.field(f).number() != 5) continue;
      Message pair;
      EXPECT_TRUE(pair.ParseFromString(fields.field(f).length_delimited()));
      node.attributes[field(pair, 1)->length_delimited()] = field(pair, 2)->length_delimited();
    }
  }
  return nodes;
}

using Inputs = std::vector<std::string>;

TEST(EventGraph, HasANodeForEachOperator) {
  const NetDef net = parse_net_text(R"(
      op { type: "FC" input: "x" input: "W" input: "b" output: "y" arg { name: "axis" i: 2 } }
      op { type: "Relu" input: "y" output: "y" }
      op { type: "Split" name: "cut" input: "y" output: "l" output: "r:2" arg { name: "kind" s: "even" } }
      op { type: "Add" input: "l" input: "r:2" output: "z" arg { name: "f" f: 0.5 } }
      op { type: "Add" input: "z" input: "" output: "z" })");
  const std::map<std::string, Node> nodes = nodes_of(graph_def_of(net, {"W", "b"}));
  EXPECT_EQ(nodes.size(), 8);
  EXPECT_EQ(nodes.at("x").op, "Placeholder");
  EXPECT_EQ(nodes.at("W").op, "Parameter");
  EXPECT_EQ(nodes.at("y").op, "FC");
  EXPECT_EQ(nodes.at("y").inputs, (Inputs{"x", "W", "b"}));
  EXPECT_EQ(nodes.at("y").attributes.at("axis"), std::string("\x18\x02"));
  EXPECT_EQ(nodes.at("y_1").op, "Relu");  // in place
  EXPECT_EQ(nodes.at("y_1").inputs, (Inputs{"y"}));
  EXPECT_EQ(nodes.at("cut").inputs, (Inputs{"y_1"}));
  EXPECT_EQ(nodes.at("cut").attributes.at("kind"), std::string("\x12\x04"
                                                               "even"));
  EXPECT_EQ(nodes.at("z").inputs, (Inputs{"cut", "cut:1"}));
  EXPECT_EQ(nodes.at("z").attributes.at("f"), std::string("\x25\0\0\0\x3f", 5));
  EXPECT_EQ(nodes.at("z_1").inputs, (Inputs{"z"}));
}

TEST(EventGraph, HasStepNetsBelowTheirOperators) {
  const NetDef net = parse_net_text(R"(
      op { type: "Copy" input: "u" output: "x" }
      op { type: "RecurrentNetwork" name: "rnn" input: "x" input: "h0" input: "W" output: "h_all"
           arg { name: "link_internal" strings: "x" strings: "h_prev" strings: "h" }
           arg { name: "timestep" s: "t" }
           arg { name: "step_net" n {
             op { type: "FC" input: "x" input: "W" input: "t" output: "sums" }
             op { type: "Add" input: "sums" input: "h_prev" output: "h" } } } }
      op { type: "Tanh" input: "h_all" output: "y" })");
  const std::map<std::string, Node> nodes = nodes_of(graph_def_of(net, {"W"}));
  EXPECT_EQ(nodes.at("rnn").inputs, (Inputs{"x", "h0", "W"}));
  EXPECT_EQ(nodes.at("y").inputs, (Inputs{"rnn"}));
  // The parameter is the one outside; x is the sequence's row.
  EXPECT_EQ(nodes.at("rnn/step_net/sums").inputs, (Inputs{"rnn/step_net/x", "W", "rnn/step_net/t"}));
  EXPECT_EQ(nodes.at("rnn/step_net/x").op, "Placeholder");
  EXPECT_EQ(nodes.at("rnn/step_net/h").inputs, (Inputs{"rnn/step_net/sums", "rnn/step_net/h_prev"}));
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
  int graphs = 0;
  for (const std::string& file : files)
    for (const Event& event : read_events(file))
      if (!event.graph.empty()) {
        ++graphs;
        EXPECT_EQ(nodes_of(event.graph).at("y").inputs, (Inputs{"x", "W", "b"}));
      }
  EXPECT_EQ(graphs, 1);
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

// The gradients that are shown make the steps that the parameters take, whatever is between: clipping, several batches,
// and a scaled loss; and showing them changes no bits.
TEST(EventLog, GradientsAreThoseOfTheUpdate) {
  const TempFolder folder;
  Tensor x = Tensor::empty(DType::float32, {40, 1});
  for (int i = 0; i < 40; ++i) x.data<float>()[i] = static_cast<float>(i) / 4;
  write_npy(folder.file("x.npy"), x);
  const NetDef net = parse_net_text(R"(name: "line"
      op { type: "FC" input: "x" input: "W" input: "b" output: "y" }
      op { type: "MSELoss" input: "y" input: "x" output: "loss" }
      [stepnet.model] {
        init { op { type: "ConstantFill" output: "W" arg { name: "shape" ints: 1 ints: 1 } }
               op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } } }
        loss: "loss" batch: 8 data { column: "x" } })");
  int number = 0;
  const auto expect_steps = [&](const std::function<void(TrainOptions&)>& change) {
    TrainOptions options;
    options.data = {"x=" + folder.file("x.npy")};
    options.iterations = 4;
    options.validate_every = 1;
    options.optimizer.optimizer = "sgd";
    options.optimizer.lr = 0.01;
    change(options);
    TrainOptions plain = options;
    options.tensorboard = folder.file(fmt::format("board-{}", ++number));
    const TrainResult result = Trainer(net, options, {}).run();
    EXPECT_EQ(result.loss, Trainer(net, plain, {}).run().loss);
    double before = 0;
    int steps = 0;
    std::map<int64_t, double> gradients, parameters;
    for (const Event& event : read_events(files_in(options.tensorboard)[0]))
      for (const auto& [tag, h] : event.histograms) {
        if (tag == "gradients/W") gradients[event.step] = h.sum;
        if (tag == "parameters/W") parameters[event.step] = h.sum;
      }
    for (const auto& [step, after] : parameters) {
      ASSERT_TRUE(gradients.contains(step)) << number;
      EXPECT_NEAR(after - before, -0.01 * gradients[step], 1e-6) << number << " " << step;
      EXPECT_NE(after, before);
      before = after;
      ++steps;
    }
    EXPECT_EQ(steps, 4);
    EXPECT_EQ(gradients.size(), 4);
  };
  expect_steps([](TrainOptions& o) { o.optimizer.clip = 0; });
  expect_steps([](TrainOptions& o) { o.optimizer.clip = 0.5; });
  expect_steps([](TrainOptions& o) { o.optimizer.accumulate = 2; });
  expect_steps([](TrainOptions& o) { o.loss_scale = "128"; });
  expect_steps([](TrainOptions& o) { o.detect_anomaly = true; });
  expect_steps([](TrainOptions& o) { o.keep_all = true; });
}

}  // namespace
}  // namespace stepnet::testing::event_log_test
