// One result of all elements of a large tensor, such as a sum: many teams take a part each, and one team the results of
// these. The order is always the same. Threads: as gpu/launch.h.
#pragma once

#include "gpu/launch.h"

namespace stepnet::gpu {

constexpr size_t kTotalTeams = 1024;              // at most
constexpr size_t kTotalPart = size_t{kTeam} * 8;  // elements that are worth a team

// store(op over value(i) for all i < count, from `first`), which stands for op's neutral element.
template <class T, class Value, class Op, class Store>
void total(const Call& call, size_t count, T first, Value value, Op op, Store store) {
  const size_t teams = std::min((count + kTotalPart - 1) / kTotalPart, kTotalTeams);
  auto whole = [=] __device__(size_t, size_t, T result) { store(result); };
  if (teams <= 1) {
    auto element = [=] __device__(size_t, size_t i, size_t) { return value(i); };
    reduce_axis(call, {1, static_cast<int64_t>(count), 1}, first, element, op, whole);
    return;
  }
  Tensor parts = Tensor::empty(DType::uint8, Shape{static_cast<int64_t>(teams * sizeof(T))}, place_of(call));
  T* const part = reinterpret_cast<T*>(parts.raw());
  each_team(call, teams, [=] __device__(size_t t, const Team& team) {
    T partial = first;
    for (size_t i = t * kTeam + team.thread; i < count; i += teams * kTeam) partial = op(partial, value(i));
    partial = team.reduce(partial, op);
    if (team.thread == 0) part[t] = partial;
  });
  auto of_part = [=] __device__(size_t, size_t t, size_t) { return part[t]; };
  reduce_axis(call, {1, static_cast<int64_t>(teams), 1}, first, of_part, op, whole);
}

}  // namespace stepnet::gpu
