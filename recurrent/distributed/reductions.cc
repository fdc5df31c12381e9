#include "recurrent/distributed/reductions.h"

#include <algorithm>
#include <map>

namespace stepnet {
namespace {

struct Bucket {
  int after = 0;  // operator of the net
  int64_t bytes = 0;
  std::vector<const ReducedGradient*> gradients;
};

// The last operator that reads or writes the blob; -1 if none does.
int last_use(const NetDef& net, const std::string& name) {
  const auto is_that = [&](const std::string& other) { return other == name; };
  for (int i = net.op_size() - 1; i >= 0; --i)
    if (std::ranges::any_of(net.op(i).input(), is_that) || std::ranges::any_of(net.op(i).output(), is_that)) return i;
  return -1;
}

std::vector<Bucket> buckets_of(const NetDef& net, const std::vector<ReducedGradient>& gradients, int64_t most) {
  std::vector<std::pair<int, const ReducedGradient*>> by_end;
  for (const ReducedGradient& g : gradients) by_end.emplace_back(last_use(net, g.name), &g);
  std::ranges::stable_sort(by_end, {}, [](const auto& entry) { return entry.first; });
  std::vector<Bucket> buckets;
  std::map<DType, size_t> open;
  for (const auto& [after, g] : by_end) {
    const auto bytes = static_cast<int64_t>(dtype_size(g->type.dtype)) * g->type.shape.size();
    const auto found = open.find(g->type.dtype);
    if (found == open.end() || buckets[found->second].bytes + bytes > most) {
      open[g->type.dtype] = buckets.size();
      buckets.emplace_back();
    }
    Bucket& bucket = buckets[open[g->type.dtype]];
    bucket.after = after;
    bucket.bytes += bytes;
    bucket.gradients.push_back(g);
  }
  return buckets;
}

}  // namespace

void add_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients, const std::string& world,
                    int64_t bucket_bytes) {
  const std::vector<Bucket> buckets = buckets_of(net, gradients, bucket_bytes);
  const auto started = [](size_t bucket) { return fmt::format("train/started_{}", bucket); };
  NetDef result = net;
  result.clear_op();
  for (int i = 0; i < net.op_size(); ++i) {
    *result.add_op() = net.op(i);
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (buckets[b].after != i) continue;
      OperatorDef& op = *result.add_op();
      op.set_type("StartAllreduce");
      op.add_input(world);
      for (const ReducedGradient* g : buckets[b].gradients) op.add_input(g->name);
      op.add_output(started(b));
    }
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    OperatorDef& op = *result.add_op();
    op.set_type("FinishAllreduce");
    op.add_input(started(b));
    for (const ReducedGradient* g : buckets[b].gradients) op.add_input(g->parameter);
    op.add_output(started(b));
    for (const ReducedGradient* g : buckets[b].gradients) op.add_output(g->name);
  }
  net = std::move(result);
}

}  // namespace stepnet
