// What nets do with a database: walk over it, load blobs from it, read training data from it, add to it.
//
// Threads: one harness at a time.
#pragma once

#include <string>

namespace stepnet::testing {

// Each of these may be refused. `name`: of the database in the harnesses' folder.
void use_database(const std::string& type, const std::string& name);

}  // namespace stepnet::testing
