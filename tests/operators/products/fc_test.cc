// Fully connected layers against plain loops and central differences.
#include "core/compute/threads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::fc_test {
namespace {

namespace of_fc {

Tensor naive_fc(const Tensor& x, const Tensor& w, const Tensor& b, int64_t m, const Shape& out) {
  const int64_t n = b.size(), k = m > 0 ? x.size() / m : 0;
  Tensor y = Tensor::zeros(DType::float64, out);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = b.data<double>()[j];
      for (int64_t l = 0; l < k; ++l) sum += x.data<double>()[i * k + l] * w.data<double>()[j * k + l];
      y.data<double>()[i * n + j] = sum;
    }
  return y;
}

OperatorDef fc(int axis = 1, int axis_w = 1) {
  return make_op("FC", {"X", "W", "b"}, {"Y"}, {make_arg("axis", axis), make_arg("axis_w", axis_w)});
}

TEST(Fc, ForwardIsTheProductPlusBias) {
  const Tensor x = normal<double>({3, 5}, 1), w = normal<double>({4, 5}, 2), b = normal<double>({4}, 3);
  EXPECT_EQ(compare(run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 3, {3, 4}), 1e-14), "");
}

TEST(Fc, FloatIsCloseToDouble) {
  const Tensor x = normal<float>({40, 33}, 1), w = normal<float>({17, 33}, 2), b = normal<float>({17}, 3);
  const Tensor y = run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}})[0];
  EXPECT_EQ(y.dtype(), DType::float32);
  EXPECT_EQ(compare(y, naive_fc(to_double(x), to_double(w), to_double(b), 40, {40, 17}), 1e-5), "");
}

TEST(Fc, KeepsTheDimensionsBeforeTheAxis) {
  const Tensor w = normal<double>({4, 2, 3}, 2), b = normal<double>({4}, 3);
  const Tensor x = normal<double>({2, 5, 2, 3}, 1);
  EXPECT_EQ(compare(run_op_on(fc(2), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 10, {2, 5, 4}), 1e-14), "");
  EXPECT_EQ(compare(run_op_on(fc(-2), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 10, {2, 5, 4}), 1e-14), "");
  const Tensor row = normal<double>({6}, 4);
  EXPECT_EQ(compare(run_op_on(fc(0), {{"X", row}, {"W", w}, {"b", b}})[0], naive_fc(row, w, b, 1, {4}), 1e-14), "");
}

TEST(Fc, Gradients) {
  const Feeds feeds = {
      {"X", normal<double>({3, 5}, 1)}, {"W", normal<double>({4, 5}, 2)}, {"b", normal<double>({4}, 3)}};
  EXPECT_EQ(check_gradient(fc(), feeds, {"X", "W", "b"}), "");
  const Feeds deep = {
      {"X", normal<double>({2, 3, 2}, 1)}, {"W", normal<double>({2, 2, 2}, 2)}, {"b", normal<double>({4}, 3)}};
  EXPECT_EQ(check_gradient(fc(2, 2), deep, {"X", "W", "b"}), "");
}

TEST(Fc, GradientsOfGradients) {
  const OperatorDef def = make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db", "dX"}, {make_arg("axis", 2)});
  const Feeds feeds = {
      {"X", normal<double>({2, 3, 5}, 1)}, {"W", normal<double>({4, 5}, 2)}, {"dY", normal<double>({2, 3, 4}, 3)}};
  EXPECT_EQ(check_gradient(def, feeds, {"X", "W", "dY"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}, 1e-7, 1e-5, {"db"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"X", "dY"}, 1e-7, 1e-5, {"dW"}), "");
}

TEST(Fc, SizesOfZeroAndOne) {
  for (const int64_t m : {0, 1})
    for (const int64_t n : {0, 1})
      for (const int64_t k : {0, 1}) {
        const Tensor x = normal<double>({m, k}, 1), w = normal<double>({n, k}, 2), b = normal<double>({n}, 3);
        const Feeds feeds = {{"X", x}, {"W", w}, {"b", b}};
        EXPECT_EQ(compare(run_op_on(fc(), feeds)[0], naive_fc(x, w, b, m, {m, n}), 1e-14), "");
        EXPECT_EQ(check_gradient(fc(), feeds, {"X", "W", "b"}), "") << m << n << k;
      }
}

