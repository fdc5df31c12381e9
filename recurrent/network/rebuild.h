// States of LSTMs that a RecurrentNetwork does not keep for its backward pass, but makes once more from the gates that
// are kept anyway: c = f c_prev + i g and h = o tanh(c), elementwise, by the same arithmetic, so that all bits are the
// same. No product runs again.
//
// Such a state has rows for one segment of timesteps alone (recurrent/network/segments.h). Of each segment the rows
// that it starts from are held; before the backward pass goes over the segment, a third step net makes its rows again.
// With segments of some √T timesteps that takes 2√T rows in place of T. The gates stay in one tensor for all timesteps.
// Threads: one run at a time.
#pragma once

#include <set>
#include <string>

#include "recurrent/network/kept.h"

namespace stepnet {

// The names of the states that can be made again, if nobody outside sees more of them than the last row. The network's
// gates must have been activated (recurrent/form/passes.h).
std::set<std::string> rebuilt_states(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net);

// Timesteps of a segment, whole multiples of `unit`; 0 if so many timesteps are too few to save a quarter of the rows.
int64_t rebuilt_segment(int64_t steps, int64_t unit);

// Before a backward pass: compiles the step net that makes the states again, or lets it read the gates that this run
// has kept. `rebuilder_links` are its links.
void prepare_rebuilder(RecurrentScratch& scratch, Workspace& workspace);

}  // namespace stepnet
