// Deterministic mutations of seeds, for the suite, where no coverage guides them.
//
// Threads: pure functions of their arguments.
#pragma once

#include <random>
#include <span>
#include <string>

#include "tests/fuzz/seeds.h"

namespace stepnet::testing {

// One of the seeds with up to four changes: bytes, bits and numbers of any width set to awkward values, parts cut out,
// doubled, moved, or taken from another seed; in texts also words and numbers.
std::string mutated(std::span<const Seed> seeds, std::mt19937_64& random);

}  // namespace stepnet::testing
