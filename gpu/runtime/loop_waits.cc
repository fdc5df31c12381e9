#include "gpu/runtime/loop_waits.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "gpu/runtime/loop_refusal.h"

namespace stepnet::gpu {
namespace {

constexpr size_t kMostSince = 4096;      // accesses between two points where blocks wait
constexpr int64_t kMostPairs = 1 << 22;  // of accesses that are looked at for whether groups are apart

int64_t element_size(const LoopPlan& plan) { return static_cast<int64_t>(dtype_size(plan.dtype)); }

const std::byte* bytes(const void* address) { return static_cast<const std::byte*>(address); }

const LoopPlace& place_of(const LoopPlan& plan, int number) { return plan.places[static_cast<size_t>(number)]; }

// Bytes that an operator of a timestep touches: columns of each row of each head.
struct Access {
  const std::byte* begin = nullptr;
  int64_t head = 0, row = 0, columns = 0;  // elements
  int64_t size = 0;                        // bytes of an element
  bool writes = false;
  bool by_units = false;  // each thread touches the columns of its own head, row and unit alone, counted from `begin`
  bool* is_late = nullptr;
  bool* is_shared = nullptr;
  size_t operand = 0;
  bool by_first_unit = false;  // those of a row are written by the thread of the first unit

  const std::byte* end(const LoopPlan& plan) const {
    return begin + ((plan.heads - 1) * head + (plan.rows - 1) * row + columns) * size;
  }
};

// Whether the chain writes each of its tensors.
std::vector<bool> written_by(const std::vector<FusedInstruction>& code, int tensors) {
  std::vector<bool> written(static_cast<size_t>(tensors));
  for (const FusedInstruction& i : code)
    if (i.to < tensors) written[static_cast<size_t>(i.to)] = true;
  return written;
}

bool has_whole_units(const LoopPlan& plan, int64_t head, int64_t row) {
  return (plan.heads == 1 || head % plan.units == 0) && (plan.rows == 1 || row % plan.units == 0);
}

// Adds an access to groups of units, which lie one behind the other or apart.
void add_groups(std::vector<Access>& all, Access access, int groups, int64_t group_stride, const LoopPlan& plan) {
  const bool together = groups == 1 || group_stride == plan.units;
  access.columns = together ? groups * plan.units : plan.units;
  for (int group = 0; group < (together ? 1 : groups); ++group) {
    all.push_back(access);
    access.begin += group_stride * access.size;
  }
}

// Of the rows that numbers are found of all is read, and then by each thread what is its own.
std::vector<Access> accesses(LoopRows& rows, int64_t time, const LoopPlan& plan) {
  std::vector<Access> all;
  const auto add = [&](RowTensor t) {
    const int64_t columns = has_rows(t) ? rows.parts * rows.size : rows.parts;
    all.push_back({.begin = place_of(plan, rows.places[t]).at(time),
                   .head = rows.head_lines * columns,
                   .row = rows.row_lines * columns,
                   .columns = columns,
                   .size = element_size(plan)});
  };
  for (const RowTensor t : {RowTensor::x, RowTensor::dy})
    if (rows.places[t] >= 0) add(t);
  rows.places.each([&](RowTensor t) {
    if (rows.places[t] < 0 || (rows.places[RowTensor::y] < 0 && t == RowTensor::x)) return;
    add(t);
    Access& access = all.back();
    access.writes = is_written(t);
    access.by_units = has_rows(t);
    access.by_first_unit = is_written(t) && !has_rows(t);
    (access.writes ? access.is_shared : access.is_late) = access.writes ? &rows.is_shared[t] : &rows.is_late[t];
  });
  return all;
}

std::vector<Access> accesses(LoopOp& op, int64_t t, const LoopPlan& plan) {
  if (auto* rows = std::get_if<LoopRows>(&op.what)) return accesses(*rows, t, plan);
  std::vector<Access> all;
  const int64_t size = element_size(plan);
  if (auto* p = std::get_if<LoopProduct>(&op.what)) {
    const ProductSizes& s = p->sizes;
    all.push_back({place_of(plan, p->a).at(t), s.stride_a, s.lda, s.k, size});
    add_groups(all,
               {place_of(plan, p->c).at(t), s.stride_c, s.ldc, 0, size, true, has_whole_units(plan, s.stride_c, s.ldc),
                &p->c_is_late, &p->c_is_shared, 1},
               p->groups, p->group_stride, plan);
    return all;
  }
  auto& chain = std::get<LoopChain>(op.what);
  const std::vector<bool> written = written_by(*chain.code, chain.tensors);
  for (size_t k = 0; k < chain.operands.size(); ++k) {
    LoopOperand& o = chain.operands[k];
    const std::byte* const at = place_of(plan, o.place).at(t);
    if (o.is_int32) {  // nobody writes it: expect_numbers
      all.push_back(
          {.begin = at, .head = o.head_stride, .row = o.stride, .columns = 1, .size = sizeof(int32_t), .operand = k});
      continue;
    }
    Access access{at, o.head_stride, o.stride, 1, size, written[k], false, &o.is_late, &o.is_shared, k};
    if (o.step == 0) {
      all.push_back(access);
    } else {
      access.by_units = has_whole_units(plan, o.head_stride, o.stride);
      add_groups(all, access, chain.groups, o.group_stride, plan);
    }
  }
  return all;
}

// What two accesses have in common of which one writes: whether one thread may touch what another one does, and whether
// that may be one of another head, or of another row.
struct Clash {
  bool any = false, heads = false, rows = false;
};

int64_t floor_quotient(int64_t n, int64_t unit) { return n / unit - (n % unit < 0 ? 1 : 0); }

// Rows r of a and s of b that touch the same element, where b's first of a head is `between` elements behind a's: from
// the least to the greatest r - s.
struct RowDistances {
  int64_t least = 0, greatest = -1;
};
RowDistances rows_that_touch(const Access& a, const Access& b, int64_t between, const LoopPlan& plan) {
  const int64_t low = between - (a.columns - 1), high = between + b.columns - 1;
  const int64_t most = plan.rows - 1;
  if (most == 0 || a.row == 0) return low <= 0 && high >= 0 ? RowDistances{-most, most} : RowDistances{};
  return {std::max(-floor_quotient(-low, a.row), -most), std::min(floor_quotient(high, a.row), most)};
}

Clash clash(const Access& a, const Access& b, const LoopPlan& plan) {
  if (!a.writes && !b.writes) return {};
  if (a.end(plan) <= b.begin || b.end(plan) <= a.begin) return {};
  const int64_t bytes_between = b.begin - a.begin;
  if (a.size != b.size || bytes_between % a.size != 0 || (plan.rows > 1 && a.row != b.row)) return {true, true, true};
  const int64_t between = bytes_between / a.size;
  const bool same_units =
      (a.by_units && b.by_units && between % plan.units == 0) || (a.by_first_unit && b.by_first_unit && between == 0);
  Clash found;
  const auto look = [&](int64_t head_a, int64_t head_b) {
    const RowDistances rows = rows_that_touch(a, b, between + head_b * b.head - head_a * a.head, plan);
    if (rows.least > rows.greatest) return;
    const bool other_rows = rows.least != 0 || rows.greatest != 0;
    found.heads |= head_a != head_b;
    found.rows |= other_rows;
    found.any |= head_a != head_b || other_rows || !same_units;
  };
  if (a.head == b.head) {  // only how far heads are from each other says something
    for (int64_t head = 0; head < plan.heads; ++head) look(head, 0);
    for (int64_t head = 1; head < plan.heads; ++head) look(0, head);
  } else {
    for (int64_t head_a = 0; head_a < plan.heads; ++head_a)
      for (int64_t head_b = 0; head_b < plan.heads; ++head_b) look(head_a, head_b);
  }
  return found;
}

bool clashes(const Access& access, std::span<const Access> others, const LoopPlan& plan) {
  return std::ranges::any_of(others, [&](const Access& other) { return clash(access, other, plan).any; });
}

// What lies in other groups is never waited for: so nothing of the whole loop may be of two.
void set_groups(std::vector<Access> all, LoopPlan& plan) {
  const auto what = [](const Access& a) {
    return std::tuple(a.begin, a.head, a.row, a.columns, a.size, a.writes, a.by_units, a.by_first_unit);
  };
  std::ranges::sort(all, {}, what);
  const auto repeated = std::ranges::unique(all, {}, what);
  all.erase(repeated.begin(), repeated.end());
  plan.heads_wait_apart = plan.heads > 1;
  plan.rows_wait_apart = plan.rows > 1;
  int64_t pairs = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::byte* const end = all[i].end(plan);
    for (size_t j = i; j < all.size() && all[j].begin < end; ++j) {
      const Clash found = ++pairs > kMostPairs ? Clash{true, true, true} : clash(all[i], all[j], plan);
      plan.heads_wait_apart &= !found.heads;
      plan.rows_wait_apart &= !found.rows;
      if (!plan.heads_wait_apart && !plan.rows_wait_apart) return;
    }
  }
}

// Bytes from the first to the last that an operand has in any timestep.
struct Range {
  const std::byte *begin = nullptr, *end = nullptr;

