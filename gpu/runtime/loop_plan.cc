#include "gpu/runtime/loop_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

constexpr int64_t kLeastSteps = 4;
constexpr int64_t kMostRows = 64;    // of a product: more keep the device busy without all this
constexpr int64_t kMostGroups = 16;  // of a unit
constexpr size_t kMostSince = 4096;  // accesses between two points where blocks wait
constexpr int64_t kTile = 16, kTileColumns = 8,
                  kChunk = 32;  // of the tensor cores: rows, columns, and summands at a time
constexpr int64_t kWarps = kLoopThreads / 32;

// Whatever makes a loop unfit, on the way to the plan's refusal.
struct Refusal {
  std::string why;
};

template <class... Args>
void expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) throw Refusal{fmt::format(text, std::forward<Args>(args)...)};
}

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

void expect_product(const QueuedProduct& p, const LoopPlan& plan) {
  const ProductSizes& s = p.sizes;
  expect(p.dtype == plan.dtype, "there are two types of elements");
  expect(!p.tf32, "products are of TF32");
  expect(s.batch == 1 && !s.trans_a, "a product is of several matrices, or its first operand is transposed");
  expect(s.m == plan.rows, "products have different numbers of rows");
  expect(s.m <= kMostRows, "products have {} rows, more than {}", s.m, kMostRows);
}

void expect_rows(const QueuedRows& r, const LoopPlan& plan) {
  expect(r.dtype == plan.dtype, "there are two types of elements");
  expect(r.rows % plan.rows == 0, "an operator on rows has {} of them, and not {}", r.rows, plan.rows);
}

// Rows, units, and the type of elements.
void set_sizes(std::span<const QueuedWork> step, LoopPlan& plan) {
  const auto first = std::ranges::find_if(step, [](const QueuedWork& w) { return w.what.index() == 0; });
  if (first != step.end())
    plan.rows = std::get<QueuedProduct>(first->what).sizes.m;
  else
    for (const QueuedWork& w : step) {
      const auto* chain = std::get_if<QueuedChain>(&w.what);
      plan.rows = std::max(plan.rows, chain ? chain->rows : std::get<QueuedRows>(w.what).rows);
    }
  const QueuedWork& typed = first != step.end() ? *first : step[0];
  plan.dtype = std::visit([](const auto& what) { return what.dtype; }, typed.what);
  expect(plan.dtype != DType::float64, "elements are double");
  int64_t most = 0;
  const auto add_columns = [&](int64_t columns) {
    plan.units = std::gcd(plan.units, columns);
    most = std::max(most, columns);
  };
  for (const QueuedWork& w : step) {
    if (const auto* p = std::get_if<QueuedProduct>(&w.what)) {
      expect_product(*p, plan);
      add_columns(p->sizes.n);
    } else if (const auto* r = std::get_if<QueuedRows>(&w.what)) {
      expect_rows(*r, plan);
      if (!r->tensors[RowTensor::y]) continue;
      add_columns(r->size);
      most = std::max(most, r->rows / plan.rows * r->size);
    } else {
      const QueuedChain chain = by_rows(std::get<QueuedChain>(w.what), plan.rows);
      expect(chain.dtype == plan.dtype, "there are two types of elements");
      expect(chain.rows == plan.rows, "a chain has {} rows, and not {}", chain.rows, plan.rows);
      add_columns(chain.width);
    }
  }
  expect(plan.units > 0, "there is nothing to compute");
  expect(most / plan.units <= kMostGroups, "widths are too different: {} and {}", most, plan.units);
}

// --- Where blocks wait for each other --------------------------------------------------------------------------------

// Bytes that an operator of a timestep touches: rows of groups of units.
struct Access {
  const std::byte* begin = nullptr;
  int64_t stride = 0, columns = 0;  // elements
  int64_t size = 0;                 // bytes of an element
  bool writes = false;
  bool by_units = false;  // each thread touches the columns of its own row and unit alone, counted from `begin`
  bool* is_late = nullptr;
  bool* is_shared = nullptr;
  bool by_first_unit = false;  // those of a row are written by the thread of the first unit

  const std::byte* end(const LoopPlan& plan) const { return begin + ((plan.rows - 1) * stride + columns) * size; }
};

// Whether the chain writes each of its tensors.
std::vector<bool> written_by(const std::vector<FusedInstruction>& code, int tensors) {
  std::vector<bool> written(static_cast<size_t>(tensors));
  for (const FusedInstruction& i : code)
    if (i.to < tensors) written[static_cast<size_t>(i.to)] = true;
  return written;
}

