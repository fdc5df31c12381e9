#include "stepnet/plan.h"

#include <gtest/gtest.h>

#include "stepnet/operator.h"
#include "stepnet/text.h"
#include "tests/operators/op_test.h"

namespace stepnet::plan_test {
namespace {

using testing::error_of;

std::mutex count_mutex;

// X += 1, whole even if several threads do it.
void count(const NoArgs&, BlobCall& c) {
  const std::lock_guard lock(count_mutex);
  Tensor& t = c.out[0]->tensor();
  const int64_t before = t.defined() ? t.item<int64_t>() : 0;
  t = Tensor::scalar<int64_t>(before + 1);
}

struct LimitArgs {
  int64_t limit;
};
void at_least_limit(const LimitArgs& args, BlobCall& c) {
  const std::lock_guard lock(count_mutex);
  const Blob& x = *c.in[0];
  c.out[0]->tensor() = Tensor::scalar<bool>(!x.empty() && x.tensor().item<int64_t>() >= args.limit);
}

void fail_always(const NoArgs&, BlobCall&) { fail("failed on purpose"); }

// Y gets the seed of the run.
void take_seed(const NoArgs&, BlobCall& c) {
  std::vector<int64_t> seeds;
  Tensor& t = c.out[0]->tensor();
  if (t.defined()) seeds.assign(t.span<int64_t>().begin(), t.span<int64_t>().end());
  seeds.push_back(static_cast<int64_t>(c.run.seed));
  t = Tensor::of<int64_t>(Shape{static_cast<int64_t>(seeds.size())}, std::span<const int64_t>(seeds));
}

REGISTER(plan_test_count) { return op("PlanTestCount").doc("Adds one.").output("X", "int64").blobs(count); }
REGISTER(plan_test_at_least) {
  return op<LimitArgs>("PlanTestAtLeast")
      .doc("Whether X has reached a limit.")
      .arg("limit", &LimitArgs::limit, int64_t{0}, "The limit.")
      .input("X", "int64")
      .object()
      .output("Y", "bool")
      .blobs(at_least_limit);
}
void refuse(const NoArgs&, const OperatorDef&, const Workspace&) { fail("refused beforehand"); }

REGISTER(plan_test_refuse) {
  return op("PlanTestRefuse").doc("Cannot run, and says so before.").blobs(fail_always).preflight(refuse);
}
REGISTER(plan_test_fail) { return op("PlanTestFail").doc("Fails.").blobs(fail_always); }
REGISTER(plan_test_seed) { return op("PlanTestSeed").doc("Collects seeds.").output("Y", "int64").blobs(take_seed); }

// Two nets that most plans here use: "count" adds one to n, "stop" sets `stop` once n is at least 10.
const char* const kNets = R"(
  network { name: "count" op { type: "PlanTestCount" output: "n" } }
  network { name: "stop" op { type: "PlanTestAtLeast" input: "n" output: "stop" arg { name: "limit" i: 10 } } }
  network { name: "fail" op { type: "PlanTestFail" } }
  network { name: "seed" op { type: "PlanTestSeed" output: "seeds" } }
  network { name: "other" op { type: "PlanTestCount" output: "m" } }
)";

struct PlanRunner {
  explicit PlanRunner(const std::string& steps, PlanOptions options = {}, int64_t start = 0) {
    set("n", start);
    set("m", 0);
    go(steps, options);
  }
  void go(const std::string& steps, const PlanOptions& options) {
    RunContext run;
    run_plan(parse_plan_text("name: \"p\"" + (kNets + steps)), workspace, run, options);
  }
  void set(const std::string& name, int64_t value) { workspace.tensor(name) = Tensor::scalar<int64_t>(value); }
  int64_t get(const std::string& name) { return workspace.fetch(name).item<int64_t>(); }
  Workspace workspace;
};

std::string run_error(const std::string& steps) {
  return error_of([&] { PlanRunner run(steps); });
}

TEST(Plan, IterationsMultiplyDownTheTree) {
  EXPECT_EQ(PlanRunner("execution_step { network: \"count\" }").get("n"), 1);
  EXPECT_EQ(PlanRunner("execution_step { network: \"count\" num_iter: 7 }").get("n"), 7);
  EXPECT_EQ(PlanRunner("execution_step { network: \"count\" num_iter: 0 }").get("n"), 0);
  PlanRunner nested(
      "execution_step { num_iter: 3 substep { network: \"count\" network: \"other\" num_iter: 4 } "
      "substep { network: \"count\" } } execution_step { network: \"other\" }");
  EXPECT_EQ(nested.get("n"), 15);
  EXPECT_EQ(nested.get("m"), 13);
}

TEST(Plan, AStopBlobOfTheStepsOwnNetEndsIt) {
  for (const int64_t start : {0, 4, 10, 25})
    EXPECT_EQ(
        PlanRunner("execution_step { network: \"stop\" network: \"count\" should_stop_blob: \"stop\" }", {}, start)
            .get("n"),
        std::max<int64_t>(start, 10));
}

TEST(Plan, AStoppedStepSkipsItsBodyAndThePlanGoesOn) {
  PlanRunner run(
      "execution_step { network: \"stop\" network: \"other\" should_stop_blob: \"stop\" only_once: true }"
      "execution_step { network: \"count\" }",
      {}, 10);
  EXPECT_EQ(run.get("m"), 0);
  EXPECT_EQ(run.get("n"), 11);
}

TEST(Plan, OnlyOnceRunsOnceWithoutStop) {
  EXPECT_EQ(
      PlanRunner("execution_step { network: \"stop\" network: \"other\" should_stop_blob: \"stop\" only_once: true }")
          .get("m"),
      1);
}

TEST(Plan, TheStopBlobIsTestedAfterEachSubstep) {
  PlanRunner run(
      "execution_step { should_stop_blob: \"stop\" substep { network: \"count\" } substep { network: \"stop\" } "
      "substep { network: \"other\" } }");
  EXPECT_EQ(run.get("n"), 10);
  EXPECT_EQ(run.get("m"), 9);
}

TEST(Plan, ConcurrentSubstepsAllRun) {
  std::string steps = "execution_step { concurrent_substeps: true num_iter: 5 ";
  for (int i = 0; i < 8; ++i) steps += "substep { num_iter: 50 network: \"count\" }";
  EXPECT_EQ(PlanRunner(steps + "}").get("n"), 8 * 50 * 5);
}

TEST(Plan, ConcurrentInstancesMultiplyTheSubsteps) {
  PlanRunner run(
      "execution_step { num_concurrent_instances: 3 substep { num_iter: 10 network: \"count\" } "
      "substep { num_iter: 20 network: \"other\" } }");
  EXPECT_EQ(run.get("n"), 30);
  EXPECT_EQ(run.get("m"), 60);
}

TEST(Plan, AFailureAmongThreadsStopsTheOthersAndIsThrownOnce) {
  const std::string error = run_error(
      "execution_step { name: \"both\" concurrent_substeps: true"
      "  substep { network: \"other\" network: \"stop\" should_stop_blob: \"stop\" } substep { name: \"bad\" network: "
      "\"fail\" } }");
  EXPECT_EQ(error,
            "PlanTestFail: failed on purpose\n  in  text:4:26, operator 0 of net \"fail\"\n  op   = PlanTestFail()\n"
            "  at  step \"both/bad\" of plan \"p\"");
}

TEST(Plan, AReportRunsOnceMoreAtTheEnd) {
  EXPECT_EQ(PlanRunner("execution_step { substep { run_every_ms: 100000000 network: \"other\" } "
                       "substep { num_iter: 3 network: \"count\" } }")
                .get("m"),
            1);
  EXPECT_EQ(
      PlanRunner("execution_step { network: \"count\" report_net: \"other\" report_interval: 2147483647 }").get("m"),
      1);
  EXPECT_EQ(PlanRunner("execution_step { substep { run_every_ms: 9223372036854775807 network: \"other\" } "
                       "substep { network: \"count\" } }")
                .get("m"),
            1);
}

TEST(Plan, AReportRunsEveryInterval) {
  // The loop ends when the reports have raised n to 10.
  PlanRunner run(
      "execution_step { substep { run_every_ms: 1 network: \"count\" } "
      "substep { network: \"stop\" network: \"other\" should_stop_blob: \"stop\" } }");
  EXPECT_GE(run.get("n"), 11);
}

TEST(Plan, AReportThatFailsOnlyWarns) {
  std::vector<std::string> warnings;
  PlanOptions options;
  options.net.warnings = &warnings;
  EXPECT_EQ(PlanRunner("execution_step { name: \"s\" network: \"count\" report_net: \"fail\" report_interval: 1000 }",
                       options)
                .get("n"),
            1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("a report of step \"s\" failed: PlanTestFail: failed on purpose"), std::string::npos);
}

TEST(Plan, AWorkspaceOfItsOwnIsNewAtEachExecution) {
  const char* const nets =
      "network { name: \"local\" op { type: \"PlanTestCount\" output: \"fresh\" } "
      "op { type: \"PlanTestAtLeast\" input: \"fresh\" output: \"full\" arg { name: \"limit\" i: 2 } } }";
  PlanRunner run(
      std::string(nets) +
      "execution_step { num_iter: 3 substep { create_workspace: true network: \"local\" network: \"count\" } }");
  EXPECT_EQ(run.get("n"), 3);
  EXPECT_EQ(run.workspace.find("fresh"), nullptr);
  // The counter starts anew each time, so a stop at 2 takes two rounds each time.
  run.go(std::string(nets) +
             "execution_step { num_iter: 4 substep { create_workspace: true should_stop_blob: \"full\" "
             "network: \"local\" network: \"other\" } }",
         {});
  EXPECT_EQ(run.get("m"), 4);
}

TEST(Plan, WorkspacesOfTheirOwnDrawDifferently) {
  PlanRunner run("execution_step { num_iter: 3 substep { create_workspace: true network: \"seed\" } }", {});
  Workspace& w = run.workspace;
  w.tensor("seeds") = Tensor::empty(DType::int64, Shape{0});
  run.go("execution_step { num_iter: 3 substep { create_workspace: true network: \"seed\" } }", {});
  const auto seeds = w.fetch("seeds").span<int64_t>();
  ASSERT_EQ(seeds.size(), 3u);
  EXPECT_EQ(seeds[0], 1);
  EXPECT_NE(seeds[1], seeds[0]);
  EXPECT_NE(seeds[2], seeds[1]);
}

TEST(Plan, NumbersWorkspacesIfTheNodeHasANumber) {
  PlanRunner run("");
  run.workspace.tensor("NODE_ID") = Tensor::scalar<int32_t>(3);
  run.workspace.create("GLOBAL_WORKSPACE_ID");
  const char* const net =
      "network { name: \"id\" op { type: \"PlanTestAtLeast\" input: \"GLOBAL_WORKSPACE_ID\" "
      "output: \"is\" arg { name: \"limit\" i: 196609 } } }";
  run.workspace.create("is");
  run.go(std::string(net) + "execution_step { num_iter: 2 substep { create_workspace: true network: \"id\" } }", {});
  EXPECT_TRUE(run.workspace.fetch("is").item<bool>());  // of the second: (3 << 16) + 1
}

TEST(Plan, AllNetsOfATopLevelStepAreBuiltBeforeItRuns) {
  // "late" reads what "early" writes, and would not be built if `made` did not exist yet.
  const std::string nets =
      "network { name: \"late\" op { type: \"PlanTestAtLeast\" input: \"made\" output: \"x\" } }"
      "network { name: \"early\" op { type: \"PlanTestCount\" output: \"made\" } }";
  EXPECT_NO_THROW(PlanRunner(nets + "execution_step { substep { network: \"early\" } substep { network: \"late\" } }"));
  const std::string error = run_error(nets + "execution_step { name: \"a\" network: \"count\" substep { } }");
  EXPECT_NE(error.find("the step has substeps and networks"), std::string::npos);
  EXPECT_NE(run_error(nets + "execution_step { substep { network: \"late\" } substep { network: \"early\" } }")
                .find("the input \"made\" is written by no earlier operator"),
            std::string::npos);
}

TEST(Plan, WhatCannotRunIsSaidBeforeAnythingRuns) {
  const std::string net = "network { name: \"refuse\" op { type: \"PlanTestRefuse\" } }";
  PlanRunner run("");
  const std::string error = error_of([&] {
    run.go(net + "execution_step { network: \"count\" } execution_step { substep { network: \"refuse\" } }", {});
  });
  EXPECT_NE(error.find("PlanTestRefuse: refused beforehand"), std::string::npos);
  EXPECT_EQ(run.get("n"), 0);
  EXPECT_NO_THROW(run.go(net + "execution_step { network: \"count\" }", {}));  // it is in no step
}

TEST(Plan, AnAtomicCounterIsExactUnderConcurrentSteps) {
  std::string steps = "network { name: \"init\" op { type: \"CreateMutex\" output: \"mutex\" } }";
  std::string substeps;
  for (int i = 0; i < 4; ++i) {
    steps += fmt::format(
        "network {{ name: \"t{}\" op {{ type: \"AtomicIter\" input: \"mutex\" input: \"n\" output: \"n\" "
        "}} }}",
        i);
    substeps += fmt::format("substep {{ num_iter: 100 network: \"t{}\" }}", i);
  }
  PlanRunner run(steps + "execution_step { network: \"init\" } execution_step { concurrent_substeps: true " + substeps +
                 "}");
  EXPECT_EQ(run.get("n"), 400);
}

TEST(Plan, IterationsCanBeReplaced) {
  PlanOptions options;
  options.iterations = 2;
  PlanRunner run(
      "execution_step { num_iter: 3 network: \"other\" } execution_step { substep { num_iter: 9 network: \"count\" } }",
      options);
  EXPECT_EQ(run.get("n"), 2);
  EXPECT_EQ(run.get("m"), 3);
  EXPECT_EQ(error_of([&] { PlanRunner("execution_step { network: \"count\" }", options); }),
            "plan \"p\" has no step with num_iter, so the number of iterations cannot be given");
}

// The nets that run if the plan is stopped after so many of them.
std::vector<std::string> ran_until(size_t stop_after, const std::string& steps) {
  std::atomic<bool> stop{false};
  PlanOptions options;
  options.stop = &stop;
  std::vector<std::string> ran;
  options.after_net = [&](const Net& net, int64_t iteration, bool) {
    ran.push_back(fmt::format("{} {}", net.name(), iteration));
    if (ran.size() == stop_after) stop = true;
  };
  try {
    PlanRunner run(steps, options);
  } catch (const Error& e) {
    ran.emplace_back(std::string(e.what()).substr(0, std::string(e.what()).find('\n')));
  }
  return ran;
}

TEST(Plan, StopEndsLoopsAfterTheRunningIteration) {
  using Names = std::vector<std::string>;
  const std::string loop = "execution_step { num_iter: 5 network: \"count\" network: \"other\" } ";
  EXPECT_EQ(ran_until(3, loop), (Names{"count 0", "other 0", "count 1", "other 1"}));
  EXPECT_EQ(ran_until(3, loop + loop), (Names{"count 0", "other 0", "count 1", "other 1"}));
  EXPECT_EQ(ran_until(1,
                      "execution_step { num_iter: 2 substep { num_iter: 3 network: \"count\" } substep { network: "
                      "\"other\" } }"),
            (Names{"count 0", "other 0"}));
}

// After the loops what was computed is saved; before them there is nothing to save.
TEST(Plan, StopLetsStepsAfterTheLoopRun) {
  using Names = std::vector<std::string>;
  const std::string loop = "execution_step { num_iter: 5 network: \"count\" } ";
  const std::string once = "execution_step { network: \"other\" } ";
  EXPECT_EQ(ran_until(2, loop + once + loop), (Names{"count 0", "count 1", "other 0"}));
  EXPECT_EQ(ran_until(1, once + loop + once), (Names{"other 0"}));
  EXPECT_EQ(ran_until(1, "execution_step { num_iter: 1 network: \"count\" } " + once), (Names{"count 0", "other 0"}));
}

// A step may read what a loop that was left out would have made. What fails before the stop still ends the plan.
TEST(Plan, StopLetsStepsRunAfterOneThatFails) {
  using Names = std::vector<std::string>;
  const std::string loop = "execution_step { num_iter: 5 network: \"count\" } ";
  const std::string fails =
      "network { name: \"bad\" op { type: \"Tanh\" input: \"none\" output: \"t\" } } execution_step { network: \"bad\" "
      "} ";
  Names ran = ran_until(2, loop + fails + "execution_step { network: \"other\" } ");
  EXPECT_NE(ran.back().find("none"), std::string::npos) << ran.back();
  ran.pop_back();
  EXPECT_EQ(ran, (Names{"count 0", "count 1", "other 0"}));
  ran = ran_until(9, loop + fails + "execution_step { network: \"other\" } ");
  EXPECT_NE(ran.back().find("none"), std::string::npos) << ran.back();
  ran.pop_back();
  EXPECT_EQ(ran, (Names{"count 0", "count 1", "count 2", "count 3", "count 4"}));
}

TEST(Plan, APlanWithoutStepsWarns) {
  std::vector<std::string> warnings;
  PlanOptions options;
  options.net.warnings = &warnings;
  PlanRunner run("", options);
  EXPECT_EQ(warnings, (std::vector<std::string>{"plan \"p\" has no execution step: nothing is run"}));
}

TEST(Plan, MistakesInThePlan) {
  const std::string in_s = "\n  in  step \"s\"";
  const auto of_step = [&](const std::string& fields) {
    return run_error("execution_step { name: \"s\" " + fields + "}");
  };
  EXPECT_EQ(of_step("network: \"cont\""), "the plan has no network \"cont\". Did you mean \"count\"?" + in_s);
  EXPECT_EQ(of_step("num_iter: -1"), "num_iter must be at least 0, but is -1" + in_s);
  EXPECT_EQ(of_step("num_iter: 2 should_stop_blob: \"n\""),
            "num_iter and should_stop_blob are both set; a step takes one of them" + in_s);
  EXPECT_EQ(of_step("only_once: false"), "only_once needs should_stop_blob" + in_s);
  EXPECT_EQ(of_step("report_net: \"count\""), "report_net needs report_interval, in seconds" + in_s);
  EXPECT_EQ(of_step("substep { name: \"t\" run_every_ms: 0 }"),
            "run_every_ms must be at least 1, but is 0\n  in  step \"s/t\"");
  EXPECT_EQ(run_error("network { name: \"count\" }"), "plan \"p\" has two networks named \"count\"");
  EXPECT_EQ(run_error("network { }"), "plan \"p\" has a network without a name");
  EXPECT_EQ(of_step("network: \"count\" should_stop_blob: \"n\""),
            "should_stop_blob \"n\" must be one bool, but is int64[]\n  at  step \"s\" of plan \"p\"");
  EXPECT_NE(of_step("network: \"count\" should_stop_blob: \"nn\"").find("\"nn\""), std::string::npos);
}

TEST(Plan, TooManyThreadsAreRefused) {
  EXPECT_EQ(run_error("execution_step { name: \"s\" num_concurrent_instances: 2147483647 "
                      "substep { network: \"count\" } substep { network: \"other\" } }"),
            "the plan asks for 4294967294 threads at a time; the limit is 1024");
}

}  // namespace
}  // namespace stepnet::plan_test
