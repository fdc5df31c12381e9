#include "recurrent/carried_states.h"

#include <utility>

namespace stepnet {

CarriedStates::CarriedStates(const Model& model, DType dtype, Workspace& workspace)
    : dtype_(dtype), workspace_(workspace) {
  for (const CarryLink& link : model.carry) {
    from_.push_back(link.from());
    to_.push_back(link.to());
    sizes_.push_back(link.size());
    workspace.create_local(link.from());
    workspace.create_local(link.to());
  }
}

void CarriedStates::reset(int64_t batch) {
  for (size_t i = 0; i < to_.size(); ++i)
    workspace_.create_local(to_[i]).tensor() = Tensor::zeros(dtype_, {1, batch, sizes_[i]});
}

void CarriedStates::advance() {
  for (size_t i = 0; i < to_.size(); ++i) {
    Tensor& from = workspace_.at(from_[i]).tensor();
    Tensor& to = workspace_.at(to_[i]).tensor();
    require(from.dtype() == to.dtype() && from.shape() == to.shape(),
            "the net reads the carried state \"{}\" as {}, but writes its next value \"{}\" as {}", to_[i], to,
            from_[i], from);
    // A view of a longer tensor (the last row of all states) would be overwritten by the next run while it is read.
    if (from.storage() && (from.storage().use_count() > 1 || from.storage()->bytes() > from.bytes())) {
      to.copy_from(from);
    } else {
      std::swap(from, to);
    }
  }
}

void CarriedStates::keep_stream(int64_t stream) {
  for (size_t i = 0; i < to_.size(); ++i) {
    Tensor& to = workspace_.at(to_[i]).tensor();
    const Shape shape{1, 1, sizes_[i]};
    to = to.reshaped({to.size() / sizes_[i], sizes_[i]}).rows(stream, 1).clone().reshaped(shape);
  }
}

}  // namespace stepnet