TEST(Fc, WithoutABiasIsTheProductAlone) {
  const OperatorDef def = make_op("FC", {"X", "W"}, {"Y"}, {make_arg("axis", 2)});
  for (const int64_t n : {0, 1, 4}) {
    const Tensor x = normal<double>({2, 3, 5}, 1), w = normal<double>({n, 5}, 2);
    const Tensor product = naive_fc(x, w, Tensor::zeros(DType::float64, {n}), 6, {2, 3, n});
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}, {"W", w}})[0], product, 1e-14), "");
    EXPECT_EQ(check_gradient(def, {{"X", x}, {"W", w}}, {"X", "W"}), "");
    const OperatorDef named = make_op("FC", {"X", "W", ""}, {"Y"}, {make_arg("axis", 2)});
    EXPECT_EQ(compare(run_op_on(named, {{"X", x}, {"W", w}})[0], product, 1e-14), "");
  }
}

TEST(Fc, GradientComputesWhatIsAskedFor) {
  const Feeds feeds = {
      {"X", normal<double>({3, 5}, 1)}, {"W", normal<double>({4, 5}, 2)}, {"dY", normal<double>({3, 4}, 3)}};
  const auto all = run_op_on(make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db", "dX"}), feeds);
  const auto only_dx = run_op_on(make_op("FCGradient", {"X", "W", "dY"}, {"", "", "dX"}), feeds);
  EXPECT_FALSE(only_dx[0].defined());
  EXPECT_EQ(compare(only_dx[2], all[2], 0), "");
  EXPECT_EQ(compare(run_op_on(make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db"}), feeds)[0], all[0], 0), "");
}

TEST(Fc, BadShapesAreNamed) {
  const Tensor x = normal<double>({3, 5}), w = normal<double>({4, 6}), b = normal<double>({4});
  auto error = [](const Tensor& x, const Tensor& w, const Tensor& b, int axis) {
    return error_of([&] { run_op_on(fc(axis), {{"X", x}, {"W", w}, {"b", b}}); });
  };
  EXPECT_NE(error(x, w, b, 1).find("X [3, 5] has rows of 5 values from axis 1 on, but W [4, 6] takes rows of 6"),
            std::string::npos);
  EXPECT_NE(error(normal<double>({3, 6}), w, normal<double>({5}), 1)
                .find("b is [5], but W [4, 6] gives 4 outputs, so b must be [4]"),
            std::string::npos);
  EXPECT_NE(error(x, w, b, 2).find('2'), std::string::npos);
  EXPECT_NE(error(normal<double>({2, 3, 6}), w, b, 1).find("give it the argument axis: 2"), std::string::npos);
  const std::string gradient = error_of([&] {
    run_op_on(make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db", "dX"}),
              {{"X", normal<double>({3, 6})}, {"W", w}, {"dY", normal<double>({4, 4})}});
  });
  EXPECT_NE(gradient.find("dY is [4, 4], but X [3, 6] and W [4, 6] give an output of [3, 4]"), std::string::npos)
      << gradient;
}

}  // namespace of_fc

namespace of_fc_transposed {

OperatorDef fc(int axis = 1, int axis_w = 1) {
  return make_op("FCTransposed", {"X", "W", "b"}, {"Y"}, {make_arg("axis", axis), make_arg("axis_w", axis_w)});
}

OperatorDef gradient(const std::vector<std::string>& outputs, const std::vector<Argument>& args = {}) {
  return make_op("FCTransposedGradient", {"X", "W", "dY"}, outputs, args);
}

Tensor naive_fc(const Tensor& x, const Tensor& w, const Tensor& b, int64_t m, const Shape& out) {
  const int64_t n = b.size(), k = m > 0 ? x.size() / m : 0;
  Tensor y = Tensor::zeros(DType::float64, out);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = b.data<double>()[j];
      for (int64_t l = 0; l < k; ++l) sum += x.data<double>()[i * k + l] * w.data<double>()[l * n + j];
      y.data<double>()[i * n + j] = sum;
    }
  return y;
}

TEST(FcTransposed, ForwardIsTheProductPlusBias) {
  const Tensor x = normal<double>({3, 5}, 1), w = normal<double>({5, 4}, 2), b = normal<double>({4}, 3);
  EXPECT_EQ(compare(run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 3, {3, 4}), 1e-14), "");
}

TEST(FcTransposed, WithoutABiasIsTheProductAlone) {
  const OperatorDef def = make_op("FCTransposed", {"X", "W"}, {"Y"});
  const Tensor x = normal<double>({3, 5}, 1), w = normal<double>({5, 4}, 2);
  const Tensor product = naive_fc(x, w, Tensor::zeros(DType::float64, {4}), 3, {3, 4});
  EXPECT_EQ(compare(run_op_on(def, {{"X", x}, {"W", w}})[0], product, 1e-14), "");
  EXPECT_EQ(check_gradient(def, {{"X", x}, {"W", w}}, {"X", "W"}), "");
}

TEST(FcTransposed, FloatIsCloseToDouble) {
  const Tensor x = normal<float>({40, 33}, 1), w = normal<float>({33, 17}, 2), b = normal<float>({17}, 3);
  const Tensor y = run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}})[0];
  EXPECT_EQ(compare(y, naive_fc(to_double(x), to_double(w), to_double(b), 40, {40, 17}), 1e-5), "");
}

