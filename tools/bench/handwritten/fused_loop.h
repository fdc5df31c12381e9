// Cells written by hand, as a good engineer would: weights packed once per run, the inputs' product for a block of
// timesteps in front of them, one pass over the gates per step, and what only adds up to the gradients of weights and
// inputs after the last step.
//
// The products are those that Stepnet uses, by stepnet/matmul.h. In training, packing is part of every run;
// forward alone, nobody changes the weights.
// Threads: for the main thread; regions of as many threads as are set, or fewer where that is faster.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>

#include "core/compute/packed_weights.h"
#include "core/compute/threads.h"
#include "tools/bench/cell_case.h"
#include "tools/bench/handwritten/fused_steps.h"

namespace stepnet::bench {

// c (+)= a w^T, or a w if `backward`, for a weight w that is packed by the first product after pack().
class WeightProduct {
 public:
  WeightProduct(bool backward, bool accumulate, int64_t m, int64_t n, int64_t k);
  void pack(const float* w);
  void run(const float* a, float* c);

 private:
  bool backward_, accumulate_;
  int64_t m_, n_, k_;
  const float* weight_ = nullptr;
  WeightPacks packs_;
};

// A layer's products with its inputs, a block of timesteps at a time: [T B, columns] to [T B, width].
class InputProduct {
 public:
  InputProduct(const Size& size, int64_t columns, int64_t width, Mode mode);
  void pack(const float* w);
  // Whether a block starts at timestep t; then run() makes it.
  bool starts(int64_t t) const { return t % block_ == 0; }
  int64_t run(int64_t t, const float* x);  // returns the number of rows
  float* at(int64_t t);                    // [B, width]; training: of a tensor of all timesteps

 private:
  int64_t steps_, batch_, columns_, width_, block_;
  bool all_;
  std::unique_ptr<WeightProduct> whole_, last_;
  std::vector<float> out_;
};

// One layer of some cell.
class LayerLoop {
 public:
  LayerLoop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode);
  virtual ~LayerLoop() = default;
  virtual void pack() = 0;
  virtual void forward(const float* x) = 0;
  virtual void backward(const float* x, const float* dy) = 0;
  const float* outputs() const { return h_.data() + state_; }  // [T, B, H]
  const float* input_gradient() const { return dx_.data(); }
  void add_results(Values& values, int layer) const;

 protected:
  const float* given(const std::string& name) const { return arrays_.at(name).values.data(); }
  float* gradient(const std::string& name) { return gradients_.at(name).data(); }
  bool training() const { return mode_ == Mode::training; }
  // Values [B, width] of `steps` timesteps in training, and of one otherwise.
  std::vector<float> slab(int64_t steps, int64_t width) const;
  float* at(std::vector<float>& slab, int64_t t, int64_t width) const;

  // make(row) gives the kernel's argument for a row of the batch. `cost`: nanoseconds per unit.
  template <class Step, class Make>
  void each_unit(double cost, StepKernel<Step> kernel, Make make) const;
  // The same for kernels that take a whole row, of `count` rows.
  template <class Step, class Make>
  void each_row(int64_t count, double cost, StepKernel<Step> kernel, Make make) const;
  void sum_columns(int64_t width, const float* a, const float* b, float* out) const;
  // dw = gates^T in, over all timesteps.
  void weight_gradient(int64_t width, int64_t columns, const float* gates, const float* in, float* dw) const;
  void input_gradient(int64_t width, const float* gates, const float* w_x);
  void start_states(std::vector<float>& all, const std::string& initial) const;

  Size size_;
  int64_t batch_, hidden_, inputs_, state_;  // state_: numbers in a state, B H
  const FusedKernels& kernels_ = fused_kernels();
  std::vector<float> h_;   // [T + 1, B, H], the initial state first
  std::vector<float> dh_;  // [B, H], the gradient of the state between two steps
  std::vector<float> dx_;  // [T, B, I]

 private:
  Mode mode_;
  const Arrays& arrays_;
  std::map<std::string, std::vector<float>> gradients_;
};

template <class Step, class Make>
void LayerLoop::each_unit(double cost, StepKernel<Step> kernel, Make make) const {
  constexpr int64_t kPiece = 32;
  const int64_t pieces = (hidden_ + kPiece - 1) / kPiece;
  const auto range = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / pieces, first = begin % pieces, last = std::min(pieces, first + end - begin);
      kernel(make(row), first * kPiece, std::min(last * kPiece, hidden_));
      begin += last - first;
    }
  };
  parallel_for(batch_ * pieces, cost * kPiece, std::ref(range));
}

template <class Step, class Make>
void LayerLoop::each_row(int64_t count, double cost, StepKernel<Step> kernel, Make make) const {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) kernel(make(row), 0, hidden_);
  };
  parallel_for(count, cost * static_cast<double>(hidden_), std::ref(range));
}

std::unique_ptr<LayerLoop> make_gru_loop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode);
std::unique_ptr<LayerLoop> make_norm_lstm_loop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode);
std::unique_ptr<LayerLoop> make_twin_loop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode);

}  // namespace stepnet::bench
