#include "core/passes/block_losses.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/net/dataflow.h"
#include "stepnet/arguments.h"

namespace stepnet {
namespace {

constexpr const char* kWhole = "SoftmaxWithLoss";
constexpr const char* kWholeGradient = "SoftmaxWithLossGradient";
constexpr const char* kInBlocks = "FCSoftmaxWithLoss";
constexpr const char* kInBlocksGradient = "FCSoftmaxWithLossGradient";

// A product, and the loss of it.
struct LinearLoss {
  int fc = 0, loss = 0;
  std::vector<bool> wanted = {false, false, false};  // the gradients of X, W and b
};

int64_t integer_of(const OperatorDef& op, const char* name, int64_t fallback) {
  const Argument* arg = find_arg(op, name);
  return arg ? arg->i() : fallback;
}

std::string name_of_input(const OperatorDef& op, int i) { return i < op.input_size() ? op.input(i) : ""; }

bool runs_on_cpu(const OperatorDef& op, const NetDef& net) { return device_of(op, net).kind == DeviceKind::cpu; }

// The rows of the loss are those of the product.
bool has_rows_of(const OperatorDef& loss, const OperatorDef& fc) {
  const int64_t axis = integer_of(loss, "axis", 1);
  return axis == -1 || (axis >= 0 && axis == integer_of(fc, "axis", 1));
}

bool is_large(const OperatorDef& fc, const OperatorDef& loss, const std::map<std::string, TensorType>& types,
              int64_t least_bytes) {
  const auto w = types.find(name_of_input(fc, 1)), t = types.find(name_of_input(loss, 1));
  if (w == types.end() || t == types.end() || !w->second.known || !t->second.known) return false;
  const DType type = w->second.dtype;
  if (type != DType::float32 && type != DType::float64) return false;
  const Shape& shape = w->second.shape;
  const int64_t axis = integer_of(fc, "axis_w", 1);
  if (axis < -shape.rank() || axis >= shape.rank()) return false;
  const auto classes = static_cast<double>(shape.size_between(0, canonical_axis(axis, shape.rank())));
  const double bytes = classes * static_cast<double>(t->second.shape.size()) * static_cast<double>(dtype_size(type));
  return bytes >= static_cast<double>(least_bytes);
}

// Products whose output is scores of a loss, by their operators alone.
std::vector<LinearLoss> candidates(const NetDef& net, const std::map<std::string, TensorType>& types,
                                   int64_t least_bytes) {
  std::vector<LinearLoss> pairs;
  for (int j = 0; j < net.op_size(); ++j) {
    const OperatorDef& loss = net.op(j);
    if (loss.type() != kWhole || integer_of(loss, "label_prob", 0) != 0 || loss.output_size() != 2) continue;
    int i = j - 1;
    while (i >= 0 && (net.op(i).output_size() != 1 || net.op(i).output(0) != loss.input(0))) --i;
    if (i < 0 || net.op(i).type() != "FC" || !has_rows_of(loss, net.op(i))) continue;
    if (!runs_on_cpu(loss, net) || !runs_on_cpu(net.op(i), net)) continue;
    if (is_large(net.op(i), loss, types, least_bytes)) pairs.push_back({.fc = i, .loss = j});
  }
  return pairs;
}

// Whether the value and its bytes are used by the loss and its gradient alone.
bool is_of_loss(const BoundNet& both, int made, int loss, int backward) {
  if (made < 0) return true;
  const int storage = both.flow.value(made).storage;
  if (both.flow.storages()[storage].lasting) return false;
  const auto is_gradient = [&](int reader) {
    return reader >= backward && both.ops[reader].def.type() == kWholeGradient;
  };
  for (const NetValue& value : both.flow.values()) {
    if (value.storage != storage) continue;
    if (value.by_name || &value != &both.flow.value(made)) return false;
    if (!std::ranges::all_of(value.uses, [&](int reader) { return reader == loss || is_gradient(reader); }))
      return false;
  }
  return true;
}

// What the product reads is still there when the loss is computed.
bool stays_until(const BoundNet& both, const LinearLoss& pair) {
  return std::ranges::all_of(both.flow.reads(pair.fc),
                             [&](int value) { return value < 0 || both.flow.value(value).overwritten > pair.loss; });
}

class UntakenNames {
 public:
  explicit UntakenNames(const NetDef& net) : taken_(written_names(net)) {
    for (const std::string& name : read_from_outside(net)) taken_.insert(name);
    taken_.insert(net.external_input().begin(), net.external_input().end());
    taken_.insert(net.external_output().begin(), net.external_output().end());
  }
  std::string fresh(const std::string& base) {
    std::string name = base;
    for (int n = 1; !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
    return name;
  }

 private:
  std::set<std::string> taken_;
};

OperatorDef in_blocks(const OperatorDef& fc, const OperatorDef& loss, const std::vector<bool>& wanted,
                      UntakenNames& names) {
  OperatorDef op = loss;
  op.set_type(kInBlocks);
  op.clear_input(), op.clear_output(), op.clear_arg();
  for (const std::string& name : {name_of_input(fc, 0), name_of_input(fc, 1), name_of_input(loss, 1),
                                  name_of_input(fc, 2), name_of_input(loss, 2)})
    op.add_input(name);
  while (op.input(op.input_size() - 1).empty()) op.mutable_input()->RemoveLast();
  op.add_output(loss.output(1));
  const char* const endings[] = {"_unit_dX", "_unit_dW", "_unit_db"};
  for (size_t i = 0; i < wanted.size(); ++i) op.add_output(wanted[i] ? names.fresh(loss.output(1) + endings[i]) : "");
  while (op.output(op.output_size() - 1).empty()) op.mutable_output()->RemoveLast();
  for (const Argument& arg : fc.arg())
    if (arg.name() == "axis" || arg.name() == "axis_w") *op.add_arg() = arg;
  for (const Argument& arg : loss.arg())
    if (arg.name() == "scale") *op.add_arg() = arg;
  return op;
}

const DifferentiatedOp* differentiated_op(const GradientResult& result, int op) {
  const auto it = std::ranges::find(result.differentiated, op, &DifferentiatedOp::op);
  return it == result.differentiated.end() ? nullptr : &*it;
}

// How often operators read or write a blob of this name.
int times_named(const NetDef& net, const std::string& name) {
  int count = 0;
  for (const OperatorDef& op : net.op())
    count += static_cast<int>(std::ranges::count(op.input(), name) + std::ranges::count(op.output(), name));
  return count;
}

}  // namespace

int block_losses(NetDef& net, const GradientRequest* request, const std::map<std::string, TensorType>& types,
                 int64_t least_bytes) {
  std::vector<LinearLoss> pairs = candidates(net, types, least_bytes);
  if (pairs.empty()) return 0;
  NetDef both = net;
  GradientResult result;
  result.first_gradient_op = net.op_size();
  if (request) result = add_gradient_operators(both, *request);
  std::set<std::string> visible(net.external_output().begin(), net.external_output().end());
  const BoundNet bound(both, {.visible = std::move(visible)});
  const int backward = result.first_gradient_op;
  std::erase_if(pairs, [&](LinearLoss& pair) {
    const int scores = bound.flow.made(pair.fc, 0);
    if (bound.flow.read(pair.loss, 0) != scores || !is_of_loss(bound, scores, pair.loss, backward)) return true;
    if (!is_of_loss(bound, bound.flow.made(pair.loss, 0), pair.loss, backward)) return true;
    const DifferentiatedOp* of_loss = differentiated_op(result, pair.loss);
    if (of_loss && of_loss->wanted.size() > 2 && of_loss->wanted[2]) return true;
    if (const DifferentiatedOp* of_fc = differentiated_op(result, pair.fc))
      std::copy(of_fc->wanted.begin(), of_fc->wanted.end(), pair.wanted.begin());
    return !stays_until(bound, pair);
  });
  UntakenNames names(net);
  std::set<int> gone;
  for (const LinearLoss& pair : pairs) {
    *net.mutable_op(pair.loss) = in_blocks(net.op(pair.fc), net.op(pair.loss), pair.wanted, names);
    gone.insert(pair.fc);
  }
  for (auto it = gone.rbegin(); it != gone.rend(); ++it) net.mutable_op()->DeleteSubrange(*it, 1);
  return static_cast<int>(pairs.size());
}

void leave_gradients_in_place(NetDef& net, GradientResult& result) {
  const std::set<std::string> outside(net.external_output().begin(), net.external_output().end());
  for (int i = 0; i < net.op_size(); ++i) {
    OperatorDef& scaling = *net.mutable_op(i);
    if (scaling.type() != kInBlocksGradient) continue;
    const auto before = net.mutable_op()->begin(), here = before + i;
    for (int o = 0; o < scaling.output_size(); ++o) {
      const std::string unit = name_of_input(scaling, o + 1), scaled = scaling.output(o);
      if (scaled.empty() || unit == scaled || times_named(net, unit) != 2 || outside.count(unit) > 0) continue;
      const auto maker =
          std::find_if(before, here, [&](const OperatorDef& op) { return std::ranges::count(op.output(), unit) > 0; });
      const auto names_scaled = [&](const OperatorDef& op) {
        return std::ranges::count(op.input(), scaled) + std::ranges::count(op.output(), scaled) > 0;
      };
      if (maker == here || maker->type() != kInBlocks || std::any_of(before, here, names_scaled)) continue;
      std::ranges::replace(*maker->mutable_output(), unit, scaled);
      scaling.set_input(o + 1, scaled);
      if (result.kept.erase(unit) > 0) result.kept.insert(scaled);
    }
  }
}

}  // namespace stepnet
