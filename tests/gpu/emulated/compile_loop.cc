// The imitated device runs a plan of timesteps by its source (loop_runs.h) where it is asked to, or by the statements
// that its source is made of, row by row and unit by unit, in the worst orders that the points allow where blocks wait
// for each other: some have read early what they need next before others have done anything since the last point, and
// some write late what others may have gone past. A plan in which one needs what another has not computed, or has
// already replaced, gives wrong values.
#include <map>
#include <random>

#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/loop_stretch.h"
#include "gpu/runtime/timesteps.h"
#include "stepnet/half.h"
#include "tests/core/compute/fused_reference.h"
#include "tests/gpu/emulated/loop_runs.h"

namespace stepnet::gpu {
namespace {

template <class T>
class Run {
  using Wide = Accumulate<T>;

  // What a thread does for a row and unit.
  struct Thread {
    int64_t head = 0, row = 0, unit = 0;
    std::vector<Wide> variables;
    bool has_read = false;     // early, for the stretch that comes next
    bool owes_writes = false;  // the rest of those of the stretch before
  };
  struct Phase {
    int64_t t;
    const LoopStretch* stretch;
  };

 public:
  explicit Run(const LoopPlan& plan) : plan_(plan), stretches_(loop_stretches(plan)) {
    for (int64_t t = 0; t < plan.steps; ++t)
      for (const LoopStretch& s : stretches_) phases_.push_back({t, &s});
    for (int64_t head = 0; head < plan.heads; ++head)
      for (int64_t row = 0; row < plan.rows; ++row)
        for (int64_t unit = 0; unit < plan.units; ++unit)
          groups_[group_of_thread(head, row, unit)].threads.push_back(
              {head, row, unit, std::vector<Wide>(static_cast<size_t>(stretches_.back().end_variable))});
  }

  // Groups of blocks do not wait for each other: one goes some way, from point to point, then another.
  void all() {
    std::minstd_rand random(static_cast<unsigned>(plan_.rows * plan_.units + plan_.steps));
    for (size_t left = groups_.size(); left > 0;) {
      Group& group = std::next(groups_.begin(), static_cast<int64_t>(random() % groups_.size()))->second;
      for (size_t points = 1 + random() % (2 * phases_.size()); points > 0 && group.begin < phases_.size(); --points) {
        go(group);
        if (group.begin == phases_.size()) --left;
      }
    }
  }

 private:
  // Threads that wait for each other.
  struct Group {
    std::vector<Thread> threads;
    size_t begin = 0, turn = 0;  // phases behind the latest point, and how many points there were
  };

  int64_t group_of_thread(int64_t head, int64_t row, int64_t unit) const {
    const LoopSplit split = split_of(plan_);
    const int64_t block = (head / plan_.block_heads * split.rows + row / plan_.block_rows) * split.units;
    return group_of(plan_, block + unit / plan_.block_units);
  }

  // All threads of a group, from a point to the next.
  void go(Group& group) {
    auto& [threads, begin, turn] = group;
    size_t end = begin + 1;
    while (end < phases_.size() && !phases_[end].stretch->waits) ++end;
    for (size_t i = 0; i < threads.size(); ++i) {
      const size_t at = turn % 2 == 0 ? i : threads.size() - 1 - i;
      go(threads[(at + 7 * turn) % threads.size()], begin, end, (at + turn) % 3 != 0);
    }
    begin = end;
    ++turn;
    if (end < phases_.size()) return;
    for (Thread& thread : threads)
      if (thread.owes_writes) run(thread, phases_.back().t, phases_.back().stretch->rest);
  }

