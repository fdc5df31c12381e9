// Gradients of gradients of fused operators, whose second derivatives follow from small operators: times of one step,
// which runs the operator, takes gradients that are recorded, and differentiates these. Threads: as set_threads.
#pragma once

#include <string>
#include <vector>

#include "stepnet/device.h"

namespace stepnet::bench {

struct DoubleBackwardTimes {
  double first = 0, second = 0;  // milliseconds: forward and gradients, and the gradients of these
};

std::vector<std::string> double_backward_names();
// The least times of `rounds` steps on `rows` rows of `size` elements. Throws Error for an unknown name.
DoubleBackwardTimes time_double_backward(const std::string& name, int64_t rows, int64_t size, int rounds,
                                         Device device);

}  // namespace stepnet::bench
