// The peer: oneDNN's own fused LSTM, all layers in one primitive.
//
// The user's weights are [I, 4, H], oneDNN's plain layout that is nearest to its own. Forward alone, they are brought
// into the primitive's layout once, before anything is timed: nobody changes them. In training that is part of every
// run, and so is bringing the weights' gradients back. Gates are i, f, g, o; there is one bias, the sum of Stepnet's
// two.
#include <algorithm>

#include "stepnet/error.h"
#include "tools/bench/cell_case.h"
#include "tools/bench/onednn.h"

namespace stepnet::bench {
namespace {

using dnnl::lstm_backward;
using dnnl::lstm_forward;
using dnnl::memory;

// Layer `layer` of the inverse.
std::vector<float> stepnet_weights(const std::vector<float>& all, int layer, int64_t hidden, int64_t columns) {
  std::vector<float> out(static_cast<size_t>(4 * hidden * columns));
  const float* in = all.data() + static_cast<int64_t>(out.size()) * layer;
  for (int64_t k = 0; k < columns; ++k)
    for (int64_t gate = 0; gate < 4; ++gate)
      for (int64_t j = 0; j < hidden; ++j)
        out[static_cast<size_t>((onednn_gate(gate) * hidden + j) * columns + k)] = *in++;
  return out;
}

void append(std::vector<float>& all, const std::vector<float>& values) {
  all.insert(all.end(), values.begin(), values.end());
}

std::vector<float> slice(const std::vector<float>& all, int index, int64_t size) {
  return {all.begin() + index * size, all.begin() + (index + 1) * size};
}

// The descriptors of one LSTM; weights with Tag::any are the primitive's choice.
struct Shapes {
  memory::desc x, h0, c0, w_x, w_h, bias, y, any_w_x, any_w_h, none;

  explicit Shapes(const Size& s)
      : x(floats({s.steps, s.batch, s.inputs}, Tag::tnc)),
        h0(floats({s.layers, 1, s.batch, s.hidden}, Tag::ldnc)),
        c0(h0),
        w_x(floats({s.layers, 1, s.inputs, 4, s.hidden}, Tag::ldigo)),
        w_h(floats({s.layers, 1, s.hidden, 4, s.hidden}, Tag::ldigo)),
        bias(floats({s.layers, 1, 4, s.hidden}, Tag::ldgo)),
        y(floats({s.steps, s.batch, s.hidden}, Tag::tnc)),
        any_w_x(floats({s.layers, 1, s.inputs, 4, s.hidden}, Tag::any)),
        any_w_h(floats({s.layers, 1, s.hidden, 4, s.hidden}, Tag::any)) {}
};

lstm_forward::primitive_desc describe_forward(const Shapes& s, Mode mode) {
  const auto kind = mode == Mode::training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  return {lstm_forward::desc(kind, dnnl::rnn_direction::unidirectional_left2right, s.x, s.h0, s.c0, s.any_w_x,
                             s.any_w_h, s.bias, s.y, s.none, s.none),
          cpu()};
}

lstm_backward::primitive_desc describe_backward(const Shapes& s, const lstm_forward::primitive_desc& forward) {
  return {lstm_backward::desc(dnnl::prop_kind::backward, dnnl::rnn_direction::unidirectional_left2right, s.x, s.h0,
                              s.c0, s.any_w_x, s.any_w_h, s.bias, s.y, s.none, s.none, s.x, s.h0, s.c0, s.any_w_x,
                              s.any_w_h, s.bias, s.y, s.none, s.none),
          cpu(), forward};
}

class OnednnLstm : public Contender {
 public:
  OnednnLstm(const CellData& data, Mode mode) : Contender("onednn"), size_(data.size), mode_(mode) {
    require(size_.layers == 1 || size_.inputs == size_.hidden, "a stack in one primitive needs I = H");
    const Shapes shapes(size_);
    gather(data, shapes);
    const auto forward = describe_forward(shapes, mode);
    forward_w_x_ = Reordered(w_x_, forward.weights_layer_desc());
    forward_w_h_ = Reordered(w_h_, forward.weights_iter_desc());
    forward_ = {lstm_forward(forward),
                {{DNNL_ARG_SRC_LAYER, x_},
                 {DNNL_ARG_SRC_ITER, h0_},
                 {DNNL_ARG_SRC_ITER_C, c0_},
                 {DNNL_ARG_WEIGHTS_LAYER, forward_w_x_.memory()},
                 {DNNL_ARG_WEIGHTS_ITER, forward_w_h_.memory()},
                 {DNNL_ARG_BIAS, bias_},
                 {DNNL_ARG_DST_LAYER, y_}}};
    if (mode == Mode::training) {
      forward_.memories[DNNL_ARG_WORKSPACE] = zeros(forward.workspace_desc());
      prepare_backward(data, shapes, describe_backward(shapes, forward));
    }
    forward_w_x_.run();
    forward_w_h_.run();
    cpu_stream().wait();
  }

