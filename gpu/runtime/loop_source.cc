#include <fmt/format.h>

#include <algorithm>

#include "gpu/runtime/chain_kernel.h"
#include "gpu/runtime/loop_plan.h"
#include "gpu/runtime/loop_stretch.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

// What a kernel has of CUDA alone. Behind it the text is that of any device: tests run it on the imitated one, with
// functions of the same names (tests/gpu/emulated/loop_device.h).
constexpr const char* kDevice = R"(
// The block's shared memory.
__device__ char* block_room() {
  extern __shared__ __align__(16) char room[];
  return room;
}

// Adds one, behind whatever this thread has written, or has seen others write.
__device__ void add_release(unsigned* to) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(to) : "memory");
}
// Reads in front of whatever this thread reads next.
__device__ unsigned read_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
)";

// The same for products by tensor cores: reads past the caches of one multiprocessor, where other blocks have written,
// and sums of 16 x 8 products of 16 halves, as mma.m16n8k16 has them in the registers of a warp.
constexpr const char* kTensorCoresDevice = R"(
__device__ void read_all_blocks(const Element* from, unsigned& x) {{
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
}}
__device__ void read_all_blocks(const Element* from, unsigned& x, unsigned& y) {{
  asm volatile("ld.global.cg.v2.u32 {{%0, %1}}, [%2];" : "=r"(x), "=r"(y) : "l"(from) : "memory");
}}
__device__ void read_all_blocks(const Element* from, unsigned& x, unsigned& y, unsigned& z, unsigned& w) {{
  asm volatile("ld.global.cg.v4.u32 {{%0, %1, %2, %3}}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(from) : "memory");
}}
__device__ void add_product(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}}
)";

// What every such kernel has. There are no headers where this is compiled.
constexpr const char* kPrelude = R"(
constexpr int kThreads = {0}, kWarps = kThreads / 32;
struct Place {{ const char *first, *odd, *even; long long stride; }};
struct Parameters {{
  Place places[{1}];
  const char* constants[{2}];
  unsigned* arrived;
  long long steps;
}};
// Of the loop, of a block, and how many blocks share the rows and the units.
constexpr int kAllHeads = {3}, kAllRows = {4}, kUnits = {5};
constexpr int kHeads = {6}, kRows = {7}, kOwn = {8};
constexpr int kRowBlocks = {9}, kUnitBlocks = {10};
constexpr bool kWhole = kAllHeads % kHeads == 0 && kAllRows % kRows == 0;  // no block has fewer heads or rows
// The first head, row and unit of a block, and how many heads and rows there are.
struct Share {{ int h0, r0, u0, heads, rows; }};
)";

constexpr const char* kFunctions = R"(
__device__ Element* place_at(const Place& p, long long t) {
  if (t == 0) return (Element*)p.first;
  return (Element*)(t & 1 ? p.odd + (t >> 1) * p.stride : p.even + ((t >> 1) - 1) * p.stride);
}

__device__ Share share_of(int block) {
  constexpr bool kAllTogether = kHeads == kAllHeads && kRowBlocks == 1;
  const int h0 = kHeads == kAllHeads ? 0 : block / kUnitBlocks / kRowBlocks * kHeads;
  const int r0 = kRowBlocks == 1 ? 0 : block / kUnitBlocks % kRowBlocks * kRows;
  const int heads = kWhole || h0 + kHeads <= kAllHeads ? kHeads : kAllHeads - h0;
  const int rows = kWhole || r0 + kRows <= kAllRows ? kRows : kAllRows - r0;
  return {h0, r0, (kAllTogether ? block : block % kUnitBlocks) * kOwn, heads, rows};
}

// The column of the n-th that a block has whose units begin at u0, or -1; groups lie kGroupStride columns apart.
template <int kGroupStride>
__device__ int own_column(int n, int u0) {
  const int u = u0 + n % kOwn;
  return u < kUnits ? n / kOwn * kGroupStride + u : -1;
}

// Says that this block has come to its next point, and that what it has written before can be read.
__device__ void arrive(unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x == 0) add_release(arrived);
}

// Waits until blocks have come to their points so many times, taken together.
__device__ void wait_for(const unsigned* arrived, unsigned times) {
  if (threadIdx.x == 0)
    while (read_acquire(arrived) < times) {}
  __syncthreads();
}

