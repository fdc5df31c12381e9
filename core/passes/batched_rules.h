// How operators are rewritten that run for many rows at once (core/passes/batched_rows.h): by their type, and by what
// their registrations say.
//
// Threads: pure functions.
#pragma once

#include "core/passes/batched_rows.h"
#include "stepnet/bound_op.h"

namespace stepnet {

// Appends what the operator becomes. False, and nothing is appended, if there is no rule for it or not enough is known.
// An input whose value it reads has rows; those whose values it does not read have none.
bool rewrite_for_rows(RowBatch& batch, const BoundOp& op);

}  // namespace stepnet
