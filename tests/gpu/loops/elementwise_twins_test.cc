// Twins of elementwise operators, fills and casts where the operators' examples are too small for them: many terms,
// long lines, several teams; and what is wrong with data.
#include <cmath>
#include <limits>

#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::elementwise_twins_test {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

Tensor on_gpu(const Tensor& host) {
  Tensor there = Tensor::empty(host.dtype(), host.shape(), kGpu);
  there.copy_from(host);
  return there;
}

Tensor back(const Tensor& there) {
  Tensor host = Tensor::empty(there.dtype(), there.shape());
  host.copy_from(there);
  return host;
}

// The operator on the GPU with feeds that are where they are; its first output is left in the workspace.
const Tensor& run_on_gpu(Workspace& workspace, OperatorDef def, const Feeds& feeds) {
  def.mutable_device_option()->set_device_type(CUDA);
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
  NetDef net;
  *net.add_op() = def;
  RunContext run;
  run_net_once(net, workspace, run);
  return workspace.fetch(def.output(0));
}

std::string error_on_gpu(const OperatorDef& def, const Feeds& feeds) {
  Feeds moved;
  for (const auto& [name, value] : feeds) moved.emplace_back(name, on_gpu(value));
  return error_of([&] {
    Workspace workspace;
    run_on_gpu(workspace, def, moved);
    allocator(kGpu).synchronize();
  });
}

TEST_F(GpuTest, BroadcastsAsTheCpuDoes) {
  const auto broadcast = make_arg("broadcast", 1);
  for (const char* type : {"Sub", "Mul", "Div", "FMod", "Pow"}) {
    const std::string names[] = {type == std::string("Pow") ? "X" : "A", type == std::string("Pow") ? "exponent" : "B"};
    const auto def = make_op(type, {names[0], names[1]}, {"C"}, {broadcast});
    for (const auto& [a, b] :
         {std::pair<Shape, Shape>{{40, 1, 70}, {30, 1}}, {{2, 3}, {}}, {{0, 3}, {3}}, {{1}, {1}}}) {
      const Feeds feeds = {{names[0], uniform<double>(a, 0.5, 2, 1)}, {names[1], uniform<double>(b, 0.5, 2, 2)}};
      EXPECT_EQ(compare_devices(def, feeds, 1e-14), "") << type;
    }
  }
}

// More elements than threads that fill a device: a thread has several, and some are left.
template <class T>
void check_large(double tol) {
  const Tensor a = normal<T>({600'011}, 1), b = normal<T>({600'011}, 2);
  for (const char* type : {"Add", "Mul"})
    EXPECT_EQ(compare_devices(make_op(type, {"A", "B"}, {"C"}), {{"A", a}, {"B", b}}, 0), "") << type;
  for (const char* type : {"Relu", "Exp", "Tanh", "Sigmoid"})
    EXPECT_EQ(compare_devices(make_op(type, {"X"}, {"Y"}), {{"X", a}}, tol), "") << type;
  EXPECT_EQ(compare_devices(make_op("ReluGradient", {"Y", "dY"}, {"dX"}), {{"Y", a}, {"dY", b}}, 0), "");
  EXPECT_EQ(compare_devices(make_op("GT", {"A", "B"}, {"C"}), {{"A", a}, {"B", b}}, 0), "");
}

TEST_F(GpuTest, LargeTensorsAsTheCpuDoes) {
  check_large<float>(1e-5);
  check_large<double>(1e-12);
}

TEST_F(GpuTest, DividesIntegersAsTheCpuDoes) {
  const int32_t least = std::numeric_limits<int32_t>::min();
  const Feeds feeds = {{"A", Tensor::of<int32_t>({6}, {least, least, 7, -7, 7, -7})},
                       {"B", Tensor::of<int32_t>({6}, {-1, 1, 2, 2, -2, -2})}};
  for (const char* type : {"Div", "FMod"}) EXPECT_EQ(compare_devices(make_op(type, {"A", "B"}, {"C"}), feeds, 0), "");
}

TEST_F(GpuTest, AnIntegerDivisorOfZeroIsAnError) {
  for (const char* type : {"Div", "FMod"}) {
    const auto def = make_op(type, {"A", "B"}, {"C"});
    const std::string text =
        error_on_gpu(def, {{"A", Tensor::of<int32_t>({2}, {1, 2})}, {"B", Tensor::of<int32_t>({2}, {1, 0})}});
    EXPECT_NE(text.find(std::string(type) + ": a divisor of integers is 0\n"), text.npos) << text;
    EXPECT_EQ(compare_devices(def, {{"A", Tensor::of<int32_t>({0}, {})}, {"B", Tensor::of<int32_t>({0}, {})}}, 0), "");
  }
}