// The sum that kParts warps have found, each in rows of kLength.
template <int kParts, int kPartRows, int kLength>
__device__ float sum_of(const float* sums, int row, int n) {
  float sum = 0;
  #pragma unroll
  for (int part = 0; part < kParts; ++part) sum += sums[(part * kPartRows + row) * kLength + n];
  return sum;
}

template <int K, int kGroups, int kGroupStride, bool kTransposed>
__device__ void load_weights(Element* to, const Element* w, long long head_stride, long long ld, Share share) {
  constexpr int kColumns = kGroups * kOwn, kLength = (K + 3) / 4 * 4;
  for (int at = threadIdx.x; at < share.heads * kColumns * kLength; at += kThreads) {
    const int head = kHeads == 1 ? 0 : at / (kColumns * kLength), i = kHeads == 1 ? at : at % (kColumns * kLength);
    const int n = kTransposed ? i / kLength : i % kColumns, k = kTransposed ? i % kLength : i / kColumns;
    const int column = own_column<kGroupStride>(n, share.u0);
    const Element* const from = w + (share.h0 + head) * head_stride;
    Element value = Element(0);
    if (column >= 0 && k < K) value = kTransposed ? from[column * ld + k] : from[k * ld + column];
    to[(head * kColumns + n) * kLength + k] = value;
  }
}

template <int V>
struct alignas(V * sizeof(Element)) Several { Element values[V]; };

// The sums over all lanes of kCount numbers that each of them has, a power of two: lane L has number L * kCount / 32 in
// the end, in the first place. With each exchange a lane gives away half of what it has left.
template <int kHalf, int kCount>
__device__ void add_up_lanes(float (&numbers)[kCount]) {
  constexpr int kLeft = kCount * kHalf / 32;
  const bool upper = (threadIdx.x & kHalf) != 0;
  #pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const float given = upper ? numbers[i] : numbers[i + kLeft], kept = upper ? numbers[i + kLeft] : numbers[i];
    numbers[i] = kept + __shfl_xor_sync(0xffffffffu, given, kHalf);
  }
  if (kLeft == 0) numbers[0] += __shfl_xor_sync(0xffffffffu, numbers[0], kHalf);
  if constexpr (kHalf > 1) add_up_lanes<kHalf / 2>(numbers);
}

__device__ constexpr int power_of_two(int least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

// Sums by tiles of rows and columns: each lane of a warp has every 32nd group of V summands.
template <int K, int kGroups, int V>
__device__ void multiply(const Element* a, long long head_stride, long long lda, const Element* w, float* sums, Share share) {
  constexpr int kColumns = kGroups * kOwn, kLength = (K + 3) / 4 * 4;
  constexpr int kTileRows = kRows < 4 ? kRows : 4, kTileColumns = kColumns < 8 ? kColumns : 8;
  constexpr int kAcross = (kColumns + kTileColumns - 1) / kTileColumns;
  constexpr int kTiles = (kRows + kTileRows - 1) / kTileRows * kAcross;
  constexpr int kSums = power_of_two(kTileRows * kTileColumns);
  const int lane = threadIdx.x % 32, rows = kWhole ? kRows : share.rows;
  for (int at = threadIdx.x / 32; at < share.heads * kTiles; at += kWarps) {
    const int head = kHeads == 1 ? 0 : at / kTiles, tile = kHeads == 1 ? at : at % kTiles;
    const int row = tile / kAcross * kTileRows, n = tile % kAcross * kTileColumns;
    if (!kWhole && row >= rows) continue;
    const Element* const first = a + (share.h0 + head) * head_stride + share.r0 * lda;
    float sum[kSums] = {};
    #pragma unroll (V < 8 ? 2 : 1)
    for (int k = lane * V; k < K; k += 32 * V) {
      Several<V> x[kTileRows];
      #pragma unroll
      for (int i = 0; i < kTileRows; ++i)
        x[i] = *(const Several<V>*)(first + (row + i < rows ? row + i : row) * lda + k);
      #pragma unroll
      for (int j = 0; j < kTileColumns; ++j) {
        const Several<V> y = *(const Several<V>*)(w + (head * kColumns + (n + j < kColumns ? n + j : n)) * kLength + k);
        #pragma unroll
        for (int i = 0; i < kTileRows; ++i)
          #pragma unroll
          for (int v = 0; v < V; ++v)
            sum[i * kTileColumns + j] = fmaf(load(x[i].values[v]), load(y.values[v]), sum[i * kTileColumns + j]);
      }
    }
    add_up_lanes<16>(sum);
    const int own = lane * kSums / 32, i = own / kTileColumns, j = own % kTileColumns;
    if (lane % (32 / kSums) == 0 && i < kTileRows && row + i < rows && n + j < kColumns)
      sums[(head * kRows + row + i) * kColumns + n + j] = sum[0];
  }
}
)";

