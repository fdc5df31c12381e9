// How many FLOPs operators have, for OpBuilder::flops; core/operator/dry_run.h says what counts as one.
// Threads: pure functions.
#pragma once

#include "stepnet/op_spec.h"

namespace stepnet {

// Elements of an input or of an output, 0 if it is not there or its shape is not known.
inline double input_size(const ShapeCall& c, int i) { return c.known(i) ? static_cast<double>(c.shape(i).size()) : 0; }
inline double output_size(const ShapeCall& c, int o) {
  return c.wants(o) && c.out(o).known ? static_cast<double>(c.out(o).shape.size()) : 0;
}

// So many for each element of an input or of an output.
inline auto flops_per_input(double each, int i = 0) {
  return [=](const auto&, const ShapeCall& c) { return each * input_size(c, i); };
}
inline auto flops_per_output(double each, int o = 0) {
  return [=](const auto&, const ShapeCall& c) { return each * output_size(c, o); };
}

}  // namespace stepnet
