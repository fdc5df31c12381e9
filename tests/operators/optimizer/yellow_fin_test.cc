// YellowFin against what Caffe2 1.10 gives after seven steps, and against its formula in double.
#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::yellow_fin_test {
namespace {

const std::vector<std::string> kStates = {"p", "m", "lr", "mu", "w", "g1", "g2", "mem"};

OperatorDef operator_of(std::vector<Argument> args, const std::string& suffix = "") {
  std::vector<std::string> inputs = kStates, outputs;
  inputs.insert(inputs.end(), {"g", "it"});
  for (const std::string& name : kStates) outputs.push_back(name + suffix);
  args.push_back(make_arg("curv_win_width", 4));
  args.push_back(make_arg("beta", 0.9F));
  return make_op("YellowFin", inputs, outputs, args);
}

template <class T>
void feed_start(Workspace& w, const Shape& shape, const Tensor& param) {
  w.tensor("p") = param.clone();
  for (const char* name : {"m", "g1", "g2"}) w.tensor(name) = Tensor::zeros(dtype_of<T>(), shape);
  w.tensor("lr") = Tensor::of<T>({1}, {T(0.1F)});
  w.tensor("mu") = Tensor::of<T>({1}, {T(0.2F)});
  w.tensor("w") = Tensor::zeros(dtype_of<T>(), {4});
  w.tensor("mem") = Tensor::zeros(dtype_of<T>(), {5});
}

void expect_after_seven(const std::vector<Argument>& args, const std::vector<float>& param, float lr, float mu) {
  Workspace w;
  feed_start<float>(w, {3}, Tensor::of<float>({3}, {1, 2, -0.5F}));
  w.create("g");
  w.create("it");
  NetDef def;
  *def.add_op() = operator_of(args);
  Net net(def, w);
  RunContext run;
  for (int64_t it = 1; it < 8; ++it) {
    const auto at = static_cast<float>(it), less = 0.1F * at * at;
    w.tensor("g") = Tensor::of<float>({3}, {0.5F * at - less, -0.6F * at - less, 0.01F * at - less});
    w.tensor("it") = Tensor::of<int64_t>({1}, {it});
    net.run(run);
  }
  EXPECT_EQ(compare(w.fetch("p"), Tensor::of<float>({3}, std::span(param)), 1e-5), "");
  EXPECT_EQ(compare(w.fetch("lr"), Tensor::of<float>({1}, {lr}), 1e-5), "");
  EXPECT_EQ(compare(w.fetch("mu"), Tensor::of<float>({1}, {mu}), 1e-5), "");
  EXPECT_EQ(compare(w.fetch("w"), Tensor::of<float>({4}, {3.5905082F, 4.1702495F, 4.6830468F, 2.9228175F}), 1e-5), "");
  EXPECT_EQ(compare(w.fetch("g1"), Tensor::of<float>({3}, {-0.068786979F, -2.6039269F, -1.1980765F}), 1e-5), "");
  EXPECT_EQ(compare(w.fetch("g2"), Tensor::of<float>({3}, {0.29344437F, 17.218758F, 4.1829643F}), 1e-5), "");
  EXPECT_EQ(compare(w.fetch("mem"),
                    Tensor::of<float>({5}, {2.9025726F, 21.695166F, 0.46971089F, 1.5311099F, 0.2037214F}), 1e-5),
            "");
}

TEST(YellowFin, IsThatOfThePublicFormat) {
  const Argument nesterov = make_arg("nesterov", 1), plain = make_arg("zero_debias", 0);
  expect_after_seven({}, {1.00099003F, 7.7714548F, 2.07146978F}, 0.13833345F, 0.30222031F);
  expect_after_seven({plain}, {0.9115119F, 5.5307989F, 1.0237397F}, 0.07196002F, 0.41370589F);
  expect_after_seven({nesterov}, {1.06865847F, 8.1795921F, 2.2908010F}, 0.13833345F, 0.30222031F);
  expect_after_seven({nesterov, plain}, {0.96545798F, 5.8298974F, 1.1868901F}, 0.07196002F, 0.41370589F);
}

// The same results in other blobs, in either type and for shapes of any size.
TEST(YellowFin, OutputsMayBeApart) {
  for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{0}, Shape{1}})
    for (const int64_t it : {1, 2, 9}) {
      Workspace w;
      feed_start<double>(w, shape, normal<double>(shape, 1));
      w.tensor("g") = normal<double>(shape, 2);
      w.tensor("it") = Tensor::of<int64_t>({1}, {it});
      NetDef def;
      *def.add_op() = operator_of({}, "_apart");
      *def.add_op() = operator_of({});
      RunContext run;
      run_net_once(def, w, run);
      for (const std::string& name : kStates)
        EXPECT_EQ(compare(w.fetch(name), w.fetch(name + "_apart"), 0), "") << name << " of " << shape.str();
      EXPECT_EQ(w.fetch("lr").item<double>() == double{0.1F}, it == 1);
    }
}

// p x = (1 - x)^3 of the class's comment, which the closed form must solve.
TEST(YellowFin, SolvesItsEquation) {
  Workspace w;
  feed_start<double>(w, {2}, Tensor::of<double>({2}, {0, 0}));
  w.tensor("g") = Tensor::of<double>({2}, {0.75, -0.5});
  w.tensor("it") = Tensor::of<int64_t>({1}, {2});
  w.tensor("w") = Tensor::of<double>({4}, {std::log(0.8125), 0, 0, 0});  // so that the range is 1
  NetDef def;
  *def.add_op() = operator_of({make_arg("zero_debias", 0)});
  RunContext run;
  run_net_once(def, w, run);
  const double beta = double{0.9F}, share = 1 - beta, square = 0.8125;
  const double variance = share * square - share * share * square;
  const double least = std::exp(share * std::log(square));
  const double distance = share * (std::sqrt(square) / square), p = std::pow(distance * least, 2) / (2 * variance);
  const double mu = (w.fetch("mu").item<double>() - beta * double{0.2F}) / share, x = std::sqrt(mu);
  EXPECT_NEAR(p * x, std::pow(1 - x, 3), 1e-9);
  EXPECT_NEAR(w.fetch("lr").item<double>(), beta * double{0.1F} + share * std::pow(1 - x, 2) / least, 1e-9);
}

TEST(YellowFin, RefusesWhatDoesNotFit) {
  const auto error = [](const std::string& name, const Tensor& value) {
    Workspace w;
    feed_start<float>(w, {3}, normal<float>({3}));
    w.tensor("g") = normal<float>({3});
    w.tensor("it") = Tensor::of<int64_t>({1}, {1});
    w.tensor(name) = value.clone();
    NetDef def;
    *def.add_op() = operator_of({});
    RunContext run;
    return error_of([&] { run_net_once(def, w, run); });
  };
  EXPECT_NE(error("it", Tensor::of<int64_t>({1}, {0})).find("iter is 0, but steps are counted from 1 on"),
            std::string::npos);
  EXPECT_NE(error("w", normal<float>({5})).find("curv_win must hold curv_win_width = 4 values, but has shape [5]"),
            std::string::npos);
  EXPECT_NE(error("mem", normal<float>({4})).find("scalars_memory must hold 5 values, but has shape [4]"),
            std::string::npos);
  EXPECT_NE(error("g2", normal<float>({2})).find("g2_avg has shape [2], but param [3]"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::yellow_fin_test
