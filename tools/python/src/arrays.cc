#include "tools/python/src/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "stepnet/error.h"
#include "stepnet/half.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// A buffer of an object of Python, given back when the last tensor drops it.
class Buffer {
 public:
  explicit Buffer(PyObject* from, int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) {
    held_ = PyObject_GetBuffer(from, &view_, flags) == 0;
    if (!held_) PyErr_Clear();
  }
  ~Buffer() {
    if (!held_) return;
    if (!Py_IsInitialized()) return;
    const nb::gil_scoped_acquire lock;
    PyBuffer_Release(&view_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  bool held() const { return held_; }
  const Py_buffer& view() const { return view_; }

 private:
  Py_buffer view_ = {};
  bool held_ = false;
};

// What NumPy is asked for again and again. Never dropped: it may outlive the interpreter.
struct NumPy {
  nb::object module = nb::module_::import_("numpy");
  nb::object empty = module.attr("empty");
  nb::object asarray = module.attr("asarray"), contiguous = module.attr("ascontiguousarray");
  std::array<nb::object, 20> types;
  const nb::object& type(DType type) {
    nb::object& found = types.at(static_cast<size_t>(type));
    if (!found.is_valid()) found = module.attr("dtype")(numpy_name(type));
    return found;
  }
};
NumPy& numpy() {
  static NumPy* const made = new NumPy;
  return *made;
}

DType integer_type(bool is_signed, int64_t size) {
  if (is_signed) return size == 1 ? DType::int8 : size == 2 ? DType::int16 : size == 4 ? DType::int32 : DType::int64;
  return size == 1 ? DType::uint8 : size == 2 ? DType::uint16 : DType::undefined;
}

// Of a buffer's format; undefined if no tensor has such elements.
DType type_of_format(const Py_buffer& view) {
  std::string_view format = view.format ? view.format : "B";
  if (format.starts_with('@') || format.starts_with('=') || format.starts_with('<')) format.remove_prefix(1);
  if (format.size() != 1) return DType::undefined;
  const std::string_view signed_ones = "bhilqn", unsigned_ones = "BHILQN";
  switch (format[0]) {
    case 'e':
      return DType::float16;
    case 'f':
      return DType::float32;
    case 'd':
      return DType::float64;
    case '?':
      return DType::boolean;
    default:
      if (signed_ones.find(format[0]) != signed_ones.npos) return integer_type(true, view.itemsize);
      if (unsigned_ones.find(format[0]) != unsigned_ones.npos) return integer_type(false, view.itemsize);
      return DType::undefined;
  }
}

Shape shape_of_view(const Py_buffer& view) {
  std::array<int64_t, Shape::kMaxRank> dims{};
  require(view.ndim <= Shape::kMaxRank, "an array has {} dimensions, and a tensor at most {}", view.ndim,
          Shape::kMaxRank);
  for (int i = 0; i < view.ndim; ++i) dims.at(static_cast<size_t>(i)) = view.shape[i];
  return Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(view.ndim)));
}

bool is_aligned(const void* data, size_t size) { return reinterpret_cast<uintptr_t>(data) % size == 0; }

Tensor tensor_of_view(const std::shared_ptr<Buffer>& buffer, DType type, Bytes bytes) {
  const Py_buffer& view = buffer->view();
  const Shape shape = shape_of_view(view);
  if (bytes == Bytes::shared && view.len > 0 && is_aligned(view.buf, dtype_size(type)))
    return Tensor::view(std::make_shared<Storage>(buffer, view.buf, static_cast<size_t>(view.len)), 0, type, shape);
  Tensor made = Tensor::empty(type, shape);
  if (view.len > 0) std::memcpy(made.raw(), view.buf, static_cast<size_t>(view.len));
  return made;
}

std::string text_of(nb::handle value) {
  if (nb::isinstance<nb::bytes>(value)) {
    const auto bytes = nb::borrow<nb::bytes>(value);
    return {bytes.c_str(), bytes.size()};
  }
  require(nb::isinstance<nb::str>(value), "an element of an array of strings is {}",
          nb::cast<std::string>(nb::repr(value)));
  return nb::cast<std::string>(value);
}

// Of an array whose elements are text.
Tensor strings_of(nb::handle array) {
  Shape shape;
  for (const nb::handle size : array.attr("shape")) shape.push_back(nb::cast<int64_t>(size));
  Tensor made = Tensor::empty(DType::string, shape);
  const std::span<std::string> to = made.span<std::string>();
  size_t i = 0;
  for (const nb::handle value : array.attr("ravel")().attr("tolist")()) to[i++] = text_of(value);
  return made;
}

