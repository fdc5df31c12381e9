// Slices of a tensor along one axis by index: gathered, or changed one after the other. Equal indices count in their
// order, so that sums have one order, and the last of what is assigned stays. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/copy_elements.h"
#include "gpu/loops/scalar.h"
#include "operators/loops/one_axis.h"

namespace stepnet::gpu {

// to[o, k, :] = table[o, indices[k], :], where `lines` is the table's shape; zeros for a bad index.
template <class Unit>
void gather_slices(const Call& call, const Indices& indices, const OneAxis& lines, const Unit* table, Unit* to) {
  const Bounds bounds = gpu::bounds(call, "an index");
  const size_t count = static_cast<size_t>(indices.size), inner = static_cast<size_t>(lines.inner);
  const int64_t size = lines.size;
  const Divider rows(inner), tables(count);
  each(call, static_cast<size_t>(lines.outer) * count * inner, [=] __device__(size_t i) {
    const auto [slice, column] = rows.split(i);
    const auto [outer, place] = tables.split(slice);
    const int64_t index = indices[place];
    if (bounds.inside(index, size))
      to[i] = table[(outer * static_cast<size_t>(size) + static_cast<size_t>(index)) * inner + column];
    else
      to[i] = Unit{};
  });
}

// The same of elements of any type.
inline void gather_slices(const Call& call, const Indices& indices, OneAxis lines, const Tensor& table, Tensor& to) {
  const std::byte* from = bytes_of(table);
  std::byte* target = bytes_of(to);
  const size_t bytes = width_of(table, lines.inner);
  with_unit(bytes | address(from) | address(target), [&](auto unit) {
    using Unit = decltype(unit);
    lines.inner = static_cast<int64_t>(bytes / sizeof(Unit));
    gather_slices(call, indices, lines, reinterpret_cast<const Unit*>(from), reinterpret_cast<Unit*>(target));
  });
}

// How each_indexed shares its work. A team takes `columns` neighbours of a slice, and of the table's rows those that
// hash to its part; `lanes` of its threads share these if a slice has fewer elements than the team threads. All three
// are powers of two.
struct IndexedTeams {
  unsigned columns = 1, lanes = 1;
  size_t parts = 1, tiles = 1;

  IndexedTeams(const OneAxis& lines, int64_t count) {
    constexpr size_t kEnough = 512;  // teams that keep a device busy
    const size_t inner = static_cast<size_t>(lines.inner), owners = static_cast<size_t>(std::min(lines.size, count));
    while (columns < kTeam && columns < inner) columns *= 2;
    lanes = kTeam / columns;
    tiles = (inner + columns - 1) / columns;
    while (parts * lanes < owners && parts * tiles * static_cast<size_t>(lines.outer) < kEnough) parts *= 2;
  }
};

// Calls fn(place in the table, place in the slices) for each element of slice k, which is for the table's slice
// indices[k]; those of one place in the table in the order of k, on one thread. Bad indices are left out.
//
// All teams read all indices, a team's size of them at once, and keep their own.
template <class Fn>
void each_indexed(const Call& call, const Indices& indices, const OneAxis& lines, Fn fn) {
  if (indices.size == 0 || lines.lines() == 0) return;
  const IndexedTeams teams(lines, indices.size);
  const Bounds bounds = gpu::bounds(call, "an index");
  const size_t count = static_cast<size_t>(indices.size), inner = static_cast<size_t>(lines.inner);
  const int64_t size = lines.size;
  const size_t all = static_cast<size_t>(lines.outer) * teams.tiles * teams.parts;
  each_team(call, all, [=] __device__(size_t at, const Team& team) {
    const size_t part = at % teams.parts, tile = at / teams.parts % teams.tiles, o = at / teams.parts / teams.tiles;
    const size_t column = tile * teams.columns + team.thread % teams.columns, lane = team.thread / teams.columns;
    int64_t* const own = reinterpret_cast<int64_t*>(team.room);
    for (size_t first = 0; first < count; first += team.size) {
      team.sync();
      int64_t index = -1;
      if (first + team.thread < count) {
        index = indices[first + team.thread];
        const bool good = bounds.inside(index, size);
        if (!good || (static_cast<size_t>(index) / teams.lanes & (teams.parts - 1)) != part) index = -1;
      }
      own[team.thread] = index;
      team.sync();
      const size_t here = count - first < team.size ? count - first : team.size;
      for (size_t k = 0; k < here && column < inner; ++k)
        if (own[k] >= 0 && (static_cast<size_t>(own[k]) & (teams.lanes - 1)) == lane)
          fn((o * static_cast<size_t>(size) + static_cast<size_t>(own[k])) * inner + column,
             (o * count + first + k) * inner + column);
    }
  });
}

// table[o, indices[k], :] += slices[o, k, :]
template <class T>
void add_slices(const Call& call, const Indices& indices, const OneAxis& lines, const T* slices, T* table) {
  each_indexed(call, indices, lines, [=] __device__(size_t to, size_t from) { table[to] += slices[from]; });
}

}  // namespace stepnet::gpu
