// AddPadding, RemovePadding and GatherPadding: against loops, gradients, and what they refuse.
#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::add_padding_test {
namespace {

struct Case {
  Shape data;
  std::vector<int32_t> lengths;
  int start = 1, end = -1;
  int64_t padding() const { return start + (end < 0 ? start : end); }
};
const Case kCases[] = {{{5, 2}, {2, 0, 3}}, {{5, 2}, {2, 0, 3}, 2, 0}, {{4}, {4}, 0, 3},
                       {{0, 3}, {0, 0}},    {{3, 1, 2}, {1, 2}, 0, 0}, {{0, 2}, {}},
                       {{3, 0}, {2, 1}}};

std::vector<Argument> widths(const Case& c) {
  return {make_arg("padding_width", c.start), make_arg("end_padding_width", c.end)};
}

OperatorDef add(const Case& c, const std::vector<std::string>& inputs = {"D", "L", "S", "E"}) {
  return make_op("AddPadding", inputs, {"Y", "M"}, widths(c));
}
OperatorDef remove(const Case& c) { return make_op("RemovePadding", {"D", "L"}, {"Y", "M"}, widths(c)); }
OperatorDef gather(const Case& c, const std::vector<std::string>& outputs) {
  return make_op("GatherPadding", {"D", "L"}, outputs, widths(c));
}

Tensor ints(const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>({static_cast<int64_t>(values.size())}, values);
}

Tensor padded_lengths(const Case& c) {
  std::vector<int32_t> lengths = c.lengths;
  for (int32_t& length : lengths) length += static_cast<int32_t>(c.padding());
  return ints(lengths);
}

Feeds feeds_of(const Case& c) {
  return {{"D", normal<double>(c.data)},
          {"L", ints(c.lengths)},
          {"S", normal<double>(c.data.from(1), 2)},
          {"E", normal<double>(c.data.from(1), 3)}};
}

// Row by row, as the three operators are defined together: fn(row of the padded data, kind, row of the data).
template <class Fn>
void for_rows(const Case& c, const Fn& fn) {
  const int64_t end = c.padding() - c.start;
  int64_t from = 0, to = 0;
  for (const int32_t length : c.lengths) {
    for (int64_t k = 0; k < c.start; ++k) fn(to++, 'S', int64_t{0});
    for (int64_t k = 0; k < length; ++k) fn(to++, 'D', from++);
    for (int64_t k = 0; k < end; ++k) fn(to++, 'E', int64_t{0});
  }
}

Tensor padded(const Case& c, const Tensor& d, const Tensor& s, const Tensor& e) {
  const int64_t row = s.size(), segments = static_cast<int64_t>(c.lengths.size());
  Tensor y = Tensor::zeros(DType::float64, c.data.with(0, c.data[0] + segments * c.padding()));
  for_rows(c, [&](int64_t to, char kind, int64_t from) {
    const Tensor& source = kind == 'D' ? d : kind == 'S' ? s : e;
    for (int64_t j = 0; j < row; ++j) y.data<double>()[to * row + j] = source.data<double>()[from * row + j];
  });
  return y;
}

TEST(AddPadding, IsTheLoop) {
  for (const Case& c : kCases) {
    const Feeds f = feeds_of(c);
    const Tensor d = f[0].second, s = f[2].second, e = f[3].second;
    const Tensor zeros = Tensor::zeros(DType::float64, s.shape());
    const auto both = run_op_on(add(c), f);
    EXPECT_EQ(compare(both[0], padded(c, d, s, e), 0), "");
    EXPECT_EQ(compare(both[1], padded_lengths(c), 0), "");
    EXPECT_EQ(compare(run_op_on(add(c, {"D", "L", "S"}), f)[0], padded(c, d, s, s), 0), "");
    EXPECT_EQ(compare(run_op_on(add(c, {"D", "L"}), f)[0], padded(c, d, zeros, zeros), 0), "");
  }
}

TEST(AddPadding, IsRemovedAndGathered) {
  for (const Case& c : kCases) {
    const Feeds f = feeds_of(c);
    const Tensor y = run_op_on(add(c), f)[0];
    const Feeds g = {{"D", y}, {"L", padded_lengths(c)}};
    const auto removed = run_op_on(remove(c), g);
    EXPECT_EQ(compare(removed[0], f[0].second, 0), "");
    EXPECT_EQ(compare(removed[1], ints(c.lengths), 0), "");
    Tensor start = Tensor::zeros(DType::float64, c.data.from(1)), end = start.clone(), all = start.clone();
    for_rows(c, [&](int64_t at, char kind, int64_t) {
      for (int64_t j = 0; kind != 'D' && j < start.size(); ++j) {
        const double value = y.data<double>()[at * start.size() + j];
        (kind == 'S' ? start : end).data<double>()[j] += value;
        all.data<double>()[j] += value;
      }
    });
    const auto sums = run_op_on(gather(c, {"PS", "PE"}), g);
    EXPECT_EQ(compare(sums[0], start, 1e-14), "");
    EXPECT_EQ(compare(sums[1], end, 1e-14), "");
    EXPECT_EQ(compare(run_op_on(gather(c, {"PS"}), g)[0], all, 1e-14), "");
  }
}

TEST(AddPadding, OneSegmentWithoutLengths) {
  const Feeds f = {{"D", Tensor::of<int64_t>({2}, {5, 6})}};
  const auto y = run_op_on(make_op("AddPadding", {"D"}, {"Y", "M"}, {make_arg("end_padding_width", 2)}), f);
  EXPECT_EQ(compare(y[0], Tensor::of<int64_t>({5}, {0, 5, 6, 0, 0}), 0), "");
  EXPECT_EQ(compare(y[1], Tensor::of<int32_t>({1}, {5}), 0), "");
  const auto x = run_op_on(make_op("RemovePadding", {"D"}, {"Y"}), {{"D", y[0]}});
  EXPECT_EQ(compare(x[0], Tensor::of<int64_t>({3}, {5, 6, 0}), 0), "");
  const Feeds doubles = {{"D", normal<double>({4, 2})}};
  for (const char* type : {"AddPadding", "RemovePadding", "GatherPadding"})
    EXPECT_EQ(check_gradient(make_op(type, {"D"}, {"Y"}), doubles, {"D"}), "") << type;
}

TEST(AddPadding, Gradients) {
  for (const Case& c : kCases) {
    const Feeds f = feeds_of(c);
    EXPECT_EQ(check_gradient(add(c), f, {"D", "S", "E"}), "");
    EXPECT_EQ(check_gradient(add(c, {"D", "L", "S"}), f, {"D", "S"}), "");
    EXPECT_EQ(check_gradient(add(c, {"D", "L"}), f, {"D"}), "");
    const Feeds g = {{"D", run_op_on(add(c), f)[0]}, {"L", padded_lengths(c)}};
    EXPECT_EQ(check_gradient(remove(c), g, {"D"}), "");
    EXPECT_EQ(check_gradient(gather(c, {"PS", "PE"}), g, {"D"}), "");
    EXPECT_EQ(check_gradient(gather(c, {"PS"}), g, {"D"}), "");
    EXPECT_EQ(check_gradient(gather(c, {"PS", "PE"}), g, {"D"}, 1e-7, 1e-5, {"PE"}), "");
  }
}

TEST(AddPadding, GradientsWithoutTheLengthsOfTheOutput) {
  for (const Case& c : kCases) {
    const Feeds f = feeds_of(c);
    OperatorDef adding = add(c), removing = remove(c);
    adding.mutable_output()->RemoveLast();
    removing.mutable_output()->RemoveLast();
    EXPECT_EQ(check_gradient(adding, f, {"D", "S", "E"}), "");
    const Feeds g = {{"D", run_op_on(add(c), f)[0]}, {"L", padded_lengths(c)}};
    EXPECT_EQ(check_gradient(removing, g, {"D"}), "");
  }
}

// Of the data only the shape is read, for gradients of the padding and of its sums alike.
TEST(AddPadding, GradientsReadNoData) {
  for (const char* type : {"AddPadding", "RemovePadding", "GatherPadding"}) {
    NetDef net;
    for (const char* name : {"D", "L", "dY"}) net.add_external_input(name);
    *net.add_op() = make_op(type, {"D", "L"}, {"Y"});
    const GradientResult result = add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {"D"}, .stop = {}});
    EXPECT_EQ(result.kept, std::set<std::string>{"L"}) << type;
  }
}

