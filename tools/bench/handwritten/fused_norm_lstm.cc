// LSTM with layer normalisation of both products and of the new state. What goes through the inputs' normalisation is
// done for a block of timesteps before them, and its gradient after the last step.
#include "tools/bench/handwritten/fused_loop.h"

namespace stepnet::bench {
namespace {

constexpr double kNormCost = 1.0, kForwardCost = 2.5, kBackwardCost = 1.5;  // nanoseconds per unit

class NormLstmLoop : public LayerLoop {
 public:
  NormLstmLoop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode)
      : LayerLoop(size, inputs, arrays, mode),
        width_(4 * hidden_),
        norm_x_(size, inputs, width_, mode),
        step_(false, false, batch_, width_, hidden_),
        norm_h_(slab(size.steps, width_)),
        gates_(slab(size.steps, width_)),
        c_(slab(size.steps + 1, hidden_)),
        norm_c_(slab(size.steps, hidden_)),
        tanh_c_(slab(size.steps, hidden_)),
        factor_x_(static_cast<size_t>(size.steps * batch_)),
        factor_h_(factor_x_),
        factor_c_(factor_x_),
        shift_(static_cast<size_t>(width_)) {
    start_states(h_, "h0");
    if (!training()) return;
    back_ = std::make_unique<WeightProduct>(true, false, batch_, hidden_, width_);
    gates_h_ = slab(size.steps, width_);
    dc_.resize(static_cast<size_t>(state_));
  }

  void pack() override {
    norm_x_.pack(given("W_x"));
    step_.pack(given("W_h"));
    if (back_) back_->pack(given("W_h"));
    for (int64_t j = 0; j < width_; ++j) shift_[static_cast<size_t>(j)] = given("d_x")[j] + given("d_h")[j];
  }

  void forward(const float* x) override {
    start_states(c_, "c0");
    for (int64_t t = 0; t < size_.steps; ++t) {
      if (norm_x_.starts(t)) {
        const int64_t rows = norm_x_.run(t, x);
        each_row(rows, kNormCost, kernels_.normalize_row, [&](int64_t row) {
          return NormalizeRow{width_, norm_x_.at(t) + row * width_, given("b_x"), &factor_x_.at(index(t, row))};
        });
      }
      step_.run(h_.data() + t * state_, at(norm_h_, t, width_));
      each_row(batch_, kForwardCost, kernels_.norm_lstm_forward, [&](int64_t row) { return forward_row(t, row); });
    }
  }

  void backward(const float* x, const float* dy) override {
    std::fill(dh_.begin(), dh_.end(), 0.0F);
    std::fill(dc_.begin(), dc_.end(), 0.0F);
    for (int64_t t = size_.steps - 1; t >= 0; --t) {
      each_row(batch_, kBackwardCost, kernels_.norm_lstm_backward,
               [&](int64_t row) { return backward_row(t, row, dy + t * state_); });
      back_->run(at(gates_h_, t, width_), dh_.data());
    }
    std::copy(dh_.begin(), dh_.end(), gradient("h0"));
    std::copy(dc_.begin(), dc_.end(), gradient("c0"));
    gradients_of_gains();
    float* const norm_x = norm_x_.at(0);  // from here on the gradient in front of the normalisation
    each_row(size_.steps * batch_, kNormCost, kernels_.normalize_row_backward, [&](int64_t row) {
      const int64_t from = row * width_;
      return NormalizeRowBackward{width_,        gates_.data() + from,        given("s_x"),
                                  norm_x + from, factor_x_.at(index(0, row)), norm_x + from};
    });
    input_gradient(width_, norm_x, given("W_x"));
    weight_gradient(width_, inputs_, norm_x, x, gradient("W_x"));
    weight_gradient(width_, hidden_, gates_h_.data(), h_.data(), gradient("W_h"));
    sum_columns(width_, norm_x, nullptr, gradient("b_x"));
    sum_columns(width_, gates_h_.data(), nullptr, gradient("b_h"));
  }

 private:
  size_t index(int64_t t, int64_t row) const { return static_cast<size_t>(t * batch_ + row); }

  NormLstmForward forward_row(int64_t t, int64_t row) {
    const int64_t unit = row * hidden_, gate = row * width_;
    return {.hidden = hidden_,
            .norm_x = norm_x_.at(t) + gate,
            .gain_x = given("s_x"),
            .gain_h = given("s_h"),
            .shift = shift_.data(),
            .gain_c = given("s_c"),
            .shift_c = given("d_c"),
            .b_h = given("b_h"),
            .c_prev = at(c_, t, hidden_) + unit,
            .norm_h = at(norm_h_, t, width_) + gate,
            .factor_h = &factor_h_[index(t, row)],
            .gates = at(gates_, t, width_) + gate,
            .c = at(c_, t + 1, hidden_) + unit,
            .norm_c = at(norm_c_, t, hidden_) + unit,
            .factor_c = &factor_c_[index(t, row)],
            .tanh_c = at(tanh_c_, t, hidden_) + unit,
            .h = h_.data() + (t + 1) * state_ + unit};
  }

  NormLstmBackward backward_row(int64_t t, int64_t row, const float* dy) {
    const int64_t unit = row * hidden_, gate = row * width_;
    return {.hidden = hidden_,
            .norm_h = at(norm_h_, t, width_) + gate,
            .gain_h = given("s_h"),
            .norm_c = at(norm_c_, t, hidden_) + unit,
            .gain_c = given("s_c"),
            .c_prev = at(c_, t, hidden_) + unit,
            .dy = dy + unit,
            .dh = dh_.data() + unit,
            .factor_h = factor_h_[index(t, row)],
            .factor_c = factor_c_[index(t, row)],
            .gates = at(gates_, t, width_) + gate,
            .gates_h = at(gates_h_, t, width_) + gate,
            .tanh_c = at(tanh_c_, t, hidden_) + unit,
            .dc = dc_.data() + unit};
  }

  void gradients_of_gains() {
    sum_columns(width_, gates_.data(), norm_x_.at(0), gradient("s_x"));
    sum_columns(width_, gates_.data(), norm_h_.data(), gradient("s_h"));
    sum_columns(width_, gates_.data(), nullptr, gradient("d_x"));
    std::copy_n(gradient("d_x"), width_, gradient("d_h"));
    sum_columns(hidden_, tanh_c_.data(), norm_c_.data(), gradient("s_c"));
    sum_columns(hidden_, tanh_c_.data(), nullptr, gradient("d_c"));
  }

  int64_t width_;
  InputProduct norm_x_;
  WeightProduct step_;
  std::unique_ptr<WeightProduct> back_;
  std::vector<float> norm_h_, gates_, gates_h_;
  std::vector<float> c_;  // [T + 1, B, H], the initial state first; forward alone, one that all steps overwrite
  std::vector<float> norm_c_, tanh_c_, factor_x_, factor_h_, factor_c_, shift_, dc_;
};

}  // namespace

std::unique_ptr<LayerLoop> make_norm_lstm_loop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode) {
  return std::make_unique<NormLstmLoop>(size, inputs, arrays, mode);
}

}  // namespace stepnet::bench