TEST(FcTransposed, FlattensAtTheAxes) {
  const Tensor x = normal<double>({2, 5, 2, 3}, 1), w = normal<double>({2, 3, 4}, 2), b = normal<double>({4}, 3);
  EXPECT_EQ(compare(run_op_on(fc(2, 2), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 10, {2, 5, 4}), 1e-14),
            "");
}

TEST(FcTransposed, Gradients) {
  const Feeds feeds = {
      {"X", normal<double>({3, 5}, 1)}, {"W", normal<double>({5, 4}, 2)}, {"b", normal<double>({4}, 3)}};
  EXPECT_EQ(check_gradient(fc(), feeds, {"X", "W", "b"}), "");
  const Feeds deep = {
      {"X", normal<double>({2, 3, 2, 2}, 1)}, {"W", normal<double>({2, 2, 3}, 2)}, {"b", normal<double>({3}, 3)}};
  EXPECT_EQ(check_gradient(fc(2, 2), deep, {"X", "W", "b"}), "");
}

TEST(FcTransposed, GradientsOfGradients) {
  const OperatorDef def = gradient({"dW", "db", "dX"}, {make_arg("axis", 2)});
  const Feeds feeds = {
      {"X", normal<double>({2, 3, 5}, 1)}, {"W", normal<double>({5, 4}, 2)}, {"dY", normal<double>({2, 3, 4}, 3)}};
  EXPECT_EQ(check_gradient(def, feeds, {"X", "W", "dY"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}, 1e-7, 1e-5, {"db"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"X", "dY"}, 1e-7, 1e-5, {"dW"}), "");
}

TEST(FcTransposed, SizesOfZeroAndOne) {
  for (const int64_t m : {0, 1})
    for (const int64_t n : {0, 1})
      for (const int64_t k : {0, 1}) {
        const Tensor x = normal<double>({m, k}, 1), w = normal<double>({k, n}, 2), b = normal<double>({n}, 3);
        const Feeds feeds = {{"X", x}, {"W", w}, {"b", b}};
        EXPECT_EQ(compare(run_op_on(fc(), feeds)[0], naive_fc(x, w, b, m, {m, n}), 1e-14), "");
        EXPECT_EQ(check_gradient(fc(), feeds, {"X", "W", "b"}), "") << m << n << k;
      }
}

