// CreateCommonWorld, CloneCommonWorld, DestroyCommonWorld and Barrier: the world that the other operators of this
// folder work in, and waiting for all of its ranks. No derivatives: there are no tensors.

#include "operators/collective/collective_call.h"
#include "stepnet/bound_op.h"

namespace stepnet::cpu_common_world {
namespace {

using collective::check_engine;
using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::on_world;
using collective::wait_for;
using collective::world_of;

struct WorldArgs {
  std::optional<int64_t> size, rank, timeout_sec;
};

Seconds timeout_of(const std::optional<int64_t>& given) {
  return given ? Seconds(static_cast<double>(*given)) : default_world_timeout();
}

void check_place_of(const WorldArgs& a, const World& world) {
  const char* fix = "start as many processes with mpirun -n, or leave the arguments size and rank out";
  if (a.size && *a.size != world.size())
    throw Error(fmt::format("argument \"size\" is {}, but {} process{} been started together", *a.size, world.size(),
                            world.size() == 1 ? " has" : "es have"),
                fix);
  if (a.rank && *a.rank != world.rank())
    throw Error(
        fmt::format("argument \"rank\" is {}, but this is process {} of {}", *a.rank, world.rank(), world.size()), fix);
}

bool is_for_gpu(const BlobCall& c) {
  if (c.def.engine() != "NCCL") return false;
  if (device_of(c.def, c.net).kind == DeviceKind::cpu)
    throw Error("the engine is \"NCCL\", but the operator is to run on the CPU",
                "name the GPU: device_option { device_type: 1 cuda_gpu_id: 0 }");
  return true;
}

void create(const WorldArgs& a, BlobCall& c) {
  check_engine(c.def);
  if (is_dry()) {
    c.out[0]->emplace<WorldPtr>(create_local_world(static_cast<int>(a.size.value_or(claimed_world_size()))));
    return;
  }
  WorldPtr world = is_for_gpu(c) ? create_gpu_world(device_of(c.def, c.net), timeout_of(a.timeout_sec))
                                 : create_world(timeout_of(a.timeout_sec));
  check_place_of(a, *world);
  c.out[0]->emplace<WorldPtr>(std::move(world));
}

void clone(const WorldArgs& a, BlobCall& c) {
  World& world = world_of(c);
  WorldPtr made = world.clone(a.timeout_sec ? timeout_of(a.timeout_sec) : world.timeout());
  c.out[0]->emplace<WorldPtr>(std::move(made));
}

void destroy(const NoArgs&, BlobCall& c) { c.out[0]->clear(); }

void barrier(const NoArgs&, BlobCall& c) {
  World& world = world_of(c);
  if (!is_dry()) wait_for(world.start_barrier(), {});
}

constexpr int64_t kMostRanks = 1 << 20;
const char* const kTimeoutDoc =
    "how many seconds an operator on this world waits for other ranks before it fails; else the environment's "
    "STEPNET_TIMEOUT_SEC, or 300";

ArgCheck<std::optional<int64_t>> from_to(int64_t low, int64_t high) {
  return [low, high](const std::optional<int64_t>& v) {
    return *v >= low && *v <= high ? std::string() : fmt::format("must be from {} to {}", low, high);
  };
}

template <class Builder>
Builder& accept_connections(Builder& builder) {
  for (const char* name : {"transport", "interface", "mpi_rendezvous", "sync"})
    builder.accepts(name, "how ranks are connected is said to mpirun");
  return builder;
}

REGISTER(create_common_world) {
  auto builder = op<WorldArgs>("CreateCommonWorld");
  builder
      .doc(
          "Makes a common world of all processes that mpirun has started together; each of them must run it. A process "
          "that was started alone is a world of one rank. Rank and size are those of MPI. With engine NCCL and a "
          "device_option, the world is for tensors of that GPU, too.")
      .arg("size", &WorldArgs::size, std::optional<int64_t>{}, "if given, how many ranks there must be",
           from_to(1, kMostRanks))
      .arg("rank", &WorldArgs::rank, std::optional<int64_t>{}, "if given, which rank this process must be",
           from_to(0, kMostRanks))
      .arg("timeout_sec", &WorldArgs::timeout_sec, std::optional<int64_t>{}, kTimeoutDoc, from_to(1, 1 << 30))
      .own_args({"timeout_sec"})
      .accepts("timeout_ms", "timeout_sec says how long an operator waits");
  accept_connections(builder)
      .input("kv_handler", "not looked at: ranks find each other by mpirun")
      .object()
      .optional()
      .output("comm_world", "the common world")
      .object()
      .blobs(create)
      .runs_dry()
      .example_net("op { type: 'CreateCommonWorld' output: 'world' arg { name: 'size' i: 1 } }");
  return finish_declaring(builder).stop_gradient();
}

REGISTER(clone_common_world) {
  auto builder = op<WorldArgs>("CloneCommonWorld");
  builder
      .doc(
          "Makes another common world of the ranks of one; each of them must run it. Operators on different worlds do "
          "not wait for each other.")
      .arg("timeout_sec", &WorldArgs::timeout_sec, std::optional<int64_t>{}, "that of the existing world, unless given",
           from_to(1, 1 << 30))
      .own_args({"timeout_sec"});
  accept_connections(builder)
      .input("existing_comm_world", "a common world")
      .object()
      .output("comm_world", "another one")
      .object()
      .blobs(clone)
      .runs_dry()
      .example_net(on_world("type: 'CloneCommonWorld' output: 'other'"));
  return finish_declaring(builder).stop_gradient();
}

REGISTER(destroy_common_world) {
  return op("DestroyCommonWorld")
      .doc("Empties a blob that holds a common world. What is left open at the end of the program is closed then.")
      .input("common_world", "a common world, or nothing")
      .object()
      .output("common_world", "the same blob")
      .object()
      .must_be_in_place("common_world", "common_world")
      .blobs(destroy)
      .runs_dry()
      .side_effect()
      .stop_gradient()
      .example_net(on_world("type: 'DestroyCommonWorld' output: 'world'"));
}

REGISTER(barrier) {
  auto builder = op("Barrier");
  declare(builder.doc("Waits until all ranks have come to it."))
      .blobs(barrier)
      .runs_dry()
      .example_net(on_world("type: 'Barrier'"));
  return finish_declaring(builder).stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_common_world
