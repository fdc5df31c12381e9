#include "tools/bench/tape/chains.h"

#include <functional>
#include <map>

#include "stepnet/engine.h"
#include "stepnet/error.h"
#include "stepnet/record.h"
#include "tools/bench/tape/cpu_clock.h"

namespace stepnet::bench {
namespace {

using autograd::EagerOp;
using autograd::Variable;

Variable one(bool requires_grad, const Shape& shape = {1}) {
  return Variable(Tensor::of<float>(shape, {1.0F}), requires_grad);
}

// One operator more behind y.
using Link = std::function<void(Variable& y)>;

Link binary(const char* type, const Variable& other) {
  return [op = EagerOp::get({type, {true, true}, {true}}), other](Variable& y) {
    const Variable in[] = {std::move(y), other};
    y = autograd::run1(*op, in);
  };
}

Link fully_connected() {
  return [op = EagerOp::get({"FC", {true, true, true}, {true}}), w = one(true, {1, 1}), b = one(true)](Variable& y) {
    const Variable in[] = {std::move(y), w, b};
    y = autograd::run1(*op, in);
  };
}

Link tanh() {
  return [op = EagerOp::get({"Tanh", {true}, {true}})](Variable& y) {
    const Variable in[] = {std::move(y)};
    y = autograd::run1(*op, in);
  };
}

struct Chain {
  Link link;
  Shape start = {1};
};

const std::map<std::string, Chain>& chains() {
  static const std::map<std::string, Chain> chains = {{"mul_constant", {binary("Mul", one(false))}},
                                                      {"mul_leaf", {binary("Mul", one(true))}},
                                                      {"tanh", {tanh()}},
                                                      {"add", {binary("Add", one(true))}},
                                                      {"fc", {fully_connected(), {1, 1}}}};
  return chains;
}

}  // namespace

const std::vector<std::string>& chain_names() {
  static const std::vector<std::string> names = {"mul_constant", "mul_leaf", "tanh", "add", "fc"};
  return names;
}

ChainTimes time_chain(const std::string& name, int count) {
  const auto found = chains().find(name);
  require(found != chains().end(), "there is no chain {}", name);
  const Link& link = found->second.link;
  const Variable x = one(true, found->second.start);
  const double start = cpu_nanoseconds();
  Variable y = x;
  for (int i = 0; i < count; ++i) link(y);
  const double recorded = cpu_nanoseconds();
  autograd::backward(y);
  const double differentiated = cpu_nanoseconds();
  y = {};
  const double released = cpu_nanoseconds();
  return {(recorded - start) / count, (differentiated - recorded) / count, (released - differentiated) / count};
}

}  // namespace stepnet::bench