TEST(FcTransposed, BadShapesAreNamed) {
  const Tensor x = normal<double>({3, 5}), w = normal<double>({6, 4}), b = normal<double>({4});
  auto error = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return error_of([&] { run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}}); });
  };
  EXPECT_NE(error(x, w, b).find("X [3, 5] has rows of 5 values from axis 1 on, but W [6, 4] takes rows of 6"),
            std::string::npos);
  EXPECT_NE(error(normal<double>({3, 6}), w, normal<double>({5}))
                .find("b is [5], but W [6, 4] gives 4 outputs, so b must be [4]"),
            std::string::npos);
  const std::string text = error_of([&] {
    run_op_on(gradient({"dW", "db", "dX"}), {{"X", normal<double>({3, 6})}, {"W", w}, {"dY", normal<double>({4, 4})}});
  });
  EXPECT_NE(text.find("dY is [4, 4], but X [3, 6] and W [6, 4] give an output of [3, 4]"), std::string::npos) << text;
}

}  // namespace of_fc_transposed

namespace of_fc_columns {

// X [m, k] times columns `first` to first + k of W [n, K], plus b.
Tensor naive(const Tensor& x, const Tensor& w, const Tensor& b, int64_t first) {
  const int64_t m = x.dim(0), k = x.dim(1), n = w.dim(0), columns = w.dim(1);
  const Tensor dx = to_double(x), dw = to_double(w), db = to_double(b);
  Tensor y = Tensor::zeros(DType::float64, {m, n});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = db.data<double>()[j];
      for (int64_t l = 0; l < k; ++l) sum += dx.data<double>()[i * k + l] * dw.data<double>()[j * columns + first + l];
      y.data<double>()[i * n + j] = sum;
    }
  return y;
}

OperatorDef columns_op(int64_t first, const std::vector<std::string>& inputs = {"X", "W", "b"}) {
  return make_op("FCColumns", inputs, {"Y"}, {make_arg("first", first)});
}

template <class T>
Feeds feeds_of(int64_t m, int64_t k, int64_t n, int64_t columns) {
  return {{"X", normal<T>({m, k}, 1)}, {"W", normal<T>({n, columns}, 2)}, {"b", normal<T>({n}, 3)}};
}

template <class T>
void check_forward(int64_t m, int64_t k, int64_t n, int64_t columns, double tol) {
  for (int64_t first = 0; first + k <= columns; first += std::max<int64_t>(1, (columns - k) / 2)) {
    const Feeds f = feeds_of<T>(m, k, n, columns);
    const Tensor y = run_op_on(columns_op(first), f)[0];
    EXPECT_EQ(y.dtype(), dtype_of<T>());
    EXPECT_EQ(compare(to_double(y), naive(f[0].second, f[1].second, f[2].second, first), tol), "")
        << fmt::format("{} {} {} of {} from {}", m, k, n, columns, first);
  }
}

// With one row too, which has kernels of its own, and shared out among threads.
TEST(FcColumns, ForwardIsTheProductWithAWindow) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const int64_t m : {1, 3, 70}) {
      check_forward<double>(m, 5, 4, 9, 1e-13);
      check_forward<float>(m, 5, 4, 9, 1e-5);
      check_forward<float>(m, 130, 300, 301, 1e-4);
      check_forward<float>(m, 9, 4, 9, 1e-5);
    }
  }
  set_threads(0);
}

TEST(FcColumns, WithoutABias) {
  const Feeds f = feeds_of<double>(3, 2, 4, 5);
  const Tensor wanted = naive(f[0].second, f[1].second, Tensor::zeros(DType::float64, {4}), 1);
  EXPECT_EQ(compare(run_op_on(columns_op(1, {"X", "W"}), {f[0], f[1]})[0], wanted, 1e-14), "");
  EXPECT_EQ(check_gradient(columns_op(1, {"X", "W"}), {f[0], f[1]}, {"X", "W"}), "");
}

TEST(FcColumns, GradientsForEveryWindow) {
  for (const int64_t first : {0, 2, 4})
    EXPECT_EQ(check_gradient(columns_op(first), feeds_of<double>(3, 5, 4, 9), {"X", "W", "b"}), "") << first;
  EXPECT_EQ(check_gradient(columns_op(0), feeds_of<double>(3, 5, 4, 5), {"X", "W", "b"}), "");
}

