#include "recurrent/form/keep_bits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <string_view>

#include "core/net/dataflow.h"
#include "stepnet/arguments.h"

namespace stepnet {
namespace {

// The gradient operator that compares an output of an operator, and which input of it that is.
struct Comparison {
  int output = -1;
  std::string_view gradient = {};
  int input = 0;
};

float number(const OperatorDef& op, const char* name, float fallback) {
  const Argument* arg = find_arg(op, name);
  return arg ? arg->f() : fallback;
}

bool is_set(const OperatorDef& op, const char* name) {
  const Argument* arg = find_arg(op, name);
  return arg && arg->i() != 0;
}

constexpr float kLeakyAlpha = 0.01F;  // that is not given

// With a negative alpha LeakyRelu's gradient compares its input; with 0 its values are no clipped ones. Without a max
// Clip's gradient is 0 at infinity, as if that was a bound.
Comparison comparison_of(const OperatorDef& op) {
  if (op.type() == "Relu") return {0, "ReluGradient", 0};
  if (op.type() == "Clip" && std::isfinite(number(op, "max", std::numeric_limits<float>::infinity())))
    return {0, "ClipGradient", 0};
  if (op.type() == "LeakyRelu" && number(op, "alpha", kLeakyAlpha) > 0) return {0, "LeakyReluGradient", 0};
  const bool has_mask = op.type() == "Dropout" && op.output_size() > 1 && !op.output(1).empty();
  if (has_mask && !is_set(op, "is_test") && !is_set(op, "packed")) return {1, "DropoutGrad", 1};
  return {};
}

// Whether one gradient operator compares the value that operator `i` makes, and nobody else has or reads its bytes
// while the backward pass runs.
bool is_only_compared(const BoundNet& both, int backward, int i, const Comparison& by) {
  const int made = both.flow.made(i, by.output);
  if (made < 0) return false;
  const int storage = both.flow.value(made).storage;
  if (both.flow.storages()[storage].lasting) return false;
  int comparisons = 0;
  for (const NetValue& value : both.flow.values()) {
    if (value.storage != storage) continue;
    if (value.by_name) return false;
    for (const int reader : value.readers) {
      const bool compares =
          reader >= backward && both.ops[reader].def.type() == by.gradient && both.flow.read(reader, by.input) == made;
      if (reader >= backward && !compares) return false;
      comparisons += compares ? 1 : 0;
    }
  }
  // A mask gets another type, so nobody else may be given it.
  const bool is_mask = by.output > 0;
  return comparisons == 1 && (!is_mask || both.flow.value(made).uses.size() == 1);
}

std::string fresh_name(const NetDef& net, const std::string& base) {
  std::set<std::string> taken = written_names(net);
  for (const std::string& name : read_from_outside(net)) taken.insert(name);
  taken.insert(net.external_input().begin(), net.external_input().end());
  taken.insert(net.external_output().begin(), net.external_output().end());
  std::string name = base + "_bits";
  for (int n = 1; taken.count(name) > 0; ++n) name = fmt::format("{}_bits_{}", base, n);
  return name;
}

void leave_bits(OperatorDef& op, const std::string& bits) {
  if (op.type() == "Dropout") {
    *op.add_arg() = make_arg("packed", true);
    return;
  }
  std::vector<Argument> args;
  if (op.type() == "Clip") {
    for (const Argument& arg : op.arg())
      if (arg.name() == "min" || arg.name() == "max") args.push_back(arg);
  } else {
    args.push_back(make_arg("min", 0.0F));
  }
  if (op.type() == "LeakyRelu") args.push_back(make_arg("alpha", number(op, "alpha", kLeakyAlpha)));
  op.set_type("ClipWithBits");
  op.add_output(bits);
  op.mutable_arg()->Assign(args.begin(), args.end());
}

}  // namespace

int keep_bits(NetDef& net, const GradientRequest& request) {
  const auto may_be = [](const OperatorDef& op) { return comparison_of(op).output >= 0; };
  if (std::ranges::none_of(net.op(), may_be)) return 0;
  NetDef both = net;
  const GradientResult result = add_gradient_operators(both, request);
  std::set<std::string> visible(net.external_output().begin(), net.external_output().end());
  const BoundNet bound(both, {.visible = std::move(visible)});
  int changed = 0;
  for (const DifferentiatedOp& d : result.differentiated) {
    OperatorDef& op = *net.mutable_op(d.op);
    const Comparison by = comparison_of(op);
    if (by.output < 0 || !is_only_compared(bound, result.first_gradient_op, d.op, by)) continue;
    leave_bits(op, fresh_name(net, op.output(0)));
    ++changed;
  }
  return changed;
}

}  // namespace stepnet