DType type_of_dlpack(nb::dlpack::dtype type) {
  if (type.lanes != 1) return DType::undefined;
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case nb::dlpack::dtype_code::Float:
      return type.bits == 16   ? DType::float16
             : type.bits == 32 ? DType::float32
             : type.bits == 64 ? DType::float64
                               : DType::undefined;
    case nb::dlpack::dtype_code::Bfloat:
      return type.bits == 16 ? DType::bfloat16 : DType::undefined;
    case nb::dlpack::dtype_code::Int:
      return integer_type(true, type.bits / 8);
    case nb::dlpack::dtype_code::UInt:
      return integer_type(false, type.bits / 8);
    case nb::dlpack::dtype_code::Bool:
      return DType::boolean;
    default:
      return DType::undefined;
  }
}

nb::dlpack::dtype dlpack_type(DType type) {
  using Code = nb::dlpack::dtype_code;
  const Code code = type == DType::bfloat16                         ? Code::Bfloat
                    : is_floating(type)                             ? Code::Float
                    : type == DType::boolean                        ? Code::Bool
                    : type == DType::uint8 || type == DType::uint16 ? Code::UInt
                                                                    : Code::Int;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * dtype_size(type)), 1};
}

using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// Holds an array of another library, whose last user may be any thread.
struct HeldArray {
  explicit HeldArray(AnyArray given) : array(std::make_unique<AnyArray>(std::move(given))) {}
  ~HeldArray() {
    if (!Py_IsInitialized()) {
      static_cast<void>(array.release());  // what it holds has gone with the interpreter
      return;
    }
    const nb::gil_scoped_acquire lock;
    array.reset();
  }
  HeldArray(const HeldArray&) = delete;
  HeldArray& operator=(const HeldArray&) = delete;
  std::unique_ptr<AnyArray> array;
};

Tensor tensor_of_dlpack(nb::handle value, Bytes bytes) {
  const auto held = std::make_shared<HeldArray>(nb::cast<AnyArray>(value));
  const AnyArray& array = *held->array;
  const DType type = type_of_dlpack(array.dtype());
  require(type != DType::undefined, "an array's elements (code {}, {} bits) are none that a tensor has",
          int{array.dtype().code}, int{array.dtype().bits});
  const Shape shape(std::span<const int64_t>(array.shape_ptr(), array.ndim()));
  void* const data = const_cast<void*>(array.data());
  const size_t size = static_cast<size_t>(shape.size()) * dtype_size(type);
  if (bytes == Bytes::shared && size > 0 && is_aligned(data, dtype_size(type)))
    return Tensor::view(std::make_shared<Storage>(held, data, size), 0, type, shape);
  Tensor made = Tensor::empty(type, shape);
  if (size > 0) std::memcpy(made.raw(), data, size);
  return made;
}

// NumPy makes float64 of Python's numbers, which for nets is a choice that nobody has made.
nb::object array_of_numbers(nb::handle value) {
  nb::object array = numpy().asarray(value);
  const bool is_wide = nb::cast<std::string>(array.attr("dtype").attr("char")) == "d";
  return is_wide ? array.attr("astype")(numpy().type(DType::float32)) : array;
}

bool has(nb::handle value, const char* name) { return PyObject_HasAttrString(value.ptr(), name) != 0; }

// Of an array of NumPy that gives no buffer in order.
Tensor tensor_of_array(nb::handle array) {
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (kind == "U" || kind == "S" || kind == "O") return strings_of(array);
  // It makes an array of one dimension of a number.
  const nb::object ordered =
      nb::cast<int>(array.attr("ndim")) == 0 ? numpy().asarray(array) : numpy().contiguous(array);
  const auto buffer = std::make_shared<Buffer>(ordered.ptr());
  const DType type = buffer->held() ? type_of_format(buffer->view()) : DType::undefined;
  if (type == DType::undefined)
    throw Error(fmt::format("an array has elements of type {}, which no tensor has",
                            nb::cast<std::string>(nb::str(nb::object(array.attr("dtype"))))),
                "convert it, for example with array.astype(\"float32\")");
  return tensor_of_view(buffer, type, Bytes::copied);
}

Tensor widened(const Tensor& value) {
  Tensor wide = Tensor::empty(DType::float32, value.shape());
  std::ranges::copy(value.span<bfloat16>(), wide.data<float>());
  return wide;
}

nb::object strings_array(const Tensor& value) {
  nb::list list;
  for (const std::string& s : value.span<std::string>()) list.append(nb::bytes(s.data(), s.size()));
  nb::object array = numpy().empty(nb::make_tuple(list.size()), nb::str("O"));
  array[nb::slice(nb::none(), nb::none(), nb::none())] = list;
  return array.attr("reshape")(shape_of(value.shape()));
}