OperatorDef gradient_op(const std::vector<std::string>& outputs, int64_t first = 3) {
  return make_op("FCColumnsGradient", {"X", "W", "dY"}, outputs, {make_arg("first", first)});
}

TEST(FcColumns, WeightGradientIsZeroBesideTheWindow) {
  const Feeds f = {{"X", normal<float>({6, 2}, 1)}, {"W", normal<float>({4, 9}, 2)}, {"dY", normal<float>({6, 4}, 3)}};
  const Tensor dw = run_op_on(gradient_op({"dW", "db", "dX"}), f)[0];
  for (int64_t j = 0; j < 4; ++j)
    for (int64_t i = 0; i < 9; ++i) {
      double sum = 0;
      if (i == 3 || i == 4)
        for (int64_t r = 0; r < 6; ++r)
          sum += f[2].second.data<float>()[r * 4 + j] * f[0].second.data<float>()[r * 2 + i - 3];
      EXPECT_NEAR(dw.data<float>()[j * 9 + i], sum, 1e-5) << j << ", " << i;
    }
}

TEST(FcColumns, GradientComputesWhatIsAskedFor) {
  const Feeds f = {
      {"X", normal<double>({3, 5}, 1)}, {"W", normal<double>({4, 9}, 2)}, {"dY", normal<double>({3, 4}, 3)}};
  const auto all = run_op_on(gradient_op({"dW", "db", "dX"}), f);
  const auto only_dx = run_op_on(gradient_op({"", "", "dX"}), f);
  EXPECT_FALSE(only_dx[0].defined());
  EXPECT_EQ(compare(only_dx[2], all[2], 0), "");
  EXPECT_EQ(compare(run_op_on(gradient_op({"dW", "db"}), f)[0], all[0], 0), "");
}

TEST(FcColumns, SizesOfZeroAndOne) {
  for (const int64_t m : {0, 1})
    for (const int64_t n : {0, 1})
      for (const int64_t k : {0, 1})
        for (const int64_t beside : {0, 1, 2})
          for (const int64_t first : {int64_t{0}, beside}) {
            const Feeds f = feeds_of<double>(m, k, n, k + beside);
            const Tensor wanted = naive(f[0].second, f[1].second, f[2].second, first);
            EXPECT_EQ(compare(run_op_on(columns_op(first), f)[0], wanted, 1e-14), "");
            const Feeds single = feeds_of<float>(m, k, n, k + beside);
            const Tensor narrow = naive(single[0].second, single[1].second, single[2].second, first);
            EXPECT_EQ(compare(to_double(run_op_on(columns_op(first), single)[0]), narrow, 1e-6), "");
            EXPECT_EQ(check_gradient(columns_op(first), f, {"X", "W", "b"}), "") << m << n << k << beside << first;
          }
}

// The parts p and q, of 2 and 4 columns, and X, of 3.
struct Placed {
  std::vector<std::string> parts;
  int64_t before;
  bool from_end;
  int64_t first;  // the column that follows from that
};

OperatorDef placed_op(const Placed& p) {
  std::vector<std::string> inputs = {"X", "W", "b"};
  inputs.insert(inputs.end(), p.parts.begin(), p.parts.end());
  return make_op("FCColumns", inputs, {"Y"}, {make_arg("before", p.before), make_arg("from_end", p.from_end)});
}

Feeds placed_feeds() {
  Feeds f = feeds_of<double>(3, 3, 4, 9);
  f.emplace_back("p", normal<double>({3, 2}, 4));
  f.emplace_back("q", normal<double>({3, 4}, 5));
  return f;
}

TEST(FcColumns, PartsSayWhereTheColumnsAre) {
  const Feeds f = placed_feeds();
  for (const Placed& p : {Placed{{"p", "q"}, 2, false, 6},
                          {{"p", "q"}, 2, true, 6},
                          {{"p", "q"}, 1, false, 2},
                          {{"p", "q"}, 1, true, 2},
                          {{"p", "q"}, 0, true, 0},
                          {{"q"}, 1, false, 4},
                          {{"q"}, 0, true, 2},
                          {{"p"}, 0, true, 4},
                          {{}, 0, true, 6},
                          {{}, 0, false, 0}}) {
    const OperatorDef def = placed_op(p);
    EXPECT_EQ(compare(run_op_on(def, f)[0], naive(f[0].second, f[1].second, f[2].second, p.first), 1e-14), "")
        << p.first;
    EXPECT_EQ(check_gradient(def, f, {"X", "W", "b"}), "") << p.first;
  }
}

