// Values of blobs as people read them, for --fetch and --watch.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "core/tensor/workspace.h"

namespace stepnet::tools {

// "loss = 0.5" for one element; else name, type and all rows, or a summary if there are more than 100 elements.
std::string blob_text(const std::string& name, const Blob& blob);
// One line: the value of one element, else the smallest, mean and largest.
std::string blob_summary(const std::string& name, const Blob& blob);

}  // namespace stepnet::tools
