// Conv and its gradient against plain loops (tests/operators/flops_windows.cc) and central differences.
#include "core/compute/threads.h"
#include "core/estimate/estimate.h"
#include "stepnet/gradients.h"
#include "stepnet/random.h"
#include "tests/core/estimate_testing.h"
#include "tests/operators/flops_check.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::conv_test {
namespace {

using Ints = std::vector<int64_t>;

struct Case {
  Shape x, filter;
  std::vector<Argument> args;
};

Argument ints(const char* name, const Ints& values) { return make_arg(name, values); }
Argument number(const char* name, int64_t value) { return make_arg(name, value); }

std::vector<Case> cases() {
  return {
      {{2, 3, 5, 4}, {4, 3, 3, 2}, {ints("kernels", {3, 2})}},
      {{2, 3, 5, 4}, {4, 3, 3, 3}, {number("kernel", 3), number("pad", 1)}},
      {{2, 3, 7, 6}, {4, 3, 3, 2}, {number("kernel_h", 3), number("kernel_w", 2), number("stride", 2)}},
      {{1, 2, 7, 6}, {3, 2, 2, 3}, {ints("kernels", {2, 3}), ints("dilations", {3, 2}), ints("strides", {1, 2})}},
      {{2, 2, 4, 4}, {2, 2, 3, 3}, {number("kernel", 3), number("pad_l", 2), number("pad_b", 1), number("pad_t", 1)}},
      {{2, 4, 5, 3}, {6, 2, 2, 2}, {number("kernel", 2), number("group", 2), number("pad", 2)}},
      {{2, 4, 5, 3}, {4, 1, 3, 1}, {ints("kernels", {3, 1}), number("group", 4), ints("pads", {0, 1, 2, 3})}},
      {{3, 4, 2, 3}, {5, 4, 1, 1}, {number("kernel", 1)}},
      {{3, 4, 2, 3}, {6, 2, 1, 1}, {number("kernel", 1), number("group", 2)}},
      {{2, 3, 5, 4}, {2, 3, 1, 1}, {number("kernel", 1), number("stride", 2)}},
      {{2, 3, 9}, {4, 3, 3}, {ints("kernels", {3}), ints("pads", {4, 0}), number("dilation", 2)}},
      {{1, 2, 3, 4, 3}, {3, 2, 2, 2, 2}, {number("kernel", 2), number("pad", 1), ints("strides", {1, 2, 3})}},
      {{1, 1, 1, 1}, {1, 1, 5, 5}, {number("kernel", 5), number("pad", 2)}},
      {{2, 1, 3}, {1, 1, 2}, {number("kernel", 2), ints("pads", {9, 7}), number("stride", 4)}},
      {{1, 8, 4, 3},
       {9, 8, 1, 2},
       {ints("kernels", {1, 2}), ints("strides", {1 << 30, 1}), ints("dilations", {1 << 30, 1})}},
      {{2, 8, 4}, {9, 8, 3}, {ints("kernels", {3}), ints("pads", {1 << 30, 1}), ints("strides", {1 << 29})}},
      {{0, 2, 3, 3}, {2, 2, 2, 2}, {number("kernel", 2)}},
      {{2, 0, 3, 3}, {2, 0, 2, 2}, {number("kernel", 2)}},
      {{2, 2, 3, 3}, {0, 2, 2, 2}, {number("kernel", 2)}},
  };
}

std::string name_of(const Case& c) { return c.x.str() + " " + c.filter.str(); }

template <class T>
std::map<std::string, Tensor> feeds_of(const Case& c) {
  return {{"X", normal<T>(c.x, 1)}, {"filter", normal<T>(c.filter, 2)}, {"bias", normal<T>({c.filter[0]}, 3)}};
}

template <class T>
void expect_as_plain_loops(const Case& c) {
  std::map<std::string, Tensor> feeds = feeds_of<T>(c);
  NetDef net;
  *net.add_op() = make_op("Conv", {"X", "filter", "bias"}, {"Y"}, c.args);
  *net.add_op() = make_op("Conv", {"X", "filter"}, {"Z"}, c.args);
  const CountedRun run = run_counted(net, feeds);
  EXPECT_EQ(run.problems, "") << name_of(c);
  if (!run.problems.empty()) return;
  feeds["dY"] = normal<T>(run.blobs.at("Y").shape(), 4);
  NetDef back;
  *back.add_op() = make_op("ConvGradient", {"X", "filter", "dY"}, {"dfilter", "dbias", "dX"}, c.args);
  *back.add_op() = make_op("ConvGradient", {"X", "filter", "dY"}, {"", "b"}, c.args);
  *back.add_op() = make_op("ConvGradient", {"X", "filter", "dY"}, {"", "", "x"}, c.args);
  EXPECT_EQ(run_counted(back, feeds).problems, "") << name_of(c);
}

TEST(Conv, IsWhatPlainLoopsGive) {
  for (const Case& c : cases()) {
    expect_as_plain_loops<double>(c);
    expect_as_plain_loops<float>(c);
  }
}

TEST(Conv, OnOtherNumbersOfThreads) {
  const int before = threads();
  for (const int count : {1, 3}) {
    set_threads(count);
    expect_as_plain_loops<float>({{1, 24, 20, 20}, {16, 24, 3, 3}, {number("kernel", 3), number("pad", 1)}});
  }
  set_threads(before);
}

TEST(Conv, Gradients) {
  for (const Case& c : cases()) {
    Feeds feeds;
    for (const auto& [name, value] : feeds_of<double>(c)) feeds.emplace_back(name, value);
    EXPECT_EQ(check_gradient(make_op("Conv", {"X", "filter", "bias"}, {"Y"}, c.args), feeds, {"X", "filter", "bias"}),
              "")
        << name_of(c);
    const Tensor y = run_op_on(make_op("Conv", {"X", "filter", "bias"}, {"Y"}, c.args), feeds)[0];
    feeds.emplace_back("dY", normal<double>(y.shape(), 4));
    const OperatorDef gradient = make_op("ConvGradient", {"X", "filter", "dY"}, {"dfilter", "dbias", "dX"}, c.args);
    EXPECT_EQ(check_gradient(gradient, feeds, {"X", "filter", "dY"}), "") << name_of(c);
    EXPECT_EQ(check_gradient(gradient, feeds, {"dY"}, 1e-7, 1e-5, {"dbias"}), "") << name_of(c);
  }
}

// One to three dimensions, sizes from 0 on, windows that hang over at both ends, groups.
Case random_case(uint64_t seed, int64_t times = 1) {
  uint64_t draws = 0;
  const auto from_to = [&](int64_t low, int64_t high) { return random_int(seed, draws++, low, high); };
  const int64_t dims = from_to(1, 3), group = from_to(0, 2) > 0 ? 1 : from_to(1, 4);
  const bool by_channel = from_to(0, 9) == 0;  // each channel is a group of its own
  const auto channels = [&] { return by_channel ? 1 : from_to(0, 19) == 0 ? 0 : from_to(0, 2) ? from_to(1, 20) : 16; };
  const int64_t groups = by_channel ? from_to(1, 20) : group, of_x = channels(), of_y = channels();
  Case c{{times * from_to(0, 4), groups * of_x}, {groups * of_y, of_x}, {number("group", groups)}};
  Ints kernels, strides, dilations, pads(static_cast<size_t>(2 * dims));
  const bool plain = from_to(0, 4) == 0;
  for (int64_t d = 0; d < dims; ++d) {
    kernels.push_back(plain ? 1 : from_to(1, 4));
    strides.push_back(plain ? 1 : from_to(1, 3));
    dilations.push_back(from_to(0, 2) ? 1 : from_to(1, 3));
    for (const int64_t end : {d, dims + d}) pads[static_cast<size_t>(end)] = plain ? 0 : from_to(0, 3);
    const int64_t window = (kernels.back() - 1) * dilations.back() + 1;
    const int64_t least =
        std::max<int64_t>(window - pads[static_cast<size_t>(d)] - pads[static_cast<size_t>(dims + d)], 1);
    c.x.push_back(from_to(least, least + 8));
    c.filter.push_back(kernels.back());
  }
  c.args.insert(c.args.end(),
                {ints("kernels", kernels), ints("strides", strides), ints("dilations", dilations), ints("pads", pads)});
  return c;
}

struct Gradients {
  NetDef net;
  std::vector<std::string> names;  // of Y, Z and the gradients
};

// Two convolutions, and the gradients of their inputs, where those of the second are added to those of the first.
Gradients forward_and_backward(const Case& c) {
  Gradients all{{}, {"Y", "Z"}};
  *all.net.add_op() = make_op("Conv", {"X", "filter", "bias"}, {"Y"}, c.args);
  *all.net.add_op() = make_op("Conv", {"X", "filter"}, {"Z"}, c.args);
  GradientRequest request;
  request.wanted = {"X", "filter", "bias"};
  request.targets = {{"Y", "dY"}, {"Z", "dZ"}};
  for (const auto& [input, gradient] : add_gradient_operators(all.net, request).gradients)
    all.names.push_back(gradient.dense);
  return all;
}

std::map<std::string, Tensor> all_feeds_of(const Case& c) {
  std::map<std::string, Tensor> feeds = feeds_of<float>(c);
  const OperatorDef conv = make_op("Conv", {"X", "filter"}, {"Y"}, c.args);
  const Shape y = run_op_on(conv, Feeds(feeds.begin(), feeds.end()))[0].shape();
  feeds["dY"] = normal<float>(y, 4);
  feeds["dZ"] = normal<float>(y, 5);
  return feeds;
}

std::vector<Tensor> results(const Gradients& all, const std::map<std::string, Tensor>& feeds, bool in_double) {
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = in_double ? to_double(value) : value;
  RunContext run;
  run_net_once(all.net, blobs, run);
  std::vector<Tensor> found;
  for (const std::string& name : all.names) found.push_back(blobs.fetch(name));
  return found;
}

// Float64 is always by products of columns; float32 where they are faster.
TEST(Conv, OfFloatIsThatOfDouble) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Case c = random_case(seed);
    const Gradients all = forward_and_backward(c);
    const std::map<std::string, Tensor> feeds = all_feeds_of(c);
    const std::vector<Tensor> found = results(all, feeds, false), wanted = results(all, feeds, true);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(compare(to_double(found[i]), wanted[i], 2e-6, ErrorScale::tensor), "")
          << name_of(c) << " seed " << seed << ", " << all.names[i];
  }
}

