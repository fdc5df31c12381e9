// A library to be preloaded (LD_PRELOAD) that makes MPI as slow as a network would: what operators/collective/
// mpi_world.cc starts is not over before the network had brought it. It is told by the environment:
//
//   STEPNET_DELAYS  "L B": the latency of a message in microseconds, and 10^9 bytes per second; without it, no delays
//
// A process has one connection, which takes one operation after the other, in the order in which they are started; what
// an operation takes is what the scaling plan says (recurrent/distributed/scaling_plan.h). Nobody waits here: an
// operation that is not due is left out of what is tested, and the caller pauses as it does while real data moves. It
// is this process's start that counts, so what waits for a later rank is over too early by as much.
//
// Threads: for the one thread that calls MPI. Errors: a text that is no pair of numbers ends the process.
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "recurrent/distributed/scaling_plan.h"

namespace {

using Clock = std::chrono::steady_clock;
using stepnet::AllreduceAlgorithm;
using stepnet::ScalingNetwork;

struct Delays {
  bool on = false;
  ScalingNetwork network;
  Clock::time_point free;  // when the connection has brought all that has been started
  std::map<MPI_Request, Clock::time_point> due;
};

Delays& delays() {
  static Delays all = [] {
    Delays made;
    const char* text = std::getenv("STEPNET_DELAYS");
    if (!text) return made;
    double microseconds = 0, gigabytes = 0;
    if (std::sscanf(text, "%lf %lf", &microseconds, &gigabytes) != 2 || microseconds < 0 || gigabytes <= 0) {
      std::fprintf(stderr, "STEPNET_DELAYS must be a latency in us and a bandwidth in GB/s, but is \"%s\"\n", text);
      std::_Exit(1);
    }
    made.on = true;
    made.network = {.bandwidth = gigabytes * 1e9, .latency = microseconds * 1e-6};
    return made;
  }();
  return all;
}

Clock::duration ticks(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

int ranks_of(MPI_Comm comm) {
  int ranks = 1;
  PMPI_Comm_size(comm, &ranks);
  return ranks;
}

double bytes_of(int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<double>(count) * size;
}

// Of as many rounds as it takes until everybody has heard of something.
double rounds_of(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

// What has been started takes so long once the connection is free.
int queue(int code, MPI_Request request, double seconds) {
  Delays& all = delays();
  if (!all.on || code != MPI_SUCCESS) return code;
  all.free = std::max(all.free, Clock::now()) + ticks(seconds);
  all.due[request] = all.free;
  return code;
}

double seconds_of_message(double bytes) {
  return delays().network.latency + bytes / std::max(delays().network.bandwidth, 1.0);
}

// MPI goes on with what is open, although none of it may be seen.
void make_progress() {
  int any = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &any, MPI_STATUS_IGNORE);
}

}  // namespace

extern "C" {

int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  const int code = PMPI_Iallreduce(from, to, count, type, op, comm, request);
  const auto bytes = static_cast<int64_t>(bytes_of(count, type));
  const auto takes = [&](AllreduceAlgorithm algorithm) {
    return delays().on ? stepnet::allreduce_seconds(algorithm, bytes, ranks_of(comm), delays().network) : 0;
  };
  return queue(code, *request, std::min(takes(AllreduceAlgorithm::ring), takes(AllreduceAlgorithm::doubling)));
}

// Small ones, such as the headers of operations, go beside others.
int MPI_Iallgather(const void* from, int count, MPI_Datatype type, void* to, int received, MPI_Datatype received_type,
                   MPI_Comm comm, MPI_Request* request) {
  const int code = PMPI_Iallgather(from, count, type, to, received, received_type, comm, request);
  if (!delays().on || code != MPI_SUCCESS) return code;
  constexpr double kSmall = 64;
  const int ranks = ranks_of(comm);
  const double bytes = bytes_of(count, type);
  const double seconds = rounds_of(ranks) * delays().network.latency + bytes * (ranks - 1) / delays().network.bandwidth;
  if (bytes > kSmall) return queue(code, *request, seconds);
  delays().due[*request] = Clock::now() + ticks(seconds);
  return code;
}

int MPI_Iallgatherv(const void* from, int count, MPI_Datatype type, void* to, const int* received, const int* offsets,
                    MPI_Datatype received_type, MPI_Comm comm, MPI_Request* request) {
  const int code = PMPI_Iallgatherv(from, count, type, to, received, offsets, received_type, comm, request);
  if (!delays().on || code != MPI_SUCCESS) return code;
  const int ranks = ranks_of(comm);
  double bytes = 0;
  for (int r = 0; r < ranks; ++r) bytes += bytes_of(received[r], received_type);
  bytes -= bytes_of(count, type);
  return queue(code, *request, rounds_of(ranks) * delays().network.latency + bytes / delays().network.bandwidth);
}

int MPI_Ireduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request* request) {
  const int code = PMPI_Ireduce(from, to, count, type, op, root, comm, request);
  return queue(code, *request, rounds_of(ranks_of(comm)) * seconds_of_message(bytes_of(count, type)));
}

int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  const int code = PMPI_Ibcast(data, count, type, root, comm, request);
  return queue(code, *request, rounds_of(ranks_of(comm)) * seconds_of_message(bytes_of(count, type)));
}

int MPI_Ireduce_scatter_block(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
  const int code = PMPI_Ireduce_scatter_block(from, to, count, type, op, comm, request);
  return queue(code, *request, (ranks_of(comm) - 1) * seconds_of_message(bytes_of(count, type)));
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const int code = PMPI_Isend(data, count, type, to, tag, comm, request);
  return queue(code, *request, seconds_of_message(bytes_of(count, type)));
}

// Tests those that are due.
int MPI_Testsome(int count, MPI_Request* requests, int* over, int* indices, MPI_Status* statuses) {
  Delays& all = delays();
  if (!all.on) return PMPI_Testsome(count, requests, over, indices, statuses);
  const Clock::time_point now = Clock::now();
  std::vector<MPI_Request> open;
  std::vector<int> places;
  for (int i = 0; i < count; ++i) {
    const auto found = all.due.find(requests[i]);
    if (found != all.due.end() && found->second > now) continue;
    open.push_back(requests[i]);
    places.push_back(i);
  }
  *over = 0;
  if (open.size() < static_cast<size_t>(count)) make_progress();
  if (open.empty()) return MPI_SUCCESS;
  const int code = PMPI_Testsome(static_cast<int>(open.size()), open.data(), over, indices, statuses);
  if (*over == MPI_UNDEFINED) return code;
  for (int k = 0; k < *over; ++k) {
    const auto place = static_cast<size_t>(indices[k]);
    indices[k] = places[place];
    all.due.erase(requests[indices[k]]);
    requests[indices[k]] = open[place];
  }
  return code;
}

}  // extern "C"