bool has_whole_units(const LoopPlan& plan, int64_t stride) { return plan.rows == 1 || stride % plan.units == 0; }

// Of the rows that numbers are found of all is read, and then by each thread what is its own.
std::vector<Access> accesses(const QueuedRows& work, LoopRows& rows, const LoopPlan& plan) {
  std::vector<Access> all;
  const int64_t size = element_size(plan), columns = rows.parts * rows.size;
  for (const RowTensor t : {RowTensor::x, RowTensor::dy})
    if (work.tensors[t]) all.push_back({bytes(work.tensors[t]), columns, columns, size});
  work.tensors.each([&](RowTensor t) {
    if (!work.tensors[t] || (!work.tensors[RowTensor::y] && t == RowTensor::x)) return;
    const int64_t stride = has_rows(t) ? columns : rows.parts;
    all.push_back({.begin = bytes(work.tensors[t]),
                   .stride = stride,
                   .columns = stride,
                   .size = size,
                   .writes = is_written(t),
                   .by_units = has_rows(t),
                   .is_late = is_written(t) ? nullptr : &rows.is_late[t],
                   .is_shared = is_written(t) ? &rows.is_shared[t] : nullptr,
                   .by_first_unit = is_written(t) && !has_rows(t)});
  });
  return all;
}

std::vector<Access> accesses(const QueuedWork& work, LoopOp& op, const LoopPlan& plan) {
  if (const auto* rows = std::get_if<QueuedRows>(&work.what)) return accesses(*rows, std::get<LoopRows>(op.what), plan);
  if (const auto* p = std::get_if<QueuedProduct>(&work.what)) {
    auto& product = std::get<LoopProduct>(op.what);
    const ProductSizes& s = p->sizes;
    const int64_t size = element_size(plan);
    return {
        {bytes(p->a), s.lda, s.k, size},
        {bytes(p->c), s.ldc, s.n, size, true, has_whole_units(plan, s.ldc), &product.c_is_late, &product.c_is_shared}};
  }
  std::vector<Access> all;
  const QueuedChain chain = by_rows(std::get<QueuedChain>(work.what), plan.rows);
  const std::vector<bool> written = written_by(*chain.code, chain.tensors);
  for (size_t k = 0; k < chain.operands.size(); ++k) {
    const FusedOperand<void>& o = chain.operands[k];
    LoopOperand& operand = std::get<LoopChain>(op.what).operands[k];
    if (operand.is_int32) {  // nobody writes it: expect_constants
      all.push_back({bytes(o.first), o.stride, 1, sizeof(int32_t)});
      continue;
    }
    const bool repeats = o.step == 0;
    all.push_back({bytes(o.first), o.stride, repeats ? 1 : chain.width, element_size(plan), written[k],
                   !repeats && has_whole_units(plan, o.stride), &operand.is_late, &operand.is_shared});
  }
  return all;
}

// Whether both are of one row and unit wherever they touch the same element.
bool same_thread(const Access& a, const Access& b, const LoopPlan& plan) {
  const int64_t size = element_size(plan), bytes_between = b.begin - a.begin;
  if (a.by_first_unit && b.by_first_unit) return bytes_between == 0 && a.stride == b.stride;
  if (!a.by_units || !b.by_units || bytes_between % (plan.units * size) != 0) return false;
  if (plan.rows == 1) return true;
  if (a.stride != b.stride) return false;
  for (int64_t i = 0; i < a.columns; i += plan.units)
    for (int64_t j = 0; j < b.columns; j += plan.units) {
      const int64_t between = bytes_between / size + j - i;
      if (between != 0 && between % a.stride == 0) return false;
    }
  return true;
}

// Whether one thread may write what another one touches.
bool clash(const Access& a, const Access& b, const LoopPlan& plan) {
  if (!a.writes && !b.writes) return false;
  if (a.end(plan) <= b.begin || b.end(plan) <= a.begin) return false;
  return !same_thread(a, b, plan);
}

bool clashes(const Access& access, std::span<const Access> others, const LoopPlan& plan) {
  return std::ranges::any_of(others, [&](const Access& other) { return clash(access, other, plan); });
}

