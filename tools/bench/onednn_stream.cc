// The peer of a call per timestep: oneDNN's LSTM primitive for one timestep. Two sets of memories take turns, so that
// the state that a call writes is read by the next without a copy. Weights are in the primitive's layout before
// anything is timed.
#include "tools/bench/cell_case.h"
#include "tools/bench/onednn.h"

namespace stepnet::bench {
namespace {

using dnnl::lstm_forward;
using dnnl::memory;

class OnednnStream : public Contender {
 public:
  explicit OnednnStream(const CellData& data) : Contender("onednn") {
    const Size& s = data.size;
    const Arrays& layer = data.layers[0];
    const memory::desc x = floats({1, s.batch, s.inputs}, Tag::tnc), y = floats({1, s.batch, s.hidden}, Tag::tnc);
    const memory::desc state = floats({1, 1, s.batch, s.hidden}, Tag::ldnc);
    const memory::desc bias = floats({1, 1, 4, s.hidden}, Tag::ldgo);
    const lstm_forward::primitive_desc desc(
        lstm_forward::desc(dnnl::prop_kind::forward_inference, dnnl::rnn_direction::unidirectional_left2right, x, state,
                           state, floats({1, 1, s.inputs, 4, s.hidden}, Tag::any),
                           floats({1, 1, s.hidden, 4, s.hidden}, Tag::any), bias, y, state, state),
        cpu());
    y_ = zeros(y);
    const memory w_x = packed(layer.at("W_x").values, s.inputs, s.hidden, desc.weights_layer_desc());
    const memory w_h = packed(layer.at("W_h").values, s.hidden, s.hidden, desc.weights_iter_desc());
    const memory h[] = {with_values(state, layer.at("h0").values), zeros(state)};
    const memory c[] = {with_values(state, layer.at("c0").values), zeros(state)};
    for (int from : {0, 1})
      steps_[from] = {lstm_forward(desc),
                      {{DNNL_ARG_SRC_LAYER, with_values(x, data.x)},
                       {DNNL_ARG_SRC_ITER, h[from]},
                       {DNNL_ARG_SRC_ITER_C, c[from]},
                       {DNNL_ARG_WEIGHTS_LAYER, w_x},
                       {DNNL_ARG_WEIGHTS_ITER, w_h},
                       {DNNL_ARG_BIAS, with_values(bias, sum_of_biases(layer, s.hidden))},
                       {DNNL_ARG_DST_LAYER, y_},
                       {DNNL_ARG_DST_ITER, h[1 - from]},
                       {DNNL_ARG_DST_ITER_C, c[1 - from]}}};
    cpu_stream().wait();
  }

  void run() override {
    steps_[next_].run();
    next_ = 1 - next_;
    cpu_stream().wait();
  }

  Values results() const override { return {{"h_all", values_of(y_)}}; }

 private:
  static std::vector<float> sum_of_biases(const Arrays& layer, int64_t hidden) {
    std::vector<float> sum = layer.at("b_x").values, ordered;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += layer.at("b_h").values[i];
    append_onednn_weights(sum, hidden, ordered);
    return ordered;
  }

  static memory packed(const std::vector<float>& weights, int64_t columns, int64_t hidden, const memory::desc& layout) {
    std::vector<float> ordered;
    append_onednn_weights(weights, hidden, ordered);
    const Reordered reordered(with_values(floats({1, 1, columns, 4, hidden}, Tag::ldigo), ordered), layout);
    reordered.run();
    return reordered.memory();
  }

  memory y_;
  Execution steps_[2];
  int next_ = 0;
};

}  // namespace

std::unique_ptr<Contender> make_onednn_stream(const CellData& data) { return std::make_unique<OnednnStream>(data); }

}  // namespace stepnet::bench
