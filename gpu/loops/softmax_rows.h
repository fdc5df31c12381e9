// Softmax and LogSoftmax of rows by the device's library (gpu/loops/norms.h). Each returns whether it did it.
// Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/norms.h"
#include "gpu/runtime/launch.h"
#include "operators/loops/axis_rows.h"

namespace stepnet::gpu {

template <class T>
bool vendor_softmax(int device, const AxisRows& rows, bool log, In<T> x, Out<T> y) {
  const VendorRows sizes{dtype_of<T>(), rows.count, rows.size, log};
  return vendor_takes(sizes) && x.data != y.data && run_vendor_softmax(device, sizes, x.data, y.data);
}

template <class T>
bool vendor_softmax_backward(int device, const AxisRows& rows, bool log, In<T> y, In<T> dy, Out<T> dx) {
  const VendorRows sizes{dtype_of<T>(), rows.count, rows.size, log};
  return vendor_takes(sizes) && run_vendor_softmax_backward(device, sizes, y.data, dy.data, dx.data);
}

}  // namespace stepnet::gpu
