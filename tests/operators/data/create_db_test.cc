// CreateDB.
#include "core/io/db.h"
#include "tests/operators/db_test.h"

namespace stepnet::testing::create_db_test {
namespace {

TEST(CreateDb, OpensAReader) {
  const TempFolder folder;
  fill_db("lmdb", folder.file("db"), {{"a", "1"}, {"b", "2"}, {"c", "3"}});
  Workspace w;
  w.root_folder = "/nowhere";
  const OperatorDef def = make_op("CreateDB", {}, {"reader"},
                                  {make_arg("db", folder.file("db")), make_arg("db_type", "lmdb"),
                                   make_arg("num_shards", 2), make_arg("shard_id", 1)});
  std::string key, value;
  for (int run = 0; run < 2; ++run) {  // the second run opens the database anew
    run_in(w, def);
    w.at("reader").get<DbReader>().read(key, value);
    EXPECT_EQ(key + value, "b2");
  }
}

TEST(CreateDb, Mistakes) {
  const TempFolder folder;
  fill_db("minidb", folder.file("empty"), {});
  Workspace w;
  const auto error = [&](const std::string& type, const std::string& path, int shards = 1, int shard = 0) {
    return error_in(w, make_op("CreateDB", {}, {"r"},
                               {make_arg("db", path), make_arg("db_type", type), make_arg("num_shards", shards),
                                make_arg("shard_id", shard)}));
  };
  expect_contains(error("minidb", folder.file("none")), "cannot open " + folder.file("none"));
  expect_contains(error("minidb", folder.file("empty")), "the database " + folder.file("empty") + " has no records");
  expect_contains(error("minidb", ""), "argument \"db\" must be the path of a database");
  expect_contains(error("minidb", "x", 0), "\"num_shards\" must be at least 1, but is 0");
  expect_contains(error("minidb", "x", 2, 2), "the shard must be one of 0 to 1, but is 2");
  expect_contains(error("nodb", "x"), "there is no database type \"nodb\"; there are: lmdb, minidb");
  expect_contains(error_in(w, make_op("CreateDB", {}, {"r"}, {make_arg("db", "x")})),
                  "\"leveldb\" is not supported in this build");
}

}  // namespace
}  // namespace stepnet::testing::create_db_test
