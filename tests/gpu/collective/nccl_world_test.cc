// Worlds on GPUs by NCCL against those of the CPU by MPI, on several ranks: every operation and type, nets, the order
// of what is queued, and errors. On the imitated device NCCL is a stand-in (stand_in/nccl.cc), and all ranks have a
// device of their own; on real GPUs there must be one for each rank of a machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "gpu/runtime/stream.h"
#include "recurrent/form/short_form.h"
#include "stepnet/half.h"
#include "tests/gpu/collective/gpu_ranks.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::nccl_world_test {
namespace {

using Nccl = GpuRanksTest;

std::string on_own_gpu(const std::string& ops) {
  return fmt::format("device_option {{ device_type: 1 device_id: {} }} {}", own_gpu().index, ops);
}

World& gpu_world() {
  static auto& world =
      *new WorldPtr(create_gpu_world(own_gpu(), default_world_timeout()));  // outlives CUDA's own objects
  return *world;
}

using Start = std::function<PendingPtr(World&, const Tensor& from, Tensor& to)>;

// What an operation makes of a tensor on the device, brought to the CPU.
Tensor made(World& world, Device device, const Tensor& from, const Shape& shape, const Start& start) {
  Tensor x = on_device(from, device), y = Tensor::zeros(from.dtype(), shape, device);
  start(world, x, y)->wait();
  return on_device(y, {});
}

// Small whole numbers, so that sums have no roundings.
Tensor whole_numbers(DType dtype, int64_t count) {
  Tensor x = Tensor::empty(dtype, {count});
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>((i + 3 * rank()) % 7);
    if (!with_type(dtype, [&](auto zero) { x.data<decltype(zero)>()[i] = static_cast<decltype(zero)>(value); }))
      with_half(dtype, [&](auto zero) { x.data<decltype(zero)>()[i] = decltype(zero)(static_cast<float>(value)); });
  }
  return x;
}

void expect_as_on_the_cpu(const Tensor& x, const Shape& shape, const Start& start, const std::string& what) {
  const Tensor expected = made(*gpu_world().on(Device{}), Device{}, x, shape, start);
  const Tensor got = made(gpu_world(), own_gpu(), x, shape, start);
  ASSERT_EQ(got.bytes(), expected.bytes());
  EXPECT_TRUE(got.bytes() == 0 || std::memcmp(got.raw(), expected.raw(), got.bytes()) == 0)
      << what << " of " << x.str();
}

constexpr int64_t kCounts[] = {0, 1, 2, 5, 1000, 300'000};

TEST_F(Nccl, OperationsMakeWhatMpiMakes) {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int64, DType::int32,
                            DType::int8, DType::uint8})
    for (const int64_t count : kCounts) {
      const Tensor x = whole_numbers(dtype, count), parts = whole_numbers(dtype, count * ranks());
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
        const auto allreduce = [&](World& w, const Tensor& from, Tensor& to) {
          return w.start_allreduce(from.raw(), to.raw(), count, dtype, op);
        };
        expect_as_on_the_cpu(x, {count}, allreduce, "Allreduce");
        const auto scatter = [&](World& w, const Tensor& from, Tensor& to) {
          return w.start_reduce_scatter(from.raw(), to.raw(), count, dtype, op);
        };
        expect_as_on_the_cpu(parts, {count}, scatter, "ReduceScatter");
      }
      const int root = ranks() - 1;
      const auto reduce = [&](World& w, const Tensor& from, Tensor& to) {
        return w.start_reduce(from.raw(), to.raw(), count, dtype, ReduceOp::sum, root);
      };
      expect_as_on_the_cpu(x, {count}, reduce, "Reduce");
    }
}

