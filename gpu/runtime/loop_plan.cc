#include "gpu/runtime/loop_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "gpu/runtime/loop_blocks.h"
#include "gpu/runtime/loop_refusal.h"
#include "gpu/runtime/loop_waits.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

constexpr int64_t kLeastSteps = 4;
constexpr int64_t kMostRows = 256;   // of a product: more keep the device busy without all this
constexpr int64_t kMostGroups = 16;  // of a unit

int64_t element_size(const LoopPlan& plan) { return static_cast<int64_t>(dtype_size(plan.dtype)); }

const std::byte* bytes(const void* address) { return static_cast<const std::byte*>(address); }

// --- What is the same in all timesteps, and what moves ---------------------------------------------------------------

// A chain with a row for each sample, where those of a flat one are told by `rows`.
QueuedChain by_rows(QueuedChain chain, int64_t rows) {
  if (chain.rows != 1 || rows <= 1 || chain.width % rows != 0) return chain;
  chain.width /= rows;
  chain.rows = rows;
  for (FusedOperand<void>& o : chain.operands) o.stride = o.step * chain.width;
  return chain;
}

bool same_kind(const QueuedProduct& a, const QueuedProduct& b) {
  return a.dtype == b.dtype && a.tf32 == b.tf32 && a.sizes == b.sizes && a.b == b.b && a.bias == b.bias;
}
bool same_kind(const QueuedChain& a, const QueuedChain& b) {
  return a.dtype == b.dtype && a.tensors == b.tensors && (a.code == b.code || same_code(*a.code, *b.code)) &&
         a.width == b.width && a.rows == b.rows && a.int32_operands == b.int32_operands &&
         std::ranges::equal(a.operands, b.operands,
                            [](const auto& x, const auto& y) { return x.stride == y.stride && x.step == y.step; });
}
bool same_kind(const QueuedWork& a, const QueuedWork& b) {
  if (a.what.index() != b.what.index() || bool(a.check) != bool(b.check)) return false;
  if (const auto* rows = std::get_if<QueuedRows>(&a.what)) return same_kind(*rows, std::get<QueuedRows>(b.what));
  if (const auto* product = std::get_if<QueuedProduct>(&a.what))
    return same_kind(*product, std::get<QueuedProduct>(b.what));
  return same_kind(std::get<QueuedChain>(a.what), std::get<QueuedChain>(b.what));
}

// The addresses that may move: of a product A and C, of the others all tensors.
size_t address_count(const QueuedWork& work) {
  if (const auto* rows = std::get_if<QueuedRows>(&work.what)) return address_count(*rows);
  const auto* chain = std::get_if<QueuedChain>(&work.what);
  return chain ? chain->operands.size() : 2;
}
const std::byte* address(const QueuedWork& work, size_t k) {
  if (const auto* rows = std::get_if<QueuedRows>(&work.what)) return address(*rows, k);
  if (const auto* p = std::get_if<QueuedProduct>(&work.what)) return bytes(k == 0 ? p->a : p->c);
  return bytes(std::get<QueuedChain>(work.what).operands[k].first);
}

// Adds the places of work `i` of each timestep; returns the number of the first.
int add_places(Timesteps timesteps, size_t i, LoopPlan& plan) {
  const size_t first = plan.places.size(), count = address_count(timesteps[0][i]);
  const auto at = [&](size_t t, size_t k) { return address(timesteps[t][i], k); };
  for (size_t k = 0; k < count; ++k) plan.places.push_back({at(0, k), at(1, k), at(2, k), at(3, k) - at(1, k)});
  for (size_t t = 4; t < timesteps.size(); ++t)
    for (size_t k = 0; k < count; ++k)
      expect(at(t, k) == plan.places[first + k].at(static_cast<int64_t>(t)),
             "tensors of operator {} do not lie at equal distances", i);
  return static_cast<int>(first);
}

int add_constant(const void* address, LoopPlan& plan) {
  const auto found = std::ranges::find(plan.constants, address);
  if (found != plan.constants.end()) return static_cast<int>(found - plan.constants.begin());
  plan.constants.push_back(address);
  return static_cast<int>(plan.constants.size()) - 1;
}

