#include "recurrent/distributed/reductions.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/operator/in_place.h"
#include "stepnet/arguments.h"

namespace stepnet {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Bucket {
  int after = 0;  // operator of the net
  int64_t bytes = 0, elements = 0;
  bool in_place = false;  // its one gradient moves where it is
  std::vector<const ReducedGradient*> gradients;
};

// The last operator that reads or writes the blob; -1 if none does.
int last_use(const NetDef& net, const std::string& name) {
  const auto is_that = [&](const std::string& other) { return other == name; };
  for (int i = net.op_size() - 1; i >= 0; --i)
    if (std::ranges::any_of(net.op(i).input(), is_that) || std::ranges::any_of(net.op(i).output(), is_that)) return i;
  return -1;
}

// No other name of its bytes, which would move a second time under that name.
bool has_bytes_of_its_own(const NetDef& net, const std::string& name) {
  const auto may_share = [&](const OperatorDef& op) {
    const OpSpec& spec = op_spec(op.type());
    if (std::ranges::find(op.input(), name) == op.input().end() &&
        std::ranges::find(op.output(), name) == op.output().end())
      return false;
    for (int o = 0; o < op.output_size(); ++o)
      if (may_be_alias(spec, o) || aliased_input(spec, o) >= 0) return true;
    return false;
  };
  return std::ranges::none_of(net.op(), may_share);
}

// It is also the rows, or the indices, of a sparse gradient: these are read when the backward pass is over.
bool is_part_of_rows(const std::string& name, const std::vector<ReducedGradient>& gradients) {
  return std::ranges::any_of(
      gradients, [&](const ReducedGradient& g) { return g.is_sparse() && (g.values == name || g.indices == name); });
}

// Those of at least `in_place` bytes have buckets of their own, as far as nobody else reads them while they move.
std::vector<Bucket> buckets_of(const NetDef& net, const std::vector<ReducedGradient>& gradients, int64_t most,
                               int64_t in_place) {
  std::vector<std::pair<int, const ReducedGradient*>> by_end;
  for (const ReducedGradient& g : gradients)
    if (!g.is_sparse()) by_end.emplace_back(last_use(net, g.name), &g);
  std::ranges::stable_sort(by_end, {}, [](const auto& entry) { return entry.first; });
  std::vector<Bucket> buckets;
  std::map<std::pair<DType, std::string>, size_t> open;
  for (const auto& [after, g] : by_end) {
    const auto bytes = static_cast<int64_t>(dtype_size(g->type.dtype)) * g->type.shape.size();
    if (bytes >= in_place && has_bytes_of_its_own(net, g->name) && !is_part_of_rows(g->name, gradients)) {
      buckets.push_back({after, bytes, g->type.shape.size(), true, {g}});
      continue;
    }
    const std::pair kind(g->type.dtype, g->group);
    const auto found = open.find(kind);
    if (found == open.end() || buckets[found->second].bytes + bytes > most) {
      open[kind] = buckets.size();
      buckets.emplace_back();
    }
    Bucket& bucket = buckets[open[kind]];
    bucket.after = after;
    bucket.bytes += bytes;
    bucket.elements += g->type.shape.size();
    bucket.gradients.push_back(g);
  }
  return buckets;
}

std::string started(size_t bucket) { return fmt::format("train/started_{}", bucket); }

void check_types(const std::vector<ReducedGradient>& gradients, DType move_as) {
  if (move_as == DType::float32) return;
  for (const ReducedGradient& g : gradients)
    if (g.type.dtype != DType::float32)
      throw Error(fmt::format("gradients are to be added up in {}, but \"{}\" is {}", dtype_name(move_as), g.parameter,
                              dtype_name(g.type.dtype)),
                  "leave out --reduce: only gradients of float32 are rounded");
}

void add_move_as(OperatorDef& op, const ReductionOptions& options) {
  if (options.move_as != DType::float32) *op.add_arg() = make_arg("move_as", std::string(dtype_name(options.move_as)));
}

// The sum of all ranks' rows, of which each rank makes all, in the order of ranks.
void add_gathered_rows(NetDef& net, const ReducedGradient& g, const ReductionOptions& options) {
  const std::string indices = g.name + "_indices", values = g.name + "_values";
  OperatorDef& gather = *net.add_op();
  gather.set_type("AllgatherSlices");
  for (const std::string& name : {options.world, g.indices, g.values}) gather.add_input(name);
  for (const std::string& name : {indices, values}) gather.add_output(name);
  add_move_as(gather, options);
  OperatorDef& sum = *net.add_op();
  sum.set_type("SparseToDense");
  for (const std::string& name : {indices, values, g.parameter}) sum.add_input(name);
  sum.add_output(g.name);
}

// Behind the last operator that touches its gradients each bucket starts; behind all of them, rows are gathered.
NetDef with_starts(const NetDef& net, const std::vector<Bucket>& buckets, const std::vector<ReducedGradient>& gradients,
                   const char* type, const ReductionOptions& options) {
  NetDef result = net;
  result.clear_op();
  for (int i = 0; i < net.op_size(); ++i) {
    *result.add_op() = net.op(i);
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (buckets[b].after != i) continue;
      OperatorDef& op = *result.add_op();
      op.set_type(type);
      op.add_input(options.world);
      for (const ReducedGradient* g : buckets[b].gradients) op.add_input(g->name);
      op.add_output(started(b));
      if (buckets[b].in_place) op.add_output(buckets[b].gradients[0]->name);
      add_move_as(op, options);
    }
  }
  for (const ReducedGradient& g : gradients)
    if (g.is_sparse()) add_gathered_rows(result, g, options);
  return result;
}

}  // namespace

