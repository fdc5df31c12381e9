// Losses of labels and of alignments of sizes that teams of threads share, and faults in their labels and lengths.
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::alignments_test {
namespace {

constexpr int64_t kPlaces = 260;  // labels: more states than a team has threads
constexpr int32_t kTimes = 400;

Feeds ctc_feeds(int64_t classes) {
  return {{"x", normal<double>({kTimes, 3, classes}, 1)},
          {"targets", integers<int32_t>({3, kPlaces}, 1, classes - 1, 2)},
          {"times", Tensor::of<int32_t>({3}, {kTimes, kTimes - 1, 10})},
          {"lengths", Tensor::of<int32_t>({3}, {static_cast<int32_t>(kPlaces), 33, 0})}};
}

Feeds transducer_feeds(int64_t classes) {
  return {{"x", normal<double>({2, 9, kPlaces + 1, classes}, 1)},
          {"targets", integers<int32_t>({2, kPlaces}, 0, classes - 2, 2)},
          {"times", Tensor::of<int32_t>({2}, {9, 4})},
          {"lengths", Tensor::of<int32_t>({2}, {static_cast<int32_t>(kPlaces), 0})}};
}

void expect_same(const std::string& type, Feeds feeds) {
  const std::vector<Argument> args = {make_arg("reduction", std::string("none"))};
  std::vector<std::string> inputs = {"x", "targets", "times", "lengths"};
  EXPECT_EQ(compare_devices(make_op(type, inputs, {"loss"}, args), feeds, 1e-10), "") << type;
  EXPECT_EQ(compare_devices(make_op(type, inputs, {"loss"}), feeds, 1e-10), "") << type;
  inputs.emplace_back("dloss");
  feeds.emplace_back("dloss", normal<double>({feeds[2].second.size()}, 3));
  EXPECT_EQ(compare_devices(make_op(type + "Gradient", inputs, {"dx"}, args), feeds, 1e-10), "") << type;
  inputs.emplace_back("v");
  feeds.emplace_back("v", normal<double>(feeds[0].second.shape(), 4));
  EXPECT_EQ(compare_devices(make_op(type + "Hessian", inputs, {"y"}, args), feeds, 1e-9), "") << type;
}

TEST_F(GpuTest, AlignmentsOfManyLabels) {
  expect_same("CTCLoss", ctc_feeds(5));
  expect_same("CTCLoss", ctc_feeds(300));
  expect_same("TransducerLoss", transducer_feeds(4));
  expect_same("TransducerLoss", transducer_feeds(130));
}

TEST_F(GpuTest, LabelsOfManyClasses) {
  for (const Shape& shape : {Shape{7, 5}, Shape{7, 500}, Shape{3, 300, 4}}) {
    const Tensor x = normal<double>(shape, 1);
    const int64_t inner = shape.size_between(2, shape.rank());
    Feeds feeds = {{"x", x},
                   {"t", integers<int64_t>(shape.rank() == 2 ? Shape{shape[0]} : Shape{shape[0], inner}, 0, 4, 2)},
                   {"w", uniform<double>({shape[1]}, 0.5, 2, 3)}};
    for (const char* how : {"mean", "none"})
      for (const std::string type : {"CrossEntropyLoss", "NLLLoss"}) {
        const std::vector<Argument> args = {make_arg("reduction", std::string(how)), make_arg("label_smoothing", 0.25F),
                                            make_arg("ignore_index", int64_t{3})};
        EXPECT_EQ(compare_devices(make_op(type, {"x", "t", "w"}, {"loss"}, args), feeds, 1e-11), "") << type << how;
        Feeds more = feeds;
        const bool each = std::string(how) == "none";
        more.emplace_back("d", normal<double>(each ? feeds[1].second.shape() : Shape{}, 4));
        EXPECT_EQ(compare_devices(make_op(type + "Gradient", {"x", "t", "d", "w"}, {"dx"}, args), more, 1e-11), "")
            << type << how;
      }
  }
}

// What is said where the host waits for the loss.
std::string fault_of(const OperatorDef& def, const Feeds& feeds) {
  NetDef net;
  *net.add_op() = def;
  net.mutable_device_option()->set_device_type(CUDA);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = on_gpu(value);
  RunContext run;
  return error_of([&] {
    run_net_once(net, workspace, run);
    Tensor::empty(DType::float64, {}).copy_from(workspace.fetch(def.output(0)));
  });
}

TEST_F(GpuTest, LabelsAndLengthsOfAlignmentsAreChecked) {
  const OperatorDef loss = make_op("CTCLoss", {"x", "targets", "times", "lengths"}, {"loss"});
  const auto expect = [&](size_t input, int64_t place, int32_t value, const char* text) {
    Feeds feeds = ctc_feeds(5);
    feeds[input].second.data<int32_t>()[place] = value;
    const std::string error = fault_of(loss, feeds);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  expect(1, 1, 5, "CTCLoss: a label is 5, outside of [0, 5)");
  expect(1, 1, 0, "CTCLoss: a label that is the blank is 0");
  expect(2, 1, 401, "CTCLoss: the length of an input is 401, outside of [0, 401)");
  expect(3, 0, -1, "CTCLoss: the length of a target is -1, outside of [0, 261)");
}

}  // namespace
}  // namespace stepnet::testing::alignments_test