// Of 32 summands a lane has 8 neighbouring ones, which are two steps of the tensor cores: in which order they are added
// up does not matter, as long as both operands have the same.
constexpr const char* kTensorCores = R"(
struct Eight { unsigned x, y, z, w; };

// Elements k to k + 7 of a row of K, zeros behind its end, kWide of them at a time. Where chunks of 32 end with the row
// there is no condition, so that many reads are under way at once.
template <int K, int kWide>
__device__ Eight read_eight(const Element* row, int k) {
  Eight e = {0, 0, 0, 0};
  const Element* const from = row + k;
  if (kWide == 8) {
    if (K % 32 == 0 || k < K) read_all_blocks(from, e.x, e.y, e.z, e.w);
  } else if (kWide == 4) {
    if (k < K) read_all_blocks(from, e.x, e.y);
    if (k + 4 < K) read_all_blocks(from + 4, e.z, e.w);
  } else {
    if (k < K) read_all_blocks(from, e.x);
    if (k + 2 < K) read_all_blocks(from + 2, e.y);
    if (k + 4 < K) read_all_blocks(from + 4, e.z);
    if (k + 6 < K) read_all_blocks(from + 6, e.w);
  }
  return e;
}

template <int K, int kGroups, int kGroupStride, bool kTransposed>
__device__ void load_tiles(Eight* to, const Element* w, long long head_stride, long long ld, Share share) {
  constexpr int kColumns = kGroups * kOwn, kTiles = (kColumns + 7) / 8, kAll = (K + 31) / 32 * kTiles * 32;
  for (int at = threadIdx.x; at < share.heads * kAll; at += kThreads) {
    const int head = at / kAll, i = at % kAll;
    const int lane = i % 32, n = i / 32 % kTiles * 8 + lane / 4, k = i / 32 / kTiles * 32 + lane % 4 * 8;
    const int column = n < kColumns ? own_column<kGroupStride>(n, share.u0) : -1;
    const Element* const from = w + (share.h0 + head) * head_stride;
    unsigned pairs[4] = {0, 0, 0, 0};
    for (int j = 0; j < 8 && column >= 0 && k + j < K; ++j) {
      const unsigned value = kTransposed ? from[column * ld + k + j] : from[(k + j) * ld + column];
      pairs[j / 2] |= value << (j % 2 * 16);
    }
    to[at] = Eight{pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

// Sums of kHeight * 16 rows and kAcross * 8 columns of a head at a time, by kParts warps, each of which has every so
// manieth chunk of 32 summands; other warps have others of these.
template <int K, int kGroups, int kWide, int kParts, int kHeight, int kAcross, int kUnroll>
__device__ void multiply_tiles(const Element* a, long long head_stride, long long lda, const Eight* w, float* sums, Share share) {
  constexpr int kTiles = (kGroups * kOwn + 7) / 8, kHeights = (kRows + 15) / 16, kChunks = (K + 31) / 32;
  constexpr int kTileParts = (kTiles + kAcross - 1) / kAcross, kRowParts = (kHeights + kHeight - 1) / kHeight;
  constexpr int kTeams = kWarps / kParts, kRounds = (kChunks + kParts - 1) / kParts;
  constexpr bool kEven = kChunks % kParts == 0, kFull = kWhole && kRows % (kHeight * 16) == 0;
  const int lane = threadIdx.x % 32, team = threadIdx.x / 32 / kParts, part = threadIdx.x / 32 % kParts;
  if (team < kTeams) {
    #pragma unroll 1
    for (int item = team; item < share.heads * kRowParts * kTileParts; item += kTeams) {
      const int part_of_rows = item / kTileParts, head = kHeads == 1 ? 0 : part_of_rows / kRowParts;
      const int height = (kHeads == 1 ? part_of_rows : part_of_rows % kRowParts) * kHeight;
      const int tile = item % kTileParts * kAcross;
      const Element* const first = a + (share.h0 + head) * head_stride + share.r0 * lda;
      float sum[kHeight][kAcross][4] = {};
      #pragma unroll kUnroll
      for (int round = 0; round < kRounds; ++round) {
        const int chunk = part + round * kParts;
        Eight x[kHeight][2];
        #pragma unroll
        for (int i = 0; i < kHeight; ++i)
          #pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int row = (height + i) * 16 + half * 8 + lane / 4;
            x[i][half] = Eight{0, 0, 0, 0};
            if ((kFull || row < share.rows) && (kEven || chunk < kChunks))
              x[i][half] = read_eight<K, kWide>(first + row * lda, chunk * 32 + lane % 4 * 8);
          }
        #pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          const int column = kTiles % kAcross == 0 || tile + j < kTiles ? tile + j : 0;
          const Eight y = w[((head * kChunks + (kEven || chunk < kChunks ? chunk : 0)) * kTiles + column) * 32 + lane];
          #pragma unroll
          for (int i = 0; i < kHeight; ++i) {
            add_product(sum[i][j], x[i][0].x, x[i][1].x, x[i][0].y, x[i][1].y, y.x, y.y);
            add_product(sum[i][j], x[i][0].z, x[i][1].z, x[i][0].w, x[i][1].w, y.z, y.w);
          }
        }
      }
      #pragma unroll
      for (int i = 0; i < kHeight; ++i)
        #pragma unroll
        for (int j = 0; j < kAcross; ++j)
          #pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (height + i >= kHeights || tile + j >= kTiles) continue;
            const int row = ((part * kHeads + head) * kHeights + height + i) * 16 + half * 8 + lane / 4;
            float* to = sums + row * (kTiles * 8) + (tile + j) * 8 + lane % 4 * 2;
            to[0] = sum[i][j][2 * half];
            to[1] = sum[i][j][2 * half + 1];
          }
    }
  }
}
)";