void add_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients, const ReductionOptions& options) {
  check_types(gradients, options.move_as);
  const bool rounds = options.move_as != DType::float32, are_few = std::ssize(gradients) <= options.few;
  const std::vector<Bucket> buckets = buckets_of(net, gradients, options.bucket_bytes,
                                                 rounds    ? kNever
                                                 : are_few ? 0
                                                           : options.in_place_bytes);
  net = with_starts(net, buckets, gradients, "StartAllreduce", options);
  for (size_t b = 0; b < buckets.size(); ++b) {
    OperatorDef& op = *net.add_op();
    op.set_type("FinishAllreduce");
    op.add_input(started(b));
    for (const ReducedGradient* g : buckets[b].gradients) op.add_input(buckets[b].in_place ? g->name : g->parameter);
    op.add_output(started(b));
    for (const ReducedGradient* g : buckets[b].gradients) op.add_output(g->name);
  }
}

std::vector<ParameterShard> add_sharded_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients,
                                                   int ranks, const ReductionOptions& options) {
  check_types(gradients, options.move_as);
  const std::vector<Bucket> buckets = buckets_of(net, gradients, options.bucket_bytes, kNever);
  net = with_starts(net, buckets, gradients, "StartReduceScatter", options);
  std::vector<ParameterShard> shards;
  const auto add_shard = [&](const ReducedGradient& first, int64_t elements) -> ParameterShard& {
    ParameterShard& shard = shards.emplace_back();
    shard.gradient = fmt::format("train/shard_{}_gradient", shards.size() - 1);
    shard.type = TensorType::of(first.type.dtype, {(elements + ranks - 1) / ranks});
    return shard;
  };
  for (size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    ParameterShard& shard = add_shard(*bucket.gradients.front(), bucket.elements);
    for (const ReducedGradient* g : bucket.gradients) shard.parameters.push_back(g->parameter);
    OperatorDef& op = *net.add_op();
    op.set_type("FinishReduceScatter");
    op.add_input(started(b));
    op.add_output(started(b));
    op.add_output(shard.gradient);
  }
  for (const ReducedGradient& g : gradients) {
    if (!g.is_sparse()) continue;
    ParameterShard& shard = add_shard(g, g.type.shape.size());
    shard.parameters = {g.parameter};
    OperatorDef& op = *net.add_op();
    op.set_type("TakeShard");
    op.add_input(options.world);
    op.add_input(g.name);
    op.add_output(shard.gradient);
  }
  return shards;
}

}  // namespace stepnet
