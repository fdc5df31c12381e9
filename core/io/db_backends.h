// The functions that open each type of database; callers use open_db in core/io/db.h.
#pragma once

#include <memory>

#include "core/io/db.h"

namespace stepnet {

std::unique_ptr<Db> open_minidb(const FilePlace& place, DbMode mode);
std::unique_ptr<Db> open_lmdb(const FilePlace& place, DbMode mode);

}  // namespace stepnet
