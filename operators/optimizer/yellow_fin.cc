// YellowFin (Zhang and Mitliagkas 2017, "YellowFin and the art of momentum tuning"): momentum SGD that tunes the rate
// and the momentum of each parameter by itself, after each step for the next:
//
//   m = mu m + lr g,  param = param - m, or with nesterov param - (1 + mu) m + mu (m of before)
//   h = max(|g|^2, epsilon); w: log h of the last curv_win_width steps; E: running means by beta, corrected
//   h_min = exp E(min w), h_max = exp E(max w), variance = E(h) - |E(g)|^2, D = E(E(sqrt h) / E(h))
//   x: the root of p x = (1 - x)^3 where p = (D h_min)^2 / (2 variance)
//   mu = E(max(x^2, ((r - 1) / (r + 1))^2)) where r = sqrt(h_max / h_min),  lr = E((1 - sqrt mu)^2 / h_min)
//
// h_min, h_max, variance and E's values are at least epsilon; the means of lr and mu are not corrected. In the first
// step lr and mu stay as they are. No derivative: it changes parameters.

#include "operators/optimizer/yellow_fin.h"

#include "core/operator/flops.h"

namespace stepnet::cpu_yellow_fin {
namespace {

// Places of inputs, and of the outputs before kGrad.
constexpr int kParam = 0, kMoment = 1, kLr = 2, kMu = 3, kWindow = 4, kMean = 5, kSquares = 6, kMeans = 7, kGrad = 8,
              kIter = 9;

void shape(const YellowFinArgs& args, ShapeCall& call) {
  for (const auto& [i, name] : {std::pair{kMoment, "moment"}, {kMean, "g_avg"}, {kSquares, "g2_avg"}, {kGrad, "grad"}})
    require_same_shape(call, i, name, kParam, "param");
  for (const auto& [i, name] : {std::pair{kLr, "lr_avg"}, {kMu, "mu_avg"}, {kIter, "iter"}})
    require_one_value(call, i, name);
  if (call.known(kWindow))
    require(call.shape(kWindow).size() == args.curv_win_width,
            "curv_win must hold curv_win_width = {} values, but has shape {}", args.curv_win_width,
            call.shape(kWindow));
  if (call.known(kMeans))
    require(call.shape(kMeans).size() == kYellowFinMeans, "scalars_memory must hold {} values, but has shape {}",
            kYellowFinMeans, call.shape(kMeans));
  for (int i = 0; i < kGrad; ++i) call.set_like(i, i);
}

template <class T>
void yellow_fin(const YellowFinArgs& args, In<T> param, In<T> moment, In<T> lr, In<T> mu, In<T> window, In<T> g,
                In<T> g2, In<T> means, In<T> grad, const Tensor& iter, Call& call) {
  const auto at = iter.item<int64_t>();
  require(at >= 1, "iter is {}, but steps are counted from 1 on", at);
  const YellowFin<T> step(args, at);
  const Out<T> new_param = call.out_span<T>(kParam), new_moment = call.out_span<T>(kMoment),
               new_g = call.out_span<T>(kMean), new_g2 = call.out_span<T>(kSquares);
  const T rate = lr[0], momentum = mu[0];
  double squares = 0, mean_squares = 0;
  for (size_t i = 0; i < param.size(); ++i) {
    squares += static_cast<double>(grad[i]) * static_cast<double>(grad[i]);
    mean_squares += step.step(rate, momentum, grad[i], &param[i], &moment[i], &g[i], &g2[i], &new_param[i],
                              &new_moment[i], &new_g[i], &new_g2[i]);
  }
  step.tune({lr.data(), mu.data(), window.data(), means.data(), call.out_span<T>(kLr).data(),
             call.out_span<T>(kMu).data(), call.out_span<T>(kWindow).data(), call.out_span<T>(kMeans).data()},
            squares, mean_squares);
}

// The sum of the gradient's squares.
std::vector<int64_t> gpu_workspace(const YellowFinArgs&, const Call&) { return {sizeof(double)}; }

REGISTER(yellow_fin) {
  return op<YellowFinArgs>("YellowFin")
      .doc(
          "One step of SGD with momentum that tunes its rate and its momentum by itself. Start lr_avg and mu_avg at "
          "what the first two steps use, and all else at 0.")
      .arg("beta", &YellowFinArgs::beta, 0.999f, "decay of the running means", decay_rate())
      .arg("curv_win_width", &YellowFinArgs::curv_win_width, int64_t{20},
           "of how many steps the least and the greatest square of the gradient are sought", at_least(1))
      .arg("epsilon", &YellowFinArgs::epsilon, 1e-6f, "the least square and variance", greater_than(0))
      .arg("nesterov", &YellowFinArgs::nesterov, false, "Nesterov's momentum")
      .arg("zero_debias", &YellowFinArgs::zero_debias, true, "divide means by 1 - beta^iter")
      .input("param", "the parameter, any shape")
      .input("moment", "of the parameter's shape")
      .input("lr_avg", "the learning rate, one value")
      .input("mu_avg", "the momentum, one value")
      .input("curv_win", "[curv_win_width], the logarithms of the last squares")
      .input("g_avg", "running mean of the gradient, of the parameter's shape")
      .input("g2_avg", "running mean of its square, of the parameter's shape; no result depends on it")
      .input("scalars_memory", "[5], other running means")
      .input("grad", "the gradient, of the parameter's shape")
      .input("iter", "which step this is, from 1 on, one value")
      .types({DType::int64, DType::int32})
      .output("output_param", "the parameter after the step")
      .output("output_moment", "the moment after the step")
      .output("output_lr_avg", "the next step's learning rate")
      .output("output_mu_avg", "the next step's momentum")
      .output("output_curv_win", "the logarithms after the step")
      .output("output_g_avg", "the mean after the step")
      .output("output_g2_avg", "the mean square after the step")
      .output("output_scalars_memory", "the other means after the step")
      .in_place("param", "output_param")
      .in_place("moment", "output_moment")
      .in_place("lr_avg", "output_lr_avg")
      .in_place("mu_avg", "output_mu_avg")
      .in_place("curv_win", "output_curv_win")
      .in_place("g_avg", "output_g_avg")
      .in_place("g2_avg", "output_g2_avg")
      .in_place("scalars_memory", "output_scalars_memory")
      .shape(shape)
      .flops([](const YellowFinArgs& a, const ShapeCall& c) {
        return (a.nesterov ? 17 : 15) * input_size(c, kGrad) + 58 + (a.nesterov ? 1 : 0);
      })
      .gpu_workspace(gpu_workspace)
      .precision(Precision::float32)
      .cpu(yellow_fin<float>, yellow_fin<double>)
      .no_gradient("it changes parameters")
      .example({"param=2,3", "moment=2,3", "lr_avg=1,0..2", "mu_avg=1,0..1", "curv_win=20", "g_avg=2,3",
                "g2_avg=2,3,0..2", "scalars_memory=5,0..2", "grad=2,3", "iter=int64,1:4"},
               {"beta=0.5"})
      .example({"param=1", "moment=1", "lr_avg=1,0..2", "mu_avg=1,0..1", "curv_win=2", "g_avg=1", "g2_avg=1,0..2",
                "scalars_memory=5,0..2", "grad=1", "iter=int32,:1"},
               {"curv_win_width=2", "nesterov=1", "beta=0.5"})
      .example({"param=0", "moment=0", "lr_avg=1,0..2", "mu_avg=1,0..1", "curv_win=20", "g_avg=0", "g2_avg=0",
                "scalars_memory=5,0..2", "grad=0", "iter=int64,1:4"},
               {"zero_debias=0"});
}

}  // namespace
}  // namespace stepnet::cpu_yellow_fin
