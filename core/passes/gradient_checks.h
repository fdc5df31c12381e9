// Whether the gradient of an operator can be computed from what the blobs of its net hold when the net has run.
//
// Every check throws Error: what has been overwritten, by which operator, and what would be right.
// Threads: pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/net/dataflow.h"

namespace stepnet {

// That no output in place has destroyed what the operator's rules say a wanted gradient is computed from.
void check_in_place(const BoundOp& op, const std::vector<bool>& wanted);

// That the operator reads no blob with a wanted gradient whose storage was written anew under another name.
void check_shared(const BoundNet& net, int op, const std::vector<bool>& wanted);

// That what the gradient's program reads is still there: values as they were, and where it reads a shape alone, blobs
// that nothing has given another. `kept` gets the names of the values.
void check_versions(const BoundNet& net, int op, const GradientProgram& program, std::set<std::string>& kept);

// That the blob still holds that value when the net has run.
void check_value(const BoundNet& net, const std::string& name, int value);

// Whether the program reads the shape alone of an input to whose blob something may have given another since. No error.
bool reads_lost_shape(const BoundNet& net, int op, const GradientProgram& program);

// For a message: by which operators the value of a target depends on a wanted one, and at which of them derivatives
// end.
// "" if none depends on any.
std::string where_derivatives_end(const BoundNet& net, const std::set<int>& wanted, const std::set<int>& targets);

}  // namespace stepnet
