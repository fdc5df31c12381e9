#include "gpu/runtime/loop_rows.h"

#include <fmt/format.h>

#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

// What a lane has of rows, and what a warp makes of that.
constexpr const char* kFunctions = R"(
__device__ float sum_of_lanes(float value) {
  #pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_xor_sync(0xffffffffu, value, half);
  return value;
}

__device__ float largest_of_lanes(float value) {
  #pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, half);
    value = other > value ? other : value;
  }
  return value;
}

// f(which of the block's rows, row) by a warp for each.
template <class Lines, class F>
__device__ void each_row(Share share, const F& f) {
  for (int own = threadIdx.x / 32; own < share.heads * kRows * Lines::kParts; own += kWarps) {
    const int line = own / Lines::kParts, head = kHeads == 1 ? 0 : line / kRows;
    const int row = kHeads == 1 ? line : line % kRows;
    if (!kWhole && row >= share.rows) continue;
    const long long first = (share.h0 + head) * Lines::kHead + (share.r0 + row) * Lines::kRow;
    f(own, first * Lines::kParts + own % Lines::kParts);
  }
  __syncthreads();
}
// How many rows an operator has in one of the loop, and how many of the loop's lie from head to head and row to row.
template <int kPartsOfRow, long long kFromHead, long long kFromRow>
struct RowLines {
  static constexpr int kParts = kPartsOfRow;
  static constexpr long long kHead = kFromHead, kRow = kFromRow;
};

// f(value) for a lane's elements of a row.
template <int kSize, int V, class F>
__device__ void each_element(const Element* row, const F& f) {
  #pragma unroll 4
  for (int k = threadIdx.x % 32 * V; k < kSize; k += 32 * V) {
    const Several<V> x = *(const Several<V>*)(row + k);
    #pragma unroll
    for (int v = 0; v < V; ++v) f(load(x.values[v]));
  }
}

// f(value of x, value of y, column).
template <int kSize, int V, class F>
__device__ void each_pair(const Element* row_of_x, const Element* row_of_y, const F& f) {
  #pragma unroll 4
  for (int k = threadIdx.x % 32 * V; k < kSize; k += 32 * V) {
    const Several<V> x = *(const Several<V>*)(row_of_x + k), y = *(const Several<V>*)(row_of_y + k);
    #pragma unroll
    for (int v = 0; v < V; ++v) f(load(x.values[v]), load(y.values[v]), k + v);
  }
}

__device__ void put_numbers(float* numbers, int own, float first, float second) {
  if (threadIdx.x % 32 != 0) return;
  numbers[2 * own] = first;
  numbers[2 * own + 1] = second;
}

template <class Lines, int kSize, int V>
__device__ void find_layer_norm(const Element* x, float epsilon, float* numbers, Share share) {
  each_row<Lines>(share, [&](int own, long long row) {
    const Element* const from = x + row * kSize;
    float sum = 0, squares = 0;
    each_element<kSize, V>(from, [&](float value) { sum += value; });
    const float mean = sum_of_lanes(sum) / kSize;
    each_element<kSize, V>(from, [&](float value) { squares += (value - mean) * (value - mean); });
    put_numbers(numbers, own, mean, sqrtf(sum_of_lanes(squares) / kSize + epsilon));
  });
}

template <class Lines, int kSize, int V>
__device__ void find_layer_norm_gradient(const Element* x, const Element* dy, const Element* mean,
                                         const Element* deviation, const Element* scale, float* numbers, Share share) {
  each_row<Lines>(share, [&](int own, long long row) {
    const float middle = load(mean[row]), inverse = 1 / load(deviation[row]);
    float sum = 0, dot = 0;
    each_pair<kSize, V>(x + row * kSize, dy + row * kSize, [&](float value, float slope, int k) {
      const float e = scale ? slope * load(scale[k]) : slope;
      sum += e;
      dot += e * ((value - middle) * inverse);
    });
    sum = sum_of_lanes(sum);
    dot = sum_of_lanes(dot);
    put_numbers(numbers, own, sum, dot);
  });
}