TEST(FcColumns, RowsBeforeTheAxis) {
  Feeds flat = placed_feeds();
  OperatorDef def = placed_op({{"p", "q"}, 1, false, 2});
  const Tensor wanted = run_op_on(def, flat)[0];
  for (const int axis : {2, -1}) {
    Feeds deep = flat;
    for (const int i : {0, 3, 4}) deep[i].second = deep[i].second.reshaped({1, 3, deep[i].second.dim(1)});
    OperatorDef deep_def = def;
    *deep_def.add_arg() = make_arg("axis", axis);
    EXPECT_EQ(compare(run_op_on(deep_def, deep)[0], wanted.reshaped({1, 3, 4}), 0), "");
    EXPECT_EQ(check_gradient(deep_def, deep, {"X", "W", "b"}), "");
  }
}

std::string error_for(const OperatorDef& def, const Feeds& feeds) {
  return error_of([&] { run_op_on(def, feeds); });
}

TEST(FcColumns, BadInputIsNamed) {
  const Feeds f = placed_feeds();
  auto says = [&](const OperatorDef& def, const char* text) {
    const std::string error = error_for(def, f);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  says(columns_op(7), "X [3, 3] takes 3 columns of W [4, 9] from column 7 on, but W has 9");
  says(columns_op(-1), "argument \"first\" must be at least 0");
  says(placed_op({{"q", "q"}, 2, false, 0}), "X [3, 3] takes 3 columns of W [4, 9] from column 8 on, but W has 9");
  says(placed_op({{"q", "q"}, 0, true, 0}), "from column -2 on");
  const char* unequal =
      "X [3, 3] and the parts beside it have rows of 7 values from axis 1 on, but W [4, 9] takes rows";
  says(placed_op({{"p", "p"}, 1, false, 0}), unequal);
  says(placed_op({{"p", "p"}, 2, true, 0}), unequal);
  says(placed_op({{"p"}, 2, false, 0}), "argument \"before\" is 2, but there are 1 other parts");
  says(placed_op({{"W", "b"}, 1, false, 0}), "differ in their number of dimensions");
  OperatorDef both = placed_op({{"p"}, 1, false, 0});
  *both.add_arg() = make_arg("first", 1);
  says(both, "argument \"first\" is 1, but the other parts");
}

TEST(FcColumns, BadShapesAreNamed) {
  Feeds f = feeds_of<double>(3, 3, 4, 9);
  f[2].second = normal<double>({5});
  EXPECT_NE(error_for(columns_op(0), f).find("b is [5], but W [4, 9] gives 4 outputs, so b must be [4]"),
            std::string::npos);
  f.emplace_back("dY", normal<double>({4, 4}));
  EXPECT_NE(error_for(gradient_op({"dW", "db", "dX"}), f)
                .find("dY is [4, 4], but X [3, 3] and W [4, 9] give an output of [3, 4]"),
            std::string::npos);
}

TEST(FcColumns, GradientsOfGradients) {
  const Feeds f = {
      {"X", normal<double>({3, 2}, 1)}, {"W", normal<double>({4, 9}, 2)}, {"dY", normal<double>({3, 4}, 3)}};
  EXPECT_EQ(check_gradient(gradient_op({"dW", "db", "dX"}), f, {"X", "W", "dY"}), "");
  EXPECT_EQ(check_gradient(gradient_op({"", "", "dX"}), f, {"W", "dY"}), "");
  EXPECT_EQ(check_gradient(gradient_op({"dW"}), f, {"X", "dY"}), "");
  EXPECT_EQ(check_gradient(gradient_op({"", "db"}), f, {"dY"}), "");
}

}  // namespace of_fc_columns

}  // namespace
}  // namespace stepnet::testing::fc_test
