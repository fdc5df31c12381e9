// What the figures were measured with. Threads: pure functions.
#pragma once

#include <string>

namespace stepnet::bench {

// One line: the device's name, the driver, and the versions of CUDA's libraries, as far as they are here.
std::string machine_line();

}  // namespace stepnet::bench