  // One thread, from a point to the next; `early`: it goes as far towards the point after that as it may.
  void go(Thread& thread, size_t begin, size_t end, bool early) {
    if (thread.owes_writes) run(thread, phases_[begin - 1].t, phases_[begin - 1].stretch->rest);
    thread.owes_writes = false;
    for (size_t i = begin; i < end; ++i) {
      const auto& [t, s] = phases_[i];
      if (i > begin || !thread.has_read) run(thread, t, s->early);
      run(thread, t, s->values);
      run(thread, t, s->shared);
      if (i + 1 < end || early) run(thread, t, s->rest);
    }
    thread.owes_writes = !early;
    thread.has_read = early && end < phases_.size();
    if (thread.has_read) run(thread, phases_[end].t, phases_[end].stretch->early);
  }

  T& element(const Thread& thread, int64_t t, const LoopElement& e) const {
    if (e.constant >= 0)
      return static_cast<T*>(
          const_cast<void*>(plan_.constants[static_cast<size_t>(e.constant)]))[row_of(thread, e) + thread.unit];
    const std::byte* at = plan_.places[static_cast<size_t>(e.place)].at(t);
    return reinterpret_cast<T*>(const_cast<std::byte*>(at))[row_of(thread, e) + thread.unit * e.step];
  }

  // The index of the first element of the group.
  static int64_t row_of(const Thread& thread, const LoopElement& e) {
    return thread.head * e.head_stride + thread.row * e.stride + e.shift;
  }

  Wide number(const Thread& thread, int64_t t, const LoopElement& e) const {
    const std::byte* at = plan_.places[static_cast<size_t>(e.place)].at(t);
    return static_cast<Wide>(reinterpret_cast<const int32_t*>(at)[row_of(thread, e)]);
  }

  Wide sum(const Thread& thread, int64_t t, const LoopProduct& p, int64_t group) const {
    const ProductSizes& s = p.sizes;
    const auto* a = reinterpret_cast<const T*>(plan_.places[static_cast<size_t>(p.a)].at(t)) +
                    thread.head * s.stride_a + thread.row * s.lda;
    const auto* w = static_cast<const T*>(plan_.constants[static_cast<size_t>(p.weights)]) + thread.head * s.stride_b;
    const int64_t column = group * p.group_stride + thread.unit;
    Wide sum = 0;
    for (int64_t k = 0; k < s.k; ++k) sum += a[k] * (s.trans_b ? w[column * s.ldb + k] : w[k * s.ldb + column]);
    return sum;
  }

  // The first or second number of a row of which an operator on rows finds them.
  Wide number(const LoopRows& r, int64_t t, int64_t row, bool second) const {
    const auto at = [&](RowTensor tensor) {
      return reinterpret_cast<const T*>(plan_.places[static_cast<size_t>(r.places[tensor])].at(t));
    };
    const T* const x = at(RowTensor::x) + row * r.size;
    const T* const dy = r.places[RowTensor::dy] >= 0 ? at(RowTensor::dy) + row * r.size : nullptr;
    const auto sum = [&](const auto& value) {
      Wide all = 0;
      for (int64_t k = 0; k < r.size; ++k) all += value(k);
      return all;
    };
    const auto n = static_cast<Wide>(r.size);
    switch (r.kind) {
      case RowKind::layer_norm: {
        const Wide mean = sum([&](int64_t k) { return Wide(x[k]); }) / n;
        if (!second) return mean;
        const Wide squares = sum([&](int64_t k) { return (Wide(x[k]) - mean) * (Wide(x[k]) - mean); });
        return std::sqrt(squares / n + static_cast<Wide>(r.number));
      }
      case RowKind::layer_norm_gradient: {
        const Wide mean = at(RowTensor::mean)[row], inverse = 1 / Wide(at(RowTensor::deviation)[row]);
        const T* const scale =
            r.scale < 0 ? nullptr : static_cast<const T*>(plan_.constants[static_cast<size_t>(r.scale)]);
        return sum([&](int64_t k) {
          const Wide e = scale ? Wide(dy[k]) * Wide(scale[k]) : Wide(dy[k]);
          return second ? e * (Wide(x[k]) - mean) * inverse : e;
        });
      }
      case RowKind::softmax: {
        Wide most = x[0];
        for (int64_t k = 1; k < r.size; ++k) most = std::max(most, Wide(x[k]));
        return second ? sum([&](int64_t k) { return std::exp(Wide(x[k]) - most); }) : most;
      }
      case RowKind::softmax_gradient:
        return sum([&](int64_t k) { return Wide(x[k]) * Wide(dy[k]); });
      case RowKind::sum:
        return sum([&](int64_t k) { return Wide(x[k]); }) * static_cast<Wide>(r.number);
    }
    return 0;
  }