void expect_same_steps(Timesteps timesteps) {
  expect(static_cast<int64_t>(timesteps.size()) >= kLeastSteps, "there are fewer than {} timesteps", kLeastSteps);
  expect(!timesteps[0].empty(), "a timestep queues nothing");
  for (size_t t = 1; t < timesteps.size(); ++t)
    expect(alike_steps(timesteps[t], timesteps[0]), "timestep {} queues other things than the first one", t);
}

// --- Sizes -----------------------------------------------------------------------------------------------------------

// The columns that a product has for each head: of all heads together, where it is of one matrix and a row is a
// sample's.
int64_t head_columns(const QueuedProduct& p, const LoopPlan& plan) {
  const ProductSizes& s = p.sizes;
  expect(p.dtype == plan.dtype, "there are two types of elements");
  expect(!p.tf32, "products are of TF32");
  expect(!s.trans_a, "the first operand of a product is transposed");
  expect(s.batch == 1 || s.batch == plan.heads, "products are of {} and of {} matrices", plan.heads, s.batch);
  expect(s.m == plan.rows || (s.batch == 1 && s.m == plan.heads * plan.rows),
         "products have different numbers of rows");
  expect(plan.rows <= kMostRows, "products have {} rows, more than {}", plan.rows, kMostRows);
  if (s.batch == plan.heads || s.m != plan.rows) return s.n;
  expect(s.n % plan.heads == 0, "a product has {} columns, which are not those of {} heads", s.n, plan.heads);
  return s.n / plan.heads;
}

// A chain with a row for each head of each sample, or for each sample alone.
QueuedChain in_rows(const QueuedChain& given, const LoopPlan& plan) {
  QueuedChain chain = by_rows(given, plan.heads * plan.rows);
  expect(chain.rows == plan.rows || chain.rows == plan.heads * plan.rows, "a chain has {} rows, and not {}", chain.rows,
         plan.heads * plan.rows);
  return chain;
}
int64_t head_columns(const QueuedChain& chain, const LoopPlan& plan) {
  if (chain.rows != plan.rows) return chain.width;
  expect(chain.width % plan.heads == 0, "a chain has {} columns, which are not those of {} heads", chain.width,
         plan.heads);
  return chain.width / plan.heads;
}

void expect_rows(const QueuedRows& r, const LoopPlan& plan) {
  expect(r.dtype == plan.dtype, "there are two types of elements");
  expect(r.rows % (plan.heads * plan.rows) == 0, "an operator on rows has {} of them, and not {}", r.rows,
         plan.heads * plan.rows);
}

const QueuedProduct* product_of(const QueuedWork& work) { return std::get_if<QueuedProduct>(&work.what); }

// Heads, rows, units, and the type of elements.
void set_sizes(std::span<const QueuedWork> step, LoopPlan& plan) {
  const auto batch = [](const QueuedWork& w) { return product_of(w) ? product_of(w)->sizes.batch : 0; };
  const QueuedWork& most_heads = *std::ranges::max_element(step, {}, batch);
  if (const QueuedProduct* p = product_of(most_heads)) {
    plan.heads = p->sizes.batch;
    plan.rows = p->sizes.m;
    plan.dtype = p->dtype;
  } else {
    for (const QueuedWork& w : step) {
      const auto* chain = std::get_if<QueuedChain>(&w.what);
      plan.rows = std::max(plan.rows, chain ? chain->rows : std::get<QueuedRows>(w.what).rows);
    }
    plan.dtype = std::visit([](const auto& what) { return what.dtype; }, step[0].what);
  }
  expect(plan.dtype != DType::float64, "elements are double");
  int64_t most = 0;
  const auto add_columns = [&](int64_t columns) {
    plan.units = std::gcd(plan.units, columns);
    most = std::max(most, columns);
  };
  for (const QueuedWork& w : step) {
    if (const auto* p = product_of(w)) {
      add_columns(head_columns(*p, plan));
    } else if (const auto* r = std::get_if<QueuedRows>(&w.what)) {
      expect_rows(*r, plan);
      if (!r->tensors[RowTensor::y]) continue;
      add_columns(r->size);
      most = std::max(most, r->rows / (plan.heads * plan.rows) * r->size);
    } else {
      const QueuedChain chain = in_rows(std::get<QueuedChain>(w.what), plan);
      expect(chain.dtype == plan.dtype, "there are two types of elements");
      add_columns(head_columns(chain, plan));
    }
  }
  expect(plan.units > 0, "there is nothing to compute");
  expect(most / plan.units <= kMostGroups, "widths are too different: {} and {}", most, plan.units);
}

