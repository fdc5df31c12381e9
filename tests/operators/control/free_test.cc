// Free: blobs that hold nothing.
#include "stepnet/gradients.h"
#include "stepnet/text.h"
#include "tests/operators/db_test.h"

namespace stepnet::testing::free_test {
namespace {

TEST(Free, EmptiesTensorsAndObjects) {
  Workspace w;
  w.tensor("X") = Tensor::of<float>({2}, {1, 2});
  const Tensor same = w.fetch("X");
  w.create("S").emplace<std::string>("text");
  w.create("nothing");
  run_in(w, make_op("Free", {"X", "S", "nothing"}, {"X", "S", "nothing"}));
  for (const char* name : {"X", "S", "nothing"}) EXPECT_TRUE(w.at(name).empty()) << name;
  EXPECT_EQ(floats_of(same), (std::vector<float>{1, 2}));
}

TEST(Free, WhatIsFreedCanBeWrittenButNotRead) {
  Workspace w;
  w.tensor("X") = Tensor::of<float>({2}, {1, -2});
  RunContext run;
  const std::string free = "op { type: 'Free' input: 'X' output: 'X' } ";
  const auto error = error_text(
      [&] { run_net_once(parse_net_text(free + "op { type: 'Abs' input: 'X' output: 'Y' }", "test"), w, run); });
  expect_contains(error, "the input \"X\" holds nothing yet");
  const std::string fill = "op { type: 'ConstantFill' output: 'X' arg { name: 'shape' ints: 2 } } ";
  Net again(parse_net_text(fill + "op { type: 'Abs' input: 'X' output: 'Y' } " + free, "test"), w);
  for (int i = 0; i < 2; ++i) again.run(run);
  EXPECT_EQ(floats_of(w.fetch("Y")), (std::vector<float>{0, 0}));
  EXPECT_TRUE(w.at("X").empty());
}

TEST(Free, EachInputIsItsOutput) {
  Workspace w;
  for (const char* name : {"X", "Y"}) w.tensor(name) = Tensor::of<float>({1}, {1});
  expect_contains(error_in(w, make_op("Free", {"X", "Y"}, {"X"})), "it has 2 inputs and 1 outputs");
  expect_contains(error_in(w, make_op("Free", {"X"}, {"Y"})), "must be the same blob");
  expect_contains(error_in(w, make_op("Free", {"X", "Y"}, {"X", "Z"})),
                  "output 1 must be the same blob as input 1, \"Y\", not \"Z\"");
  expect_contains(error_in(w, make_op("Free", {"X", "Y"}, {"Y", "X"})), "Free");
  EXPECT_FALSE(w.at("X").empty());
}

// A value that the backward pass reads is not to be freed.
TEST(Free, GradientsNoticeWhatIsFreed) {
  NetDef net = parse_net_text(
      "op { type: 'Sqr' input: 'X' output: 'Y' } op { type: 'Mul' input: 'Y' input: 'Y' output: 'Z' } "
      "op { type: 'Free' input: 'Y' output: 'Y' }",
      "test");
  const GradientRequest request{.targets = {{"Z", ""}}, .wanted = {"X"}, .stop = {}};
  expect_contains(error_text([&] { add_gradient_operators(net, request); }), "version");
}

}  // namespace
}  // namespace stepnet::testing::free_test