  void run(Thread& thread, int64_t t, const std::vector<LoopStatement>& statements) const {
    const auto value = [&](int variable) -> Wide& { return thread.variables[static_cast<size_t>(variable)]; };
    for (const LoopStatement& s : statements) {
      const FusedInstruction& i = s.instruction;
      switch (s.kind) {
        case LoopStatement::Kind::load:
          value(s.variable) = s.element.is_int32 ? number(thread, t, s.element) : Wide(element(thread, t, s.element));
          break;
        case LoopStatement::Kind::sum:
          value(s.variable) = sum(thread, t, std::get<LoopProduct>(plan_.ops[static_cast<size_t>(s.op)].what), s.group);
          for (const int added : s.added) value(s.variable) += value(added);
          break;
        case LoopStatement::Kind::number: {
          const auto& rows = std::get<LoopRows>(plan_.ops[static_cast<size_t>(s.op)].what);
          const int64_t line = thread.head * rows.head_lines + thread.row * rows.row_lines;
          const int64_t row = line * rows.parts + s.number / kRowNumbers;
          value(s.variable) = number(rows, t, row, s.number % kRowNumbers == 1);
          break;
        }
        case LoopStatement::Kind::round:
          value(s.variable) = T(value(i.a));
          break;
        case LoopStatement::Kind::compute:
          value(s.variable) = testing::fused_reference(i, value(i.a), value(i.b));
          break;
        case LoopStatement::Kind::write:
          if (s.element.step != 0 || thread.unit == 0) element(thread, t, s.element) = value(i.a);
          break;
      }
    }
  }

  const LoopPlan& plan_;
  std::vector<LoopStretch> stretches_;
  std::vector<Phase> phases_;
  std::map<int64_t, Group> groups_;
};

void launch_source(cudaStream_t stream, const LoopPlan& plan, void* arrived) {
  ++emulated::loop_runs().launches;
  const emulated::LoopLaunch launch{.blocks = static_cast<unsigned>(plan.blocks),
                                    .threads = kLoopThreads,
                                    .shared_bytes = plan.shared_bytes,
                                    .unit = dtype_size(plan.dtype),
                                    .seed = emulated::order_of_threads()};
  emulated::enqueue(stream, [kernel = emulated::compile_for_host(plan), words = loop_parameters(plan, arrived),
                             launch] { emulated::run_loop(*kernel, words.words.data(), launch); });
}

class ImitatedLoop : public CompiledLoop {
 public:
  void launch(cudaStream_t stream, const LoopPlan& plan, void* arrived) const override {
    const emulated::Inside inside;  // a copy of the plan is the imitation's
    if (emulated::runs_by_source()) return launch_source(stream, plan, arrived);
    emulated::enqueue(stream, [plan] {
      if (with_half(plan.dtype, [&](auto zero) { Run<decltype(zero)>(plan).all(); })) return;
      Run<float>(plan).all();
    });
  }
};

}  // namespace

// Few blocks, so that each has some units and the last one fewer.
LoopLimits loop_limits(int) { return {.blocks = 11, .shared_bytes = size_t{1} << 20, .tensor_cores = true}; }

std::shared_ptr<const CompiledLoop> compile_loop(int, const LoopPlan& plan) {
  loop_source(plan);  // which must be able to say all of it
  return std::make_shared<ImitatedLoop>();
}

}  // namespace stepnet::gpu