bool is_multiple(const void* address, int64_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

// How many elements of A's rows can be read at a time, up to 16 bytes: rows begin at multiples of so many, and end
// there.
int width_of(const LoopPlace& a, const ProductSizes& s, int64_t size) {
  int64_t wide = 16 / size;
  while (wide > 1 &&
         !(is_multiple(a.first, wide * size) && is_multiple(a.odd, wide * size) && is_multiple(a.even, wide * size) &&
           a.stride % (wide * size) == 0 && s.stride_a % wide == 0 && s.lda % wide == 0 && s.k % wide == 0))
    wide /= 2;
  return static_cast<int>(wide);
}

// --- Operators -------------------------------------------------------------------------------------------------------

// Where rows of samples and heads lie that have so many elements from one to the next: those of a head one behind the
// other if `heads_first`, else those of a sample.
struct RowStrides {
  int64_t head = 0, row = 0;
};
RowStrides row_strides(int64_t stride, const LoopPlan& plan, bool heads_first) {
  if (plan.heads == 1) return {0, stride};
  return heads_first ? RowStrides{plan.rows * stride, stride} : RowStrides{stride, plan.heads * stride};
}

// The product of a head, whatever it is one of.
void set_head_sizes(LoopProduct& made, const LoopPlan& plan, bool heads_first) {
  ProductSizes& s = made.sizes;
  made.group_stride = plan.units;
  if (plan.heads == 1) {
    s.stride_a = s.stride_b = s.stride_c = 0;
  } else if (s.batch == 1 && s.m == plan.rows) {  // columns of all heads
    s.n /= plan.heads;
    made.group_stride = plan.heads * plan.units;
    made.bias_stride = s.stride_c = plan.units;
    s.stride_a = 0;
    s.stride_b = plan.units * (s.trans_b ? s.ldb : 1);
  } else if (s.batch == 1) {  // all heads have the same weights
    const RowStrides a = row_strides(s.lda, plan, heads_first), c = row_strides(s.ldc, plan, heads_first);
    s.stride_a = a.head, s.lda = a.row;
    s.stride_c = c.head, s.ldc = c.row;
    s.stride_b = 0;
    s.m = plan.rows;
  }
  s.batch = plan.heads;
  made.groups = static_cast<int>(s.n / plan.units);
}

LoopProduct loop_product(const QueuedProduct& p, int place, LoopPlan& plan, const LoopLimits& limits,
                         bool heads_first) {
  LoopProduct made;
  made.sizes = p.sizes;
  made.a = place;
  made.c = place + 1;
  made.weights = add_constant(p.b, plan);
  if (p.bias) made.bias = add_constant(p.bias, plan);
  set_head_sizes(made, plan, heads_first);
  made.wide = width_of(plan.places[static_cast<size_t>(place)], made.sizes, element_size(plan));
  made.by_tensor_cores = limits.tensor_cores && is_half(plan.dtype) && made.wide > 1;
  return made;
}

LoopChain loop_chain(const QueuedChain& given, int place, const LoopPlan& plan, bool heads_first) {
  const QueuedChain chain = in_rows(given, plan);
  const bool by_head = plan.heads == 1 || chain.rows != plan.rows;
  LoopChain made{chain.code, chain.tensors, {}, static_cast<int>(head_columns(chain, plan) / plan.units)};
  for (size_t k = 0; k < chain.operands.size(); ++k) {
    const FusedOperand<void>& o = chain.operands[k];
    const RowStrides rows =
        by_head ? row_strides(o.stride, plan, heads_first) : RowStrides{o.step * plan.units, o.stride};
    made.operands.push_back({.place = place++,
                             .head_stride = rows.head,
                             .stride = rows.row,
                             .group_stride = o.step * plan.units * (by_head ? 1 : plan.heads),
                             .step = o.step,
                             .is_int32 = chain.has_int32(k)});
  }
  return made;
}

LoopRows loop_rows(const QueuedRows& r, int place, LoopPlan& plan, bool heads_first) {
  LoopRows made;
  made.kind = r.kind;
  made.size = r.size;
  made.parts = r.rows / (plan.heads * plan.rows);
  const RowStrides lines = row_strides(1, plan, heads_first);
  made.head_lines = lines.head;
  made.row_lines = lines.row;
  made.number = r.number;
  if (r.scale) made.scale = add_constant(r.scale, plan);
  if (r.bias) made.bias = add_constant(r.bias, plan);
  if (r.tensors[RowTensor::y]) made.groups = static_cast<int>(made.parts * r.size / plan.units);
  made.wide = static_cast<int>(16 / element_size(plan));
  r.tensors.each([&](RowTensor t) {
    if (r.tensors[t]) made.places[t] = place++;
  });
  for (const RowTensor t : {RowTensor::x, RowTensor::dy})
    if (r.tensors[t])
      made.wide = std::min(made.wide, width_of(plan.places[static_cast<size_t>(made.places[t])],
                                               {.k = r.size, .lda = r.size}, element_size(plan)));
  return made;
}

size_t parameter_count(const LoopPlan& plan) { return 4 * plan.places.size() + plan.constants.size() + 3; }

}  // namespace

