// Sums over rows, and what is the same for a whole row, as parts of a kernel for all timesteps
// (gpu/runtime/timesteps.h). Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/reduce.h"
#include "gpu/loops/teams.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/chain_writer.h"
#include "operators/loops/axis_rows.h"

namespace stepnet::gpu {

// The rows that are reduced to one element each, where these are all of the last dimensions; else none.
inline AxisRows whole_rows(const ReducedDims& dims) {
  const bool along_rows = dims.axis.inner == 1 && dims.along.groups == 1 && dims.along.step[0] == 1;
  const Strided& outer = dims.outer;
  const bool dense = outer.groups == 0 || (outer.groups == 1 && outer.step[0] == static_cast<size_t>(dims.axis.count));
  return along_rows && dense ? AxisRows{dims.axis.outer, dims.axis.count} : AxisRows{};
}

template <class T>
void put_row_sums(int device, const AxisRows& rows, In<T> x, Out<T> y, double divisor) {
  const auto columns = static_cast<size_t>(rows.size);
  each_team(device, static_cast<size_t>(rows.count), [=] __device__(size_t r, const Team& team) {
    double sum = 0;
    for (size_t i = team.thread; i < columns; i += team.size) sum += static_cast<double>(x[r * columns + i]);
    sum = team.sum(sum);
    if (team.thread == 0) y[r] = static_cast<T>(sum / divisor);
  });
}

// y[r] = sum of x[r, ...] / divisor. Returns whether it is recorded; if not, nothing has been done.
template <class T>
bool record_row_sums(const Call& call, const AxisRows& rows, In<T> x, Out<T> y, double divisor) {
  if (!recording() || rows.count * rows.size == 0) return false;
  const int device = device_of(call);
  QueuedRows work{
      .kind = RowKind::sum, .dtype = dtype_of<T>(), .rows = rows.count, .size = rows.size, .number = 1 / divisor};
  work.tensors[RowTensor::x] = x.data;
  work.tensors[RowTensor::first_number] = y.data;
  record(work, QueueAlone([device, rows, x, y, divisor] { put_row_sums(device, rows, x, y, divisor); }));
  return true;
}

template <class T>
void put_row_shares(int device, const AxisRows& rows, In<T> dy, Out<T> dx, double divisor) {
  const Divider columns(static_cast<size_t>(rows.size));
  const auto by = static_cast<Accumulate<T>>(divisor);
  each(device, static_cast<size_t>(rows.count * rows.size),
       [=] __device__(size_t i) { dx[i] = static_cast<T>(dy[columns.split(i).quotient] / by); });
}

// dx[r, ...] = dy[r] / divisor; the same.
template <class T>
bool record_row_shares(const Call& call, const AxisRows& rows, In<T> dy, Out<T> dx, double divisor) {
  if (!recording() || rows.count * rows.size == 0) return false;
  const int device = device_of(call);
  ChainWriter w;
  w.write(w.value(FusedCode::scale, w.read_number(dy.data), 0, 1 / divisor), dx.data, rows.size);
  w.record_as(dtype_of<T>(), rows.size, rows.count,
              QueueAlone([device, rows, dy, dx, divisor] { put_row_shares(device, rows, dy, dx, divisor); }));
  return true;
}

}  // namespace stepnet::gpu
