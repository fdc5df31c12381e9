#include "core/io/temporary_folder.h"

#include <stdlib.h>

#include <filesystem>

#include "core/error.h"

namespace stepnet {

TemporaryFolder::TemporaryFolder() {
  const std::filesystem::path parent = std::filesystem::temp_directory_path();
  path_ = (parent / "stepnet-XXXXXX").string();
  require(mkdtemp(path_.data()) != nullptr, "no folder for files can be made in {}", parent.string());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace stepnet