// Goes through all timesteps, and lets blocks wait where they must. What is read early is read before a block waits,
// and what is not shared is written after it has said that it is there: neither may be what others touch on the other
// side. Nor may the one be the other of two points before.
void set_waits(Timesteps timesteps, LoopPlan& plan) {
  std::vector<Access> since, before, earlier;  // the last point where blocks wait, and the ones before it
  for (const auto& step : timesteps)
    for (size_t i = 0; i < step.size(); ++i) {
      const std::vector<Access> now = accesses(step[i], plan.ops[i], plan);
      for (size_t k = 0; k < now.size(); ++k) {
        expect(!clashes(now[k], std::span(now).first(k), plan), "operator {} writes over what it reads", i);
        expect(!now[k].writes || now[k].by_units || now[k].by_first_unit, "rows of results are not whole units");
        if (clashes(now[k], since, plan)) plan.ops[i].waits = true;
      }
      if (plan.ops[i].waits) earlier = std::exchange(before, std::exchange(since, {}));
      for (const Access& a : now) {
        if (a.is_late && !a.by_units) *a.is_late = true;
        for (const Access& other : before) {
          if (!clash(a, other, plan)) continue;
          if (a.is_late) *a.is_late = true;
          if (other.is_shared) *other.is_shared = true;
        }
        for (const Access& other : earlier)
          if (a.is_late && other.writes && clash(a, other, plan)) *a.is_late = true;
        since.push_back(a);
      }
      expect(since.size() <= kMostSince, "blocks never wait for each other");
    }
}

// Bytes from the first to the last that an operand has in any timestep.
struct Range {
  const std::byte *begin, *end;

  void include(const Access& a, const LoopPlan& plan) {
    begin = begin ? std::min(begin, a.begin) : a.begin;
    end = end ? std::max(end, a.end(plan)) : a.end(plan);
  }
};

// Lengths and numbers of timesteps are read by whoever needs them at any time, and lengths are looked at once.
void expect_numbers(Timesteps timesteps, LoopPlan& plan) {
  std::vector<Range> numbers;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const auto* chain = std::get_if<LoopChain>(&plan.ops[i].what);
    for (size_t k = 0; chain && k < chain->operands.size(); ++k) {
      const LoopOperand& o = chain->operands[k];
      if (!o.is_int32) continue;
      Range range{};
      for (const auto& step : timesteps) range.include(accesses(step[i], plan.ops[i], plan)[k], plan);
      const LoopPlace& place = plan.places[static_cast<size_t>(o.place)];
      expect(o.stride == 0 || (place.stride == 0 && place.first == place.odd && place.odd == place.even),
             "timesteps have lengths of their own");
      numbers.push_back(range);
    }
  }
  for (const auto& step : timesteps)
    for (size_t i = 0; !numbers.empty() && i < step.size(); ++i)
      for (const Access& a : accesses(step[i], plan.ops[i], plan))
        for (const Range& r : numbers)
          expect(!a.writes || a.end(plan) <= r.begin || r.end <= a.begin, "operator {} writes lengths or timesteps", i);
}

// Weights and biases are read before the first timestep, or in each of them by whoever needs them.
void expect_constants(Timesteps timesteps, LoopPlan& plan) {
  std::vector<std::pair<const std::byte*, const std::byte*>> constants;
  for (const QueuedWork& work : timesteps[0])
    if (const auto* r = std::get_if<QueuedRows>(&work.what)) {
      for (const void* constant : {r->scale, r->bias})
        if (constant) constants.emplace_back(bytes(constant), bytes(constant) + r->size * element_size(plan));
    } else if (const auto* p = std::get_if<QueuedProduct>(&work.what)) {
      const ProductSizes& s = p->sizes;
      const int64_t rows = s.trans_b ? s.n : s.k, columns = s.trans_b ? s.k : s.n;
      constants.emplace_back(bytes(p->b), bytes(p->b) + ((rows - 1) * s.ldb + columns) * element_size(plan));
      if (p->bias) constants.emplace_back(bytes(p->bias), bytes(p->bias) + s.n * element_size(plan));
    }
  for (const auto& step : timesteps)
    for (size_t i = 0; i < step.size(); ++i)
      for (const Access& a : accesses(step[i], plan.ops[i], plan))
        for (const auto& [begin, end] : constants)
          expect(!a.writes || a.end(plan) <= begin || end <= a.begin, "operator {} writes weights", i);
}

