// The state before the first timestep, or after the last, of operators on rows of timesteps.
// Threads: pure functions.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

// Returns the shape of one state, [1, ...], of rows [T, ...]; throws Error if there are none, or input `first` is no
// state of them. `name`: what the rows are called.
inline Shape one_state(const ShapeCall& c, int first, const char* name, const Shape& rows) {
  require(rows.rank() > 0, "{} must be [T, ...], a row for each timestep, but has no dimension", name);
  Shape state{1};
  for (int d = 1; d < rows.rank(); ++d) state.push_back(rows[d]);
  if (c.known(first))
    require(c.shape(first) == state, "first must be {}, one timestep of {} {}, but is {}", state, name, rows,
            c.shape(first));
  return state;
}

}  // namespace stepnet
