// Saved values on disk: gradients, what is written, memory, files.
#include "stepnet/offload.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "stepnet/rerun.h"
#include "tests/core/autograd/offload_files.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::autograd::testing::offload_test {
namespace {

using stepnet::testing::TempFolder;

Variable exp_of(const Variable& v) { return apply("Exp", {v}); }
Variable tanh_of(const Variable& v) { return apply("Tanh", {v}); }
Variable mul(const Variable& a, const Variable& b) { return apply("Mul", {a, b}); }

// Live bytes and files are at the end what they were.
class TapeOffload : public ::testing::Test {
 protected:
  void SetUp() override {
    backward(sum_of(tanh_of(exp_of(mul(var({1}), var({1}))))));  // so that what operators keep is there
    before_ = live_bytes();
  }
  void TearDown() override {
    EXPECT_EQ(live_bytes(), before_);
    EXPECT_EQ(folder_.count(), 0);
    EXPECT_EQ(files(), 0);
    EXPECT_EQ(tape_state().hooks, nullptr);
  }
  OffloadOptions options(int64_t at_least = 0) const {
    OffloadOptions options;
    options.folder = folder_.path();
    options.at_least = at_least;
    return options;
  }
  int files() const { return static_cast<int>(nameless_files(folder_.path()).size()); }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
  int64_t before_ = 0;
};

TEST_F(TapeOffload, GraphSaveOnCpu) {
  const auto fn = [](const Variable& v) { return sum_of(mul(tanh_of(exp_of(v)), mul(v, v))); };
  const Variable x = var({0.1, 0.5, -1});
  const Numbers expected = values_of(grad({fn(x)}, {x})[0].dense);
  for (const bool on_disk : {false, true}) {
    Variable(x).clear_grad();
    OffloadOptions where = options();
    if (!on_disk) where.folder = "";
    Variable y;
    {
      const OffloadScope scope(where);
      y = fn(x);
      scope.wait();
      EXPECT_EQ(files(), on_disk ? 3 : 0);  // exp, tanh and x^2; x itself is a leaf
      EXPECT_EQ(scope.counters().written, on_disk ? 3 : 0);
      EXPECT_EQ(scope.counters().kept, on_disk ? 2 : 6);  // host memory is where they are
    }
    backward(y);
    EXPECT_EQ(grad_of(x), expected);
    EXPECT_EQ(files(), 0);
  }
}

TEST_F(TapeOffload, ShapesAndTypesComeBack) {
  const OffloadScope scope(options());
  const Variable y = exp_of(var({1}));  // for its node, which messages speak of
  Tensor t = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const SavedValue whole(t), flat(t.reshaped({6})), row(t.row(1)), same(t), none(Tensor::zeros(DType::int64, {0, 3}));
  scope.wait();
  EXPECT_EQ(files(), 3);  // of exp, the whole and the row
  EXPECT_EQ(scope.counters().shared, 2);
  t = {};
  const auto unpack = [&](const SavedValue& saved) { return saved.unpack({}, *y.grad_fn(), "value").value(); };
  const auto floats = [](const Tensor& value) {
    const auto span = value.span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  EXPECT_EQ(unpack(whole).str(), "float[2, 3]");
  EXPECT_EQ(unpack(flat).str(), "float[6]");
  EXPECT_EQ(unpack(none).str(), "int64[0, 3]");
  EXPECT_EQ(unpack(row).str(), "float[3]");
  EXPECT_EQ(floats(unpack(row)), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(floats(unpack(same)), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(TapeOffload, AValueSavedTwiceIsWrittenOnce) {
  const Variable x = var({1, 2}), k = constant({3, 4});
  const OffloadScope scope(options());
  const Variable h = mul(x, k);
  const Variable y = exp_of(mul(h, mul(h, h)));
  scope.wait();
  EXPECT_EQ(files(), 4);  // k, h, h^2 and the result
  EXPECT_EQ(scope.counters().written, 4);
  EXPECT_EQ(scope.counters().shared, 2);
}

TEST_F(TapeOffload, SmallValuesAndParametersStay) {
  const Variable w(Tensor::zeros(DType::float64, {8, 8}), true);
  const Variable x(Tensor::zeros(DType::float64, {8, 8}));
  const OffloadScope scope(options(512));
  const Variable y = apply("Add", {mul(x, w), mul(w.detach(), tanh_of(w))});
  const Variable view = run("Alias", {w})[0];
  const Variable z = mul(view, view);
  const Variable small = exp_of(var({1, 2}));
  scope.wait();
  EXPECT_EQ(files(), 2);  // x, tanh(w)
  EXPECT_EQ(scope.counters().kept, 4);
  EXPECT_EQ(scope.counters().written_bytes, 2 * 512);
}

TEST_F(TapeOffload, FilesGoWithTheGraph) {
  OffloadOptions where = options();
  where.folder = folder().file("made/of two");
  {
    Variable y;
    {
      const OffloadScope scope(where);
      y = tanh_of(exp_of(var({1, 2})));
      scope.wait();
    }
    backward(sum_of(y), {.keep_graph = true});
    EXPECT_EQ(nameless_files(where.folder).size(), 2u);
    EXPECT_TRUE(std::filesystem::is_empty(where.folder));  // a process that is killed leaves nothing
    backward(sum_of(y), {.keep_graph = true});
    y = {};  // never to be run again
    EXPECT_FALSE(std::filesystem::exists(where.folder));
  }
  std::filesystem::remove(folder().file("made"));
}

TEST_F(TapeOffload, ManyGraphsDroppedWhileTheyAreWritten) {
  const Variable x(Tensor::zeros(DType::float64, {1 << 14}), true);
  OffloadOptions where = options();
  where.most_pending = 1 << 30;
  const OffloadScope scope(where);
  for (int i = 0; i < 20; ++i) {
    Variable y = exp_of(x);
    for (int j = 0; j < 5; ++j) y = exp_of(y);
    if (i % 2) backward(sum_of(y));
  }
  EXPECT_EQ(files(), 0);
}

TEST_F(TapeOffload, WritingInPlaceWaitsForTheFile) {
  const Variable x(Tensor::zeros(DType::float64, {1 << 16}), true);
  const Variable k(Tensor::zeros(DType::float64, {1 << 16}));
  const OffloadScope scope(options());
  for (int i = 0; i < 5; ++i) {
    Variable(x).clear_grad();
    const Variable y = exp_of(x);  // of ones
    {
      const NoGrad no_grad;
      apply_in_place("Mul", {y, k});
    }
    backward(sum_of(y));
    const auto g = x.grad().value().span<double>();
    EXPECT_EQ(g[0], 1);
    EXPECT_EQ(g.back(), 1);
  }
}

TEST_F(TapeOffload, OfDerivatives) {
  const auto third = [](const Variable& x) {
    const Variable y = mul(mul(x, x), tanh_of(x));
    const Variable first = grad({sum_of(y)}, {x}, {.create_graph = true})[0].dense;
    const Variable second = grad({sum_of(first)}, {x}, {.create_graph = true})[0].dense;
    return std::pair(values_of(second), values_of(grad({sum_of(second)}, {x})[0].dense));
  };
  const Variable x = var({0.5, 0.25});
  const auto expected = third(x);
  const OffloadScope scope(options());
  EXPECT_EQ(third(x), expected);
  EXPECT_GT(scope.counters().written, 5);
}

TEST_F(TapeOffload, SaveOnCpuAndCheckpoint) {
  const auto inner = [](const Variable& v) { return tanh_of(exp_of(mul(v, v))); };
  const auto region = [inner](const std::vector<Variable>& in) { return std::vector{inner(in[0])}; };
  const Variable x = var({0.5, 0.25});
  const Numbers expected = values_of(grad({sum_of(inner(inner(exp_of(x))))}, {x})[0].dense);
  {
    const OffloadScope scope(options());
    const Variable first = exp_of(x);
    const Variable y = checkpoint(region, checkpoint(region, {first}))[0];
    scope.wait();
    EXPECT_EQ(files(), 2);  // the regions' inputs, the first of which exp has saved too
    EXPECT_EQ(values_of(grad({sum_of(y)}, {x})[0].dense), expected);
  }
  int runs = 0;
  const auto offloads = [&](const std::vector<Variable>& in) {
    ++runs;
    const OffloadScope scope(options());
    return region(region(in));
  };
  const Variable y = checkpoint(offloads, {exp_of(x)})[0];
  EXPECT_EQ(values_of(grad({sum_of(y)}, {x})[0].dense), expected);
  EXPECT_EQ(runs, 1);  // all was saved inside
}

TEST_F(TapeOffload, ReadsOneNodeAhead) {
  const Variable x = var({0.5, 0.25});
  const OffloadScope scope(options());
  Variable y = x;
  for (int i = 0; i < 10; ++i) y = tanh_of(y);
  scope.wait();
  const Variable root = sum_of(y);
  y = {};
  backward(root);
  EXPECT_EQ(scope.counters().written, 10);
  EXPECT_EQ(scope.counters().read, 10);
  EXPECT_EQ(scope.counters().read_ahead, 9);  // all but the first
}

TEST_F(TapeOffload, ReadsNothingThatATrimmedPassLeavesOut) {
  const Variable x = var({0.5, 0.25});
  const OffloadScope scope(options());
  const Variable a = tanh_of(tanh_of(x));
  Variable b = tanh_of(a);
  scope.wait();
  const Variable root = sum_of(b);
  b = {};
  const int64_t live = live_bytes();
  { const Gradients g = grad({root}, {a}, {.keep_graph = true}); }
  EXPECT_EQ(live_bytes(), live);  // what was read ahead has gone with the pass
  EXPECT_LE(scope.counters().read, 2);
  EXPECT_EQ(files(), 3);
}

// The peak of a chain of n operators, in values of S bytes above what was live: forward, and backward.
struct Peaks {
  double forward, backward;
};
Peaks peaks_of_chain(int n, const std::optional<OffloadOptions>& where) {
  const int64_t elements = 1 << 15;
  const Variable x(Tensor::zeros(DType::float64, {elements}), true);
  const int64_t before = live_bytes();
  const auto peak = [&] {
    const auto bytes = static_cast<double>(allocator(Device{}).counters().peak - before);
    allocator(Device{}).reset_peak();
    return bytes / static_cast<double>(elements * 8);
  };
  allocator(Device{}).reset_peak();
  std::optional<OffloadScope> scope;
  if (where) scope.emplace(*where);
  Variable y = x;
  for (int i = 0; i < n; ++i) y = tanh_of(y);
  const Variable root = sum_of(y);
  y = {};
  Peaks peaks{};
  peaks.forward = peak();
  backward(root);
  peaks.backward = peak();
  return peaks;
}

TEST_F(TapeOffload, ThePeakIsTwoSavedValuesHoweverManyThereAre) {
  const double scalars = 0.01;
  const Peaks plain = peaks_of_chain(40, {});
  EXPECT_GE(plain.forward, 40);
  EXPECT_GE(plain.backward, 40);
  for (const int n : {5, 40, 80}) {
    const Peaks peaks = peaks_of_chain(n, options());
    EXPECT_LE(peaks.forward, 2 + scalars) << n;       // an operator's input and output, which are the two saved values
    EXPECT_LE(peaks.backward, 2 + 2 + scalars) << n;  // two saved values, and a gradient that makes another
  }
}

// Values of many sizes whose gradients are small: rows of data, summed up with trained weights.
TEST_F(TapeOffload, ThePeakIsTheLargestTwoSavedValues) {
  const int64_t columns = 1 << 12;
  const std::vector<int64_t> rows = {3, 9, 1, 7, 9, 2, 5, 9, 4};
  const Variable weights(Tensor::zeros(DType::float64, {columns, 1}), true);
  const auto peak = [&](const std::optional<OffloadOptions>& where) {
    const int64_t before = live_bytes();
    allocator(Device{}).reset_peak();
    std::optional<OffloadScope> scope;
    if (where) scope.emplace(*where);
    Variable total(Tensor::scalar(0.0));
    for (const int64_t count : rows) {
      const Variable data(Tensor::zeros(DType::float64, {count, columns}));
      total = apply("Add", {total, sum_of(apply("MatMul", {data, weights}))});
    }
    backward(total);
    const auto bytes = static_cast<double>(allocator(Device{}).counters().peak - before);
    Variable(weights).clear_grad();
    return bytes / static_cast<double>(8 * columns);
  };
  const double gradients = 2.1;  // of the weights, the sum and what is added to it
  EXPECT_GE(peak({}), 49);
  EXPECT_LE(peak(options()), 9 + 9 + gradients);
}

// Values that a node far behind reads again are not kept in memory until then.
TEST_F(TapeOffload, ThePeakWithConnectionsOverManyNodes) {
  const int64_t elements = 1 << 14;
  const Variable x(Tensor::zeros(DType::float64, {elements}), true);
  const auto peak_of = [&](int depth) {
    const int64_t before = live_bytes();
    {
      const OffloadScope scope(options());
      Variable root;
      {
        std::vector<Variable> skipped;
        Variable h = x;
        for (int i = 0; i < depth; ++i) skipped.push_back(h = tanh_of(h));
        for (int i = 0; i < depth; ++i) {
          h = mul(h, skipped.back());
          skipped.pop_back();
        }
        root = sum_of(h);
        scope.wait();
      }
      allocator(Device{}).reset_peak();
      const Gradients g = grad({root}, {x});
    }
    return static_cast<double>(allocator(Device{}).counters().peak - before) / static_cast<double>(elements * 8);
  };
  // The gradients of the skipped values wait for their nodes, one each.
  EXPECT_LE(peak_of(16) - peak_of(8), 8.01);
  EXPECT_LE(peak_of(8), 8 + 3.01);
}

TEST_F(TapeOffload, SeveralThreadsUseOneScopesValues) {
  constexpr int kThreads = 4;
  const OffloadScope scope(options());
  std::vector<Variable> leaves, roots;
  for (int t = 0; t < kThreads; ++t) {
    leaves.emplace_back(Tensor::zeros(DType::float64, {1 << 12}), true);
    Variable y = leaves.back();
    for (int i = 0; i < 20; ++i) y = exp_of(tanh_of(y));
    roots.push_back(sum_of(y));
  }
  std::vector<std::thread> threads;
  for (const Variable& root : roots) threads.emplace_back([root] { backward(root); });
  for (std::thread& t : threads) t.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(grad_of(leaves[t]), grad_of(leaves[0]));
  roots.clear();
}

TEST_F(TapeOffload, APassOnSeveralThreads) {
  const auto fn = [](const Variable& x) {
    Variable total = tanh_of(x);
    for (int branch = 0; branch < 8; ++branch) total = mul(total, tanh_of(exp_of(tanh_of(x))));
    return sum_of(total);
  };
  const Variable x(Tensor::zeros(DType::float64, {1 << 10}), true);
  const Numbers expected = values_of(grad({fn(x)}, {x})[0].dense);
  const OffloadScope scope(options());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values_of(grad({fn(x)}, {x}, {.threads = 4})[0].dense), expected);
}

TEST_F(TapeOffload, ScopesOnSeveralThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this] {
      const Variable x(Tensor::zeros(DType::float64, {1 << 10}), true);
      const OffloadScope scope(options());
      Variable y = x;
      for (int i = 0; i < 20; ++i) y = exp_of(tanh_of(y));
      backward(sum_of(y));
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace stepnet::autograd::testing::offload_test