  void run() override {
    if (mode_ == Mode::training) {
      forward_w_x_.run();
      forward_w_h_.run();
    }
    forward_.run();
    if (mode_ == Mode::training) run_backward();
    cpu_stream().wait();
  }

  Values results() const override {
    Values values;
    values["h_all"] = values_of(y_);
    if (mode_ == Mode::training) add_gradients(values);
    return values;
  }

 private:
  void gather(const CellData& data, const Shapes& shapes) {
    std::vector<float> w_x, w_h, bias, h0, c0;
    for (const Arrays& layer : data.layers) {
      append_onednn_weights(layer.at("W_x").values, size_.hidden, w_x);
      append_onednn_weights(layer.at("W_h").values, size_.hidden, w_h);
      std::vector<float> sum = layer.at("b_x").values;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += layer.at("b_h").values[i];
      append_onednn_weights(sum, size_.hidden, bias);
      append(h0, layer.at("h0").values);
      append(c0, layer.at("c0").values);
    }
    x_ = with_values(shapes.x, data.x);
    h0_ = with_values(shapes.h0, h0);
    c0_ = with_values(shapes.c0, c0);
    w_x_ = with_values(shapes.w_x, w_x);
    w_h_ = with_values(shapes.w_h, w_h);
    bias_ = with_values(shapes.bias, bias);
    y_ = zeros(shapes.y);
  }

  void prepare_backward(const CellData& data, const Shapes& shapes, const lstm_backward::primitive_desc& desc) {
    backward_w_x_ = Reordered(w_x_, desc.weights_layer_desc());
    backward_w_h_ = Reordered(w_h_, desc.weights_iter_desc());
    raw_dw_x_ = zeros(desc.diff_weights_layer_desc());
    raw_dw_h_ = zeros(desc.diff_weights_iter_desc());
    dw_x_ = Reordered(raw_dw_x_, shapes.w_x);
    dw_h_ = Reordered(raw_dw_h_, shapes.w_h);
    dbias_ = zeros(shapes.bias);
    dx_ = zeros(shapes.x);
    dh0_ = zeros(shapes.h0);
    dc0_ = zeros(shapes.c0);
    backward_ = {lstm_backward(desc), forward_.memories};
    for (const auto& [argument, memory] :
         std::unordered_map<int, memory>{{DNNL_ARG_WEIGHTS_LAYER, backward_w_x_.memory()},
                                         {DNNL_ARG_WEIGHTS_ITER, backward_w_h_.memory()},
                                         {DNNL_ARG_DIFF_SRC_LAYER, dx_},
                                         {DNNL_ARG_DIFF_SRC_ITER, dh0_},
                                         {DNNL_ARG_DIFF_SRC_ITER_C, dc0_},
                                         {DNNL_ARG_DIFF_WEIGHTS_LAYER, raw_dw_x_},
                                         {DNNL_ARG_DIFF_WEIGHTS_ITER, raw_dw_h_},
                                         {DNNL_ARG_DIFF_BIAS, dbias_},
                                         {DNNL_ARG_DIFF_DST_LAYER, with_values(shapes.y, data.dy)}})
      backward_.memories[argument] = memory;
  }

  // The primitive adds to the gradients of weights and biases.
  void run_backward() {
    backward_w_x_.run();
    backward_w_h_.run();
    fill_zero(raw_dw_x_);
    fill_zero(raw_dw_h_);
    fill_zero(dbias_);
    backward_.run();
    dw_x_.run();
    dw_h_.run();
  }

  void add_gradients(Values& values) const {
    values["dx"] = values_of(dx_);
    const int64_t state = size_.batch * size_.hidden;
    for (int k = 0; k < size_.layers; ++k) {
      const std::string end = "_" + std::to_string(k);
      values["dh0" + end] = slice(values_of(dh0_), k, state);
      values["dc0" + end] = slice(values_of(dc0_), k, state);
      values["dW_x" + end] = stepnet_weights(values_of(dw_x_.memory()), k, size_.hidden, size_.layer_inputs(k));
      values["dW_h" + end] = stepnet_weights(values_of(dw_h_.memory()), k, size_.hidden, size_.hidden);
      values["db_x" + end] = stepnet_weights(values_of(dbias_), k, size_.hidden, 1);
      values["db_h" + end] = values["db_x" + end];
    }
  }

  Size size_;
  Mode mode_;
  memory x_, h0_, c0_, w_x_, w_h_, bias_, y_;
  memory dx_, dh0_, dc0_, raw_dw_x_, raw_dw_h_, dbias_;
  Reordered forward_w_x_, forward_w_h_, backward_w_x_, backward_w_h_, dw_x_, dw_h_;
  Execution forward_, backward_;
};

}  // namespace

std::unique_ptr<Contender> make_onednn_lstm(const CellData& data, Mode mode) {
  return std::make_unique<OnednnLstm>(data, mode);
}

}  // namespace stepnet::bench