bool same_code(std::span<const FusedInstruction> a, std::span<const FusedInstruction> b) {
  return std::ranges::equal(a, b, [](const FusedInstruction& x, const FusedInstruction& y) {
    return x.code == y.code && x.a == y.a && x.b == y.b && x.to == y.to &&
           std::bit_cast<uint64_t>(x.value) == std::bit_cast<uint64_t>(y.value);
  });
}

bool alike_steps(std::span<const QueuedWork> a, std::span<const QueuedWork> b) {
  return std::ranges::equal(a, b, [](const QueuedWork& x, const QueuedWork& y) { return same_kind(x, y); });
}

bool is_plan_of(const LoopPlan& plan, std::span<const QueuedWork> step, Timesteps timesteps) {
  if (static_cast<size_t>(plan.steps) != timesteps.size()) return false;
  for (size_t t = 0; t < timesteps.size(); ++t) {
    if (!alike_steps(timesteps[t], step)) return false;
    auto place = plan.places.begin();  // in the order of the works and their addresses
    for (const QueuedWork& work : timesteps[t])
      for (size_t k = 0; k < address_count(work); ++k, ++place)
        if (place->at(static_cast<int64_t>(t)) != address(work, k)) return false;
  }
  return true;
}

void LoopRecording::clear() {
  used_ = 0;
  begins_.clear();
}

void LoopRecording::begin_step() { begins_.push_back(used_); }

QueuedWork& LoopRecording::next() {
  if (used_ == works_.size()) works_.emplace_back();
  QueuedWork& work = works_[used_++];
  work.run = work.check = {};
  return work;
}

template <class What>
QueuedWork& LoopRecording::add_in_place(const What& what) {
  QueuedWork& work = next();
  if (auto* chain = std::get_if<QueuedChain>(&work.what)) spare_.push_back(std::move(chain->operands));
  work.what = what;
  return work;
}

QueuedWork& LoopRecording::add(const QueuedProduct& product) { return add_in_place(product); }
QueuedWork& LoopRecording::add_rows(const QueuedRows& rows) { return add_in_place(rows); }

QueuedWork& LoopRecording::add_chain() {
  QueuedWork& work = next();
  if (std::get_if<QueuedChain>(&work.what)) return work;
  auto& chain = work.what.emplace<QueuedChain>();
  if (spare_.empty()) {
    chain.operands.reserve(16);  // more than most have, so that places may be exchanged
  } else {
    chain.operands = std::move(spare_.back());
    spare_.pop_back();
  }
  return work;
}

Timesteps LoopRecording::timesteps() {
  steps_.clear();
  for (size_t t = 0; t < begins_.size(); ++t) {
    const size_t end = t + 1 < begins_.size() ? begins_[t + 1] : used_;
    steps_.emplace_back(works_.data() + begins_[t], end - begins_[t]);
  }
  return steps_;
}

