// Which operators of a net run at the same time; no device is needed.
#include "core/net/stream_schedule.h"

#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "stepnet/workspace.h"

namespace stepnet::stream_schedule_test {
namespace {

constexpr int kStart = StreamSchedule::kStart;
constexpr Device kGpu{DeviceKind::cuda, 0};
using Waits = std::vector<std::vector<int>>;
using Streams = std::vector<int>;

// A net as text, an operator a line: "type: inputs > outputs".
class Steps {
 public:
  explicit Steps(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      OperatorDef def;
      const size_t colon = line.find(':'), arrow = line.find('>');
      def.set_type(line.substr(0, colon));
      for (const std::string& name : words(line.substr(colon + 1, arrow - colon - 1))) def.add_input(name);
      for (const std::string& name : words(line.substr(arrow + 1))) def.add_output(name);
      ops_.push_back(std::make_unique<BoundOp>(bind_op(def, "net", static_cast<int>(ops_.size()), kGpu)));
      std::vector<Blob*>& in = blobs_.emplace_back();
      for (const std::string& name : def.input()) in.push_back(&workspace_.create(name));
      std::vector<Blob*>& out = blobs_.emplace_back();
      for (const std::string& name : def.output()) out.push_back(&workspace_.create(name));
    }
  }

  StreamSchedule schedule(int most = 4) {
    std::vector<NetStep> steps;
    for (size_t s = 0; s < ops_.size(); ++s) steps.push_back({ops_[s].get(), blobs_[2 * s], blobs_[2 * s + 1]});
    std::vector<const BoundOp*> ops;
    for (const auto& op : ops_) ops.push_back(op.get());
    return schedule_streams(steps, Dataflow(std::span<const BoundOp* const>(ops)), kGpu, most);
  }

 private:
  static std::vector<std::string> words(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
  }

  Workspace workspace_;
  std::vector<std::unique_ptr<BoundOp>> ops_;
  std::vector<std::vector<Blob*>> blobs_;
};

TEST(StreamSchedule, AChainHasTheCallersStream) {
  EXPECT_EQ(Steps({}).schedule().streams, 1);
  EXPECT_EQ(Steps({"Tanh: x > a"}).schedule().streams, 1);
  EXPECT_EQ(Steps({"Tanh: x > a", "Tanh: a > b", "Tanh: b > a"}).schedule().streams, 1);
}

TEST(StreamSchedule, ChainsThatMeetRunAtTheSameTime) {
  Steps steps({"Tanh: x > a", "Tanh: a > b", "Tanh: x > c", "Tanh: c > d", "Add: b d > y"});
  const StreamSchedule s = steps.schedule();
  EXPECT_EQ(s.streams, 2);
  EXPECT_EQ(s.stream, (Streams{0, 0, 1, 1, 0}));
  EXPECT_EQ(s.waits, (Waits{{}, {}, {kStart}, {}, {3}}));
  EXPECT_EQ(s.is_waited_for, (std::vector<bool>{false, false, false, true, false}));
  EXPECT_TRUE(s.at_end.empty());
  EXPECT_EQ(steps.schedule(1).streams, 1);
}

TEST(StreamSchedule, TheCallersStreamWaitsForChainsThatMeetNobody) {
  const StreamSchedule s = Steps({"Tanh: x > a", "Tanh: a > b", "Tanh: x > c", "Tanh: c > d"}).schedule();
  EXPECT_EQ(s.stream, (Streams{0, 0, 1, 1}));
  EXPECT_EQ(s.at_end, (std::vector<int>{3}));
  EXPECT_TRUE(s.is_waited_for[3]);
}

TEST(StreamSchedule, ASingleOperatorIsNotWorthAStream) {
  EXPECT_EQ(Steps({"Tanh: x > a", "Tanh: a > b", "Tanh: a > c", "Add: b c > y"}).schedule().streams, 1);
}

TEST(StreamSchedule, ThereAreNoMoreStreamsThanAllowed) {
  std::vector<std::string> lines;
  for (const std::string name : {"a", "b", "c", "d", "e", "f"}) {
    lines.push_back("Tanh: x > " + name);
    lines.push_back("Tanh: " + name + " > " + name + "2");
  }
  EXPECT_EQ(Steps(lines).schedule(4).streams, 4);
  EXPECT_EQ(Steps(lines).schedule(3).stream, (Streams{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
}

TEST(StreamSchedule, WhoWritesWaitsForWhoReads) {
  // "Relu: a > a" and the writer of c follow readers on another stream.
  const StreamSchedule s = Steps({"Tanh: x > a", "Tanh: a > b", "Tanh: a > c", "Tanh: c > d", "Copy: b > b",
                                  "Tanh: b > e", "Tanh: e > a", "Tanh: a > c"})
                               .schedule();
  ASSERT_EQ(s.streams, 2);
  EXPECT_EQ(s.stream, (Streams{0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(s.waits[6], (std::vector<int>{2}));  // which reads a
  EXPECT_EQ(s.waits[7], (std::vector<int>{3}));  // which reads c
}

TEST(StreamSchedule, BlobsThatShareBytesAreOne) {
  const StreamSchedule s =
      Steps({"Tanh: x > a", "Alias: a > same", "Tanh: same > b", "Tanh: b > c", "Tanh: x > d", "Tanh: d > a"})
          .schedule();
  ASSERT_EQ(s.streams, 2);
  EXPECT_EQ(s.stream, (Streams{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(s.waits[5], (std::vector<int>{2}));  // which reads the bytes that are written
}

TEST(StreamSchedule, OperatorsOnBlobsRunAlone) {
  const StreamSchedule s = Steps({"Tanh: x > a", "Tanh: a > b", "Tanh: x > c", "Tanh: c > d", "Print: x >",
                                  "Tanh: x > e", "Tanh: e > e", "Tanh: x > f", "Tanh: f > f"})
                               .schedule();
  ASSERT_EQ(s.streams, 2);
  EXPECT_EQ(s.stream, (Streams{0, 0, 1, 1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(s.waits[4], (std::vector<int>{3}));
  EXPECT_EQ(s.waits[7], (std::vector<int>{4}));
}

// What is implied by another wait is left out.
TEST(StreamSchedule, OneWaitIsEnough) {
  const StreamSchedule s = Steps({"Tanh: x > a", "Tanh: a > b", "Tanh: x > c", "Tanh: c > d", "Add: b d > y",
                                  "Add: y c > z", "Add: z d > w"})
                               .schedule();
  EXPECT_EQ(s.waits, (Waits{{}, {}, {kStart}, {}, {3}, {}, {}}));
}

}  // namespace
}  // namespace stepnet::stream_schedule_test