TEST(Conv, TakesWhatIsEstimated) {
  const int before = threads();
  for (const int count : {1, 3}) {
    set_threads(count);
    for (uint64_t seed = 1; seed <= 150; ++seed) {
      const Case c = random_case(seed, count == 1 ? 1 : 40);  // so many samples that threads share them
      const Gradients all = forward_and_backward(c);
      std::map<std::string, TensorType> types;
      for (const auto& [name, value] : all_feeds_of(c)) types[name] = TensorType::of(value.dtype(), value.shape());
      EXPECT_EQ(compare_with_real([&] { return forward_session(all.net, {.feeds = types}); }), "")
          << name_of(c) << " seed " << seed << " on " << count << " threads";
    }
  }
  set_threads(before);
}

TEST(Conv, MistakesAreNamed) {
  const auto error = [](const Shape& x, const Shape& filter, const std::vector<Argument>& args) {
    return error_of([&] {
      run_op_on(make_op("Conv", {"X", "filter"}, {"Y"}, args),
                {{"X", normal<float>(x)}, {"filter", normal<float>(filter)}});
    });
  };
  const auto expect = [&](const Shape& x, const Shape& filter, const std::vector<Argument>& args, const char* text) {
    const std::string found = error(x, filter, args);
    EXPECT_NE(found.find(text), std::string::npos) << found;
  };
  const Shape x{1, 4, 5, 5}, filter{2, 4, 3, 3};
  expect(x, filter, {}, "needs the argument \"kernel\" or \"kernels\"");
  expect(x, filter, {number("kernel_h", 3)}, "argument \"kernel_w\" is missing");
  expect(x, filter, {number("kernel", 2)}, "filter is [2, 4, 3, 3], but a window has 2 elements along dimension 2");
  expect(x, filter, {number("kernel", 3), ints("kernels", {3, 3})}, "of which only one can count");
  expect(x, filter, {ints("kernels", {3})}, "argument \"kernels\" has 1 values, but there are 2 dimensions");
  expect(x, filter, {number("kernel", 3), number("group", 3)}, "X [1, 4, 5, 5] in 3 groups");
  expect(x, filter, {number("kernel", 3), number("stride", 0)}, "stride is 0, but must be from 1");
  expect(x, filter, {number("kernel", 3), ints("pads", {1, 1})}, "\"pads\" has 2 values, but 2 dimensions take 4");
  expect(x, filter, {number("kernel", 3), number("pad", -1)}, "pad is -1");
  expect(x, filter, {number("kernel", 3), number("dilation", 4)}, "fewer than a window of 3 elements with dilation 4");
  expect({4, 5}, {2, 4, 3}, {number("kernel", 3)}, "X is [4, 5], but must be [N, C, ...]");
  expect(x, {2, 4, 3}, {number("kernel", 3)}, "of X [1, 4, 5, 5] it has 4 dimensions");
  expect(x, filter, {number("kernel", 3), make_arg("order", std::string("NHWC"))}, "order");
  expect(x, filter, {number("kernel", 3), number("legacy_pad", 1)}, "legacy_pad");
}

}  // namespace
}  // namespace stepnet::testing::conv_test
