// GRU with the reset gate behind the product. The gates' gradients are kept twice, because r stands between the two
// products' parts of the third gate.
#include "tools/bench/handwritten/fused_loop.h"

namespace stepnet::bench {
namespace {

constexpr double kForwardCost = 1.0, kBackwardCost = 0.5;  // nanoseconds per unit

class GruLoop : public LayerLoop {
 public:
  GruLoop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode)
      : LayerLoop(size, inputs, arrays, mode),
        width_(3 * hidden_),
        inputs_product_(size, inputs, width_, mode),
        step_(false, false, batch_, width_, hidden_),
        gates_h_(slab(size.steps, width_)) {
    start_states(h_, "h0");
    if (training()) back_ = std::make_unique<WeightProduct>(true, true, batch_, hidden_, width_);
  }

  void pack() override {
    inputs_product_.pack(given("W_x"));
    step_.pack(given("W_h"));
    if (back_) back_->pack(given("W_h"));
  }

  void forward(const float* x) override {
    const auto kernel = training() ? kernels_.gru_forward_keep : kernels_.gru_forward;
    for (int64_t t = 0; t < size_.steps; ++t) {
      if (inputs_product_.starts(t)) inputs_product_.run(t, x);
      const float* const h_prev = h_.data() + t * state_;
      float* const gates_h = at(gates_h_, t, width_);
      step_.run(h_prev, gates_h);
      const GruForward first{hidden_, inputs_product_.at(t),       gates_h, given("b_x"), given("b_h"),
                             h_prev,  h_.data() + (t + 1) * state_};
      each_unit(kForwardCost, kernel, [&](int64_t row) {
        GruForward s = first;
        s.gates_x += row * width_;
        s.gates_h += row * width_;
        s.h_prev += row * hidden_;
        s.h += row * hidden_;
        return s;
      });
    }
  }

  void backward(const float* x, const float* dy) override {
    std::fill(dh_.begin(), dh_.end(), 0.0F);
    for (int64_t t = size_.steps - 1; t >= 0; --t) {
      const GruBackward first{
          hidden_, inputs_product_.at(t), at(gates_h_, t, width_), h_.data() + t * state_, dy + t * state_, dh_.data()};
      each_unit(kBackwardCost, kernels_.gru_backward, [&](int64_t row) {
        GruBackward s = first;
        s.gates_x += row * width_;
        s.gates_h += row * width_;
        s.h_prev += row * hidden_;
        s.dy += row * hidden_;
        s.dh += row * hidden_;
        return s;
      });
      back_->run(first.gates_h, dh_.data());
    }
    std::copy(dh_.begin(), dh_.end(), gradient("h0"));
    const float *const gates_x = inputs_product_.at(0), *const gates_h = gates_h_.data();
    input_gradient(width_, gates_x, given("W_x"));
    weight_gradient(width_, inputs_, gates_x, x, gradient("W_x"));
    weight_gradient(width_, hidden_, gates_h, h_.data(), gradient("W_h"));
    sum_columns(width_, gates_x, nullptr, gradient("b_x"));
    sum_columns(width_, gates_h, nullptr, gradient("b_h"));
  }

 private:
  int64_t width_;
  InputProduct inputs_product_;
  WeightProduct step_;
  std::unique_ptr<WeightProduct> back_;
  std::vector<float> gates_h_;
};

}  // namespace

std::unique_ptr<LayerLoop> make_gru_loop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode) {
  return std::make_unique<GruLoop>(size, inputs, arrays, mode);
}

}  // namespace stepnet::bench
