// Scan against a plain loop, central differences, and the same recurrence as a RecurrentNetwork.
#include <algorithm>

#include "core/compute/threads.h"
#include "stepnet/gradient_check.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::scan_test {
namespace {

struct Kind {
  bool reverse = false, leaving = false, first = false;
  std::string str() const { return fmt::format("reverse {} leaving {} first {}", reverse, leaving, first); }
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const bool reverse : {false, true})
    for (const bool leaving : {false, true})
      for (const bool first : {false, true}) all.push_back({reverse, leaving, first});
  return all;
}

OperatorDef scan(const Kind& kind, const std::vector<std::string>& outputs = {"h", "last"}) {
  std::vector<std::string> inputs = {"a", "b"};
  if (kind.first) inputs.emplace_back("first");
  return make_op("Scan", inputs, outputs, {make_arg("reverse", kind.reverse), make_arg("leaving", kind.leaving)});
}

Shape one_of(const Shape& rows) {
  Shape state{1};
  for (int d = 1; d < rows.rank(); ++d) state.push_back(rows[d]);
  return state;
}

template <class T>
Feeds feeds_of(const Kind& kind, const Shape& shape) {
  Feeds feeds = {{"a", normal<T>(shape, 1, 0, 0.7)}, {"b", normal<T>(shape, 2)}};
  if (kind.first) feeds.emplace_back("first", normal<T>(one_of(shape), 3));
  return feeds;
}

// h and last.
std::vector<Tensor> naive(const Kind& kind, const Feeds& feeds) {
  const Shape& shape = feeds[0].second.shape();
  const int64_t steps = shape[0], inner = shape.from(1).size();
  const double *a = feeds[0].second.data<double>(), *b = feeds[1].second.data<double>();
  std::vector<Tensor> made = {Tensor::zeros(DType::float64, shape), Tensor::zeros(DType::float64, one_of(shape))};
  for (int64_t i = 0; i < inner; ++i) {
    double state = kind.first ? feeds[2].second.data<double>()[i] : 0;
    for (int64_t k = 0; k < steps; ++k) {
      const int64_t at = (kind.reverse ? steps - 1 - k : k) * inner + i;
      double next = kind.leaving ? state : a[at] * state;
      next += b[at];
      made[0].data<double>()[at] = next;
      state = kind.leaving ? a[at] * next : next;
    }
    made[1].data<double>()[i] = state;
  }
  return made;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{5, 3}, {1, 3},    {0, 3},  {4, 0}, {4, 1},      {4},
                                         {0},    {7, 1000}, {3, 65}, {0, 0}, {4, 2, 3, 2}};
  return all;
}

TEST(Scan, IsAPlainLoop) {
  for (const Shape& shape : shapes())
    for (const Kind& kind : kinds()) {
      SCOPED_TRACE(kind.str() + " " + shape.str());
      const Feeds feeds = feeds_of<double>(kind, shape);
      const std::vector<Tensor> expected = naive(kind, feeds);
      const std::vector<Tensor> both = run_op_on(scan(kind), feeds);
      for (const int o : {0, 1}) EXPECT_EQ(compare(both.at(o), expected[o], 1e-14), "") << o;
      EXPECT_EQ(compare(run_op_on(scan(kind, {"h"}), feeds).at(0), expected[0], 1e-14), "");
      EXPECT_EQ(compare(run_op_on(scan(kind, {"b"}), feeds).at(0), expected[0], 1e-14), "");
      EXPECT_EQ(compare(run_op_on(scan(kind, {"", "last"}), feeds).at(1), expected[1], 1e-14), "");
    }
}

