#include <gtest/gtest.h>
#include <chrono>
#include "tests/core/recompute_testing.h"
namespace stepnet::testing { namespace {
TrainingCase big(int layers) {
  Lines lines; Feeds feeds{{"x", Tensor::zeros(DType::float32, {128, 64})}}; std::vector<std::string> trained; std::string at="x";
  for (int l = 0; l < layers; ++l) {
    for (auto [n, a, b] : {std::tuple{"h", 256, 64}, {"o", 64, 256}}) { feeds.emplace_back(fmt::format("W{}{}", n, l), Tensor::zeros(DType::float32, {a, b})); feeds.emplace_back(fmt::format("b{}{}", n, l), Tensor::zeros(DType::float32, {a})); trained.push_back(fmt::format("W{}{}", n, l)); trained.push_back(fmt::format("b{}{}", n, l)); }
    lines.push_back(fmt::format("n{0}, mean{0}, std{0} = LayerNorm({1})", l, at));
    lines.push_back(fmt::format("h{0} = FC(n{0}, Wh{0}, bh{0})", l));
    lines.push_back(fmt::format("g{0} = Gelu(h{0})", l));
    lines.push_back(fmt::format("o{0} = FC(g{0}, Wo{0}, bo{0})", l));
    lines.push_back(fmt::format("d{0}, m{0} = Dropout(o{0})", l));
    lines.push_back(fmt::format("x{0} = Add(d{0}, {1})", l, at));
    at = fmt::format("x{}", l);
  }
  lines.push_back(fmt::format("q = Mul({0}, {0})", at)); lines.push_back("loss = AveragedLoss(q)");
  return training_case("big", lines, feeds, trained);
}
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
TEST(RecomputeCurve, Big) {
  for (int layers : {4, 16, 48, 80, 160}) {
    auto c = big(layers); double t0 = now();
    RecomputePlanner p(c.net, c.first_gradient_op, c.question); double t1 = now();
    auto curve = p.curve(9); double t2 = now();
    std::cout << layers << " layers, ops " << c.net.op_size() << " first " << c.first_gradient_op << " planner " << t1-t0 << " s, curve " << t2-t1 << " s, lasting " << value_net(c.net, c.first_gradient_op, c.question).lasting << "\n";
    for (auto& x : curve) std::cout << "  " << x.peak << " " << 100*x.extra_flops/x.flops << "% segments " << x.segments.size() << "\n";
  }
}
TEST(RecomputeCurve, Examples) {
  for (auto& c : example_cases(1)) { RecomputePlanner p(c.net, c.first_gradient_op, c.question); auto last = value_net(c.net, c.first_gradient_op, c.question).lasting;
    std::cout << c.name << " lasting " << last << "\n"; for (auto& x : p.curve(7)) std::cout << "  " << x.peak - last << " " << 100*x.extra_flops/x.flops << "%\n"; }
}
}}
