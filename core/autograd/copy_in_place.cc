// Variable::copy_: the values of another variable, and its history, in the bytes of this one.
#include "core/autograd/record.h"
#include "core/autograd/variable_state.h"

namespace stepnet::autograd {
namespace {

class CopyNode : public Node {
 public:
  CopyNode(std::vector<Edge> edges, const TensorType& type, Place place) : Node(std::move(edges), {type}, place) {}
  std::string name() const override { return "CopyGradient"; }
  Gradients apply(Gradients gradients, const NodeRun& run) override {
    if (!run.wanted[0]) gradients[0] = {};
    return gradients;
  }
};

}  // namespace

void Variable::copy_(const Variable& source, Place place) {
  require(defined() && source.defined(), "copy_: a variable is undefined");
  VariableState& s = *state_;
  require(source.dtype() == s.value.dtype() && source.shape() == s.value.shape(), "copy_: {} cannot be written over {}",
          source.value(), s.value);
  if (source.is_same(*this)) return;
  const bool tracked = tape_state().recording && source.requires_grad();
  check_writable(*this, "copy_", tracked);
  check_view(source);
  // Bytes that overlap are copied by way of others.
  s.value.copy_from(source.value().shares_storage(s.value) ? source.value().clone() : source.value());
  s.value.mark_written();
  if (!tape_state().recording) return;
  if (!tracked) return drop_history(*this);
  const TensorType type = TensorType::of(s.value.dtype(), s.value.shape());
  rebase_history(*this, std::make_shared<CopyNode>(gradient_edges({&source, 1}), type, place), 0);
}

}  // namespace stepnet::autograd
