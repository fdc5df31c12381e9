#include "recurrent/step/row_sum.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "core/compute/backend.h"
#include "core/compute/half_spans.h"
#include "core/compute/vector_math.h"
#include "stepnet/elementwise_chain.h"
#include "stepnet/error.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

// One chain for each device and type.
const FusedChain& adding_chain(Device device, DType dtype) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<std::pair<int, DType>, std::shared_ptr<const FusedChain>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const FusedChain>& chain = all[{device.index, dtype}];
  if (!chain) {
    FusedInstruction add{FusedCode::add, 0, 1};
    add.to = 2;
    chain = backend(device.kind).fuse(device, dtype, {add}, 3);
  }
  return *chain;
}

void add_on_device(const Tensor& from, Tensor& to) {
  require(from.dtype() == to.dtype(), "rows of {} cannot be added to {} on {}", dtype_name(from.dtype()), to,
          to.device().str());
  void* const sum = to.raw();
  const FusedOperand<void> tensors[] = {{sum}, {const_cast<std::byte*>(from.raw())}, {sum}};
  adding_chain(to.device(), to.dtype()).run(tensors, to.size(), 1);
}

// To a total of float32, or of halves, which become floats a piece at a time.
template <class Half>
void add_halves(const Tensor& from, Tensor& to) {
  constexpr int64_t kPiece = 256;
  const Half* const x = from.data<Half>();
  if (to.dtype() == DType::float32) return add_to_floats(x, from.size(), to.data<float>());
  float sums[kPiece];
  Half* const y = to.data<Half>();
  for (int64_t at = 0; at < from.size(); at += kPiece) {
    const int64_t count = std::min(kPiece, from.size() - at);
    convert_elements(y + at, count, sums);
    add_to_floats(x + at, count, sums);
    convert_elements(sums, count, y + at);
  }
}

}  // namespace

void add_elements(const Tensor& from, Tensor to) {
  if (to.is_dry()) return;
  if (to.device().kind != DeviceKind::cpu) return add_on_device(from, to);
  if (with_half(from.dtype(), [&](auto zero) { add_halves<decltype(zero)>(from, to); })) return;
  if (to.dtype() == DType::float32) {
    vec_axpy(1.0F, from.span<float>(), to.span<float>());
  } else {
    vec_axpy(1.0, from.span<double>(), to.span<double>());
  }
}

// part_of(row) of both rows that timestep t has.
template <class PartOf>
static void add_parts(const RowSum& sum, int64_t t, PartOf part_of) {
  const int64_t row = t + sum.shift;
  if (row < sum.start || row - sum.start >= sum.from.dim(0)) return;
  add_elements(part_of(sum.from.row(row - sum.start)), part_of(sum.to.row(row % sum.to.dim(0))));
}

void RowSum::add(int64_t t, int64_t first, int64_t samples) const {
  add_parts(*this, t, [=](const Tensor& row) { return row.rows(first, samples); });
}

void RowSum::add_elements(int64_t t, int64_t first, int64_t count) const {
  add_parts(*this, t, [=](const Tensor& row) { return row.reshaped({row.size()}).rows(first, count); });
}

}  // namespace stepnet
