// CreateDB: opens a database for reading and puts a reader into a blob. No derivative: it is no tensor.

#include "core/io/db.h"
#include "stepnet/file_place.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_create_db {
namespace {

struct CreateDbArgs {
  std::string db_type, db;
  int64_t num_shards = 1, shard_id = 0;
};

void run(const CreateDbArgs& a, BlobCall& c) {
  require(!a.db.empty(), "argument \"db\" must be the path of a database, but is empty");
  if (c.out[0])
    c.out[0]->emplace<DbReader>(a.db_type, net_file(c.workspace, a.db, PathStart::as_it_is), a.num_shards, a.shard_id);
}

std::string example(const std::string& type) {
  const std::string place = " arg { name: 'db' s: '$FOLDER/data' } arg { name: 'db_type' s: '" + type + "' } ";
  return "op { type: 'Save' input: 'X' arg { name: 'absolute_path' i: 1 }" + place +
         "} op { type: 'CreateDB' output: 'reader'" + place + "} op { type: 'Load' input: 'reader' output: 'X' }";
}

REGISTER(create_db) {
  return op<CreateDbArgs>("CreateDB")
      .doc("Opens a database for reading. Running it again opens the database anew, at its first record.")
      .arg("db_type", &CreateDbArgs::db_type, std::string("leveldb"), "lmdb or minidb")
      .required_arg("db", &CreateDbArgs::db, "path, used as it is; relative ones start at the current folder")
      .arg("num_shards", &CreateDbArgs::num_shards, int64_t{1}, "the reader gives every num_shards-th record",
           at_least(1))
      .arg("shard_id", &CreateDbArgs::shard_id, int64_t{0}, "the first record that it gives", at_least(0))
      .output("reader", "the reader; at the end of the database it starts over")
      .object()
      .blobs(run)
      .example_net(example("minidb"), {"X=2,3"})
      .example_net(example("lmdb"), {"X=1,0"})
      .side_effect()
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_create_db