  void include(const Access& a, const LoopPlan& plan) {
    begin = begin ? std::min(begin, a.begin) : a.begin;
    end = end ? std::max(end, a.end(plan)) : a.end(plan);
  }
};

// Calls look(access, operator) for whatever is written in any timestep.
template <class Look>
void each_write(const LoopPlan& plan, const Look& look) {
  std::vector<LoopOp> ops = plan.ops;  // an access may say something of its operator
  for (int64_t t = 0; t < plan.steps; ++t)
    for (size_t i = 0; i < ops.size(); ++i)
      for (const Access& a : accesses(ops[i], t, plan))
        if (a.writes) look(a, i);
}

bool touches(const Range& range, const Access& a, const LoopPlan& plan) {
  return a.begin < range.end && range.begin < a.end(plan);
}

}  // namespace

void set_waits(LoopPlan& plan) {
  std::vector<Access> since, before, earlier, all;  // the last point where blocks wait, and the ones before it
  for (int64_t t = 0; t < plan.steps; ++t)
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const std::vector<Access> now = accesses(plan.ops[i], t, plan);
      for (size_t k = 0; k < now.size(); ++k) {
        expect(!clashes(now[k], std::span(now).first(k), plan), "operator {} writes over what it reads", i);
        expect(!now[k].writes || now[k].by_units || now[k].by_first_unit, "rows of results are not whole units");
        expect(!clash(now[k], now[k], plan).any, "rows of results of operator {} lie over each other", i);
        if (clashes(now[k], since, plan)) plan.ops[i].waits = true;
      }
      if (plan.ops[i].waits) earlier = std::exchange(before, std::exchange(since, {}));
      for (const Access& a : now) {
        if (a.is_late && !a.by_units) *a.is_late = true;
        for (const Access& other : before) {
          if (!clash(a, other, plan).any) continue;
          if (a.is_late) *a.is_late = true;
          if (other.is_shared) *other.is_shared = true;
        }
        for (const Access& other : earlier)
          if (a.is_late && other.writes && clash(a, other, plan).any) *a.is_late = true;
        since.push_back(a);
        all.push_back(a);
      }
      expect(since.size() <= kMostSince, "blocks never wait for each other");
    }
  set_groups(std::move(all), plan);
}

