// The five cases of adding up gradients on streams, as a table.
#include "stepnet/stream_order.h"

#include <gtest/gtest.h>

#include "tests/core/errors.h"

namespace stepnet::autograd::stream_order_test {
namespace {

const Device kCpu{}, kFirst{DeviceKind::cuda, 0}, kSecond{DeviceKind::cuda, 1}, kThird{DeviceKind::cuda, 2};

StreamId stream(const Device& device, int number) { return {device, number}; }

struct Row {
  const char* what;
  std::vector<Device> parts;
  std::optional<StreamId> producer, consumer;
  StreamPlan expected;
};

const Row kRows[] = {
    {"CPU", {kCpu}, {}, {}, {1, {}, {}, {}, {}}},
    {"CPU, made and read on a GPU", {kCpu}, stream(kFirst, 1), stream(kFirst, 2), {1, {}, {}, {}, {}}},
    {"both, one stream", {kFirst}, stream(kFirst, 3), stream(kFirst, 3), {2, stream(kFirst, 3), {}, {}, {}}},
    {"both, two streams",
     {kFirst},
     stream(kFirst, 3),
     stream(kFirst, 4),
     {2, stream(kFirst, 4), {{stream(kFirst, 4), stream(kFirst, 3)}}, {0}, {}}},
    {"both, two streams, sparse",
     {kFirst, kFirst},
     stream(kFirst, 3),
     stream(kFirst, 4),
     {2, stream(kFirst, 4), {{stream(kFirst, 4), stream(kFirst, 3)}}, {0, 1}, {}}},
    {"the consumer's device, its default stream",
     {kFirst},
     stream(kSecond, 1),
     stream(kFirst, 0),
     {3, stream(kFirst, 0), {}, {}, {}}},
    {"the consumer's device, another stream",
     {kFirst},
     stream(kSecond, 1),
     stream(kFirst, 2),
     {3, stream(kFirst, 2), {{stream(kFirst, 2), stream(kFirst, 0)}}, {0}, {}}},
    {"the consumer's device, made on the CPU",
     {kFirst, kFirst},
     {},
     stream(kFirst, 2),
     {3, stream(kFirst, 2), {{stream(kFirst, 2), stream(kFirst, 0)}}, {0, 1}, {}}},
    {"the producer's device, its default stream",
     {kFirst},
     stream(kFirst, 0),
     stream(kSecond, 1),
     {4, stream(kFirst, 0), {}, {}, StreamWait{stream(kSecond, 1), stream(kFirst, 0)}}},
    {"the producer's device, another stream",
     {kFirst},
     stream(kFirst, 5),
     stream(kSecond, 1),
     {4,
      stream(kFirst, 0),
      {{stream(kFirst, 0), stream(kFirst, 5)}},
      {0},
      StreamWait{stream(kSecond, 1), stream(kFirst, 0)}}},
    {"the producer's device, read on the CPU",
     {kFirst},
     stream(kFirst, 5),
     {},
     {4, stream(kFirst, 0), {{stream(kFirst, 0), stream(kFirst, 5)}}, {0}, {}}},
    {"neither", {kThird}, stream(kFirst, 5), stream(kSecond, 1), {5, stream(kThird, 0), {}, {}, {}}},
    {"neither, both on the CPU", {kThird}, {}, {}, {5, stream(kThird, 0), {}, {}, {}}},
};

TEST(StreamPlan, OfEveryCase) {
  for (const Row& row : kRows) {
    const StreamPlan plan = plan_streams(row.parts, row.producer, row.consumer);
    EXPECT_EQ(plan.of_case, row.expected.of_case) << row.what;
    EXPECT_EQ(plan.adds, row.expected.adds) << row.what;
    EXPECT_EQ(plan.before, row.expected.before) << row.what;
    EXPECT_EQ(plan.recorded, row.expected.recorded) << row.what;
    EXPECT_EQ(plan.at_node, row.expected.at_node) << row.what;
  }
}

// Later gradients of one node meet on the stream of the first, so that the sum needs no event between them.
TEST(StreamPlan, LaterGradientsAreAddedWhereTheFirstIs) {
  const std::vector<Device> one = {kFirst};
  for (const StreamId& consumer : {stream(kFirst, 2), stream(kSecond, 1)})
    for (const StreamId& producer : {stream(kFirst, 0), stream(kFirst, 2), stream(kFirst, 7)})
      EXPECT_EQ(plan_streams(one, producer, consumer).adds, plan_streams(one, stream(kFirst, 9), consumer).adds);
}

TEST(StreamPlan, PartsOnTwoDevicesAreRefused) {
  const std::vector<Device> parts = {kFirst, kSecond};
  stepnet::testing::expect_contains(stepnet::testing::error_text([&] { plan_streams(parts, {}, {}); }),
                                    "parts of one gradient are on cuda:0 and cuda:1");
}

}  // namespace
}  // namespace stepnet::autograd::stream_order_test