namespace {

// With rows of heads in this order, where nothing but their number is said.
LoopPlan plan_with(Timesteps timesteps, const LoopLimits& limits, bool heads_first) {
  LoopPlan plan;
  try {
    expect_same_steps(timesteps);
    plan.steps = static_cast<int64_t>(timesteps.size());
    const std::span<const QueuedWork> step = timesteps[1];
    set_sizes(step, plan);
    for (size_t i = 0; i < step.size(); ++i) {
      const int place = add_places(timesteps, i, plan);
      if (const auto* p = std::get_if<QueuedProduct>(&step[i].what))
        plan.ops.push_back({loop_product(*p, place, plan, limits, heads_first)});
      else if (const auto* r = std::get_if<QueuedRows>(&step[i].what))
        plan.ops.push_back({loop_rows(*r, place, plan, heads_first)});
      else
        plan.ops.push_back({loop_chain(std::get<QueuedChain>(step[i].what), place, plan, heads_first)});
    }
    expect(parameter_count(plan) <= LoopParameters::kMost, "there are too many tensors");
    expect_constants(plan);
    expect_numbers(plan);
    expect_one_name(plan);
    set_waits(plan);
    set_blocks(plan, limits);
  } catch (const LoopRefusal& refusal) {
    plan.refusal = refusal.why;
  }
  return plan;
}

int64_t count_waits(const LoopPlan& plan) {
  return std::ranges::count_if(plan.ops, [](const LoopOp& op) { return op.waits; });
}

// "6 of 64 units of one of 12 heads"
std::string share_text(const LoopPlan& plan) {
  std::string text = plan.block_heads > 1 ? fmt::format("{} of {} heads", plan.block_heads, plan.heads)
                                          : fmt::format("{} of {} units", plan.block_units, plan.units);
  if (plan.heads > 1 && plan.block_heads == 1) text += fmt::format(" of one of {} heads", plan.heads);
  if (plan.block_rows < plan.rows) text += fmt::format(" in {} of {} rows", plan.block_rows, plan.rows);
  return text;
}

std::string wait_text(const LoopPlan& plan) {
  const LoopGroups groups = groups_of(plan);
  const int64_t waits = count_waits(plan);
  if (waits == 0) return "wait for each other never";
  if (groups.size == 1) return "wait for no other";
  const std::string whom = groups.count == 1 ? "each other" : fmt::format("the {} of their group", groups.size);
  return fmt::format("wait for {} {}", whom,
                     waits == 1 ? "once in a timestep" : fmt::format("{} times in a timestep", waits));
}

}  // namespace

LoopPlan plan_loop(Timesteps timesteps, const LoopLimits& limits) {
  LoopPlan plan = plan_with(timesteps, limits, true);
  if (plan.heads == 1) return plan;
  const auto badness = [](const LoopPlan& p) {
    return std::tuple(!p.refusal.empty(), count_waits(p), !p.heads_wait_apart, !p.rows_wait_apart);
  };
  LoopPlan other = plan_with(timesteps, limits, false);
  return badness(other) < badness(plan) ? other : plan;
}

std::string to_text(const LoopPlan& plan, const LoopLimits& limits) {
  const bool halves = std::ranges::any_of(plan.ops, [](const LoopOp& op) {
    const auto* p = std::get_if<LoopProduct>(&op.what);
    return p && p->by_tensor_cores;
  });
  const auto rows =
      std::ranges::count_if(plan.ops, [](const LoopOp& op) { return std::holds_alternative<LoopRows>(op.what); });
  const std::string on_rows =
      rows > 0 ? fmt::format(", {} operator{} on whole rows in each", rows, rows == 1 ? "" : "s") : "";
  return fmt::format(
      "one kernel of {} timesteps{}{}: {} blocks have {} each, {} bytes of {} of shared memory with all weights of "
      "these, and {}",
      plan.steps, on_rows, halves ? ", products by tensor cores" : "", plan.blocks, share_text(plan), plan.shared_bytes,
      limits.shared_bytes, wait_text(plan));
}

LoopParameters loop_parameters(const LoopPlan& plan, void* arrived) {
  LoopParameters all;
  const auto add = [&](uint64_t word) { all.words.at(all.count++) = word; };
  const auto add_address = [&](const void* address) { add(reinterpret_cast<uintptr_t>(address)); };
  for (const LoopPlace& place : plan.places) {
    add_address(place.first);
    add_address(place.odd);
    add_address(place.even);
    add(static_cast<uint64_t>(place.stride));
  }
  for (const void* constant : plan.constants) add_address(constant);
  add_address(nullptr);  // so that there is a constant
  add_address(arrived);
  add(static_cast<uint64_t>(plan.steps));
  return all;
}

}  // namespace stepnet::gpu
