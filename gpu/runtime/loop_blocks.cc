#include "gpu/runtime/loop_blocks.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "gpu/runtime/loop_refusal.h"

namespace stepnet::gpu {
namespace {

constexpr int64_t kTile = 16, kTileColumns = 8,
                  kChunk = 32;                       // of the tensor cores: rows, columns, and summands at a time
constexpr int64_t kMostHeight = 4, kMostTiles = 32;  // at a time: the sums of tiles have 128 registers
constexpr int64_t kWarps = kLoopThreads / 32;

int64_t element_size(const LoopPlan& plan) { return static_cast<int64_t>(dtype_size(plan.dtype)); }

int64_t quotient_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
int64_t round_up(int64_t n, int64_t unit) { return quotient_up(n, unit) * unit; }

int64_t own_columns(const LoopPlan& plan, const LoopProduct& p) { return p.groups * plan.block_units; }

size_t weight_bytes(const LoopPlan& plan, const LoopProduct& p) {
  return static_cast<size_t>(round_up(plan.block_heads * head_elements(plan, p) * element_size(plan), 16));
}

size_t sum_bytes(const LoopPlan& plan, const LoopProduct& p) {
  const LoopSums sums = sums_of(plan, p);
  return static_cast<size_t>(
      round_up(sums.parts * plan.block_heads * sums.rows * sums.length * static_cast<int64_t>(sizeof(float)), 16));
}

size_t number_bytes(const LoopPlan& plan, const LoopRows& r) {
  const int64_t numbers = plan.block_heads * plan.block_rows * r.parts * kRowNumbers;
  return static_cast<size_t>(round_up(numbers * static_cast<int64_t>(sizeof(float)), 16));
}

bool same_weights(const LoopProduct& p, const LoopProduct& q) {
  return q.weights == p.weights && q.sizes.n == p.sizes.n && q.sizes.k == p.sizes.k &&
         q.sizes.trans_b == p.sizes.trans_b && q.sizes.ldb == p.sizes.ldb && q.sizes.stride_b == p.sizes.stride_b &&
         q.group_stride == p.group_stride && q.by_tensor_cores == p.by_tensor_cores;
}

// What a block has.
struct Shape {
  int64_t heads = 1, rows = 1, units = 1;
};

// Lays out blocks; whether they fit.
bool lay_out(LoopPlan& plan, const LoopLimits& limits, const Shape& block) {
  plan.block_heads = block.heads;
  plan.block_rows = block.rows;
  plan.block_units = block.units;
  const LoopSplit split = split_of(plan);
  const int64_t blocks = split.heads * split.rows * split.units;
  plan.blocks = static_cast<int>(std::min<int64_t>(blocks, INT32_MAX));
  size_t weights = 0, sums = 0, most_sums = 0;
  std::vector<LoopProduct*> loaded;
  for (LoopOp& op : plan.ops) {
    if (op.waits) sums = 0;  // those of before have been read
    if (auto* r = std::get_if<LoopRows>(&op.what)) {
      r->numbers_at = sums;
      sums += number_bytes(plan, *r);
      most_sums = std::max(most_sums, sums);
    }
    auto* p = std::get_if<LoopProduct>(&op.what);
    if (!p) continue;
    const auto same = std::ranges::find_if(loaded, [&](const LoopProduct* q) { return same_weights(*p, *q); });
    p->loads_weights = same == loaded.end();
    p->weights_at = p->loads_weights ? weights : (*same)->weights_at;
    if (p->loads_weights) {
      weights += weight_bytes(plan, *p);
      loaded.push_back(p);
    }
    p->sums_at = sums;
    sums += sum_bytes(plan, *p);
    most_sums = std::max(most_sums, sums);
  }
  for (LoopOp& op : plan.ops)
    if (auto* p = std::get_if<LoopProduct>(&op.what))
      p->sums_at += weights;
    else if (auto* r = std::get_if<LoopRows>(&op.what))
      r->numbers_at += weights;
  plan.shared_bytes = weights + most_sums;
  return plan.shared_bytes <= limits.shared_bytes && plan.blocks <= limits.blocks;
}

// As many rounds as there are registers for what they read. Where there are several items, none are left over, if that
// is not much fewer.
int64_t unrolled(const LoopTiles& tiles) {
  const int64_t most = std::min(tiles.rounds, 12 / tiles.height);
  int64_t even = most;
  while (tiles.rounds % even != 0) --even;
  return tiles.items > 1 && 2 * even >= most ? even : most;
}

// What a block does one after the other in a timestep: tiles of products by its warps, and elements by its threads; and
// how long it waits, where it does. None of it is measured: it is to tell splits apart that are much different.
int64_t rounds_of(const LoopPlan& plan) {
  constexpr int64_t kWait = 32;
  const int64_t elements = plan.block_heads * plan.block_rows * plan.block_units;
  int64_t rounds = 0;
  for (const LoopOp& op : plan.ops) {
    if (op.waits && plan.heads > 1 && groups_of(plan).size > 1) rounds += kWait;
    if (const auto* r = std::get_if<LoopRows>(&op.what)) {
      const int64_t rows = plan.block_heads * plan.block_rows * r->parts;
      rounds += 4 * quotient_up(rows, kWarps) * quotient_up(r->size, 32 * r->wide);
    }
    const auto* p = std::get_if<LoopProduct>(&op.what);
    if (!p) {
      rounds += quotient_up(elements, kLoopThreads);
    } else if (p->by_tensor_cores) {
      const LoopTiles tiles = tiles_of(plan, *p);
      rounds += quotient_up(tiles.items, tiles.teams) * tiles.height * tiles.across * tiles.rounds;
    } else {
      const int64_t tiles =
          plan.block_heads * quotient_up(plan.block_rows, 4) * quotient_up(own_columns(plan, *p), kTileColumns);
      rounds += 4 * tiles * quotient_up(p->sizes.k, 32 * p->wide);  // all read the same shared memory
    }
  }
  return rounds;
}

// The parts n / 1, n / 2, ... of something, rounded up to whole units of it.
std::vector<int64_t> parts_of(int64_t n, int64_t unit) {
  std::vector<int64_t> all;
  for (int64_t count = 1; count <= quotient_up(n, unit); ++count) {
    const int64_t part = std::min(n, round_up(quotient_up(n, count), unit));
    if (all.empty() || all.back() != part) all.push_back(part);
  }
  return all;
}

std::vector<Shape> shapes(const LoopPlan& plan) {
  std::vector<Shape> all;
  for (const int64_t rows : parts_of(plan.rows, kTile)) {
    for (const int64_t units : parts_of(plan.units, 1)) all.push_back({1, rows, units});
    for (const int64_t heads : parts_of(plan.heads, 1))
      if (heads > 1) all.push_back({heads, rows, plan.units});
  }
  return all;
}

}  // namespace

LoopSplit split_of(const LoopPlan& plan) {
  return {quotient_up(plan.heads, plan.block_heads), quotient_up(plan.rows, plan.block_rows),
          quotient_up(plan.units, plan.block_units)};
}

LoopGroups groups_of(const LoopPlan& plan) {
  const LoopSplit split = split_of(plan);
  const int64_t count = (plan.heads_wait_apart ? split.heads : 1) * (plan.rows_wait_apart ? split.rows : 1);
  return {count, split.heads * split.rows * split.units / count};
}

int64_t group_of(const LoopPlan& plan, int64_t block) {
  const LoopSplit split = split_of(plan);
  const int64_t head = block / split.units / split.rows, row = block / split.units % split.rows;
  if (!plan.rows_wait_apart) return plan.heads_wait_apart ? head : 0;
  return plan.heads_wait_apart ? head * split.rows + row : row;
}

int64_t head_elements(const LoopPlan& plan, const LoopProduct& p) {
  const int64_t columns = own_columns(plan, p);
  return p.by_tensor_cores ? round_up(p.sizes.k, kChunk) * round_up(columns, kTileColumns)
                           : columns * round_up(p.sizes.k, 4);
}

LoopTiles tiles_of(const LoopPlan& plan, const LoopProduct& p) {
  const int64_t heights = quotient_up(plan.block_rows, kTile), tiles = quotient_up(own_columns(plan, p), kTileColumns);
  const int64_t chunks = quotient_up(p.sizes.k, kChunk);
  LoopTiles made;
  made.height = quotient_up(heights, quotient_up(heights, kMostHeight));
  made.across = quotient_up(tiles, quotient_up(tiles, kMostTiles / made.height));
  made.items = plan.block_heads * quotient_up(heights, made.height) * quotient_up(tiles, made.across);
  made.parts = std::clamp<int64_t>(kWarps / made.items, 1, std::min(kWarps, chunks));
  made.teams = kWarps / made.parts;
  made.rounds = quotient_up(chunks, made.parts);
  made.unroll = unrolled(made);
  return made;
}

LoopSums sums_of(const LoopPlan& plan, const LoopProduct& p) {
  const int64_t columns = own_columns(plan, p);
  if (!p.by_tensor_cores) return {1, plan.block_rows, columns};
  return {tiles_of(plan, p).parts, round_up(plan.block_rows, kTile), round_up(columns, kTileColumns)};
}

void set_blocks(LoopPlan& plan, const LoopLimits& limits) {
  expect(limits.blocks > 0, "the device runs no blocks at the same time");
  // The least rounds, then few rows more than warps have at a time, then rows in few parts, as each of them has all
  // weights, then few blocks.
  using Cost = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  std::optional<std::pair<Cost, Shape>> best;
  std::optional<std::pair<size_t, Shape>> smallest;  // of those that are not too many
  for (const Shape& shape : shapes(plan)) {
    const bool fits = lay_out(plan, limits, shape);
    if (plan.blocks > limits.blocks) continue;
    if (!smallest || plan.shared_bytes < smallest->first) smallest = {plan.shared_bytes, shape};
    if (!fits) continue;
    const Cost cost{rounds_of(plan), std::max(plan.block_rows, kMostHeight * kTile), split_of(plan).rows, plan.blocks};
    if (!best || cost < best->first) best = {cost, shape};
  }
  lay_out(plan, limits, best ? best->second : smallest->second);
  const std::string of_heads = plan.heads == 1 ? ""
                               : plan.block_heads == 1
                                   ? fmt::format(" of one of {} heads", plan.heads)
                                   : fmt::format(" of {} of {} heads", plan.block_heads, plan.heads);
  expect(best.has_value(), "the weights of a block's {} units{} take {} bytes of shared memory, and {} are there",
         plan.block_units, of_heads, plan.shared_bytes, limits.shared_bytes);
}

}  // namespace stepnet::gpu
