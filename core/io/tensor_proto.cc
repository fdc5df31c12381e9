// Which field holds which type: floats, doubles, int64 and strings have fields of their own; int32, bool, the 8- and
// 16-bit integers and the bit patterns of halves share int32_data.
#include "core/io/tensor_proto.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "stepnet/error.h"
#include "stepnet/half.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

DType dtype_of_proto(const TensorProto& proto) {
  if (proto.data_type() == TensorProto::BYTE) return DType::uint8;
  require(proto.data_type() != TensorProto::UNDEFINED,
          "tensors of arbitrary objects (data_type UNDEFINED) are not read");
  return dtype_from_number(proto.data_type());
}

bool is_carried_as_bfloat16(const TensorProto& proto) { return proto.data_format() == TensorProto::FMT_BFLOAT16; }

// The bytes that an element has in raw_data.
int64_t raw_width(const TensorProto& proto, DType dtype) {
  if (!is_carried_as_bfloat16(proto)) return static_cast<int64_t>(dtype_size(dtype));
  require(dtype == DType::float32, "data_format 1, bfloat16, is for elements of float, not of {}", dtype_name(dtype));
  return 2;
}

int64_t raw_size(const TensorProto& proto, DType dtype) {
  require(dtype != DType::string, "raw_data cannot hold strings");
  const auto bytes = static_cast<int64_t>(proto.raw_data().size());
  const int64_t width = raw_width(proto, dtype);
  require(bytes % width == 0, "raw_data has {} bytes, which is no whole number of elements of {}", bytes,
          is_carried_as_bfloat16(proto) ? "bfloat16" : dtype_name(dtype));
  return bytes / width;
}

void check_format(const TensorProto& proto) {
  require(proto.data_format() <= TensorProto::FMT_BFLOAT16, "data_format {} is not known; 0 and 1 are",
          proto.data_format());
  require(!is_carried_as_bfloat16(proto) || proto.has_raw_data(), "data_format 1, bfloat16, needs raw_data");
  const int others = proto.float_data_size() + proto.int32_data_size() + proto.string_data_size() +
                     proto.double_data_size() + proto.int64_data_size() + (proto.has_byte_data() ? 1 : 0);
  require(!proto.has_raw_data() || others == 0, "the elements are in raw_data, and in a field of their type as well");
}

// The number of elements in the field that the type uses.
int64_t payload_size(const TensorProto& proto, DType dtype) {
  if (proto.has_raw_data()) return raw_size(proto, dtype);
  switch (dtype) {
    case DType::float32:
      return proto.float_data_size();
    case DType::float64:
      return proto.double_data_size();
    case DType::int64:
      return proto.int64_data_size();
    case DType::string:
      return proto.string_data_size();
    case DType::float16:
    case DType::bfloat16:
      if (!proto.has_byte_data()) return proto.int32_data_size();
      require(proto.byte_data().size() % 2 == 0, "half-precision data has an odd number of bytes, {}",
              proto.byte_data().size());
      return static_cast<int64_t>(proto.byte_data().size() / 2);
    default:
      if (proto.data_type() == TensorProto::BYTE) return static_cast<int64_t>(proto.byte_data().size());
      return proto.int32_data_size();
  }
}

template <class T>
void narrow(const TensorProto& proto, T* to) {
  for (int i = 0; i < proto.int32_data_size(); ++i) {
    const int32_t v = proto.int32_data(i);
    require(v >= std::numeric_limits<T>::min() && v <= std::numeric_limits<T>::max(),
            "value {} does not fit the element type {}", v, dtype_name(dtype_of<T>()));
    to[i] = static_cast<T>(v);
  }
}

void copy_half(const TensorProto& proto, std::byte* to) {
  if (proto.has_byte_data()) {
    std::memcpy(to, proto.byte_data().data(), proto.byte_data().size());
    return;
  }
  for (int i = 0; i < proto.int32_data_size(); ++i) {
    const auto bits = static_cast<uint16_t>(proto.int32_data(i));
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
}

void copy_raw(const TensorProto& proto, const TensorSegment& s, Tensor& to) {
  const std::string& raw = proto.raw_data();
  if (!is_carried_as_bfloat16(proto)) {
    if (s.dtype != DType::boolean) {
      std::memcpy(to.raw() + s.begin * static_cast<int64_t>(dtype_size(s.dtype)), raw.data(), raw.size());
      return;
    }
    // A byte that is neither 0 nor 1 is no bool.
    std::ranges::transform(raw, to.data<bool>() + s.begin, [](char byte) { return byte != 0; });
    return;
  }
  for (int64_t i = s.begin; i < s.end; ++i) {
    bfloat16 value;
    std::memcpy(&value.bits, raw.data() + 2 * (i - s.begin), sizeof(value.bits));
    to.data<float>()[i] = static_cast<float>(value);
  }
}

template <class T, class Field>
void append(const T* from, int64_t count, Field* field) {
  field->Reserve(static_cast<int>(count));
  for (int64_t i = 0; i < count; ++i) field->AddAlreadyReserved(from[i]);
}

void append_half(const std::byte* from, int64_t count, TensorProto* proto) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    proto->add_int32_data(bits);
  }
}