bool by_tensor_cores(const LoopOp& op) {
  const auto* p = std::get_if<LoopProduct>(&op.what);
  return p && p->by_tensor_cores;
}

const char* text(bool value) { return value ? "true" : "false"; }
std::string constant(int number) { return fmt::format("((const Element*)p.constants[{}])", number); }

std::string load_text(const LoopProduct& p) {
  return fmt::format("  {0}<{1}, {2}, {3}, {4}>(({5}*)(room + {6}), {7}, {8}ll, {9}ll, share);\n",
                     p.by_tensor_cores ? "load_tiles" : "load_weights", p.sizes.k, p.groups, p.group_stride,
                     text(p.sizes.trans_b), p.by_tensor_cores ? "Eight" : "Element", p.weights_at, constant(p.weights),
                     p.sizes.stride_b, p.sizes.ldb);
}

std::string multiply_text(const LoopProduct& p, const LoopPlan& plan) {
  const LoopTiles tiles = tiles_of(plan, p);
  const std::string sizes =
      p.by_tensor_cores ? fmt::format(", {}, {}, {}, {}", tiles.parts, tiles.height, tiles.across, tiles.unroll) : "";
  return fmt::format(
      "    {}<{}, {}, {}{}>(place_at(p.places[{}], t), {}ll, {}ll, (const {}*)(room + {}), (float*)(room + {}), "
      "share);\n",
      p.by_tensor_cores ? "multiply_tiles" : "multiply", p.sizes.k, p.groups, p.wide, sizes, p.a, p.sizes.stride_a,
      p.sizes.lda, p.by_tensor_cores ? "Eight" : "Element", p.weights_at, p.sums_at);
}

// The sum of a product for a row and a group of its unit.
std::string sum_text(const LoopProduct& p, const LoopPlan& plan, int64_t group) {
  const LoopSums sums = sums_of(plan, p);
  const bool dense = plan.block_heads == 1 || sums.rows == plan.block_rows;
  return fmt::format("sum_of<{}, {}, {}>((const float*)(room + {}), {}, {} + own)", sums.parts,
                     plan.block_heads * sums.rows, sums.length, p.sums_at,
                     dense ? "line" : fmt::format("line / kRows * {} + line % kRows", sums.rows),
                     group * plan.block_units);
}