template <class Lines, int kSize, int V>
__device__ void find_softmax(const Element* x, float* numbers, Share share) {
  each_row<Lines>(share, [&](int own, long long row) {
    const Element* const from = x + row * kSize;
    float most = load(from[0]), sum = 0;
    each_element<kSize, V>(from, [&](float value) { most = value > most ? value : most; });
    most = largest_of_lanes(most);
    each_element<kSize, V>(from, [&](float value) { sum += expf(value - most); });
    sum = sum_of_lanes(sum);
    put_numbers(numbers, own, most, sum);
  });
}

template <class Lines, int kSize, int V>
__device__ void find_softmax_gradient(const Element* y, const Element* dy, float* numbers, Share share) {
  each_row<Lines>(share, [&](int own, long long row) {
    float dot = 0;
    each_pair<kSize, V>(y + row * kSize, dy + row * kSize,
                        [&](float value, float slope, int) { dot += value * slope; });
    dot = sum_of_lanes(dot);
    put_numbers(numbers, own, dot, 0);
  });
}

template <class Lines, int kSize, int V>
__device__ void find_sum(const Element* x, float factor, float* numbers, Share share) {
  each_row<Lines>(share, [&](int own, long long row) {
    float sum = 0;
    each_element<kSize, V>(x + row * kSize, [&](float value) { sum += value; });
    sum = sum_of_lanes(sum);
    put_numbers(numbers, own, sum * factor, 0);
  });
}
)";

}  // namespace

bool same_kind(const QueuedRows& a, const QueuedRows& b) {
  bool same = a.kind == b.kind && a.dtype == b.dtype && a.rows == b.rows && a.size == b.size && a.number == b.number &&
              a.scale == b.scale && a.bias == b.bias;
  a.tensors.each([&](RowTensor t) { same = same && (a.tensors[t] == nullptr) == (b.tensors[t] == nullptr); });
  return same;
}

size_t address_count(const QueuedRows& rows) {
  size_t count = 0;
  rows.tensors.each([&](RowTensor t) { count += rows.tensors[t] ? 1 : 0; });
  return count;
}

const std::byte* address(const QueuedRows& rows, size_t k) {
  const void* found = nullptr;
  rows.tensors.each([&](RowTensor t) {
    if (rows.tensors[t] && k-- == 0) found = rows.tensors[t];
  });
  return static_cast<const std::byte*>(found);
}

std::string row_functions_source() { return kFunctions; }

std::string find_numbers_source(const LoopRows& rows) {
  const auto place = [&](RowTensor t) { return fmt::format("place_at(p.places[{}], t)", rows.places[t]); };
  const auto call = [&](const char* function, const std::string& arguments) {
    return fmt::format("    {}<RowLines<{}, {}ll, {}ll>, {}, {}>({}, (float*)(room + {}), share);\n", function,
                       rows.parts, rows.head_lines, rows.row_lines, rows.size, rows.wide, arguments, rows.numbers_at);
  };
  const std::string x = place(RowTensor::x), dy = place(RowTensor::dy);
  switch (rows.kind) {
    case RowKind::layer_norm:
      return call("find_layer_norm", fmt::format("{}, {:.9e}f", x, rows.number));
    case RowKind::layer_norm_gradient: {
      const std::string scale =
          rows.scale < 0 ? "(const Element*)0" : fmt::format("(const Element*)p.constants[{}]", rows.scale);
      return call("find_layer_norm_gradient",
                  fmt::format("{}, {}, {}, {}, {}", x, dy, place(RowTensor::mean), place(RowTensor::deviation), scale));
    }
    case RowKind::softmax:
      return call("find_softmax", x);
    case RowKind::softmax_gradient:
      return call("find_softmax_gradient", fmt::format("{}, {}", x, dy));
    case RowKind::sum:
      return call("find_sum", fmt::format("{}, {:.9e}f", x, rows.number));
  }
  fail("there is no row operator {}", static_cast<int>(rows.kind));
}

}  // namespace stepnet::gpu
