// The arithmetic of one row of LSTMUnit and of its gradient, in kernels that are built for several instruction sets.
//
// All give the same bits, wherever a row stands; see core/compute/simd.h. Element j of an output depends on
// the inputs' elements j alone and is written after they are read, so an output may be an input's storage: dgates and
// activated the gates', a state the state before it. Formulas: see lstm_unit.cc.
// Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

// Of d states. h, c and activated (i, f, o and g after their activations) are null where they are not wanted.
template <class T>
struct LstmRow {
  int64_t d;
  T forget_bias;
  const T *c_prev, *gates;
  T *h, *c, *activated = nullptr;
};

// dh and dc are null where the gradient is missing and counts as zeros; the outputs where they are not wanted, and
// c_prev where dgates is not.
// `activated`: what stands in gates is i, f, o and g.
template <class T>
struct LstmGradientRow {
  int64_t d;
  T forget_bias;
  const T *c_prev, *gates, *c, *dh, *dc;
  T *dc_prev, *dgates;
  bool activated = false;
};

// Of d states: the forward row once more from its gates' values i, f, o and g. h and c are null where they are not
// wanted.
template <class T>
struct LstmStatesRow {
  int64_t d;
  const T *c_prev, *gates;
  T *h, *c;
};

struct LstmKernels {
  void (*forward_float)(const LstmRow<float>&);
  void (*forward_double)(const LstmRow<double>&);
  void (*states_float)(const LstmStatesRow<float>&);
  void (*states_double)(const LstmStatesRow<double>&);
  void (*gradient_float)(const LstmGradientRow<float>&);
  void (*gradient_double)(const LstmGradientRow<double>&);

  void forward(const LstmRow<float>& row) const { forward_float(row); }
  void forward(const LstmRow<double>& row) const { forward_double(row); }
  void states(const LstmStatesRow<float>& row) const { states_float(row); }
  void states(const LstmStatesRow<double>& row) const { states_double(row); }
  void gradient(const LstmGradientRow<float>& row) const { gradient_float(row); }
  void gradient(const LstmGradientRow<double>& row) const { gradient_double(row); }
};

const LstmKernels& lstm_kernels_plain();  // for every CPU that the library runs on
const LstmKernels* lstm_kernels_wide();   // for x86-64-v4; null if this CPU is none
const LstmKernels& lstm_kernels();        // the best of them

}  // namespace stepnet