TEST_F(Nccl, AnyTypeIsMoved) {
  for (const DType dtype : {DType::float32, DType::float16, DType::int64, DType::int16, DType::uint16, DType::boolean})
    for (const int64_t count : kCounts) {
      const Tensor x = whole_numbers(dtype, count);
      const auto gather = [&](World& w, const Tensor& from, Tensor& to) {
        return w.start_allgather(from.raw(), to.raw(), count, dtype);
      };
      expect_as_on_the_cpu(x, {count * ranks()}, gather, "Allgather");
      const auto broadcast = [&](World& w, const Tensor& from, Tensor& to) {
        to.copy_from(from);
        return w.start_broadcast(to.raw(), count, dtype, ranks() - 1);
      };
      expect_as_on_the_cpu(x, {count}, broadcast, "Broadcast");
    }
}

// What the operators make of X and W on the CPU and on the GPU, in worlds of their own.
void expect_same_nets(const std::string& ops, const std::vector<std::string>& outputs, double tol = 1e-13) {
  for (const Shape& shape : {Shape{4, 3}, Shape{8}, Shape{0}, Shape{4, 0}}) {
    std::vector<Tensor> results[2];
    for (const bool on_gpu : {false, true}) {
      Workspace workspace;
      const Device device = on_gpu ? own_gpu() : Device{};
      workspace.tensor("X") = on_device(normal<double>(shape, 1 + static_cast<uint64_t>(rank())), device);
      workspace.tensor("W") = on_device(normal<double>({3}, 20 + static_cast<uint64_t>(rank())), device);
      RunContext run;
      const std::string text =
          fmt::format("op {{ type: 'CreateCommonWorld' output: 'world' {} }} {}", on_gpu ? "engine: 'NCCL'" : "", ops);
      NetDef net = parse_net_text(on_gpu ? on_own_gpu(text) : text);
      expand_recurrent(net);  // and gradients
      run_net_once(net, workspace, run);
      for (const std::string& name : outputs) {
        EXPECT_EQ(workspace.fetch(name).device(), device) << name;
        results[on_gpu ? 1 : 0].push_back(on_device(workspace.fetch(name), {}));
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(compare(results[1][i], results[0][i], tol), "") << outputs[i];
  }
}

TEST_F(Nccl, NetsMakeWhatMpiMakes) {
  expect_same_nets("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' }", {"Y"});
  expect_same_nets(
      "op { type: 'Tanh' input: 'X' output: 'Z' } op { type: 'Allreduce' input: 'world' input: 'Z' output: "
      "'Z' } op { type: 'Sqr' input: 'Z' output: 'Y' }",
      {"Y", "Z"});
  expect_same_nets("op { type: 'Broadcast' input: 'world' input: 'X' input: 'W' output: 'X' output: 'W' }", {"X", "W"});
  expect_same_nets(
      "op { type: 'Broadcast' input: 'world' input: 'X' output: 'Y' } "
      "op { type: 'Reduce' input: 'world' input: 'X' output: 'Z' }",
      {"X", "Y", "Z"});
  expect_same_nets(
      "op { type: 'Allgather' input: 'world' input: 'X' output: 'Y' } "
      "op { type: 'ReduceScatter' input: 'world' input: 'Y' output: 'Z' }",
      {"Y", "Z"});
  expect_same_nets(
      "op { type: 'CloneCommonWorld' input: 'world' output: 'other' } op { type: 'Barrier' input: 'other' } "
      "op { type: 'Allreduce' input: 'other' input: 'W' output: 'Y' }",
      {"Y"});
}

// The block moves on a stream of its own, and what was started has been copied.
TEST_F(Nccl, SumsMoveWhileOthersRun) {
  expect_same_nets(
      "op { type: 'StartAllreduce' input: 'world' input: 'X' input: 'W' output: 'one' } "
      "op { type: 'StartAllreduce' input: 'world' input: 'W' output: 'other' } "
      "op { type: 'Scale' input: 'X' output: 'X' arg { name: 'scale' f: 0 } } "
      "op { type: 'Tanh' input: 'W' output: 'V' } "
      "op { type: 'FinishAllreduce' input: 'one' input: 'X' input: 'W' output: 'one' output: 'X' output: 'Y' } "
      "op { type: 'FinishAllreduce' input: 'other' input: 'W' output: 'other' output: 'Z' }",
      {"X", "Y", "Z", "V"});
}

TEST_F(Nccl, ASumMayMoveInPlace) {
  expect_same_nets(
      "op { type: 'Tanh' input: 'X' output: 'Y' } "
      "op { type: 'StartAllreduce' input: 'world' input: 'Y' output: 's' output: 'Y' } "
      "op { type: 'Tanh' input: 'W' output: 'V' } "
      "op { type: 'FinishAllreduce' input: 's' input: 'Y' output: 's' output: 'Y' } "
      "op { type: 'Scale' input: 'Y' output: 'Z' arg { name: 'scale' f: 0.5 } }",
      {"Y", "Z", "V"});
}

TEST_F(Nccl, GradientsAreThoseOfMpi) {
  expect_same_nets(
      "op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' } "
      "op { type: 'Sqr' input: 'Y' output: 'Z' } op { type: 'SumElements' input: 'Z' output: 'loss' } "
      "op { type: 'Gradients' input: 'loss' input: 'X' output: 'dX' }",
      {"loss", "dX"}, 1e-12);
}

// The host has not waited: what is started comes behind what made its input on the current stream. The stream that
// waits is another one here, so the memory of the input, which is released then, must not be reused before it was read.
TEST_F(Nccl, DataMovesInTheOrderOfStreams) {
  const int64_t count = 1000;
  for (const bool waits_first : {false, true}) {
    const Tensor values = on_device(normal<double>({count}, 5 + static_cast<uint64_t>(rank())), own_gpu());
    Tensor expected = on_device(values, {});
    shared_world().start_allreduce(expected.raw(), expected.raw(), count, DType::float64, ReduceOp::sum)->wait();
    Tensor mine = Tensor::zeros(DType::float64, {count}, own_gpu()),
           sum = Tensor::zeros(DType::float64, {count}, own_gpu());
    allocator(own_gpu()).synchronize();
    gpu::use_device(own_gpu().index);
    gpu::Stream other;
    mine.copy_from(values);
    const PendingPtr pending = gpu_world().start_allreduce(mine.raw(), sum.raw(), count, DType::float64, ReduceOp::sum);
    pending->hold(mine.storage());
    mine = Tensor();
    {
      const gpu::CurrentStream scope(own_gpu().index, other.get());
      pending->wait();
    }
    if (waits_first) other.wait();
    const Tensor next = Tensor::zeros(DType::float64, {count}, own_gpu());
    allocator(own_gpu()).synchronize();
    other.wait();
    EXPECT_EQ(compare(on_device(sum, {}), expected, 1e-13), "") << waits_first;
  }
}

std::string error_on_gpu(const std::string& ops, const Tensor& x) {
  Workspace workspace;
  workspace.tensor("X") = x;
  RunContext run;
  return error_of([&] {
    run_net_once(parse_net_text(on_own_gpu("op { type: 'CreateCommonWorld' output: 'world' engine: 'NCCL' } " + ops)),
                 workspace, run);
  });
}

bool says(const std::string& text, const std::string& what) {
  if (text.find(what) != text.npos) return true;
  ADD_FAILURE() << text << "\n  does not say: " << what;
  return false;
}

TEST_F(Nccl, MistakesAreNamed) {
  const Tensor x = on_device(normal<double>({4}, 1), own_gpu());
  says(error_on_gpu("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' engine: 'MPI' }", x),
       fmt::format("\"X\" is on {}, where the engine \"MPI\" does not move tensors", own_gpu()));
  says(error_on_gpu("op { type: 'Allreduce' input: 'world' input: 'X' input: 'X' output: 'Y' output: 'Z' }", x),
       "of a GPU one tensor is added up");
  says(error_on_gpu("op { type: 'SendTensor' input: 'world' input: 'X' arg { name: 'dst' i: 0 } }", x),
       "tensors of the CPU are sent");
  says(error_on_gpu("op { type: 'Broadcast' input: 'world' input: 'X' output: 'Y' arg { name: 'root' i: 9 } }", x),
       "argument \"root\" is 9");
  const Tensor shorts = on_device(Tensor::of<int16_t>({2}, {1, 2}), own_gpu());
  says(error_on_gpu("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' }", shorts),
       "NCCL does not add up elements of type int16");
  Workspace workspace;
  workspace.tensor("X") = x;
  says(error_of([&] { run_on_world("op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' }", workspace); }),
       fmt::format("\"X\" is on {}, where the common world does not move tensors", own_gpu()));
  EXPECT_EQ(sum_over_ranks(1), ranks());
}

// The world is fine afterwards: nothing was queued.
TEST_F(Nccl, RanksThatDisagreeAreTold) {
  if (ranks() == 1) GTEST_SKIP() << "one rank agrees with itself";
  Tensor x = Tensor::zeros(DType::float32, {8}, own_gpu());
  const int64_t count = rank() == 1 ? 4 : 8;
  const std::string counts =
      error_of([&] { gpu_world().start_allreduce(x.raw(), x.raw(), count, DType::float32, ReduceOp::sum); });
  says(counts, "rank 1: Allreduce of 4 float elements on a GPU");
  says(counts, "Allreduce of 8 float elements on a GPU");
  // Some on the CPU, others on the GPU.
  float value = 1;
  const std::string places = error_of([&] {
    if (rank() == 1)
      gpu_world().on(Device{})->start_allreduce(&value, &value, 1, DType::float32, ReduceOp::sum)->wait();
    else
      gpu_world().start_allreduce(x.raw(), x.raw(), 1, DType::float32, ReduceOp::sum);
  });
  says(places, "rank 1: Allreduce of 1 float elements (operation");
  says(places, "Allreduce of 1 float elements on a GPU");
  gpu_world().start_allreduce(x.raw(), x.raw(), 8, DType::float32, ReduceOp::sum)->wait();
  EXPECT_EQ(compare(on_device(x, {}), Tensor::zeros(DType::float32, {8}), 0), "");
}

// A rank has agreed to an operation that it then does not queue: NCCL waits for ever for it on the others' GPUs, and
// they do not. Which error ended the world does not matter; this one lets the program go on.
TEST_F(Nccl, WhatDoesNotComeIsNotWaitedForAfterAFailure) {
  if (ranks() == 1) GTEST_SKIP() << "one rank waits for nobody";
  WorldPtr world = create_gpu_world(own_gpu(), default_world_timeout());
  Tensor x = Tensor::zeros(DType::float32, {8}, own_gpu());
  PendingPtr pending;
  if (rank() == 1)
    world->on(Device{})->start_agreement(Collective::allreduce, 8, DType::float32, ReduceOp::sum, -1)->wait();
  else
    pending = world->start_allreduce(x.raw(), x.raw(), 8, DType::float32, ReduceOp::sum);
  const int64_t count = rank() == 1 ? 4 : 8;
  says(error_of([&] { world->start_allreduce(x.raw(), x.raw(), count, DType::float32, ReduceOp::sum); }),
       "the ranks of the common world do different things");
  world.reset();
  if (pending) {
    says(error_of([&] { pending->wait(); }), "the common world has failed before");
  }
}

// As where a machine has fewer GPUs than ranks. Nothing is left behind.
TEST_F(Nccl, RanksWithOneGpuAreRefused) {
  if (!std::getenv("STEPNET_EMULATED_GPUS")) GTEST_SKIP() << "these GPUs are not imitated";
  if (ranks() == 1) GTEST_SKIP() << "there is one rank";
  setenv("STEPNET_EMULATED_SHARED", "1", 1);
  const std::string refusal = error_of([] { create_gpu_world({DeviceKind::cuda, 0}, default_world_timeout()); });
  unsetenv("STEPNET_EMULATED_SHARED");
  says(refusal, "ranks 0 and 1 have the same GPU, but each needs one of its own");
  EXPECT_EQ(sum_over_ranks(1), ranks());
}

TEST(NcclMissing, SaysWhatToInstall) {
  if (has_nccl()) GTEST_SKIP() << "this machine has NCCL";
  says(error_of([] { create_gpu_world(own_gpu(), Seconds(5)); }), "NCCL cannot be loaded: libnccl.so.2");
}

}  // namespace
}  // namespace stepnet::testing::nccl_world_test
