// The page on compatibility: what is done with every argument of every operator of the public format that is there,
// from the registrations.
//
// Threads: pure functions.
#pragma once

#include <string>

namespace stepnet::tools {

std::string compatibility_page();

}  // namespace stepnet::tools