// More terms than one launch adds, of which the output may be one.
TEST_F(GpuTest, SumsAnyNumberOfTerms) {
  std::vector<std::string> names;
  Feeds feeds;
  for (int i = 0; i < 150; ++i) {
    names.push_back("X" + std::to_string(i));
    feeds.emplace_back(names.back(), normal<double>({3, 5}, static_cast<uint64_t>(i)));
  }
  EXPECT_EQ(compare_devices(make_op("Sum", names, {"Y"}), feeds, 1e-13), "");
  EXPECT_EQ(compare_devices(make_op("Sum", names, {"X0"}), feeds, 1e-13), "");
}

TEST_F(GpuTest, WeighsAnyNumberOfTermsWithWeightsAnywhere) {
  std::vector<std::string> names;
  Feeds feeds, moved;
  for (int i = 0; i < 70; ++i) {
    const std::string x = "X" + std::to_string(i), w = "w" + std::to_string(i);
    names.insert(names.end(), {x, w});
    feeds.emplace_back(x, normal<float>({3, 5}, static_cast<uint64_t>(i)));
    moved.emplace_back(x, on_gpu(feeds.back().second));
    feeds.emplace_back(w, i % 2 ? Tensor::of<float>({1}, {0.5F}) : Tensor::of<double>({1}, {-0.25}));
    moved.emplace_back(w, i % 3 ? on_gpu(feeds.back().second) : feeds.back().second);
  }
  const auto def = make_op("WeightedSum", names, {"X0"});
  const Tensor expected = run_op_on(def, feeds).at(0);
  Workspace workspace;
  EXPECT_EQ(compare(back(run_on_gpu(workspace, def, moved)), expected, 1e-6), "");
}

TEST_F(GpuTest, SumsOfLargeTensorsNeedSeveralTeams) {
  for (const Shape& shape : {Shape{0}, Shape{1}, Shape{300, 1000}}) {
    const Feeds feeds = {{"dY", normal<double>(shape, 1)}, {"X", normal<double>(shape, 2)}, {"w", normal<float>({1})}};
    EXPECT_EQ(compare_devices(make_op("WeightedSumWeightGradient", {"dY", "X", "w"}, {"dw"}), feeds, 1e-6), "");
    EXPECT_EQ(compare_devices(make_op("WeightedSumGradient", {"dY", "X", "w"}, {"dX", "dw"}), feeds, 1e-6), "");
    EXPECT_EQ(compare_devices(make_op("ExpandGradient", {"dY", "X"}, {"dX"}), feeds, 0), "");
  }
}

TEST_F(GpuTest, PReluHasASlopeForEachChannel) {
  const auto last = make_arg("order", "NHWC");
  auto check = [](const Shape& x, const Shape& slope, const std::vector<Argument>& args) {
    const Feeds feeds = {{"Y", normal<double>(x, 1)},
                         {"dY", normal<double>(x, 2)},
                         {"X", normal<double>(x, 3)},
                         {"S", uniform<double>(slope, 0.1, 0.9, 4)}};
    EXPECT_EQ(compare_devices(make_op("PRelu", {"X", "S"}, {"Z"}, args), {feeds[2], feeds[3]}, 0), "");
    const auto gradient = make_op("PReluGradient", {"Y", "dY", "X", "S"}, {"dX", "dS"}, args);
    EXPECT_EQ(compare_devices(gradient, feeds, 1e-12), "");
  };
  check({4, 3, 50}, {3}, {});
  check({70, 40}, {40}, {});
  check({7, 5, 40}, {40}, {last});
  check({100, 300}, {1}, {});
  check({0, 3, 5}, {3}, {});
  check({2, 0, 5}, {0}, {});
}

TEST_F(GpuTest, ElementwiseLinearSumsOverRows) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{300, 70}, {500, 3}, {0, 4}, {4, 0}, {1, 1}}) {
    const Feeds feeds = {
        {"dY", normal<double>({m, n}, 1)}, {"X", normal<double>({m, n}, 2)}, {"w", normal<double>({n})}};
    const auto def = make_op("ElementwiseLinearGradient", {"dY", "X", "w"}, {"dX", "dw", "db"});
    EXPECT_EQ(compare_devices(def, feeds, 1e-12), "");
  }
}

TEST_F(GpuTest, CumsumAddsLongAndManyLines) {
  for (const Shape& shape : {Shape{3, 700}, Shape{700}, Shape{2, 300, 40}, Shape{5, 130, 3}, Shape{1}, Shape{0, 4}})
    for (const int exclusive : {0, 1})
      for (const int reverse : {0, 1}) {
        const auto def = make_op("Cumsum", {"X"}, {"Y"},
                                 {make_arg("axis", shape.rank() == 1 ? 0 : 1), make_arg("exclusive", exclusive),
                                  make_arg("reverse", reverse)});
        EXPECT_EQ(compare_devices(def, {{"X", normal<double>(shape)}}, 1e-12), "") << shape.str();
      }
}

