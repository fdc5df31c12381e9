// What operator tests share: run one operator on given tensors, and check its gradients by central differences.
//
// With STEPNET_TEST_DEVICE=cuda in the environment operators run on the first GPU; values come from and go to the CPU.
// Threads: not for concurrent use.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stepnet/net.h"

namespace stepnet::testing {

// OperatorDef in one line: make_op("FC", {"X", "W", "b"}, {"Y"}, {make_arg("axis", 2)}).
OperatorDef make_op(const std::string& type, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs, const std::vector<Argument>& args = {});

// Where tests run their operators, and what tells a net to.
Device test_device();
void use_test_device(NetDef& net);

using Feeds = std::vector<std::pair<std::string, Tensor>>;

// Runs the operator through a Net in a fresh workspace and returns its outputs in order (copies).
std::vector<Tensor> run_op_on(const OperatorDef& def, const Feeds& feeds, uint64_t seed = 1);

// Tensors of reproducible values: normal, uniform in [low, high), integers in [low, high].
template <class T>
Tensor normal(const Shape& shape, uint64_t seed = 1, double mean = 0, double std = 1);
template <class T>
Tensor uniform(const Shape& shape, double low, double high, uint64_t seed = 1);
template <class T>
Tensor integers(const Shape& shape, int64_t low, int64_t high, uint64_t seed = 1);
Tensor to_double(const Tensor& t);

// What stepnet/gradient_check.h finds wrong with the operator's derivatives of first order; "" if nothing.
// `outputs`: those to differentiate; none means every one that is float64.
std::string check_gradient(const OperatorDef& def, const Feeds& feeds, const std::vector<std::string>& wrt,
                           double tol = 1e-7, double step = 1e-5, const std::vector<std::string>& outputs = {});

// What an error is measured by: the element that it is of, or the tensor's largest, for sums of terms as large as that
// whose own result may be small.
enum class ErrorScale { element, tensor };

// |a - b| <= tol * max(1, |b|) with that |b|, same shape; returns "" or the first place that differs most. Infinities
// are equal to themselves, and NaN to nothing: a test whose reference is NaN says so by std::isnan.
std::string compare(const Tensor& a, const Tensor& b, double tol);
std::string compare(const Tensor& a, const Tensor& b, double tol, ErrorScale scale);

// Runs `fn`, which must throw Error, and returns its text; "" (and a test failure) if it does not.
template <class Fn>
std::string error_of(Fn fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

}  // namespace stepnet::testing