// What is written under one name and read under another in the same timestep would be read too early.
void expect_one_name(const LoopPlan& plan) {
  struct Named {
    const LoopPlace* place;
    int64_t stride, columns;
    bool writes;
  };
  std::vector<Named> all;  // but for numbers, which nobody writes
  for (const LoopOp& op : plan.ops) {
    if (const auto* p = std::get_if<LoopProduct>(&op.what)) {
      all.push_back({&plan.places[static_cast<size_t>(p->c)], p->sizes.ldc, p->sizes.n, true});
      continue;
    }
    if (const auto* r = std::get_if<LoopRows>(&op.what)) {
      r->places.each([&](RowTensor t) {
        if (r->places[t] < 0) return;
        const int64_t columns = has_rows(t) ? r->parts * r->size : r->parts;
        all.push_back({&plan.places[static_cast<size_t>(r->places[t])], columns, columns, is_written(t)});
      });
      continue;
    }
    const auto& chain = std::get<LoopChain>(op.what);
    const std::vector<bool> written = written_by(*chain.code, chain.tensors);
    for (size_t k = 0; k < chain.operands.size(); ++k) {
      const LoopOperand& o = chain.operands[k];
      if (o.is_int32) continue;
      const int64_t columns = o.step == 0 ? 1 : chain.groups * plan.units;
      all.push_back({&plan.places[static_cast<size_t>(o.place)], o.stride, columns, written[k]});
    }
  }
  const int64_t size = element_size(plan);
  const auto touch = [&](const Named& a, const Named& b, int64_t t) {
    const std::byte *x = a.place->at(t), *y = b.place->at(t);
    return x < y + ((plan.rows - 1) * b.stride + b.columns) * size &&
           y < x + ((plan.rows - 1) * a.stride + a.columns) * size;
  };
  for (const Named& a : all)
    for (const Named& b : all) {
      const auto apart = [&](int64_t t) { return b.place->at(t) - a.place->at(t); };
      const bool one = a.place->stride == b.place->stride && apart(0) == apart(1) && apart(1) == apart(2);
      for (int64_t t = 0; !one && (a.writes || b.writes) && t < plan.steps; ++t)
        expect(!touch(a, b, t), "tensors lie over each other in timestep {} alone", t);
    }
}

// --- Places in shared memory -----------------------------------------------------------------------------------------