std::string fact_of(const OperatorDef& op, const Feeds& feeds) {
  const std::string text = error_of([&] { run_op_on(op, feeds); });
  return text.substr(0, text.find('\n'));
}

TEST(AddPadding, Errors) {
  const Tensor data = normal<double>({5, 2});
  auto add_to = [&](const Tensor& d, const std::vector<int32_t>& lengths, const std::vector<Argument>& args = {}) {
    return fact_of(make_op("AddPadding", {"D", "L"}, {"Y", "M"}, args), {{"D", d}, {"L", ints(lengths)}});
  };
  EXPECT_EQ(add_to(data, {2, 2}), "AddPadding: the lengths add up to 4, but there are 5 rows");
  EXPECT_EQ(add_to(data, {6, -1}), "AddPadding: length 1 is -1, which is negative");
  EXPECT_EQ(add_to(normal<double>({}), {1}), "AddPadding: the data are a single value, which has no rows");
  EXPECT_EQ(add_to(data, {5}, {make_arg("padding_width", -1)}),
            "AddPadding: argument \"padding_width\" must be at least 0, but is -1");
  const int64_t huge = int64_t{1} << 62;
  EXPECT_EQ(add_to(data, {5}, {make_arg("padding_width", huge)}),
            "AddPadding: paddings of 4611686018427387904 and 4611686018427387904 rows are too large");
  EXPECT_EQ(add_to(normal<double>({3, 0}), {3}, {make_arg("padding_width", huge / 2)}),
            "AddPadding: the length of a segment with its padding, 4611686018427387907 does not fit int32");
  const Feeds feeds = {{"D", data}, {"L", ints({5})}, {"S", normal<double>({3})}, {"F", normal<float>({2})}};
  EXPECT_EQ(fact_of(make_op("AddPadding", {"D", "L", "S"}, {"Y"}), feeds),
            "AddPadding: start_padding must be one row of the data double[5, 2], but is double[3]");
  EXPECT_EQ(fact_of(make_op("AddPadding", {"D", "L", "F"}, {"Y"}), feeds),
            "AddPadding: start_padding must be one row of the data double[5, 2], but is float[2]");
  EXPECT_EQ(fact_of(make_op("GatherPadding", {"D", "L"}, {"A", "B", "C"}), feeds),
            "GatherPadding: there are two sums at most, but 3 outputs");
  for (const std::string type : {"RemovePadding", "GatherPadding"}) {
    auto fact = [&](const std::vector<int32_t>& lengths) {
      return fact_of(make_op(type, {"D", "L"}, {"Y"}), {{"D", data}, {"L", ints(lengths)}});
    };
    EXPECT_EQ(fact({1, 4}), type + ": length 0 is 1, less than the 2 rows of its padding");
    EXPECT_EQ(fact({1, 2, 2}), type + ": the data have 5 rows, fewer than the 6 of the paddings of 3 segments");
  }
}

}  // namespace
}  // namespace stepnet::testing::add_padding_test
