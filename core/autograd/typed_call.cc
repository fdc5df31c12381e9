#include "stepnet/typed_call.h"

#include <algorithm>

namespace stepnet::autograd {
namespace {

constexpr int kMostOutputs = 1 << 20;  // of a list

// Which of the first inputs are there; more than these are all there.
uint64_t presence(std::span<const Variable> inputs) {
  uint64_t bits = 0;
  for (size_t i = 0; i < std::min<size_t>(inputs.size(), 64); ++i) bits |= uint64_t{inputs[i].defined()} << i;
  return bits;
}

std::span<const Variable> without_absent_end(std::span<const Variable> inputs) {
  while (!inputs.empty() && !inputs.back().defined()) inputs = inputs.first(inputs.size() - 1);
  return inputs;
}

}  // namespace

struct TypedCall::Entry {
  size_t inputs;
  uint64_t present;
  int outputs;
  std::shared_ptr<const EagerOp> op;
  Entry* next;
};

TypedCall::~TypedCall() {
  for (Entry* e = entries_.load(); e;) delete std::exchange(e, e->next);
}

EagerOp::Signature TypedCall::signature(std::span<const Variable> inputs, int outputs) const {
  EagerOp::Signature s{.type = type_, .inputs = {}, .outputs = {}, .args = {}, .in_place = {}};
  for (const Variable& v : inputs) s.inputs.push_back(v.defined());
  s.outputs.assign(outputs, true);
  s.in_place = in_place_;
  if (!in_place_.empty()) s.in_place.resize(outputs, -1);
  return s;
}

const EagerOp& TypedCall::without_arguments(std::span<const Variable> inputs, int outputs) const {
  const uint64_t present = presence(inputs);
  Entry* first = entries_.load(std::memory_order_acquire);
  for (const Entry* e = first; e; e = e->next)
    if (e->present == present && e->inputs == inputs.size() && e->outputs == outputs) return *e->op;
  auto* made = new Entry{inputs.size(), present, outputs, EagerOp::get(signature(inputs, outputs)), first};
  // Two threads may add the same entry: the one found first serves.
  while (!entries_.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
  }
  return *made->op;
}

const EagerOp& TypedCall::bound(std::span<const Variable> inputs, const ArgList& args, int outputs, Place place,
                                std::shared_ptr<const EagerOp>& kept) const {
  try {
    if (args.args().empty()) return without_arguments(inputs, outputs);
    EagerOp::Signature s = signature(inputs, outputs);
    s.args = args.args();
    kept = EagerOp::get(s);
    return *kept;
  } catch (Error& e) {
    add_call_place(e, place);
    throw;
  }
}

std::vector<Variable> TypedCall::run(std::span<const Variable> inputs, const ArgList& args, int outputs,
                                     Place place) const {
  std::vector<Variable> made(std::clamp(outputs, 0, kMostOutputs));
  run_into(made, inputs, args, outputs, place);
  return made;
}

void TypedCall::run_into(std::span<Variable> made, std::span<const Variable> inputs, const ArgList& args, int outputs,
                         Place place) const {
  const auto most = static_cast<int>(made.size());
  if (outputs < 1 || outputs > most)
    fail("{} is asked for {} outputs at {}, and has 1 to {}", type_, outputs, place.str(), most);
  inputs = without_absent_end(inputs);
  std::shared_ptr<const EagerOp> kept;
  autograd::run_into(bound(inputs, args, outputs, place, kept), inputs, made.first(outputs), place);
}

Variable TypedCall::run1(std::span<const Variable> inputs, const ArgList& args, Place place) const {
  inputs = without_absent_end(inputs);
  std::shared_ptr<const EagerOp> kept;
  return autograd::run1(bound(inputs, args, 1, place, kept), inputs, place);
}

std::vector<Variable> joined(std::initializer_list<Variable> first, const std::vector<Variable>& list) {
  std::vector<Variable> all(first);
  all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace stepnet::autograd