TEST(Scan, Floats) {
  const Feeds feeds = {{"a", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                       {"b", Tensor::of<float>({3, 2}, {1, 1, 0, -1, 2, 0})},
                       {"first", Tensor::of<float>({1, 2}, {1, -1})}};
  const std::vector<Tensor> made = run_op_on(scan({.first = true}), feeds);
  EXPECT_EQ(compare(made[0], Tensor::of<float>({3, 2}, {2, -1, 6, -5, 32, -30}), 0), "");
  EXPECT_EQ(compare(made[1], Tensor::of<float>({1, 2}, {32, -30}), 0), "");
}

// More elements than one piece has, in pieces for several threads.
TEST(Scan, NumbersOfThreadsGiveTheSameBits) {
  const int before = threads();
  for (const Shape& shape : {Shape{5, 40001}, Shape{300, 200}, Shape{2000, 3}})
    for (const Kind& kind : kinds()) {
      const Feeds feeds = feeds_of<float>(kind, shape);
      set_threads(1);
      const std::vector<Tensor> alone = run_op_on(scan(kind), feeds);
      for (const int count : {2, 3}) {
        set_threads(count);
        const std::vector<Tensor> together = run_op_on(scan(kind), feeds);
        const Tensor last = run_op_on(scan(kind, {"", "last"}), feeds).at(1);
        for (const int o : {0, 1}) EXPECT_EQ(compare(together[o], alone[o], 0), "") << shape.str() << count;
        EXPECT_EQ(compare(last, alone[1], 0), "") << shape.str() << count;
      }
    }
  set_threads(before);
}

TEST(Scan, Gradients) {
  for (const Shape& shape : {Shape{4, 3}, Shape{1, 2}, Shape{0, 2}, Shape{3, 0}, Shape{3}, Shape{2, 2, 2}})
    for (const Kind& kind : kinds()) {
      std::vector<std::string> wrt = {"a", "b"};
      if (kind.first) wrt.emplace_back("first");
      for (const std::vector<std::string>& outputs : {std::vector<std::string>{"h"}, {"h", "last"}, {"", "last"}})
        EXPECT_EQ(check_gradient(scan(kind, outputs), feeds_of<double>(kind, shape), wrt), "")
            << kind.str() << " " << shape.str() << outputs.size();
    }
}

TEST(Scan, GradientsOfGradients) {
  for (const Kind& kind : kinds())
    for (const std::vector<std::string>& outputs : {std::vector<std::string>{"h", "last"}, {"", "last"}}) {
      GradientSubject subject;
      *subject.net.add_op() = scan(kind, outputs);
      for (const auto& [name, value] : feeds_of<double>(kind, {3, 2})) {
        subject.feeds[name] = value;
        subject.inputs.push_back(name);
      }
      for (const std::string& name : outputs)
        if (!name.empty()) subject.outputs.push_back(name);
      GradientCheckOptions options;
      options.order = 2;
      EXPECT_EQ(check_gradients(subject, options).str(), "") << kind.str();
      options.forward = true;
      EXPECT_EQ(check_gradients(subject, options).str(), "") << kind.str();
    }
}

TEST(Scan, IsTheRecurrentNetworkOfMulAndSum) {
  for (const bool reverse : {false, true})
    for (const int64_t steps : {7, 1, 0}) {
      SCOPED_TRACE(fmt::format("reverse {}, {} timesteps", reverse, steps));
      const Cell cell = {.step = {"m = Mul(f, h_prev)", "h = Sum(m, x)"},
                         .states = {{"h_prev", "h", "first", "h_all", "last"}},
                         .sequences = {{"a", "f"}, {"b", "x"}},
                         .reverse = reverse};
      const Kind kind = {.reverse = reverse, .first = true};
      const Feeds feeds = feeds_of<double>(kind, {steps, 2, 5}), outside = outside_gradients(cell, feeds);
      NetDef net;
      *net.add_op() = scan(kind, {"h_all", "last"});
      for (const auto& feed : feeds) net.add_external_input(feed.first);
      const CellResults network = run_recurrent(cell, feeds, outside),
                        operators = run_with_gradients(net, feeds, outside);
      for (const char* name : {"h_all", "last"})
        EXPECT_EQ(compare(operators.outputs.at(name), network.outputs.at(name), 1e-12), "") << name;
      for (const auto& feed : feeds)
        EXPECT_EQ(compare(operators.gradients.at(feed.first), network.gradients.at(feed.first), 1e-12), "")
            << feed.first;
    }
}

TEST(Scan, SaysWhatDoesNotFit) {
  const auto error = [](const Shape& a, const Shape& b, const Shape& first) {
    const Feeds feeds = {{"a", normal<float>(a)}, {"b", normal<float>(b)}, {"first", normal<float>(first)}};
    return error_of([&] { run_op_on(scan({.first = true}), feeds); });
  };
  const auto expect = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(error({4, 3}, {5, 3}, {1, 3}), "factors are [4, 3], but terms [5, 3]; both must have one shape");
  expect(error({4, 3}, {4, 3}, {3}), "first must be [1, 3], one timestep of factors [4, 3], but is [3]");
  expect(error({4, 3}, {4, 3}, {4, 3}), "first must be [1, 3], one timestep of factors [4, 3], but is [4, 3]");
  expect(error({}, {}, {1}), "factors must be [T, ...], a row for each timestep, but has no dimension");
}

// What one shape says: the second input's, the state's.
TEST(Scan, ShapesFollowFromEitherInput) {
  const OpSpec& spec = op_spec("Scan");
  const auto args = spec.make_args();
  const TensorType rows = TensorType::of(DType::float32, {4, 3, 2});
  for (const bool factors : {false, true}) {
    const TensorType in[] = {factors ? rows : TensorType(), factors ? TensorType() : rows};
    TensorType out[2];
    ShapeCall call(in, out);
    spec.shape(args.get(), call);
    EXPECT_EQ(out[0].str(), rows.str());
    EXPECT_EQ(out[1].str(), TensorType::of(DType::float32, {1, 3, 2}).str());
  }
}

}  // namespace
}  // namespace stepnet::testing::scan_test
