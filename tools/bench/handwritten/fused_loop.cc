// Products, what all layers share, and the stack of layers as a contender.
#include "tools/bench/handwritten/fused_loop.h"

#include <fmt/format.h>

#include "stepnet/error.h"
#include "stepnet/matmul.h"

namespace stepnet::bench {
WeightProduct::WeightProduct(bool backward, bool accumulate, int64_t m, int64_t n, int64_t k)
    : backward_(backward), accumulate_(accumulate), m_(m), n_(n), k_(k) {}

void WeightProduct::pack(const float* w) {
  packs_.start({w});
  weight_ = w;
}

void WeightProduct::run(const float* a, float* c) {
  matmul(false, !backward_, m_, n_, k_, a, weight_, c, accumulate_, &packs_);
}

InputProduct::InputProduct(const Size& size, int64_t columns, int64_t width, Mode mode)
    : steps_(size.steps), batch_(size.batch), columns_(columns), width_(width), all_(mode == Mode::training) {
  constexpr int64_t kRows = 128;  // of a block: enough for the product to run at full speed
  block_ = std::min(steps_, (kRows + batch_ - 1) / batch_);
  whole_ = std::make_unique<WeightProduct>(false, false, block_ * batch_, width, columns);
  if (const int64_t rest = steps_ % block_; rest > 0)
    last_ = std::make_unique<WeightProduct>(false, false, rest * batch_, width, columns);
  out_.resize(static_cast<size_t>((all_ ? steps_ : block_) * batch_ * width));
}

void InputProduct::pack(const float* w) {
  whole_->pack(w);
  if (last_) last_->pack(w);
}

int64_t InputProduct::run(int64_t t, const float* x) {
  const int64_t steps = std::min(block_, steps_ - t);
  (steps == block_ ? whole_ : last_)->run(x + t * batch_ * columns_, at(t));
  return steps * batch_;
}

float* InputProduct::at(int64_t t) { return out_.data() + (all_ ? t : t % block_) * batch_ * width_; }

LayerLoop::LayerLoop(const Size& size, int64_t inputs, const Arrays& arrays, Mode mode)
    : size_(size),
      batch_(size.batch),
      hidden_(size.hidden),
      inputs_(inputs),
      state_(size.batch * size.hidden),
      h_(static_cast<size_t>((size.steps + 1) * state_)),
      mode_(mode),
      arrays_(arrays) {
  if (!training()) return;
  dh_.resize(static_cast<size_t>(state_));
  dx_.resize(static_cast<size_t>(size.steps * size.batch * inputs));
  for (const auto& [name, array] : arrays) gradients_[name].resize(array.values.size());
}

std::vector<float> LayerLoop::slab(int64_t steps, int64_t width) const {
  return std::vector<float>(static_cast<size_t>((training() ? steps : 1) * batch_ * width));
}

float* LayerLoop::at(std::vector<float>& slab, int64_t t, int64_t width) const {
  return slab.data() + (training() ? t * batch_ * width : 0);
}

void LayerLoop::sum_columns(int64_t width, const float* a, const float* b, float* out) const {
  constexpr int64_t kPiece = 32;
  const ColumnSums sums{size_.steps * batch_, width, a, b, out};
  const auto range = [&](int64_t begin, int64_t end) {
    kernels_.column_sums(sums, begin * kPiece, std::min(end * kPiece, width));
  };
  parallel_for((width + kPiece - 1) / kPiece, 0.1 * static_cast<double>(kPiece * sums.rows), std::ref(range));
}

void LayerLoop::weight_gradient(int64_t width, int64_t columns, const float* gates, const float* in, float* dw) const {
  matmul(true, false, width, columns, size_.steps * batch_, gates, in, dw);
}

void LayerLoop::input_gradient(int64_t width, const float* gates, const float* w_x) {
  matmul(false, false, size_.steps * batch_, inputs_, width, gates, w_x, dx_.data());
}

void LayerLoop::start_states(std::vector<float>& all, const std::string& initial) const {
  const std::vector<float>& values = arrays_.at(initial).values;
  std::copy(values.begin(), values.end(), all.begin());
}

void LayerLoop::add_results(Values& values, int layer) const {
  for (const auto& [name, gradient] : gradients_) values[fmt::format("d{}_{}", name, layer)] = gradient;
}

namespace {

std::unique_ptr<LayerLoop> make_loop(const CellData& data, int layer, Mode mode) {
  const Arrays& arrays = data.layers[static_cast<size_t>(layer)];
  const int64_t inputs = data.size.layer_inputs(layer);
  if (data.cell->name == "gru") return make_gru_loop(data.size, inputs, arrays, mode);
  if (data.cell->name == "lstm_layer_norm") return make_norm_lstm_loop(data.size, inputs, arrays, mode);
  if (data.cell->name == "twin") return make_twin_loop(data.size, inputs, arrays, mode);
  return nullptr;
}

class FusedLoop : public Contender {
 public:
  FusedLoop(const CellData& data, Mode mode) : Contender("fused loop"), data_(data), mode_(mode) {
    for (int k = 0; k < data.size.layers; ++k) layers_.push_back(make_loop(data, k, mode));
    for (const auto& layer : layers_) layer->pack();
  }

  void run() override {
    const float* in = data_.x.data();
    for (const auto& layer : layers_) {
      if (mode_ == Mode::training) layer->pack();
      layer->forward(in);
      in = layer->outputs();
    }
    if (mode_ == Mode::forward) return;
    const float* dy = data_.dy.data();
    for (size_t k = layers_.size(); k-- > 0;) {
      layers_[k]->backward(k == 0 ? data_.x.data() : layers_[k - 1]->outputs(), dy);
      dy = layers_[k]->input_gradient();
    }
  }

  Values results() const override {
    const Size& size = data_.size;
    const float* const h = layers_.back()->outputs();
    Values values{{"h_all", {h, h + size.steps * size.batch * size.hidden}}};
    if (mode_ == Mode::forward) return values;
    const float* const dx = layers_.front()->input_gradient();
    values["dx"].assign(dx, dx + data_.x.size());
    for (size_t k = 0; k < layers_.size(); ++k) layers_[k]->add_results(values, static_cast<int>(k));
    return values;
  }

 private:
  const CellData& data_;
  Mode mode_;
  std::vector<std::unique_ptr<LayerLoop>> layers_;
};

}  // namespace

std::unique_ptr<Contender> make_fused_loop(const CellData& data, Mode mode) {
  if (!make_loop(data, 0, mode)) return nullptr;
  return std::make_unique<FusedLoop>(data, mode);
}

}  // namespace stepnet::bench
