// What sampling and resuming read from a checkpoint, and checksums that are right whatever else is wrong.
//
// Threads: one harness at a time.
#pragma once

#include <string>
#include <string_view>

#include "stepnet/checkpoint.h"

namespace stepnet::testing {

// A file of the format with the checksums, and the count of records at its end, that its other bytes ask for: without,
// no mutation gets past the first check.
std::string with_checksums(std::string_view file);

// Each fact may be refused.
void read_facts(const Checkpoint& checkpoint);

}  // namespace stepnet::testing
