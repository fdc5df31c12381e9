#include "recurrent/train/carried_states.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "stepnet/net.h"

namespace stepnet {

CarriedStates::CarriedStates(const Model& model, DType dtype, Workspace& workspace)
    : dtype_(dtype), device_(model.device), workspace_(workspace) {
  for (const CarryLink& link : model.carry) {
    from_.push_back(link.from());
    to_.push_back(link.to());
    sizes_.push_back(link.size());
    workspace.create_local(link.from());
    workspace.create_local(link.to());
  }
}

void feed(Workspace& workspace, Device device, const Batch& batch) {
  for (const auto& [name, value] : batch.blobs) {
    Tensor& blob = workspace.tensor(name);
    if (device.kind == DeviceKind::cpu) {
      blob = value;
      continue;
    }
    blob.resize(value.dtype(), value.shape(), device);
    blob.copy_from(value);
  }
}

void CarriedStates::reset(int64_t batch) {
  for (size_t i = 0; i < sizes_.size(); ++i)
    workspace_.create_local(to_[i]).tensor() = Tensor::zeros(dtype_, {1, batch, sizes_[i]}, device_);
  start();
}

void CarriedStates::carry(const Sensitivities& sensitivities) {
  bool is_new = false;
  for (const CarriedSensitivity& carried : sensitivities.carried) {
    if (std::ranges::count(to_, carried.first) > 0) continue;
    from_.push_back(carried.last);
    to_.push_back(carried.first);
    workspace_.create_local(carried.last);
    is_new = true;
  }
  start_ = sensitivities.start;
  if (is_new) start();
}

void CarriedStates::start() {
  if (start_.op_size() == 0) return;
  Workspace own(&workspace_);
  RunContext run;
  NetOptions options;
  options.keep.insert(to_.begin() + static_cast<int64_t>(sizes_.size()), to_.end());
  for (size_t i = sizes_.size(); i < to_.size(); ++i) own.create_local(to_[i]);
  run_net_once(start_, own, run, options);
  for (size_t i = sizes_.size(); i < to_.size(); ++i)
    workspace_.create_local(to_[i]).tensor() = std::move(own.at(to_[i]).tensor());
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
  assert(sizes_.size() == to_.size());
  for (size_t i = 0; i < to_.size(); ++i) {
    Tensor& to = workspace_.at(to_[i]).tensor();
    const int64_t batch = to.size() / sizes_[i];
    const auto count = static_cast<int64_t>(rows.size());
    Tensor gathered = Tensor::zeros(dtype_, {1, count, sizes_[i]}, device_);
    const Tensor from = to.reshaped({batch, sizes_[i]}), all = gathered.reshaped({count, sizes_[i]});
    for (int64_t row = 0; row < count; ++row) {
      const int source = rows[static_cast<size_t>(row)];
      require(source >= 0 && source < batch, "the carried state \"{}\" has no row {}: it is {}", to_[i], source, to);
      all.row(row).copy_from(from.row(source));
    }
    to = std::move(gathered);
  }
}

}  // namespace stepnet