template <class Array>
Array array_at(const Tensor& value, nb::handle owner) {
  std::array<size_t, Shape::kMaxRank> dims{};
  std::ranges::copy(value.shape(), dims.begin());
  return Array(const_cast<std::byte*>(value.raw()), static_cast<size_t>(value.rank()), dims.data(), owner, nullptr,
               dlpack_type(value.dtype()), nb::device::cpu::value, 0, 'C');
}

nb::capsule keeper_of(const std::shared_ptr<void>& owner) {
  return {new std::shared_ptr<void>(owner), [](void* p) noexcept { delete static_cast<std::shared_ptr<void>*>(p); }};
}

void require_on_cpu(const Tensor& value) {
  require(value.defined(), "there is no value");
  require(value.device().kind == DeviceKind::cpu, "a value is on {}", value.device().str());
}

}  // namespace

Tensor tensor_of(nb::handle value, Bytes bytes) {
  if (nb::isinstance<nb::bytes>(value) || nb::isinstance<nb::str>(value))
    return Tensor::of<std::string>(Shape{}, {text_of(value)});
  if (nb::isinstance<Tensor>(value)) {
    const Tensor& tensor = *nb::inst_ptr<Tensor>(value);
    return bytes == Bytes::shared ? tensor : tensor.clone();
  }
  if (PyObject_CheckBuffer(value.ptr())) {
    const auto buffer = std::make_shared<Buffer>(value.ptr());
    const DType type = buffer->held() ? type_of_format(buffer->view()) : DType::undefined;
    if (type != DType::undefined) return tensor_of_view(buffer, type, bytes);
  }
  if (has(value, "dtype") && has(value, "ravel") && has(value, "tolist") && has(value, "astype"))
    return tensor_of_array(value);
  if (has(value, "__dlpack__")) return tensor_of_dlpack(value, bytes);
  const nb::object array = array_of_numbers(value);
  return tensor_of_array(array);
}

void put_into(Tensor& tensor, nb::handle value, size_t share_from) {
  // The common case without an object for the buffer.
  if (PyObject_CheckBuffer(value.ptr()) && !nb::isinstance<nb::bytes>(value)) {
    const Buffer buffer(value.ptr());
    const DType type = buffer.held() ? type_of_format(buffer.view()) : DType::undefined;
    if (type != DType::undefined && static_cast<size_t>(buffer.view().len) < share_from) {
      if (tensor.storage().use_count() > 1) tensor = Tensor();
      tensor.resize(type, shape_of_view(buffer.view()));
      if (buffer.view().len > 0) std::memcpy(tensor.raw(), buffer.view().buf, static_cast<size_t>(buffer.view().len));
      tensor.mark_written();
      return;
    }
  }
  tensor = tensor_of(value, share_from == SIZE_MAX ? Bytes::copied : Bytes::shared);
}

nb::object array_of(const Tensor& value) {
  require_on_cpu(value);
  if (value.dtype() == DType::string) return strings_array(value);
  if (value.dtype() == DType::bfloat16) return array_of(widened(value));
  nb::object array = numpy().empty(shape_of(value.shape()), numpy().type(value.dtype()));
  if (value.bytes() > 0) {
    const Buffer to(array.ptr(), PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS);
    require(to.held(), "NumPy gives no buffer for an array that it has made");
    std::memcpy(to.view().buf, value.raw(), value.bytes());
  }
  return array;
}

nb::object shared_array_of(const Tensor& value, const std::shared_ptr<void>& owner, bool writable) {
  require_on_cpu(value);
  if (value.dtype() == DType::string || value.dtype() == DType::bfloat16 || value.bytes() == 0) return array_of(value);
  const nb::capsule keeper = keeper_of(owner);
  if (writable) return nb::cast(array_at<nb::ndarray<nb::numpy>>(value, keeper), nb::rv_policy::reference);
  return nb::cast(array_at<nb::ndarray<nb::numpy, nb::ro>>(value, keeper), nb::rv_policy::reference);
}

nb::object dlpack_of(const Tensor& value) {
  require_on_cpu(value);
  require(value.dtype() != DType::string, "strings cannot be given to other libraries");
  return nb::cast(array_at<nb::ndarray<nb::array_api>>(value, keeper_of(value.storage())), nb::rv_policy::reference);
}

std::string numpy_name(DType type) {
  switch (type) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::boolean:
      return "bool";
    case DType::string:
      return "object";
    default:
      return std::string(dtype_name(type));
  }
}

DType type_named(const std::string& name) {
  if (name == "float32") return DType::float32;
  if (name == "float64") return DType::float64;
  return dtype_from_name(name);
}

nb::tuple shape_of(const Shape& shape) {
  PyObject* const sizes = PyTuple_New(shape.rank());
  for (int i = 0; i < shape.rank(); ++i) PyTuple_SetItem(sizes, i, PyLong_FromLongLong(shape[i]));
  return nb::steal<nb::tuple>(sizes);
}

}  // namespace stepnet::python