void append_payload(const Tensor& t, int64_t begin, int64_t end, TensorProto* proto) {
  const int64_t count = end - begin;
  require(count <= std::numeric_limits<int>::max(), "a message cannot hold {} elements", count);
  switch (t.dtype()) {
    case DType::float32:
      return append(t.data<float>() + begin, count, proto->mutable_float_data());
    case DType::float64:
      return append(t.data<double>() + begin, count, proto->mutable_double_data());
    case DType::int64:
      return append(t.data<int64_t>() + begin, count, proto->mutable_int64_data());
    case DType::int32:
      return append(t.data<int32_t>() + begin, count, proto->mutable_int32_data());
    case DType::boolean:
      return append(t.data<bool>() + begin, count, proto->mutable_int32_data());
    case DType::uint8:
      return append(t.data<uint8_t>() + begin, count, proto->mutable_int32_data());
    case DType::int8:
      return append(t.data<int8_t>() + begin, count, proto->mutable_int32_data());
    case DType::uint16:
      return append(t.data<uint16_t>() + begin, count, proto->mutable_int32_data());
    case DType::int16:
      return append(t.data<int16_t>() + begin, count, proto->mutable_int32_data());
    case DType::float16:
    case DType::bfloat16:
      return append_half(t.raw() + 2 * begin, count, proto);
    case DType::string:
      for (int64_t i = begin; i < end; ++i) proto->add_string_data(t.data<std::string>()[i]);
      return;
    case DType::undefined:
      fail("a tensor without values cannot be saved");
  }
}

TensorProto header_of(const Tensor& tensor, const std::string& name) {
  require(tensor.defined(), "a tensor without values cannot be saved");
  TensorProto proto;
  for (const int64_t d : tensor.shape()) proto.add_dims(d);
  proto.set_data_type(static_cast<TensorProto::DataType>(tensor.dtype()));
  if (!name.empty()) proto.set_name(name);
  if (tensor.device().kind == DeviceKind::cuda) {
    proto.mutable_device_detail()->set_device_type(CUDA);
    proto.mutable_device_detail()->set_device_id(tensor.device().index);
  }
  return proto;
}

}  // namespace

TensorProto tensor_to_proto(const Tensor& tensor, const std::string& name) {
  TensorProto proto = header_of(tensor, name);
  append_payload(on_device(tensor, {}), 0, tensor.size(), &proto);
  return proto;
}

TensorProto tensor_segment_to_proto(const Tensor& tensor, const std::string& name, int64_t begin, int64_t end) {
  TensorProto proto = header_of(tensor, name);
  proto.mutable_segment()->set_begin(begin);
  proto.mutable_segment()->set_end(end);
  append_payload(on_device(tensor, {}), begin, end, &proto);
  return proto;
}

TensorSegment read_segment(const TensorProto& proto) {
  TensorSegment s;
  check_format(proto);
  s.dtype = dtype_of_proto(proto);
  s.shape = Shape(std::span<const int64_t>(proto.dims().data(), static_cast<size_t>(proto.dims_size())));
  s.end = s.shape.size();
  if (proto.has_segment()) {
    s.begin = proto.segment().begin();
    s.end = proto.segment().end();
    require(0 <= s.begin && s.begin <= s.end && s.end <= s.shape.size(),
            "the segment [{}, {}) is outside of a tensor of shape {}", s.begin, s.end, s.shape);
  }
  const int64_t held = payload_size(proto, s.dtype);
  require(held == s.end - s.begin, "elements {} to {} of {}{} are due, but the record holds {} values", s.begin, s.end,
          dtype_name(s.dtype), s.shape, held);
  return s;
}

void copy_segment(const TensorProto& proto, const TensorSegment& s, Tensor& to) {
  if (s.begin == s.end) return;
  if (proto.has_raw_data()) return copy_raw(proto, s, to);
  const int64_t at = s.begin;
  switch (s.dtype) {
    case DType::float32:
      std::copy(proto.float_data().begin(), proto.float_data().end(), to.data<float>() + at);
      return;
    case DType::float64:
      std::copy(proto.double_data().begin(), proto.double_data().end(), to.data<double>() + at);
      return;
    case DType::int64:
      std::copy(proto.int64_data().begin(), proto.int64_data().end(), to.data<int64_t>() + at);
      return;
    case DType::string:
      std::copy(proto.string_data().begin(), proto.string_data().end(), to.data<std::string>() + at);
      return;
    case DType::int32:
      std::copy(proto.int32_data().begin(), proto.int32_data().end(), to.data<int32_t>() + at);
      return;
    case DType::boolean:
      std::transform(proto.int32_data().begin(), proto.int32_data().end(), to.data<bool>() + at,
                     [](int32_t v) { return v != 0; });
      return;
    case DType::uint8:
      if (proto.data_type() == TensorProto::BYTE) {
        std::memcpy(to.data<uint8_t>() + at, proto.byte_data().data(), proto.byte_data().size());
        return;
      }
      return narrow(proto, to.data<uint8_t>() + at);
    case DType::int8:
      return narrow(proto, to.data<int8_t>() + at);
    case DType::uint16:
      return narrow(proto, to.data<uint16_t>() + at);
    case DType::int16:
      return narrow(proto, to.data<int16_t>() + at);
    case DType::float16:
    case DType::bfloat16:
      return copy_half(proto, to.raw() + 2 * at);
    case DType::undefined:
      return;
  }
}

Tensor tensor_from_proto(const TensorProto& proto) {
  const TensorSegment s = read_segment(proto);
  require(s.begin == 0 && s.end == s.shape.size(), "only elements {} to {} of a tensor of shape {} are there", s.begin,
          s.end, s.shape);
  Tensor tensor = Tensor::empty(s.dtype, s.shape);
  copy_segment(proto, s, tensor);
  return tensor;
}

}  // namespace stepnet