TEST_F(GpuTest, ScanAndDelayTakeWhatIsThere) {
  for (const Shape& shape : {Shape{5, 300}, Shape{70, 3}, Shape{1, 40}, Shape{0, 4}, Shape{4, 0}})
    for (const bool reverse : {false, true})
      for (const bool first : {false, true})
        for (const std::vector<std::string>& outputs : {std::vector<std::string>{"Y"}, {"Y", "last"}, {"", "last"}}) {
          Feeds feeds = {{"X", normal<double>(shape, 1)}, {"b", normal<double>(shape, 2)}};
          std::vector<std::string> delayed = {"X"}, scanned = {"X", "b"};
          const Argument order = make_arg("reverse", reverse);
          if (first) {
            feeds.emplace_back("first", normal<double>({1, shape[1]}, 3));
            delayed.emplace_back("first");
            scanned.emplace_back("first");
          }
          for (const bool leaving : {false, true})
            EXPECT_EQ(
                compare_devices(make_op("Scan", scanned, outputs, {order, make_arg("leaving", leaving)}), feeds, 1e-12),
                "")
                << shape.str();
          feeds.erase(feeds.begin() + 1);
          EXPECT_EQ(compare_devices(make_op("Delay", delayed, outputs, {order}), feeds, 0), "") << shape.str();
        }
}

TEST_F(GpuTest, LinearAttentionTakesWhatIsThere) {
  struct Sizes {
    int64_t steps, batch, heads, keys, values;
  };
  for (const Sizes& s : {Sizes{70, 2, 3, 5, 40}, Sizes{1, 1, 1, 1, 1}, Sizes{0, 2, 1, 3, 2}, Sizes{5, 0, 2, 3, 2},
                         Sizes{4, 1, 2, 0, 3}, Sizes{4, 1, 2, 3, 0}})
    for (int bits = 0; bits < 16; ++bits)
      for (const std::vector<std::string>& outputs : {std::vector<std::string>{"y"}, {"y", "last"}, {"", "last"}}) {
        const bool decays = (bits & 1) != 0, first = (bits & 2) != 0;
        Feeds feeds = {{"q", normal<double>({s.steps, s.batch, s.heads, s.keys}, 1)},
                       {"k", normal<double>({s.steps, s.batch, s.heads, s.keys}, 2)},
                       {"v", normal<double>({s.steps, s.batch, s.heads, s.values}, 3)}};
        if (decays) feeds.emplace_back("g", uniform<double>({s.steps, s.batch, s.heads}, -0.9, 0.1, 4));
        if (first) feeds.emplace_back("first", normal<double>({s.batch, s.heads, s.keys, s.values}, 5));
        std::vector<std::string> inputs = {"q", "k", "v"};
        if (decays || first) inputs.emplace_back(decays ? "g" : "");
        if (first) inputs.emplace_back("first");
        const std::vector<Argument> args = {make_arg("reverse", bits / 4 % 2), make_arg("leaving", bits / 8)};
        EXPECT_EQ(compare_devices(make_op("LinearAttention", inputs, outputs, args), feeds, 1e-12), "")
            << s.steps << " timesteps, " << bits;
      }
}

TEST_F(GpuTest, LinearAttentionDecayTakesWhatIsThere) {
  struct Sizes {
    int64_t steps, batch, heads, keys, values;
  };
  for (const Sizes& s : {Sizes{70, 2, 3, 5, 40}, Sizes{64, 1, 2, 2, 3}, Sizes{1, 1, 1, 1, 1}, Sizes{0, 2, 1, 3, 2},
                         Sizes{5, 0, 2, 3, 2}, Sizes{4, 1, 2, 0, 3}, Sizes{4, 1, 2, 3, 0}})
    for (int bits = 0; bits < 16; ++bits) {
      const bool first = (bits & 1) != 0, dlast = (bits & 2) != 0;
      Feeds feeds = {{"q", normal<double>({s.steps, s.batch, s.heads, s.keys}, 1)},
                     {"k", normal<double>({s.steps, s.batch, s.heads, s.keys}, 2)},
                     {"v", normal<double>({s.steps, s.batch, s.heads, s.values}, 3)},
                     {"g", uniform<double>({s.steps, s.batch, s.heads}, -0.9, 0.1, 4)},
                     {"dy", normal<double>({s.steps, s.batch, s.heads, s.values}, 6)}};
      std::vector<std::string> inputs = {"q", "k", "v", "g", "dy"};
      if (first || dlast) inputs.emplace_back(first ? "first" : "");
      if (dlast) inputs.emplace_back("dlast");
      if (first) feeds.emplace_back("first", normal<double>({s.batch, s.heads, s.keys, s.values}, 5));
      if (dlast) feeds.emplace_back("dlast", normal<double>({s.batch, s.heads, s.keys, s.values}, 7));
      const std::vector<Argument> args = {make_arg("reverse", bits / 4 % 2), make_arg("leaving", bits / 8)};
      EXPECT_EQ(compare_devices(make_op("LinearAttentionDecay", inputs, {"dg"}, args), feeds, 1e-12), "")
          << s.steps << " timesteps, " << bits;
    }
}

