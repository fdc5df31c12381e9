// DBExists.
#include "tests/operators/db_test.h"

namespace stepnet::testing::db_exists_test {
namespace {

TEST(DbExists, IsTrueForWhatCanBeOpened) {
  const TempFolder folder;
  fill_db("lmdb", folder.file("l"), {{"a", "1"}});
  fill_db("minidb", folder.file("m"), {});
  write_all(folder.file("l2"), "no database");
  Workspace w;
  w.root_folder = folder.path();
  const auto exists = [&](const std::string& type, const std::string& name, int absolute = 0) {
    run_in(w, make_op("DBExists", {}, {"e"},
                      {make_arg("db_name", name), make_arg("db_type", type), make_arg("absolute_path", absolute)}));
    EXPECT_EQ(w.fetch("e").str(), "bool[]");
    return w.fetch("e").item<bool>();
  };
  EXPECT_TRUE(exists("lmdb", "l"));
  EXPECT_TRUE(exists("minidb", folder.file("m"), 1));
  EXPECT_FALSE(exists("lmdb", "l2"));
  EXPECT_FALSE(exists("minidb", "none"));
  EXPECT_FALSE(exists("minidb", ""));
  expect_contains(error_in(w, make_op("DBExists", {}, {"e"}, {make_arg("db_name", "x"), make_arg("db_type", "ldb")})),
                  "there is no database type \"ldb\"");
}

}  // namespace
}  // namespace stepnet::testing::db_exists_test