// The index of an element but for its column.
std::string row_text(const LoopElement& e) {
  const std::string row = fmt::format("row * {}ll", e.stride);
  return e.head_stride == 0 ? row : fmt::format("head * {}ll + {}", e.head_stride, row);
}

std::string element_text(const LoopElement& e) {
  if (e.constant >= 0) {
    const std::string head = e.head_stride == 0 ? "" : fmt::format("head * {}ll + ", e.head_stride);
    return fmt::format("{}[{}{} + u]", constant(e.constant), head, e.shift);
  }
  const std::string row = fmt::format("place_at(p.places[{}], t)[{}", e.place, row_text(e));
  if (e.step != 0) return fmt::format("{} + {} + u]", row, e.shift);
  return e.shift == 0 ? row + "]" : fmt::format("{} + {}]", row, e.shift);
}

std::string variable(int number) { return fmt::format("v{}", number); }

std::string statement_text(const LoopStatement& s, const LoopPlan& plan) {
  const std::string result = variable(s.variable), a = variable(s.instruction.a);
  switch (s.kind) {
    case LoopStatement::Kind::load:
      if (s.element.is_int32)
        return fmt::format("      {} = (float)((const int*)place_at(p.places[{}], t))[{}];\n", result, s.element.place,
                           row_text(s.element));
      return fmt::format("      {} = load({});\n", result, element_text(s.element));
    case LoopStatement::Kind::sum: {
      std::string sum = sum_text(std::get<LoopProduct>(plan.ops[static_cast<size_t>(s.op)].what), plan, s.group);
      for (const int added : s.added) sum += " + " + variable(added);
      return fmt::format("      {} = {};\n", result, sum);
    }
    case LoopStatement::Kind::number: {
      const auto& rows = std::get<LoopRows>(plan.ops[static_cast<size_t>(s.op)].what);
      return fmt::format("      {} = ((const float*)(room + {}))[line * {} + {}];\n", result, rows.numbers_at,
                         rows.parts * kRowNumbers, s.number);
    }
    case LoopStatement::Kind::round:
      return fmt::format("      {} = load(store({}));\n", result, a);
    case LoopStatement::Kind::compute:
      return fmt::format("      {} = {};\n", result,
                         fused_value_source(plan.dtype, s.instruction, a, variable(s.instruction.b)));
    case LoopStatement::Kind::write:
      return fmt::format("      {}{} = store({});\n", s.element.step == 0 ? "if (u == 0) " : "",
                         element_text(s.element), a);
  }
  fail("there is no statement {}", static_cast<int>(s.kind));
}

std::string statements_text(const std::vector<LoopStatement>& statements, const LoopPlan& plan) {
  std::string all;
  for (const LoopStatement& s : statements) all += statement_text(s, plan);
  return all;
}

std::string variables_text(const LoopStretch& s) {
  std::string all;
  for (int i = s.first_variable; i < s.end_variable; ++i)
    all += (i == s.first_variable ? "    float " : ", ") + variable(i);
  return all.empty() ? all : all + ";\n";
}

// What a thread does by itself, by the number of the element among those of its block.
std::string element_of_thread(const char* number) {
  return fmt::format(
      "  const int own = {0} % kOwn, line = {0} / kOwn, u = share.u0 + own;\n"
      "  const long long head = share.h0 + (kHeads == 1 ? 0 : line / kRows);\n"
      "  const long long row = share.r0 + (kHeads == 1 ? line : line % kRows);\n"
      "  const bool active = line < kHeads * kRows && (kWhole || (head < kAllHeads && row < kAllRows)) && u < "
      "kUnits;\n",
      number);
}

