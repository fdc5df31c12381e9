// The twin cell: two passes per step, since the output gate's product waits for the new state.
#include "tools/bench/handwritten/fused_loop.h"

namespace stepnet::bench {
namespace {

constexpr double kOpenCost = 1.5, kCloseCost = 0.7, kBackwardCost = 0.5;  // nanoseconds per unit

class TwinLoop : public LayerLoop {
 public:
  TwinLoop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode)
      : LayerLoop(size, inputs, arrays, mode),
        width_(5 * hidden_),
        gates_(size, inputs, width_, mode),
        step_(false, true, batch_, width_, hidden_),
        output_gate_(false, false, batch_, hidden_, hidden_),
        c_(slab(size.steps + 1, hidden_)),
        o_(slab(size.steps, hidden_)) {
    start_states(h_, "h0");
    if (!training()) return;
    step_back_ = std::make_unique<WeightProduct>(true, true, batch_, hidden_, width_);
    output_gate_back_ = std::make_unique<WeightProduct>(true, true, batch_, hidden_, hidden_);
    tanh_c_ = slab(size.steps, hidden_);
    dc_.resize(static_cast<size_t>(state_));
  }

  void pack() override {
    gates_.pack(given("W_x"));
    step_.pack(given("W_h"));
    output_gate_.pack(given("W_c"));
    if (!training()) return;
    step_back_->pack(given("W_h"));
    output_gate_back_->pack(given("W_c"));
  }

  void forward(const float* x) override {
    start_states(c_, "c0");
    for (int64_t t = 0; t < size_.steps; ++t) {
      if (gates_.starts(t)) gates_.run(t, x);
      step_.run(h_.data() + t * state_, gates_.at(t));
      open(t);
      output_gate_.run(at(c_, t + 1, hidden_), at(o_, t, hidden_));
      close(t);
    }
  }

  void backward(const float* x, const float* dy) override {
    std::fill(dh_.begin(), dh_.end(), 0.0F);
    std::fill(dc_.begin(), dc_.end(), 0.0F);
    for (int64_t t = size_.steps - 1; t >= 0; --t) {
      close_back(t, dy + t * state_);
      output_gate_back_->run(at(o_, t, hidden_), dc_.data());
      open_back(t);
      step_back_->run(gates_.at(t), dh_.data());
    }
    std::copy(dh_.begin(), dh_.end(), gradient("h0"));
    std::copy(dc_.begin(), dc_.end(), gradient("c0"));
    input_gradient(width_, gates_.at(0), given("W_x"));
    weight_gradient(width_, inputs_, gates_.at(0), x, gradient("W_x"));
    weight_gradient(width_, hidden_, gates_.at(0), h_.data(), gradient("W_h"));
    weight_gradient(hidden_, hidden_, o_.data(), c_.data() + state_, gradient("W_c"));
    sum_columns(width_, gates_.at(0), nullptr, gradient("b_x"));
    std::copy_n(gradient("b_x"), width_, gradient("b_h"));
    sum_columns(hidden_, o_.data(), nullptr, gradient("b_c"));
  }

 private:
  void open(int64_t t) {
    const auto kernel = training() ? kernels_.twin_open_keep : kernels_.twin_open;
    each_unit(kOpenCost, kernel, [&](int64_t row) {
      return TwinOpen{hidden_,      gates_.at(t) + row * width_,        given("b_x"),
                      given("b_h"), at(c_, t, hidden_) + row * hidden_, at(c_, t + 1, hidden_) + row * hidden_};
    });
  }

  void close(int64_t t) {
    const auto kernel = training() ? kernels_.twin_close_keep : kernels_.twin_close;
    each_unit(kCloseCost, kernel, [&](int64_t row) {
      const int64_t from = row * hidden_;
      return TwinClose{hidden_,
                       at(o_, t, hidden_) + from,
                       at(training() ? tanh_c_ : o_, t, hidden_) + from,
                       given("b_c"),
                       at(c_, t + 1, hidden_) + from,
                       h_.data() + t * state_ + from,
                       h_.data() + (t + 1) * state_ + from};
    });
  }

  void close_back(int64_t t, const float* dy) {
    each_unit(kBackwardCost, kernels_.twin_close_backward, [&](int64_t row) {
      const int64_t from = row * hidden_;
      return TwinCloseBackward{hidden_,
                               at(o_, t, hidden_) + from,
                               at(tanh_c_, t, hidden_) + from,
                               h_.data() + t * state_ + from,
                               dy + from,
                               dh_.data() + from,
                               dc_.data() + from};
    });
  }

  void open_back(int64_t t) {
    each_unit(kBackwardCost, kernels_.twin_open_backward, [&](int64_t row) {
      return TwinOpenBackward{hidden_, gates_.at(t) + row * width_, at(c_, t, hidden_) + row * hidden_,
                              dc_.data() + row * hidden_};
    });
  }

  int64_t width_;
  InputProduct gates_;
  WeightProduct step_, output_gate_;
  std::unique_ptr<WeightProduct> step_back_, output_gate_back_;
  std::vector<float> c_;  // [T + 1, B, H], the initial state first; forward alone, one that all steps overwrite
  std::vector<float> o_, tanh_c_, dc_;
};

}  // namespace

std::unique_ptr<LayerLoop> make_twin_loop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode) {
  return std::make_unique<TwinLoop>(size, inputs, arrays, mode);
}

}  // namespace stepnet::bench