bool is_multiple(const void* address, int64_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

// How many elements of A's rows can be read at a time, up to 16 bytes: rows begin at multiples of so many, and end
// there.
int width_of(const LoopPlace& a, const ProductSizes& s, int64_t size) {
  int64_t wide = 16 / size;
  while (wide > 1 &&
         !(is_multiple(a.first, wide * size) && is_multiple(a.odd, wide * size) && is_multiple(a.even, wide * size) &&
           a.stride % (wide * size) == 0 && s.lda % wide == 0 && s.k % wide == 0))
    wide /= 2;
  return static_cast<int>(wide);
}

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

int64_t own_columns(const LoopPlan& plan, const LoopProduct& p) { return p.groups * plan.block_units; }

size_t weight_bytes(const LoopPlan& plan, const LoopProduct& p) {
  const int64_t columns = own_columns(plan, p);
  const int64_t elements = p.by_tensor_cores ? round_up(p.sizes.k, kChunk) * round_up(columns, kTileColumns)
                                             : columns * round_up(p.sizes.k, 4);
  return static_cast<size_t>(round_up(elements * element_size(plan), 16));
}

size_t number_bytes(const LoopPlan& plan, const LoopRows& r) {
  return static_cast<size_t>(round_up(plan.rows * r.parts * kRowNumbers * static_cast<int64_t>(sizeof(float)), 16));
}

size_t sum_bytes(const LoopPlan& plan, const LoopProduct& p) {
  const LoopSums sums = sums_of(plan, p);
  return static_cast<size_t>(round_up(sums.parts * sums.rows * sums.length * static_cast<int64_t>(sizeof(float)), 16));
}

// Lays out a block with so many units; whether it fits.
bool lay_out(LoopPlan& plan, const LoopLimits& limits, int64_t units) {
  plan.block_units = units;
  plan.blocks = static_cast<int>((plan.units + units - 1) / units);
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
    const auto same = std::ranges::find_if(loaded, [&](const LoopProduct* q) {
      return q->weights == p->weights && q->sizes.n == p->sizes.n && q->sizes.k == p->sizes.k &&
             q->sizes.trans_b == p->sizes.trans_b && q->sizes.ldb == p->sizes.ldb &&
             q->by_tensor_cores == p->by_tensor_cores;
    });
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

void set_blocks(LoopPlan& plan, const LoopLimits& limits) {
  int64_t groups = 1;  // the most of a product by tensor cores
  bool has_products = false;
  for (const LoopOp& op : plan.ops)
    if (const auto* p = std::get_if<LoopProduct>(&op.what)) {
      has_products = true;
      if (p->by_tensor_cores) groups = std::max<int64_t>(groups, p->groups);
    }
  expect(limits.blocks > 0, "the device runs no blocks at the same time");
  int64_t units = (plan.units + limits.blocks - 1) / limits.blocks;
  if (has_products && groups > 1)
    units = std::max(units, std::min(plan.units, kTileColumns / std::min(groups, kTileColumns)));
  if (!lay_out(plan, limits, units))
    throw Refusal{fmt::format("the weights of a block's {} units take {} bytes of shared memory, and {} are there",
                              plan.block_units, plan.shared_bytes, limits.shared_bytes)};
}

// --- Operators -------------------------------------------------------------------------------------------------------

LoopProduct product_of(const QueuedProduct& p, int place, LoopPlan& plan, const LoopLimits& limits) {
  LoopProduct made;
  made.sizes = p.sizes;
  made.a = place;
  made.c = place + 1;
  made.weights = add_constant(p.b, plan);
  if (p.bias) made.bias = add_constant(p.bias, plan);
  made.groups = static_cast<int>(p.sizes.n / plan.units);
  made.wide = width_of(plan.places[static_cast<size_t>(place)], p.sizes, element_size(plan));
  made.by_tensor_cores = limits.tensor_cores && is_half(plan.dtype) && made.wide > 1;
  return made;
}

LoopChain chain_of(const QueuedChain& given, int place, const LoopPlan& plan) {
  const QueuedChain chain = by_rows(given, plan.rows);
  LoopChain made{chain.code, chain.tensors, {}, static_cast<int>(chain.width / plan.units)};
  for (size_t k = 0; k < chain.operands.size(); ++k) {
    const FusedOperand<void>& o = chain.operands[k];
    made.operands.push_back({place++, o.stride, o.step});
    made.operands.back().is_int32 = chain.has_int32(k);
  }
  return made;
}

LoopRows rows_of(const QueuedRows& r, int place, LoopPlan& plan) {
  LoopRows made;
  made.kind = r.kind;
  made.size = r.size;
  made.parts = r.rows / plan.rows;
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

LoopSums sums_of(const LoopPlan& plan, const LoopProduct& p) {
  const int64_t columns = own_columns(plan, p);
  if (!p.by_tensor_cores) return {1, plan.rows, columns};
  return {std::min(kWarps, round_up(p.sizes.k, kChunk) / kChunk), round_up(plan.rows, kTile),
          round_up(columns, kTileColumns)};
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

LoopPlan plan_loop(Timesteps timesteps, const LoopLimits& limits) {
  LoopPlan plan;
  try {
    expect_same_steps(timesteps);
    plan.steps = static_cast<int64_t>(timesteps.size());
    const std::span<const QueuedWork> step = timesteps[1];
    set_sizes(step, plan);
    for (size_t i = 0; i < step.size(); ++i) {
      const int place = add_places(timesteps, i, plan);
      if (const auto* p = std::get_if<QueuedProduct>(&step[i].what))
        plan.ops.push_back({product_of(*p, place, plan, limits)});
      else if (const auto* r = std::get_if<QueuedRows>(&step[i].what))
        plan.ops.push_back({rows_of(*r, place, plan)});
      else
        plan.ops.push_back({chain_of(std::get<QueuedChain>(step[i].what), place, plan)});
    }
    expect(parameter_count(plan) <= LoopParameters::kMost, "there are too many tensors");
    expect_constants(timesteps, plan);
    expect_numbers(timesteps, plan);
    expect_one_name(plan);
    set_waits(timesteps, plan);
    set_blocks(plan, limits);
  } catch (const Refusal& refusal) {
    plan.refusal = refusal.why;
  }
  return plan;
}

std::string to_text(const LoopPlan& plan, const LoopLimits& limits) {
  const auto waits = std::ranges::count_if(plan.ops, [](const LoopOp& op) { return op.waits; });
  const bool halves = std::ranges::any_of(plan.ops, [](const LoopOp& op) {
    const auto* p = std::get_if<LoopProduct>(&op.what);
    return p && p->by_tensor_cores;
  });
  const auto rows =
      std::ranges::count_if(plan.ops, [](const LoopOp& op) { return std::holds_alternative<LoopRows>(op.what); });
  const std::string on_rows =
      rows > 0 ? fmt::format(", {} operator{} on whole rows in each", rows, rows == 1 ? "" : "s") : "";
  return fmt::format(
      "one kernel of {} timesteps{}{}: {} blocks have {} of {} units each, {} bytes of {} of shared memory with all "
      "weights "
      "of these, and wait for each other {}",
      plan.steps, on_rows, halves ? ", products by tensor cores" : "", plan.blocks, plan.block_units, plan.units,
      plan.shared_bytes, limits.shared_bytes,
      waits == 0   ? "never"
      : waits == 1 ? "once in a timestep"
                   : fmt::format("{} times in a timestep", waits));
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