void expect_numbers(const LoopPlan& plan) {
  std::vector<Range> numbers;
  std::vector<LoopOp> ops = plan.ops;
  for (LoopOp& op : ops) {
    const auto* chain = std::get_if<LoopChain>(&op.what);
    for (size_t k = 0; chain && k < chain->operands.size(); ++k) {
      const LoopOperand& o = chain->operands[k];
      if (!o.is_int32) continue;
      Range range;
      for (int64_t t = 0; t < plan.steps; ++t)
        for (const Access& a : accesses(op, t, plan))
          if (a.operand == k) range.include(a, plan);
      const LoopPlace& place = place_of(plan, o.place);
      expect(o.stride == 0 || (place.stride == 0 && place.first == place.odd && place.odd == place.even),
             "timesteps have lengths of their own");
      numbers.push_back(range);
    }
  }
  if (numbers.empty()) return;
  each_write(plan, [&](const Access& a, size_t i) {
    for (const Range& r : numbers) expect(!touches(r, a, plan), "operator {} writes lengths or timesteps", i);
  });
}

void expect_constants(const LoopPlan& plan) {
  std::vector<Range> constants;
  const auto add = [&](int number, int64_t elements) {
    const std::byte* const begin = bytes(plan.constants[static_cast<size_t>(number)]);
    constants.push_back({begin, begin + elements * element_size(plan)});
  };
  for (const LoopOp& op : plan.ops)
    if (const auto* r = std::get_if<LoopRows>(&op.what)) {
      for (const int constant : {r->scale, r->bias})
        if (constant >= 0) add(constant, r->size);
    } else if (const auto* p = std::get_if<LoopProduct>(&op.what)) {
      const ProductSizes& s = p->sizes;
      const int64_t n = (p->groups - 1) * p->group_stride + plan.units;
      const int64_t rows = s.trans_b ? n : s.k, columns = s.trans_b ? s.k : n;
      add(p->weights, (plan.heads - 1) * s.stride_b + (rows - 1) * s.ldb + columns);
      if (p->bias >= 0) add(p->bias, (plan.heads - 1) * p->bias_stride + n);
    }
  each_write(plan, [&](const Access& a, size_t i) {
    for (const Range& r : constants) expect(!touches(r, a, plan), "operator {} writes weights", i);
  });
}

