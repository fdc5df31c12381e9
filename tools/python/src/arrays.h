// Arrays of Python as tensors, and tensors as arrays.
//
// Where bytes are shared, either side keeps them alive for the other: a tensor the array's buffer, an array the
// tensor's storage. Threads: with the interpreter's lock held; what a tensor holds of Python may be dropped anywhere.
// Errors: Error on values that no tensor can hold.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "stepnet/tensor.h"

namespace stepnet::python {

enum class Bytes { copied, shared };

// An array, anything with DLPack, a number, or lists of these. Python's own numbers become float, int64 or bool. Bytes
// are shared only if they are in order and aligned for their type.
Tensor tensor_of(nanobind::handle value, Bytes bytes);

// Puts the elements where the tensor is, which becomes a new one if its bytes have other readers. Of so many bytes or
// more, it shares those of the array, if it can.
void put_into(Tensor& tensor, nanobind::handle value, size_t share_from);

// A NumPy array of its own. Strings are objects of type bytes, bfloat16 becomes float32, which has all its values.
nanobind::object array_of(const Tensor& value);
// A NumPy array of the tensor's bytes, which `owner` keeps. Strings and bfloat16 as above.
nanobind::object shared_array_of(const Tensor& value, const std::shared_ptr<void>& owner, bool writable);
// An object with __dlpack__ for these bytes.
nanobind::object dlpack_of(const Tensor& value);

// "float32", "int64" and so on: NumPy's names.
std::string numpy_name(DType type);
DType type_named(const std::string& name);
nanobind::tuple shape_of(const Shape& shape);

}  // namespace stepnet::python
