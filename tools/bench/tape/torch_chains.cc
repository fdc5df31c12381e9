// The chains of chains.cc in PyTorch's C++ front end, as a process that answers each line "chain NAME COUNT" with
// nanoseconds per operator: forward, backward, release.
#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "tools/bench/tape/cpu_clock.h"

namespace {

using stepnet::bench::cpu_nanoseconds;

torch::Tensor one(bool requires_grad, torch::IntArrayRef shape = {1}) {
  return torch::ones(shape, torch::TensorOptions().requires_grad(requires_grad));
}

template <class Link>
void time_chain(int count, const torch::Tensor& x, const Link& link) {
  const double start = cpu_nanoseconds();
  torch::Tensor y = x;
  for (int i = 0; i < count; ++i) y = link(y);
  const double recorded = cpu_nanoseconds();
  y.backward();
  const double differentiated = cpu_nanoseconds();
  y = torch::Tensor();
  const double released = cpu_nanoseconds();
  std::printf("%.1f %.1f %.1f\n", (recorded - start) / count, (differentiated - recorded) / count,
              (released - differentiated) / count);
  std::fflush(stdout);
}

bool run_chain(const std::string& name, int count) {
  using torch::Tensor;
  const Tensor x = one(true), constant = one(false), leaf = one(true), w = one(true, {1, 1}), b = one(true);
  if (name == "mul_constant") {
    time_chain(count, x, [&](const Tensor& y) { return torch::mul(y, constant); });
  } else if (name == "mul_leaf") {
    time_chain(count, x, [&](const Tensor& y) { return torch::mul(y, leaf); });
  } else if (name == "tanh") {
    time_chain(count, x, [](const Tensor& y) { return torch::tanh(y); });
  } else if (name == "add") {
    time_chain(count, x, [&](const Tensor& y) { return torch::add(y, leaf); });
  } else if (name == "fc") {
    time_chain(count, one(true, {1, 1}), [&](const Tensor& y) { return torch::linear(y, w, b); });
  } else {
    std::fprintf(stderr, "there is no chain %s\n", name.c_str());
    return false;
  }
  return true;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, name;
    int count = 0;
    words >> verb >> name >> count;
    if (verb != "chain" || count < 1 || !run_chain(name, count)) return 2;
  }
  return 0;
}
