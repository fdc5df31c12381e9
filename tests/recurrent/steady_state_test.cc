// What a training step of a net that has run before does beside its arithmetic: it allocates no tensor, and neither
// allocates on the heap nor looks a name up for a timestep.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/compute/threads.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "tests/core/heap_counter.h"
#include "tests/recurrent/cell_files.h"

namespace stepnet::testing::steady_state_test {
namespace {

struct Work {
  int64_t tensors = 0, heap = 0, lookups = 0;
  int64_t blobs = 0;  // of the net: how often its operators name one
  Work operator-(const Work& w) const {
    return {tensors - w.tensors, heap - w.heap, lookups - w.lookups, blobs - w.blobs};
  }
};

Work now() { return {allocator({}).counters().allocations, heap_allocations(), name_lookups(), 0}; }

// Of training steps of so many timesteps, without the first.
std::vector<Work> work_of(const CellFile& file, int64_t steps, int64_t batch, DType dtype) {
  NetDef net = cell_net(file.name);
  expand_recurrent(net);
  const Feeds feeds = cell_feeds(
      file.name, dtype, {{'T', steps}, {'B', batch}, {'I', 6}, {'H', 8}, {'S', 5}, {'P', 4}, {'D', 2}, {'A', 3}});
  GradientRequest request;
  for (const auto& [name, value] : feeds)
    if (value.dtype() == dtype) request.wanted.insert(name);
  Workspace workspace;
  const auto blobs = run_forward(net, feeds);
  for (const std::string& output :
       std::vector<std::string>{net.external_output().begin(), net.external_output().end()}) {
    request.targets.emplace_back(output, output + "_given");
    workspace.tensor(output + "_given") = Tensor::zeros(dtype, blobs.at(output).shape());
    net.add_external_input(output + "_given");
  }
  add_gradient_operators(net, request);
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
  Net bound(net, workspace);
  std::vector<Work> all;
  for (int i = 0; i < 7; ++i) {
    RunContext run;
    const Work before = now();
    bound.run(run);
    all.push_back(now() - before);
    for (const OperatorDef& op : net.op()) all.back().blobs += op.input_size() + op.output_size();
  }
  all.erase(all.begin());
  return all;
}

// The least of each: a thread that takes part for the first time makes things of its own, in whatever run that is.
Work least(const std::vector<Work>& all) {
  Work result = all[0];
  for (const Work& w : all)
    result = {std::min(result.tensors, w.tensors), std::min(result.heap, w.heap), std::min(result.lookups, w.lookups),
              w.blobs};
  return result;
}

class SteadyState : public ::testing::TestWithParam<CellFile> {
 protected:
  static void check(int64_t batch) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      SCOPED_TRACE(dtype_name(dtype));
      const Work few = least(work_of(GetParam(), 20, batch, dtype)),
                 many = least(work_of(GetParam(), 200, batch, dtype));
      EXPECT_EQ(few.tensors, 0);
      EXPECT_EQ(many.tensors, 0);
      EXPECT_EQ(few.heap, many.heap);
      EXPECT_EQ(few.lookups, many.lookups);
      EXPECT_LT(few.lookups, 3 * few.blobs);  // some for each link and parameter of each network
    }
  }
};

TEST(HeapCounter, Counts) {
  if (!counts_heap()) GTEST_SKIP() << "a sanitizer has its own operator new";
  const int64_t before = heap_allocations();
  const auto text = std::make_unique<std::string>(100, 'x');
  EXPECT_EQ(heap_allocations() - before, 2);
}

TEST_P(SteadyState, AllocatesNoTensors) {
  const SerialScope serial;
  for (const int64_t steps : {1, 20})
    for (const Work& w : work_of(GetParam(), steps, 4, DType::float32)) EXPECT_EQ(w.tensors, 0) << steps;
}

TEST_P(SteadyState, DoesNothingElseInTimesteps) {
  const SerialScope serial;
  check(4);
}

TEST_P(SteadyState, DoesNothingElseInTimestepsOfLanes) {
  const int before = threads();
  set_threads(2);
  check(8);
  set_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Files, SteadyState, ::testing::ValuesIn(cell_files()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::steady_state_test