TEST_F(GpuTest, NanCheckNamesTheFirstPlace) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Tensor x = normal<double>({200, 100});
    EXPECT_EQ(compare_devices(make_op("NanCheck", {"X"}, {"Y"}), {{"X", x}}, 0), "");
    for (const int64_t place : {19000, 123, 4000}) x.data<double>()[place] = bad;
    const std::string text = error_on_gpu(make_op("NanCheck", {"X"}, {"Y"}), {{"X", x}});
    EXPECT_NE(text.find("NanCheck: the place of the first element that is NaN or infinite is 123\n"), text.npos)
        << text;
  }
}

TEST_F(GpuTest, CastsWhatDoesNotFit) {
  const double least = std::numeric_limits<double>::lowest();
  const Tensor reals = Tensor::of<double>({10}, {0, -0.7, 1.5, 254.9, 3e9, -3e9, 1e19, least, HUGE_VAL, std::nan("")});
  const Tensor integers = Tensor::of<int64_t>({5}, {0, 1, -1, 127, int64_t{1} << 40});
  for (const char* to : {"FLOAT", "DOUBLE", "INT32", "INT64", "BOOL", "UINT8", "INT8", "UINT16", "INT16"}) {
    const auto def = make_op("Cast", {"X"}, {"Y"}, {make_arg("to", to)});
    const bool real = to == std::string("FLOAT") || to == std::string("DOUBLE");
    EXPECT_EQ(compare_devices(def, {{"X", real ? reals.rows(0, 6) : reals}}, 0), "") << to;
    EXPECT_EQ(compare_devices(def, {{"X", integers}}, 0), "") << to;
  }
}

TEST_F(GpuTest, OneHotRefusesIndicesBeyondItsWidth) {
  const auto def = make_op("OneHot", {"I", "K"}, {"Y"});
  for (const int64_t width : {3, 0}) {
    const std::string text =
        error_on_gpu(def, {{"I", Tensor::of<int32_t>({2}, {0, 3})}, {"K", Tensor::of<int64_t>({1}, {width})}});
    EXPECT_NE(text.find("outside of [0, " + std::to_string(width) + ")"), text.npos) << text;
  }
  EXPECT_EQ(compare_devices(def, {{"I", integers<int64_t>({500}, 0, 99)}, {"K", Tensor::of<int32_t>({1}, {100})}}, 0),
            "");
}

TEST_F(GpuTest, UniformFillsReadTheirBoundsOnTheDevice) {
  const Feeds wrong = {
      {"like", normal<float>({3})}, {"min", Tensor::of<int32_t>({1}, {5})}, {"max", Tensor::of<int32_t>({1}, {4})}};
  std::string text = error_on_gpu(make_op("UniformFill", {"like", "min", "max"}, {"Y"}), wrong);
  EXPECT_NE(text.find("min, which must be finite and at most max, is 5\n"), text.npos) << text;
  text = error_on_gpu(make_op("UniformIntFill", {"like", "min", "max"}, {"Y"}), wrong);
  EXPECT_NE(text.find("min, which like max must fit int32 and be less, is 5\n"), text.npos) << text;
}

TEST_F(GpuTest, CopiesAreWhereTheirNamesSay) {
  const Tensor x = normal<float>({4, 3});
  for (const char* type : {"CopyGPUToCPU", "EnsureCPUOutput"}) {
    Workspace workspace;
    const auto def = make_op(type, {"X"}, {"Y"});
    for (int times = 0; times < 2; ++times) {
      const Tensor& y = run_on_gpu(workspace, def, {{"X", on_gpu(x)}});
      EXPECT_EQ(y.device(), Device{}) << type;
      EXPECT_EQ(compare(y, x, 0), "");
    }
  }
  for (const char* type : {"CopyCPUToGPU", "CopyFromCPUInput", "Copy"}) {
    Workspace workspace;
    const Tensor& y = run_on_gpu(workspace, make_op(type, {"X"}, {"Y"}), {{"X", x}});
    EXPECT_EQ(y.device(), kGpu) << type;
    EXPECT_EQ(compare(back(y), x, 0), "");
    EXPECT_FALSE(y.shares_storage(workspace.fetch("X")));
  }
}

}  // namespace
}  // namespace stepnet::testing::elementwise_twins_test
