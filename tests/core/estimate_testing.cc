#include "tests/core/estimate_testing.h"

#include "stepnet/matmul.h"

namespace stepnet::testing {
namespace {

struct Run {
  int64_t made = 0;  // bytes of the session itself
  std::vector<std::vector<OpMemory>> runs;
  double product_flops = 0;
};

constexpr int kRuns = 2;

Run dry_run(const MakeSession& make) {
  DryScope scope;
  const auto session = make();
  Run result{scope.counters().live, {}, 0};
  for (int i = 0; i < kRuns; ++i) result.runs.push_back(run_measured(*session));
  result.product_flops = scope.product_flops;
  return result;
}

Run real_run(const MakeSession& make) {
  forget_products();
  const LiveBytes base = live_bytes();
  const auto session = make();
  Run result{live_bytes().all - base.all, {}, 0};
  const double before = matmul_counters().flops;
  count_matmuls(true);
  for (int i = 0; i < kRuns; ++i) result.runs.push_back(run_measured(*session, base));
  count_matmuls(false);
  result.product_flops = matmul_counters().flops - before;
  return result;
}

std::string text_of(const OpMemory& m) {
  return fmt::format("{} / {} / {} ({} of products)", m.before, m.peak, m.after, m.products);
}

}  // namespace

std::string compare_with_real(const MakeSession& make) {
  const Run dry = dry_run(make), real = real_run(make);
  if (dry.made != real.made) return fmt::format("the session has {} bytes, estimated are {}", real.made, dry.made);
  const NetDef def = make()->net->def();
  for (int r = 0; r < kRuns; ++r)
    for (size_t i = 0; i < real.runs[r].size(); ++i)
      if (real.runs[r][i] != dry.runs[r][i])
        return fmt::format("run {}, operator {} ({}): live before, most, behind are {}, estimated are {}", r, i,
                           def.op(static_cast<int>(i)).type(), text_of(real.runs[r][i]), text_of(dry.runs[r][i]));
  if (dry.product_flops != real.product_flops)
    return fmt::format("products have {} operations, estimated are {}", real.product_flops, dry.product_flops);
  return "";
}

}  // namespace stepnet::testing