// The counter of the block's group.
std::string counter_text(const LoopPlan& plan) {
  const bool waits = std::ranges::any_of(plan.ops, [](const LoopOp& op) { return op.waits; });
  if (!waits || groups_of(plan).size == 1) return "";
  const char* group = plan.heads_wait_apart && plan.rows_wait_apart ? "blockIdx.x / kUnitBlocks"
                      : plan.heads_wait_apart                       ? "blockIdx.x / kUnitBlocks / kRowBlocks"
                      : plan.rows_wait_apart                        ? "blockIdx.x / kUnitBlocks % kRowBlocks"
                                                                    : "0";
  return fmt::format(
      "  unsigned* const arrived = p.arrived + {} * ({});\n"
      "  unsigned turn = 0;  // how often this block has come to a point\n",
      kArrivedBytes / sizeof(unsigned), group);
}

std::string if_active(const std::string& body) {
  return body.empty() ? body : "    if (active) {\n" + body + "    }\n";
}

// A thread has one head, row and unit, or none, and its variables stay in registers while it waits; or else it has
// some, and goes through them after the blocks have waited.
std::string stretch_text(const LoopStretch& s, const LoopPlan& plan, bool is_first) {
  const int64_t size = groups_of(plan).size;
  std::string wait = fmt::format("    {}wait_for(arrived, turn * {}u);\n", is_first ? "if (t > 0) " : "", size);
  if (!s.waits || size == 1) wait = "    __syncthreads();\n";  // before sums are written over
  for (const int op : s.products)
    wait += multiply_text(std::get<LoopProduct>(plan.ops[static_cast<size_t>(op)].what), plan);
  if (!s.products.empty()) wait += "    __syncthreads();\n";
  for (const int op : s.rows) wait += find_numbers_source(std::get<LoopRows>(plan.ops[static_cast<size_t>(op)].what));
  const std::string arrive = s.next_waits && size > 1 ? "    ++turn, arrive(arrived);\n" : "";
  const auto text_of = [&](const std::vector<LoopStatement>& all) { return statements_text(all, plan); };
  if (plan.block_heads * plan.block_rows * plan.block_units <= kLoopThreads)
    return "    {\n" + variables_text(s) + if_active(text_of(s.early)) + wait +
           if_active(text_of(s.values) + text_of(s.shared)) + arrive + if_active(text_of(s.rest)) + "    }\n";
  return "    {\n" + wait + "    for (int e = threadIdx.x; e < kHeads * kRows * kOwn; e += kThreads) {\n" +
         element_of_thread("e") + "      if (!active) continue;\n" + variables_text(s) + text_of(s.early) +
         text_of(s.values) + text_of(s.shared) + text_of(s.rest) + "    }\n" + arrive + "    }\n";
}

std::string timestep_text(const LoopPlan& plan) {
  std::string all;
  for (const LoopStretch& s : loop_stretches(plan)) all += stretch_text(s, plan, all.empty());
  return all;
}

}  // namespace

std::string loop_source(const LoopPlan& plan) {
  const bool has_tiles = std::ranges::any_of(plan.ops, by_tensor_cores);
  return element_source(plan.dtype) + kDevice +
         (has_tiles ? fmt::format(kTensorCoresDevice, plan.dtype == DType::bfloat16 ? "bf16" : "f16") : "") +
         loop_body(plan);
}

std::string loop_body(const LoopPlan& plan) {
  const LoopSplit split = split_of(plan);
  std::string source =
      fmt::format(kPrelude, kLoopThreads, plan.places.size(), plan.constants.size() + 1, plan.heads, plan.rows,
                  plan.units, plan.block_heads, plan.block_rows, plan.block_units, split.rows, split.units) +
      kFunctions;
  if (std::ranges::any_of(plan.ops, by_tensor_cores)) source += kTensorCores;
  if (std::ranges::any_of(plan.ops, [](const LoopOp& op) { return std::holds_alternative<LoopRows>(op.what); }))
    source += row_functions_source();
  std::string loads;
  for (const LoopOp& op : plan.ops)
    if (const auto* p = std::get_if<LoopProduct>(&op.what); p && p->loads_weights) loads += load_text(*p);
  return source + R"(
extern "C" __global__ void __launch_bounds__(kThreads, 1) timesteps(const __grid_constant__ Parameters p) {
  char* const room = block_room();
  const Share share = share_of(blockIdx.x);
)" + element_of_thread("(int)threadIdx.x") +
         counter_text(plan) + loads +
         R"(  __syncthreads();
  for (long long t = 0; t < p.steps; ++t) {
)" + timestep_text(plan) +
         "  }\n}\n";
}

}  // namespace stepnet::gpu
