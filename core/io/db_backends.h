// The functions that open each type of database; callers use open_db in core/io/db.h.
#pragma once

#include <memory>
#include <string>

#include "core/io/db.h"

namespace stepnet {

std::unique_ptr<Db> open_minidb(const std::string& path, DbMode mode);
std::unique_ptr<Db> open_lmdb(const std::string& path, DbMode mode);

}  // namespace stepnet
