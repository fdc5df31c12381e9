#include "core/operator/half_pieces.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/compute/threads.h"
#include "core/operator/cast_kernels.h"
#include "core/operator/fused_kernel.h"
#include "stepnet/elementwise_chain.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

constexpr int64_t kPiece = 4096;   // elements
constexpr double kCost = 3;        // about the nanoseconds of one, casts included
constexpr size_t kAlignment = 64;  // of the allocator's blocks, which kernels are used to

// The operators that say it of themselves, and those whose rows are single elements. Not columns that are moved.
bool is_elementwise(const OpSpec& spec, const void* args, std::span<const TensorType> in, std::span<TensorType> out,
                    int rank) {
  if (spec.elementwise) return true;
  if (rank == 0 || !spec.rowwise || spec.takes_columns || spec.puts_columns) return false;
  return spec.rowwise(args, ShapeCall(in, out)) >= rank;
}

// An operand of the call in float32: elements of a buffer that are cast, or those of the tensor itself.
class Operand {
 public:
  Operand(const Tensor& whole, float* buffer) : whole_(whole) {
    if (!is_half(whole.dtype()) || !whole.storage()) return;
    // The caller keeps the buffer.
    buffer_ = std::make_shared<Storage>(std::shared_ptr<void>(), buffer, kPiece * sizeof(float));
  }

  void show(int64_t begin, const Shape& shape) {
    if (!whole_.storage()) return piece_.set_type(is_half(whole_.dtype()) ? DType::float32 : whole_.dtype(), shape);
    const size_t offset = whole_.offset() + static_cast<size_t>(begin) * dtype_size(whole_.dtype());
    part_ = Tensor::view(whole_.storage(), offset, whole_.dtype(), shape);
    piece_ = buffer_ ? Tensor::view(buffer_, 0, DType::float32, shape) : part_;
  }
  void read(RunContext& run) {
    if (buffer_) cast_elements(part_, piece_, run);
  }
  void write(RunContext& run) {
    if (buffer_) cast_elements(piece_, part_, run);
  }
  Tensor* piece() { return &piece_; }

 private:
  const Tensor& whole_;
  std::shared_ptr<Storage> buffer_;
  Tensor part_, piece_;
};

const Tensor& first_output(const Call& call) {
  int o = 0;
  while (!call.wants(o)) ++o;
  return call.out(o);
}

// What one thread works with.
class Pieces {
 public:
  Pieces(const Call& half, const Kernel& kernel, const void* args)
      : half_(half), kernel_(kernel), args_(args), in_(half.inputs()), out_(half.outputs()) {
    const size_t count = static_cast<size_t>(half.inputs()) + static_cast<size_t>(half.outputs());
    size_t bytes = count * kPiece * sizeof(float) + kAlignment;
    buffers_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    void* first = buffers_.get();
    auto* buffer = static_cast<float*>(std::align(kAlignment, bytes - kAlignment, first, bytes));
    operands_.reserve(count);
    for (int i = 0; i < half.inputs(); ++i)
      if (half.has(i)) in_[i] = operands_.emplace_back(half.in(i), buffer + kPiece * i).piece();
    inputs_ = operands_.size();
    buffer += kPiece * half.inputs();
    for (int o = 0; o < half.outputs(); ++o)
      if (half.wants(o)) out_[o] = operands_.emplace_back(half.out(o), buffer + kPiece * o).piece();
  }

  void run(int64_t begin, int64_t count) {
    // As many dimensions as the whole has, for arguments that name one of them.
    const int rank = first_output(half_).rank();
    Shape shape = rank > 0 ? Shape{count} : Shape{};
    while (shape.rank() < rank) shape = shape.prepend(1);
    for (Operand& operand : operands_) operand.show(begin, shape);
    for (size_t k = 0; k < operands_.size(); ++k)
      if (k < inputs_ || half_.accumulate_mask != 0) operands_[k].read(half_.run);
    Call floats(in_, out_, half_.run);
    floats.accumulate_mask = half_.accumulate_mask;
    kernel_.run(args_, floats);
    for (size_t k = inputs_; k < operands_.size(); ++k) operands_[k].write(half_.run);
  }

 private:
  const Call& half_;
  const Kernel& kernel_;
  const void* args_;
  std::unique_ptr<std::byte[]> buffers_;
  std::vector<Operand> operands_;
  size_t inputs_ = 0;
  std::vector<const Tensor*> in_;
  std::vector<Tensor*> out_;
};

}  // namespace

bool runs_in_pieces(const OpSpec& spec, const void* args, const Call& half) {
  if (spec.random || spec.side_effect) return false;
  std::vector<TensorType> in(half.inputs()), out(half.outputs());
  const Shape* shape = nullptr;
  const auto is_alike = [&](const Tensor& t) {
    if (!shape) shape = &t.shape();
    return t.defined() && t.shape() == *shape && t.dtype() != DType::string;
  };
  for (int o = 0; o < half.outputs(); ++o) {
    out[o].absent = !half.wants(o);
    if (!half.wants(o)) continue;
    if (!is_alike(half.out(o))) return false;
    out[o] = TensorType::of(half.out(o).dtype(), half.out(o).shape());
  }
  if (!shape) return false;
  for (int i = 0; i < half.inputs(); ++i) {
    in[i].absent = !half.has(i);
    if (!half.has(i)) continue;
    if (!is_alike(half.in(i))) return false;
    in[i] = TensorType::of(half.in(i).dtype(), half.in(i).shape());
  }
  return is_elementwise(spec, args, in, out, shape->rank());
}

namespace {

// False, and nothing is done, where the operator has no instructions, or not for such a call.
bool run_by_instructions(const OpSpec& spec, const void* args, Call& half) {
  const int inputs = half.inputs();
  if (!spec.fused || half.outputs() != 1 || half.accumulate_mask != 0 || inputs >= kMostFusedTensors) return false;
  const FusedBody body = spec.fused(args, inputs);
  if (body.empty() || body.size() >= kMostFusedValues) return false;
  for (int i = 0; i < inputs; ++i)
    if (reads_input(body, i) && (!half.has(i) || !half.in(i).storage() || half.in(i).dtype() != half.out(0).dtype()))
      return false;
  run_fused_body(body, half);
  return true;
}

}  // namespace

void run_in_pieces(const OpSpec& spec, const Kernel& floats, const void* args, Call& half) {
  if (run_by_instructions(spec, args, half)) return;
  const int64_t size = first_output(half).size();
  std::exception_ptr error;
  std::mutex mutex;
  const auto range = [&](int64_t begin, int64_t end) {
    try {
      Pieces pieces(half, floats, args);
      for (int64_t p = begin; p < end; ++p) pieces.run(p * kPiece, std::min(kPiece, size - p * kPiece));
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  parallel_for((size + kPiece - 1) / kPiece, kPiece * kCost, range);
  if (error) std::rethrow_exception(error);
}

}  // namespace stepnet
