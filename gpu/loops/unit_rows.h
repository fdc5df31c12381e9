// What the operators of one recurrent step share on a GPU: which rows are still within their sequences, and tensors
// that may be missing. See operators/cells/unit_rows.h. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/scalar.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/chain_writer.h"
#include "operators/cells/unit_rows.h"

namespace stepnet::gpu {

// The elements of input i or output o, null where it is missing or not wanted.
template <class T>
const T* in_data(const Call& call, int i) {
  return call.has(i) ? in_span<T>(call.in(i)).data : nullptr;
}
template <class T>
T* out_data(const Call& call, int o) {
  return call.wants(o) ? out_span<T>(call.out(o)).data : nullptr;
}

// Of operators without lengths. One for all calls, as a tensor of its own is memory from the heap.
inline const Scalar& no_timestep() {
  static const Scalar zero(Tensor::scalar<int32_t>(0));
  return zero;
}

// The rows of the states, which are input i. The lengths, input `at`, and the timestep, the next one, are read on the
// device; a row with a negative length is one that is over, and an error.
struct UnitRows {
  size_t count, d;
  const int32_t* lengths;
  const int32_t* timestep;  // null where there are no lengths, or it is on the host
  Scalar now;
  Bounds bounds;

  UnitRows(const UnitArgs& a, const Call& call, int i) : UnitRows(a, call, i, i + 2) {}
  UnitRows(const UnitArgs& a, const Call& call, int i, int at)
      : count(static_cast<size_t>(call.in(i).shape().size_between(0, call.in(i).rank() - 1))),
        d(static_cast<size_t>(call.in(i).shape().at(-1))),
        lengths(a.sequence_lengths ? in_data<int32_t>(call, at) : nullptr),
        timestep(a.sequence_lengths && call.in(at + 1).device().kind == DeviceKind::cuda
                     ? in_data<int32_t>(call, at + 1)
                     : nullptr),
        now(a.sequence_lengths ? Scalar(call.in(at + 1)) : no_timestep()),
        bounds(gpu::bounds(call, "a length in seq_lengths")) {}

  __device__ bool valid(size_t n) const {
    if (!lengths) return true;
    if (lengths[n] < 0) bounds.report(lengths[n], INT32_MAX);
    return static_cast<int32_t>(now.value()) < lengths[n];
  }

  // Whether a chain can tell which rows are over.
  bool fit_chain() const { return !lengths || timestep; }
};

// work.run(s, x, d) for each state s of a row that is within its sequence, and work.hold of one that is over, where x
// is the element of the first of the row's `gates` that belongs to it.
template <class Work>
void run_unit_rows(int device, const UnitRows& rows, size_t gates, const Work& work) {
  const Divider units(rows.d);
  each(device, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = units.divide(s), x = s + (gates - 1) * n * rows.d;
    if (rows.valid(n))
      work.run(s, x, rows.d);
    else
      work.hold(s, x, rows.d);
  });
}

inline void check_lengths(int device, const UnitRows& rows) {
  each(device, rows.count, [=] __device__(size_t n) { rows.valid(n); });
}

// The rows in a chain for all timesteps.
class ChainRows {
 public:
  ChainRows(ChainWriter& writer, const UnitRows& rows) : writer_(writer), rows_(rows) {
    if (rows.lengths)
      left_ = writer.value(FusedCode::sub, writer.read_int32(rows.lengths, 1), writer.read_int32(rows.timestep, 0));
  }
  bool may_be_over() const { return left_ >= 0; }
  // The value, in rows that are over another one, or 0 if that is -1.
  int value(int within, int over) const { return left_ < 0 ? within : writer_.if_positive(left_, within, over); }

  void record_as(DType dtype, int device, const QueueAlone& run) const {
    QueueAlone check;
    if (rows_.lengths) check = QueueAlone([device, rows = rows_] { check_lengths(device, rows); });
    writer_.record_as(dtype, static_cast<int64_t>(rows_.d), static_cast<int64_t>(rows_.count), run, check);
  }

 private:
  ChainWriter& writer_;
  const UnitRows& rows_;
  int left_ = -1;  // timesteps
};

// Element i of a row that is over: zero, or what it was.
template <class T>
__device__ void hold(bool drop, const T* from, T* to, size_t i) {
  if (to) to[i] = drop || !from ? T(0) : from[i];
}
// `count` elements of it, `step` apart, that are zero.
template <class T>
__device__ void hold_zeros(T* to, size_t first, size_t step, int count) {
  if (!to) return;
  for (int k = 0; k < count; ++k) to[first + static_cast<size_t>(k) * step] = T(0);
}

template <class T>
__device__ Accumulate<T> sigmoid(T x) {
  return 1 / (1 + std::exp(-static_cast<Accumulate<T>>(x)));
}

}  // namespace stepnet::gpu
