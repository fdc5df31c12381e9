// See the header.
#include "tests/fuzz/database.h"

#include <fmt/format.h>

#include <optional>

#include "core/io/blob_db.h"
#include "core/io/db.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {
namespace {

// The number of records; reads every byte of them.
int64_t walk(DbCursor& cursor) {
  int64_t records = 0;
  uint64_t sum = 0;
  for (; cursor.valid(); cursor.next(), ++records) {
    for (const char c : cursor.key()) sum += static_cast<unsigned char>(c);
    for (const char c : cursor.value()) sum += static_cast<unsigned char>(c);
  }
  volatile uint64_t keep = sum;  // so that nothing is left out
  (void)keep;
  return records;
}

int64_t count_records(const std::string& type, const FilePlace& place) {
  const auto db = open_db(type, place, DbMode::read);
  const auto cursor = db->cursor();
  const int64_t records = walk(*cursor);
  cursor->seek_to_first();
  must(walk(*cursor) == records, "a second walk over a database finds the same records");
  if (cursor->supports_seek())
    for (const char* key : {"", "a", "blob#%0", "zzz"}) {
      cursor->seek(key);
      must(!cursor->valid() || cursor->key() >= key, "a search ends at its key or behind it");
    }
  return records;
}

void load_all(const std::string& type, const FilePlace& place) {
  Workspace workspace;
  workspace.confine(fuzz_root());
  BlobLoader loader(workspace, {.all = true});
  loader.read_all(type, place);
  loader.finish();
}

// By the operators of the public format, two tensors to a record.
void read_inputs(const std::string& type, const std::string& name) {
  const NetDef net = parse_net_text(fmt::format(
      "op {{ type: 'CreateDB' output: 'db' arg {{ name: 'db_type' s: '{}' }} arg {{ name: 'db' s: '{}' }} "
      "arg {{ name: 'num_shards' i: 2 }} arg {{ name: 'shard_id' i: 1 }} }} "
      "op {{ type: 'TensorProtosDBInput' input: 'db' output: 'data' output: 'target' }} "
      "op {{ type: 'TensorProtosDBInput' input: 'db' output: 'x' output: 'y' arg {{ name: 'batch_size' i: 3 }} }}",
      type, name));
  Workspace workspace;
  workspace.confine(fuzz_root());
  RunContext run;
  run_net_once(net, workspace, run);
}

void add_records(const std::string& type, const FilePlace& place) {
  const auto db = open_db(type, place, DbMode::write);
  const auto transaction = db->transaction();
  for (int i = 0; i < 8; ++i) transaction->put(fmt::format("key {:0{}}", i, 1 + 60 * i), std::string(1 + 700 * i, 'v'));
  transaction->commit();
}

}  // namespace

void use_database(const std::string& type, const std::string& name) {
  const std::string path = fuzz_folder() + "/" + name;
  std::optional<int64_t> records;
  may_refuse([&] { records = count_records(type, path); });
  may_refuse([&] { load_all(type, path); });
  may_refuse([&] { read_inputs(type, name); });
  may_refuse([&] {
    add_records(type, path);
    if (records)
      must_work([&] { must(count_records(type, path) >= *records, "adding to a database takes nothing away"); });
  });
}

}  // namespace stepnet::testing
