// Operators that move data, in sizes at which several teams, tiles and units of copies take part.
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::moves_test {
namespace {

using Names = std::vector<std::string>;

TEST_F(GpuTest, TransposesByTilesAndByRows) {
  const auto check = [](const Shape& shape, const std::vector<int64_t>& axes) {
    const OperatorDef def = make_op("Transpose", {"X"}, {"Y"}, {make_arg("axes", axes)});
    EXPECT_EQ(compare_devices(def, {{"X", normal<float>(shape)}}, 0), "") << shape.str();
    EXPECT_EQ(compare_devices(def, {{"X", normal<double>(shape)}}, 0), "") << shape.str();
  };
  check({70, 45}, {1, 0});
  check({32, 64}, {1, 0});
  check({3, 34, 2, 67}, {0, 3, 2, 1});
  check({9, 3, 33, 40}, {2, 1, 3, 0});
  check({40, 30, 3}, {2, 0, 1});
  check({5, 7, 8}, {1, 0, 2});
  check({5, 7, 3}, {1, 0, 2});
  check({1, 7, 1}, {2, 1, 0});
  check({0, 7}, {1, 0});
}

TEST_F(GpuTest, JoinsAndCutsManyParts) {
  Names parts, outputs;
  std::vector<int64_t> sizes;
  Feeds feeds;
  for (int i = 0; i < 19; ++i) {
    parts.push_back("X" + std::to_string(i));
    outputs.push_back("Y" + std::to_string(i));
    sizes.push_back(i % 4 * (i < 8 ? 8 : 1));
    feeds.emplace_back(parts.back(), normal<float>({5, sizes.back(), 3}, static_cast<uint64_t>(i) + 1));
  }
  EXPECT_EQ(compare_devices(make_op("Concat", parts, {"Y", "sizes"}), feeds, 0), "");
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  const Tensor whole = normal<float>({5, total, 3});
  EXPECT_EQ(compare_devices(make_op("Split", {"X"}, outputs, {make_arg("split", sizes)}), {{"X", whole}}, 0), "");
  const Tensor given = Tensor::of<int64_t>({19}, sizes);
  EXPECT_EQ(compare_devices(make_op("Split", {"X", "S"}, outputs), {{"X", whole}, {"S", given}}, 0), "");
  feeds.insert(feeds.begin(), {"X", whole});
  parts.insert(parts.begin(), "X");
  EXPECT_EQ(compare_devices(make_op("SplitLike", parts, outputs), feeds, 0), "");
}

TEST_F(GpuTest, SlicesWhereverTheBoundsAre) {
  const Tensor x = normal<float>({4, 9, 5});
  const auto starts = [](std::initializer_list<int32_t> values) { return Tensor::of<int32_t>({3}, values); };
  const OperatorDef cut = make_op("Slice", {"X", "S", "E"}, {"Y"});
  const OperatorDef put = make_op("SliceGradient", {"X", "S", "E", "dY"}, {"dX"});
  const auto check = [&](const Tensor& s, const Tensor& e, const Shape& part) {
    EXPECT_EQ(compare_devices(cut, {{"X", x}, {"S", s}, {"E", e}}, 0), "");
    EXPECT_EQ(compare_devices(put, {{"X", x}, {"dY", normal<float>(part)}, {"S", s}, {"E", e}}, 0), "");
  };
  check(starts({0, 2, 0}), starts({-1, 7, -1}), {4, 5, 5});
  check(starts({0, 0, -3}), starts({-1, -1, -1}), {4, 9, 2});
  check(starts({3, 0, 0}), starts({100, 9, 5}), {1, 9, 5});
  check(starts({0, 0, 0}), starts({-1, -1, -1}), {4, 9, 5});
  check(starts({0, 9, 0}), starts({-1, 9, -1}), {4, 0, 5});
}

TEST_F(GpuTest, SumsByIndexInTheirOrder) {
  const auto check = [](const Shape& data, int axis, int64_t count) {
    const Shape slices = data.with(axis, count);
    const Tensor rows = integers<int64_t>({count}, 0, data[axis] - 1),
                 each = integers<int32_t>(slices, 0, data[axis] - 1);
    const Feeds by_row = {{"X", normal<float>(data)}, {"I", rows}, {"S", normal<float>(slices, 2)}};
    const Feeds by_element = {{"X", normal<float>(data)}, {"I", each}, {"S", normal<float>(slices, 2)}};
    const std::vector<Argument> args = {make_arg("axis", int64_t{axis})};
    EXPECT_EQ(compare_devices(make_op("IndexAdd", {"X", "I", "S"}, {"Y"}, args), by_row, 0), "") << data.str();
    EXPECT_EQ(compare_devices(make_op("ScatterAdd", {"X", "I", "S"}, {"Y"}, args), by_element, 0), "") << data.str();
    const Feeds back = {{"I", rows}, {"dY", normal<float>(data)}},
                each_back = {{"I", each}, {"dY", normal<float>(data)}};
    EXPECT_EQ(compare_devices(make_op("IndexAddGradient", {"I", "dY"}, {"dS"}, args), back, 0), "") << data.str();
    EXPECT_EQ(compare_devices(make_op("ScatterAddGradient", {"I", "dY"}, {"dS"}, args), each_back, 0), "");
  };
  check({9, 130}, 0, 300);
  check({1000}, 0, 2000);
  check({2, 9, 3}, 1, 200);
  check({700, 5}, 0, 65);
  check({3, 1, 4}, 1, 70);
  check({40, 260}, 1, 7);
}

TEST_F(GpuTest, TheLastOfEqualIndicesStays) {
  const Feeds feeds = {
      {"X", normal<float>({50, 6})}, {"I", integers<int32_t>({500}, 0, 49)}, {"S", normal<float>({500, 6}, 2)}};
  EXPECT_EQ(compare_devices(make_op("ScatterAssign", {"X", "I", "S"}, {"X"}), feeds, 0), "");
}

TEST_F(GpuTest, GathersByRanges) {
  const Tensor ranges = Tensor::of<int32_t>({3, 2, 2}, {0, 150, 299, 1, 7, 0, 20, 100, 300, 0, 5, 80});
  const Tensor data = normal<float>({300, 3});
  EXPECT_EQ(compare_devices(make_op("GatherRanges", {"X", "R"}, {"Y", "L"}), {{"X", data}, {"R", ranges}}, 0), "");
  const Feeds back = {{"X", data}, {"R", ranges}, {"dY", normal<float>({331, 3})}};
  EXPECT_EQ(compare_devices(make_op("GatherRangesGradient", {"X", "R", "dY"}, {"dX"}), back, 0), "");
}

TEST_F(GpuTest, AddsWhatPadsRepeated) {
  for (const char* mode : {"constant", "edge", "reflect"}) {
    const std::vector<Argument> args = {make_arg("pads", std::vector<int64_t>{2, -1, 3, 0, 4, 1}),
                                        make_arg("mode", std::string(mode))};
    const Feeds x = {{"X", normal<double>({4, 5, 6})}}, dy = {{"dY", normal<double>({6, 8, 10})}};
    EXPECT_EQ(compare_devices(make_op("Pad", {"X"}, {"Y"}, args), x, 0), "") << mode;
    EXPECT_EQ(compare_devices(make_op("PadGradient", {"dY"}, {"dX"}, args), dy, 1e-12), "") << mode;
  }
}

// A kernel leaves a bad index out, and the next wait says so.
TEST_F(GpuTest, BadIndicesAreLeftOutAndNamed) {
  const auto at_gpu = [](const Tensor& t) {
    Tensor there = Tensor::empty(t.dtype(), t.shape(), {DeviceKind::cuda, 0});
    there.copy_from(t);
    return there;
  };
  Workspace workspace;
  workspace.tensor("X") = at_gpu(normal<float>({3, 2}));
  workspace.tensor("I") = at_gpu(Tensor::of<int32_t>({2}, {0, 3}));
  workspace.tensor("S") = at_gpu(normal<float>({2, 2}));
  NetDef net;
  *net.add_op() = make_op("IndexAdd", {"X", "I", "S"}, {"Y"});
  net.mutable_device_option()->set_device_type(CUDA);
  RunContext run;
  const auto run_and_wait = [&] {
    run_net_once(net, workspace, run);
    allocator({DeviceKind::cuda, 0}).synchronize();
  };
  EXPECT_THROW(run_and_wait(), Error);
}

TEST_F(GpuTest, GathersAlongAnyAxis) {
  const Tensor own = integers<int64_t>({5, 9}, 0, 6, 2), shared = integers<int32_t>({4, 3}, 0, 6, 3);
  for (const int64_t row : {1, 3, 70}) {
    const Tensor data = normal<float>({5, 7, row});
    for (const std::string type : {"Gather", "BatchGather"})
      for (const bool match : {false, true}) {
        const Feeds feeds = {{"D", data}, {"I", match ? own : shared}};
        const OperatorDef def = make_op(type, {"D", "I"}, {"Y"}, {make_arg("axis", 1), make_arg("match_outer", match)});
        EXPECT_EQ(compare_devices(def, feeds, 0), "") << type << match << row;
        Feeds more = feeds;
        more.emplace_back("dY", normal<float>(run_op_on(def, feeds)[0].shape(), 4));
        const OperatorDef gradient = make_op("BatchGatherGradient", {"D", "I", "dY"}, {"dD"},
                                             {make_arg("axis", 1), make_arg("match_outer", match)});
        EXPECT_EQ(compare_devices(gradient, more, 1e-5), "") << match << row;
      }
  }
}

TEST_F(GpuTest, CopiesToTheDeviceOfAnother) {
  EXPECT_EQ(compare_devices(make_op("CopyOnDeviceLike", {"X", "D"}, {"Y"}),
                            {{"X", normal<float>({3, 4})}, {"D", normal<float>({2})}}, 0),
            "");
}

}  // namespace
}  // namespace stepnet::testing::moves_test