void expect_one_name(const LoopPlan& plan) {
  struct Named {
    const LoopPlace* place;
    int64_t elements;  // from the first to the last
    bool writes;
  };
  std::vector<Named> all;  // but for numbers, which nobody writes
  const auto add = [&](int place, int64_t head, int64_t row, int64_t columns, bool writes) {
    all.push_back({&place_of(plan, place), (plan.heads - 1) * head + (plan.rows - 1) * row + columns, writes});
  };
  for (const LoopOp& op : plan.ops) {
    if (const auto* p = std::get_if<LoopProduct>(&op.what)) {
      const int64_t columns = (p->groups - 1) * p->group_stride + plan.units;
      add(p->c, p->sizes.stride_c, p->sizes.ldc, columns, true);
      continue;
    }
    if (const auto* r = std::get_if<LoopRows>(&op.what)) {
      r->places.each([&](RowTensor t) {
        if (r->places[t] < 0) return;
        const int64_t columns = has_rows(t) ? r->parts * r->size : r->parts;
        add(r->places[t], r->head_lines * columns, r->row_lines * columns, columns, is_written(t));
      });
      continue;
    }
    const auto& chain = std::get<LoopChain>(op.what);
    const std::vector<bool> written = written_by(*chain.code, chain.tensors);
    for (size_t k = 0; k < chain.operands.size(); ++k) {
      const LoopOperand& o = chain.operands[k];
      if (o.is_int32) continue;
      const int64_t columns = o.step == 0 ? 1 : (chain.groups - 1) * o.group_stride + plan.units;
      add(o.place, o.head_stride, o.stride, columns, written[k]);
    }
  }
  const int64_t size = element_size(plan);
  const auto touch = [&](const Named& a, const Named& b, int64_t t) {
    const std::byte *x = a.place->at(t), *y = b.place->at(t);
    return x < y + b.elements * size && y < x + a.elements * size;
  };
  for (const Named& a : all)
    for (const Named& b : all) {
      const auto apart = [&](int64_t t) { return b.place->at(t) - a.place->at(t); };
      const bool one = a.place->stride == b.place->stride && apart(0) == apart(1) && apart(1) == apart(2);
      for (int64_t t = 0; !one && (a.writes || b.writes) && t < plan.steps; ++t)
        expect(!touch(a, b, t), "tensors lie over each other in timestep {} alone", t);
    }
}

}  // namespace stepnet::gpu
