// Writing blobs to a database, as the operator Save and the command do it.
//
// A database is written aside and renamed when it is whole, so a save that fails leaves nothing behind.
// Threads: pure functions.
#pragma once

#include <span>
#include <string>

#include "core/io/file_place.h"
#include "core/tensor/workspace.h"

namespace stepnet {

struct NamedBlob {
  std::string name;  // in the database
  const Blob* blob = nullptr;
};

// Throws Error: the target exists (lmdb), the folder is not writable, two blobs of one name, a blob that cannot be
// saved.
void save_blobs(const std::string& db_type, const FilePlace& place, std::span<const NamedBlob> blobs);

// The name after the first place where it contains `prefix`; the whole name if it does not.
std::string strip_prefix(const std::string& name, const std::string& prefix);

}  // namespace stepnet
