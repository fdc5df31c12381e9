#include "recurrent/carried_states.h"

#include <cstring>
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

void CarriedStates::gather(std::span<const int> rows) {
  for (size_t i = 0; i < to_.size(); ++i) {
    Tensor& to = workspace_.at(to_[i]).tensor();
    const int64_t batch = to.size() / sizes_[i];
    const size_t bytes = dtype_size(dtype_) * static_cast<size_t>(sizes_[i]);
    Tensor gathered = Tensor::zeros(dtype_, {1, static_cast<int64_t>(rows.size()), sizes_[i]});
    for (size_t row = 0; row < rows.size(); ++row) {
      require(rows[row] >= 0 && rows[row] < batch, "the carried state \"{}\" has no row {}: it is {}", to_[i],
              rows[row], to);
      std::memcpy(gathered.raw() + row * bytes, to.raw() + static_cast<size_t>(rows[row]) * bytes, bytes);
    }
    to = std::move(gathered);
  }
}

}  // namespace stepnet
