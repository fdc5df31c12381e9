// FunctionNode: the backward of a user's own function.
#include <algorithm>

#include "core/autograd/function.h"
#include "core/autograd/gradient_sums.h"
#include "core/autograd/record.h"

namespace stepnet::autograd {
namespace {

// Stands behind gradients that were not recorded, and says so when somebody differentiates them.
class OnceDifferentiable : public Node {
 public:
  OnceDifferentiable(std::string of, std::vector<Edge> edges, std::vector<TensorType> outputs, Place place)
      : Node(std::move(edges), std::move(outputs), place), of_(std::move(of)) {}
  std::string name() const override { return of_ + "Gradient"; }
  Gradients apply(Gradients, const NodeRun&) override {
    throw Error(fmt::format("{} can be differentiated only once, as its backward says", of_),
                "leave once_differentiable out and use operators in the backward");
  }

 private:
  std::string of_;
};

TensorType type_of(const Variable& v) { return TensorType::of(v.dtype(), v.shape()); }

void add_edge(std::vector<Edge>& edges, const Variable& v) {
  if (Edge edge = v.gradient_edge(); edge.valid()) edges.push_back(std::move(edge));
}

}  // namespace

FunctionNode::FunctionNode(std::shared_ptr<const Function::Spec> spec, std::vector<Edge> edges,
                           std::vector<TensorType> outputs, Place place)
    : Node(std::move(edges), std::move(outputs), place), spec_(std::move(spec)) {}

FunctionNode::~FunctionNode() {
  for (Saved& s : saved_) let_go(std::move(s.edge.node));
}

SavedValue* FunctionNode::saved_value(std::string_view name) {
  const auto it = std::find_if(saved_.begin(), saved_.end(), [&](const Saved& s) { return s.name == name; });
  return it == saved_.end() ? nullptr : &it->value;
}

Variable FunctionNode::saved(std::string_view name, bool release_it) {
  Edge edge;
  SavedValue value;
  {
    // Hooks that unpack may run whole passes, so that they run without the lock.
    const std::lock_guard lock(lock_);
    const auto it = std::find_if(saved_.begin(), saved_.end(), [&](const Saved& s) { return s.name == name; });
    require(it != saved_.end(), "{}: nothing was saved as \"{}\"", this->name(), name);
    value = it->value;
    if (it->input >= 0)
      edge = edges()[it->input];
    else
      edge = it->output >= 0 ? Edge{shared_from_this(), it->output} : it->edge;
    if (release_it) it->value.release();
  }
  return value.unpack(edge, *this, name);
}

Gradients FunctionNode::run_backward(const Gradients& gradients, const NodeRun& run) {
  require(spec_->backward != nullptr, "{} has no backward, but a gradient is wanted of it", spec_->name);
  FunctionRun pass(*this, run);
  if (!spec_->once_differentiable) return spec_->backward(pass, gradients);
  const NoGrad no_grad;
  return spec_->backward(pass, gradients);
}

void FunctionNode::differentiate_never(Gradients& made, const Gradients& gradients) const {
  std::vector<Edge> edges_behind;
  for (const Edge& edge : edges())
    if (edge.valid()) edges_behind.push_back(edge);
  for (const VariableGradient& g : gradients) add_edge(edges_behind, g.dense);
  std::vector<TensorType> types;
  std::vector<Variable*> results;
  for (VariableGradient& g : made) {
    if (!g.defined()) continue;
    results.push_back(g.is_sparse() ? &g.values : &g.dense);
    types.push_back(type_of(*results.back()));
  }
  const auto node =
      std::make_shared<OnceDifferentiable>(spec_->name, std::move(edges_behind), std::move(types), place());
  for (size_t i = 0; i < results.size(); ++i) *results[i] = variable_of(results[i]->value(), node, static_cast<int>(i));
}

Gradients FunctionNode::apply(Gradients gradients, const NodeRun& run) {
  {
    const std::lock_guard lock(lock_);
    if (released_) fail_released();
  }
  if (spec_->zeros_for_absent)
    for (size_t o = 0; o < gradients.size(); ++o)
      if (!gradients[o].defined() && is_floating(outputs()[o].dtype))
        gradients[o] = filled(outputs()[o], stream() ? stream()->device : Device{}, 0);
  Gradients made = run_backward(gradients, run);
  const size_t inputs = edges().size();
  while (made.size() > inputs && !made.back().defined()) made.pop_back();
  if (made.size() != inputs)
    fail("{} has {} inputs, but its backward has returned {} gradients", spec_->name, inputs, made.size());
  for (size_t i = 0; i < inputs; ++i)
    if (!run.wanted[i]) made[i] = {};
  if (spec_->once_differentiable && run.recording) differentiate_never(made, gradients);
  return made;
}

void FunctionNode::release() {
  const std::lock_guard lock(lock_);
  for (Saved& s : saved_) {
    released_ = released_ || s.value.holds();
    s.value.release();
  }
}

Variable FunctionRun::saved(std::string_view name) const { return node_.saved(name); }
Variable FunctionRun::take_saved(std::string_view name) { return node_.saved(name, !run_.keep_saved); }
std::any& FunctionRun::data() const { return node_.data; }

}  // namespace stepnet::autograd
