// What random nets take against what was said before.
#include <algorithm>
#include <optional>

#include "core/compute/threads.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/model.h"
#include "stepnet/half.h"
#include "stepnet/matmul.h"
#include "tests/core/estimate_testing.h"
#include "tests/recurrent/random_half_nets.h"

namespace stepnet::testing {
namespace {

constexpr int kRuns = 2;

class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) { set_threads(threads); }
  ~ThreadsScope() { set_threads(0); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;
};

std::vector<std::vector<OpMemory>> measured(const TrainingEstimate& training) {
  const LiveBytes base = live_bytes();
  const auto session = training_net_session(training);
  std::vector<std::vector<OpMemory>> runs;
  for (int i = 0; i < kRuns; ++i) runs.push_back(run_measured(*session, base));
  return runs;
}

// The allocator's peak of a session and of some runs, beyond what was there.
int64_t peak_of_runs(TrainingEstimate training) {
  constexpr int kPlannedRuns = 5;  // the third has the plan
  training.plan_memory = training.in_parts = true;
  forget_products();
  Allocator& memory = allocator(Device{});
  const int64_t before = memory.counters().live;
  memory.reset_peak();
  const auto session = training_net_session(training);
  for (int i = 0; i < kPlannedRuns; ++i) {
    RunContext run;
    session->net->run(run);
    if (session->advance) session->advance();
    if (session->update) session->update();
  }
  return memory.counters().peak - before;
}

// The number behind "takes at least " in the message about a budget of a byte.
int64_t least_budget(const TrainingEstimate& training) {
  try {
    fit_training(training, 1);
  } catch (const Error& e) {
    const std::string text = e.what(), before = "takes at least ";
    const size_t at = text.find(before);
    if (at != std::string::npos) return std::stoll(text.substr(at + before.size()));
    throw;
  }
  throw Error("a budget of a byte is accepted");
}

}  // namespace

TrainingEstimate training_of(const HalfNet& net) {
  TrainingEstimate training{.model = model_of(net.net.net, {}, net.net.loss)};
  training.feeds = net.net.data;
  training.parameters = net.net.parameters;
  std::map<std::string, TensorType> more = net.net.data;
  more.insert(net.net.parameters.begin(), net.net.parameters.end());
  use_precision(training.model, net.type, more);
  if (net.type == DType::float16) training.optimizer.loss_scale = 1;
  if (is_half(net.type)) training.optimizer.clip = 0;  // which would refuse gradients that overflow
  return training;
}

std::string check_estimate(const HalfNet& net) {
  const ThreadsScope threads(net.threads);
  const TrainingEstimate training = training_of(net);
  std::vector<std::vector<OpMemory>> dry;
  {
    const DryScope scope;
    dry = measured(training);
  }
  forget_products();
  const auto real = measured(training);
  const bool is_exact = !is_half(net.type) || net.threads == 1;
  const NetDef def = training_net_session(training)->net->def();
  for (int r = 0; r < kRuns; ++r)
    for (size_t i = 0; i < real[r].size(); ++i) {
      const OpMemory &is = real[r][i], &said = dry[r][i];
      if (is == said || (!is_exact && is.peak <= said.peak && is.before == said.before && is.after == said.after))
        continue;
      return fmt::format("estimate: run {}, operator {} ({}): {} / {} / {} are live, estimated are {} / {} / {}", r, i,
                         def.op(static_cast<int>(i)).type(), is.before, is.peak, is.after, said.before, said.peak,
                         said.after);
    }
  return "";
}

std::string check_planned(const HalfNet& net) {
  const ThreadsScope threads(net.threads);
  const TrainingEstimate training = training_of(net);
  const int64_t said = training_peak(training), is = peak_of_runs(training);
  // Later runs may take a thousandth more.
  return is <= said + said / 1000 ? "" : fmt::format("planned: a run takes {}, estimated are {}", is, said);
}

std::string check_budgets(const HalfNet& net) {
  const ThreadsScope threads(net.threads);
  const TrainingEstimate training = training_of(net);
  const int64_t least = least_budget(training), whole = training_peak(training);
  for (const int64_t budget : {least, least + (whole - least) / 2, whole * 95 / 100}) {
    if (budget < least) continue;
    std::optional<FittedTraining> fitted;
    try {
      fitted = fit_training(training, budget);
    } catch (const Error& e) {
      return fmt::format("budget {} of {} to {} is refused: {}", budget, least, whole, e.what());
    }
    TrainingEstimate kept = training;
    kept.model = fitted->model;
    if (const int64_t is = peak_of_runs(kept); is > budget)
      return fmt::format("budget {} of {} to {}: a run takes {}", budget, least, whole, is);
  }
  return "";
}

std::string check_half_net(const HalfNet& net) {
  for (const auto check : {check_estimate, check_planned, check_budgets}) {
    std::string wrong;
    try {
      wrong = check(net);
    } catch (const Error& e) {
      wrong = e.what();
    }
    if (!wrong.empty())
      return fmt::format("{} with {} threads, {}:\n{}\n{}", dtype_name(net.type), net.threads, net.net.name, wrong,
                         net.net.net.DebugString());
  }
  return "";
}

}  // namespace stepnet::testing
