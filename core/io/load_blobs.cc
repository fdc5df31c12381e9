// See the header.
#include "core/io/load_blobs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/io/save_blobs.h"

namespace stepnet {
namespace {

constexpr size_t kNamesInMessages = 100;

}  // namespace

void BlobLoader::want(const std::string& name, Blob& blob) {
  Item& item = items_[name];
  require(!item.wanted, "the blob \"{}\" is to be loaded twice", name);
  item.blob = &blob;
  item.wanted = true;
  ++wanted_;
}

BlobLoader::Item* BlobLoader::find(const std::string& name) {
  if (const auto it = items_.find(name); it != items_.end()) return &it->second;
  if (!options_.all) {
    if (ignored_.size() < kNamesInMessages) ignored_.insert(name);
    return nullptr;
  }
  require(!name.empty(), "a record has no blob's name");
  Item& item = items_[name];
  item.blob = &workspace_.create(name);
  return &item;
}

void BlobLoader::read(DbCursor& cursor, uint64_t bytes, const std::string& source) {
  const int index = static_cast<int>(sources_.size());
  sources_.push_back(source);
  // Every element takes a byte on disk at least.
  auto element_budget = static_cast<int64_t>(bytes);
  while (cursor.valid() && !all_wanted_complete()) {
    const std::string stored(blob_name_of_key(cursor.key()));
    try {
      const std::string name = options_.add_prefix + strip_prefix(stored, options_.strip_prefix);
      if (Item* item = find(name)) {
        if (item->source < 0) item->source = index;
        require(item->source == index, "it is also in {}", sources_[static_cast<size_t>(item->source)]);
        take(*item, cursor.value(), element_budget);
      }
    } catch (Error& e) {
      e.prefix(fmt::format("blob \"{}\" in {}", stored, source));
      throw;
    }
    if (!all_wanted_complete()) cursor.next();
  }
}

void BlobLoader::take(Item& item, std::string_view value, int64_t& element_budget) {
  item.assembler.add(parse_blob_proto(value), element_budget, workspace_.file_root());
  if (!item.assembler.complete()) return;
  item.assembler.move_into(*item.blob, options_.keep_device ? item.assembler.recorded_device() : options_.device);
  if (item.wanted) ++complete_wanted_;
}

void BlobLoader::read_all(const std::string& db_type, const FilePlace& place) {
  const auto db = open_db(db_type, place, DbMode::read);
  const auto cursor = db->cursor();
  read(*cursor, db->bytes(), place.str());
}

void BlobLoader::finish() const {
  std::vector<std::string> missing;
  for (const auto& [name, item] : items_) {
    if (item.assembler.complete()) continue;
    require(item.source < 0, "blob \"{}\" in {} is incomplete: {} are there", name,
            item.source < 0 ? "" : sources_[static_cast<size_t>(item.source)], item.assembler.progress());
    missing.push_back(name);
  }
  if (missing.empty() || options_.allow_incomplete) return;
  const std::string hint = suggest(missing[0], {ignored_.begin(), ignored_.end()});
  const size_t count = missing.size();
  if (count > 3) missing.resize(3);
  throw Error(fmt::format("{} of {} blobs are not in {}: {}{}.{}", count, wanted_, fmt::join(sources_, ", "),
                          fmt::join(missing, ", "), count > 3 ? ", ..." : "", hint),
              "save them, or set allow_incomplete to 1");
}

}  // namespace stepnet
