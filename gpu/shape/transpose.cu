// CUDA kernel for Transpose. Meaning and derivative: see operators/shape/transpose.cc.
#include "operators/shape/transpose.h"

#include "gpu/loops/copy_elements.h"
#include "stepnet/half.h"

namespace stepnet::gpu_transpose {
namespace {

// Where an element is whose index counts through dimensions, the last one added fastest; as input_offset of
// operators/shape/transpose.h.
struct Places {
  int dims = 0;
  gpu::Divider sizes[Shape::kMaxRank];
  int64_t strides[Shape::kMaxRank] = {};

  Places() = default;
  // Of the output's elements in the input.
  explicit Places(const TransposeLayout& layout) {
    for (size_t d = 0; d < layout.dims; ++d) add(layout.sizes[d], layout.strides[d]);
  }
  void add(int64_t size, int64_t stride) {
    sizes[dims] = gpu::Divider(static_cast<size_t>(size));
    strides[dims++] = stride;
  }
  __device__ int64_t of(size_t index) const {
    int64_t offset = 0;
    for (int d = dims; d-- > 0;) {
      const auto [rest, place] = sizes[d].split(index);
      offset += static_cast<int64_t>(place) * strides[d];
      index = rest;
    }
    return offset;
  }
};

// A plane of the output: its rows are the dimension that is contiguous in the input, its columns the output's last.
struct Plane {
  size_t rows = 0, columns = 0, column_stride = 0;  // column_stride: in the input; rows lie 1 apart there
  size_t row_stride = 0;                            // in the output, where columns lie 1 apart
  Places others;                                    // the dimensions around it, as the input has them
  Places target;                                    // and as the output has them
  size_t planes = 1;
};

Plane plane_of(const TransposeLayout& layout) {
  Plane plane;
  int64_t stride = 1;
  for (size_t d = layout.dims; d-- > 0; stride *= layout.sizes[d]) {
    const auto size = static_cast<size_t>(layout.sizes[d]);
    if (d == layout.dims - 1) {
      plane.columns = size;
      plane.column_stride = static_cast<size_t>(layout.strides[d]);
    } else if (layout.strides[d] == 1) {
      plane.rows = size;
      plane.row_stride = static_cast<size_t>(stride);
    } else {
      plane.others.add(layout.sizes[d], layout.strides[d]);
      plane.target.add(layout.sizes[d], stride);
      plane.planes *= size;
    }
  }
  return plane;
}

// Tiles go through memory that the team shares, so that both sides are touched along their rows.
template <class T>
__global__ void tiles_kernel(Plane p, gpu::Divider tiles, gpu::Divider column_tiles, const T* x, T* y) {
  constexpr unsigned kSide = gpu::kTile;
  __shared__ T tile[kSide][kSide + 1];  // one more: threads that read a column take different banks
  const unsigned lane = threadIdx.x % kSide, first = threadIdx.x / kSide, step = gpu::kTeam / kSide;
  for (size_t at = blockIdx.x; at < p.planes * tiles.divisor(); at += gridDim.x) {
    const auto [index, tile_of_plane] = tiles.split(at);
    const auto [row_tile, column_tile] = column_tiles.split(tile_of_plane);
    const T* from = x + p.others.of(index);
    T* to = y + p.target.of(index);
    const size_t r0 = row_tile * kSide, c0 = column_tile * kSide;
    for (unsigned c = first; c < kSide; c += step)
      if (r0 + lane < p.rows && c0 + c < p.columns) tile[c][lane] = from[(c0 + c) * p.column_stride + r0 + lane];
    __syncthreads();
    for (unsigned r = first; r < kSide; r += step)
      if (r0 + r < p.rows && c0 + lane < p.columns) to[(r0 + r) * p.row_stride + c0 + lane] = tile[lane][r];
    __syncthreads();
  }
}

template <class T>
void transpose_tiles(const Call& call, const Plane& plane, const T* x, T* y) {
  const size_t row_tiles = (plane.rows + gpu::kTile - 1) / gpu::kTile;
  const size_t column_tiles = (plane.columns + gpu::kTile - 1) / gpu::kTile;
  const int device = gpu::device_of(call);
  const gpu::DeviceScope scope(device);
  const cudaStream_t stream = gpu::current_stream(device);
  const size_t blocks = std::min<size_t>(plane.planes * row_tiles * column_tiles, gpu::kMaxBlocks);
  gpu::launch(tiles_kernel<T>, static_cast<unsigned>(blocks), gpu::kTeam, stream, plane,
              gpu::Divider(row_tiles * column_tiles), gpu::Divider(column_tiles), x, y);
  gpu::check_launch(stream);
}

template <class T>
void copy_each(const Call& call, const TransposeLayout& layout, const T* x, T* y, size_t size) {
  const Places places(layout);
  gpu::each(call, size, [=] __device__(size_t i) { y[i] = x[places.of(i)]; });
}

// The last dimension stays the last: its rows are moved in units as wide as may be.
void copy_rows(const Call& call, TransposeLayout layout, const Tensor& x, Tensor& y) {
  const size_t last = layout.dims - 1;
  const auto width = static_cast<int64_t>(gpu::width_of(x));
  const std::byte* from = gpu::bytes_of(x);
  std::byte* to = gpu::bytes_of(y);
  size_t all = gpu::address(from) | gpu::address(to) | static_cast<size_t>(layout.sizes[last] * width);
  for (size_t d = 0; d < last; ++d) all |= static_cast<size_t>(layout.strides[d] * width);
  gpu::with_unit(all, [&](auto unit) {
    using Unit = decltype(unit);
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
    layout.sizes[last] = layout.sizes[last] * width / kBytes;
    for (size_t d = 0; d < last; ++d) layout.strides[d] = layout.strides[d] * width / kBytes;
    copy_each(call, layout, reinterpret_cast<const Unit*>(from), reinterpret_cast<Unit*>(to), x.bytes() / sizeof(Unit));
  });
}

// Elements are moved as numbers of their width.
template <class T, class Element>
void transpose_as(const Call& call, const TransposeLayout& layout, gpu::In<T> x, gpu::Out<T> y) {
  const auto from = reinterpret_cast<const Element*>(x.data);
  const auto to = reinterpret_cast<Element*>(y.data);
  constexpr size_t kNarrow = 8;  // most of a tile would be empty
  const Plane plane = plane_of(layout);
  if (plane.rows >= kNarrow && plane.columns >= kNarrow)
    transpose_tiles(call, plane, from, to);
  else
    copy_each(call, layout, from, to, y.size);
}

template <class T>
void transpose(const TransposeArgs& args, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  if (y.size == 0) return;
  const Shape& shape = call.in(0).shape();
  const TransposeLayout layout = transpose_layout(shape, permutation(args.axes, shape.rank()));
  if (layout.dims <= 1) return copy_values(call.in(0), call.out(0));
  if (layout.strides[layout.dims - 1] == 1) return copy_rows(call, layout, call.in(0), call.out(0));
  transpose_as<T, std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>>(
      call, layout, x, y);
}

REGISTER(transpose_cuda) {
  return cuda<TransposeArgs>("Transpose", transpose<float>, transpose<double>, transpose<float16>, transpose<bfloat16>,
                             transpose<int32_t>, transpose<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_transpose
