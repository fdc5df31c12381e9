// The arithmetic between the products of hand-written cells, one pass over the gates where the formulas allow it, in
// kernels that are built for several instruction sets. Formulas: tools/bench/exact_cells.cc.
//
// A kernel works on elements [begin, end) of a row of `hidden` units, whose gates stand one after the other. Forward
// kernels that keep leave activated gates in the gates' place for the backward ones, which put the gradients of what
// was before the activation there. `dh` and `dc` are the gradients of the states after the step and become what the
// step itself hands to those before it; what comes through products is added later.
// Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet::bench {

struct GruForward {
  int64_t hidden;
  float *gates_x, *gates_h;  // r, z, n; kept: r, z, n and, third in gates_h, what r multiplies
  const float *b_x, *b_h, *h_prev;
  float* h;
};
struct GruBackward {
  int64_t hidden;
  float *gates_x, *gates_h;
  const float *h_prev, *dy;
  float* dh;
};

struct TwinOpen {  // up to the new state c
  int64_t hidden;
  float* gates;  // f, i, s, u, v
  const float *b_x, *b_h, *c_prev;
  float* c;
};
struct TwinClose {  // from the output gate's product on
  int64_t hidden;
  float *o, *tanh_c;  // tanh_c is kept only
  const float *b_c, *c, *h_prev;
  float* h;
};
struct TwinCloseBackward {
  int64_t hidden;
  float* o;
  const float *tanh_c, *h_prev, *dy;
  float *dh, *dc;
};
struct TwinOpenBackward {
  int64_t hidden;
  float* gates;
  const float* c_prev;
  float* dc;
};

// Of `row`, with the bias added to it, and what it is divided by, as a factor.
struct NormalizeRow {
  int64_t size;
  float* row;
  const float* bias;
  float* factor;
};
struct NormalizeRowBackward {
  int64_t size;
  const float *gates, *gain, *normalized;
  float factor;
  float* out;
};
// Whole rows of an LSTM with layer normalisation: begin and end are not looked at.
struct NormLstmForward {
  int64_t hidden;
  const float *norm_x, *gain_x, *gain_h, *shift, *gain_c, *shift_c, *b_h, *c_prev;
  float *norm_h, *factor_h;  // norm_h: the product, then what is normalised
  float *gates, *c, *norm_c, *factor_c, *tanh_c, *h;
};
struct NormLstmBackward {
  int64_t hidden;
  const float *norm_h, *gain_h, *norm_c, *gain_c, *c_prev, *dy, *dh;
  float factor_h, factor_c;
  float *gates, *gates_h;  // gradients behind the gains, and in front of h's normalisation
  float *tanh_c, *dc;      // tanh_c becomes the gradient of what is in it
};

// out = sum over rows of a, or of a b where b is not null; columns [begin, end) of `width`.
struct ColumnSums {
  int64_t rows, width;
  const float *a, *b;
  float* out;
};

template <class Step>
using StepKernel = void (*)(const Step& step, int64_t begin, int64_t end);

struct FusedKernels {
  StepKernel<GruForward> gru_forward, gru_forward_keep;
  StepKernel<GruBackward> gru_backward;
  StepKernel<TwinOpen> twin_open, twin_open_keep;
  StepKernel<TwinClose> twin_close, twin_close_keep;
  StepKernel<TwinCloseBackward> twin_close_backward;
  StepKernel<TwinOpenBackward> twin_open_backward;
  StepKernel<ColumnSums> column_sums;
  StepKernel<NormalizeRow> normalize_row;
  StepKernel<NormalizeRowBackward> normalize_row_backward;
  StepKernel<NormLstmForward> norm_lstm_forward;
  StepKernel<NormLstmBackward> norm_lstm_backward;
};

const FusedKernels& fused_kernels_plain();
const FusedKernels* fused_kernels_wide();  // for x86-64-v4; null if this CPU is none
const FusedKernels& fused_kernels();       // the best of them

}  // namespace stepnet::bench
