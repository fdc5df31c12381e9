// Save, Checkpoint and Snapshot.
#include "tests/operators/db_test.h"

namespace stepnet::testing::save_test {
namespace {

std::vector<std::string> keys_of(const std::string& type, const std::string& path) {
  std::vector<std::string> keys;
  const auto db = open_db(type, path, DbMode::read);
  for (const auto cursor = db->cursor(); cursor->valid(); cursor->next()) keys.emplace_back(cursor->key());
  return keys;
}

class Save : public ::testing::Test {
 protected:
  Save() {
    w_.root_folder = folder_.path();
    w_.tensor("net/a") = Tensor::of<float>({2}, {1, 2});
    w_.tensor("b") = Tensor::scalar<int64_t>(7);
  }
  TempFolder folder_;
  Workspace w_;
};

using Names = std::vector<std::string>;

TEST_F(Save, WritesUnderTheRootFolder) {
  for (const std::string type : {"lmdb", "minidb"}) {
    run_in(w_, make_op("Save", {"net/a", "b"}, {}, {make_arg("db", type), make_arg("db_type", type)}));
    const Names keys = keys_of(type, folder_.file(type));
    EXPECT_EQ(keys, type == "lmdb" ? (Names{"b#%0", "net/a#%0"}) : (Names{"net/a#%0", "b#%0"}));
  }
  EXPECT_EQ(folder_.count(), 2);
}

TEST_F(Save, NamesAndAbsolutePaths) {
  const TempFolder other;
  const Argument absolute = make_arg("absolute_path", 1), type = make_arg("db_type", "minidb");
  run_in(w_, make_op("Save", {"net/a", "b"}, {},
                     {make_arg("db", other.file("x")), absolute, type, make_arg("strip_prefix", "et/")}));
  EXPECT_EQ(keys_of("minidb", other.file("x")), (Names{"a#%0", "b#%0"}));
  const Argument names = make_arg("blob_name_overrides", Names{"p", "q"});
  run_in(w_, make_op("Save", {"net/a", "b"}, {}, {make_arg("db", "y"), type, names}));
  EXPECT_EQ(keys_of("minidb", folder_.file("y")), (Names{"p#%0", "q#%0"}));
  const auto error = [&](std::vector<Argument> args) {
    args.insert(args.end(), {make_arg("db", "z"), type});
    return error_in(w_, make_op("Save", {"net/a", "b"}, {}, args));
  };
  expect_contains(error({names, make_arg("strip_prefix", "p")}), "only one of the arguments");
  expect_contains(error({make_arg("blob_name_overrides", Names{"p"})}), "has 1 names for 2 blobs");
  expect_contains(error({make_arg("blob_name_overrides", Names{"p", "p"})}), "two blobs would be saved under");
  EXPECT_EQ(folder_.count(), 1);
}

TEST_F(Save, ExistingTargetIsSaidBeforehand) {
  const OperatorDef lmdb = make_op("Save", {"b"}, {}, {make_arg("db", "x"), make_arg("db_type", "lmdb")});
  run_in(w_, lmdb);
  const std::string exists = "the lmdb database " + folder_.file("x") + " already exists";
  expect_contains(error_in(w_, lmdb), exists);
  expect_contains(preflight_error(w_, lmdb), exists);
  const OperatorDef nowhere = make_op("Save", {"b"}, {}, {make_arg("db", "no/x"), make_arg("db_type", "lmdb")});
  expect_contains(preflight_error(w_, nowhere), folder_.file("no") + " cannot be used: No such file or directory");
  const OperatorDef minidb = make_op("Save", {"b"}, {}, {make_arg("db", "y"), make_arg("db_type", "minidb")});
  run_in(w_, minidb);
  run_in(w_, minidb);
  EXPECT_EQ(keys_of("minidb", folder_.file("y")), (Names{"b#%0"}));
  const OperatorDef leveldb = make_op("Save", {"b"}, {}, {make_arg("db", "z"), make_arg("db_type", "leveldb")});
  expect_contains(preflight_error(w_, leveldb), "\"leveldb\" is not supported in this build");
}

TEST_F(Save, FailureLeavesNothingAndKeepsTheOldFile) {
  for (const std::string type : {"lmdb", "minidb"})
    expect_contains(error_in(w_, make_op("Save", {"b", "empty"}, {}, {make_arg("db", "x"), make_arg("db_type", type)})),
                    "is written by no earlier operator");
  w_.create("empty");
  for (const std::string type : {"lmdb", "minidb"})
    expect_contains(error_in(w_, make_op("Save", {"b", "empty"}, {}, {make_arg("db", "x"), make_arg("db_type", type)})),
                    "cannot save blob \"empty\": it holds nothing yet");
  EXPECT_EQ(folder_.count(), 0);
  const std::vector<Argument> args = {make_arg("db", "x"), make_arg("db_type", "minidb")};
  run_in(w_, make_op("Save", {"b"}, {}, args));
  error_in(w_, make_op("Save", {"net/a", "empty"}, {}, args));
  EXPECT_EQ(keys_of("minidb", folder_.file("x")), (Names{"b#%0"}));
  EXPECT_EQ(folder_.count(), 1);
}

TEST_F(Save, CheckpointSavesEverySoOften) {
  const auto checkpoint = [&](const std::string& type, int64_t iteration) {
    w_.tensor("iter") = Tensor::scalar(iteration);
    run_in(w_, make_op(type, {"iter", "b"}, {},
                       {make_arg("db", "at_%04d"), make_arg("db_type", "minidb"), make_arg("every", 5)}));
  };
  for (int64_t i = 1; i <= 9; ++i) checkpoint("Checkpoint", i);
  EXPECT_EQ(folder_.count(), 1);
  EXPECT_EQ(keys_of("minidb", folder_.file("at_0005")), (Names{"iter#%0", "b#%0"}));
  checkpoint("Snapshot", 10);
  EXPECT_TRUE(std::filesystem::exists(folder_.file("at_0010")));
}

TEST_F(Save, CheckpointPatterns) {
  w_.tensor("iter") = Tensor::scalar<int64_t>(12);
  const auto run = [&](const std::string& pattern) {
    return make_op("Checkpoint", {"iter"}, {}, {make_arg("db", pattern), make_arg("db_type", "minidb")});
  };
  for (const std::string pattern : {"a%d", "b%lld", "c%06i", "d%4ld", "%%e%d"}) run_in(w_, run(pattern));
  for (const std::string name : {"a12", "b12", "c000012", "d  12", "%e12"})
    EXPECT_TRUE(std::filesystem::exists(folder_.file(name))) << name;
  for (const std::string pattern : {"a", "a%", "%s", "%d%d", "%100d", "%n", "%1", "%.5d", "%%"})
    expect_contains(preflight_error(w_, run(pattern)),
                    "must have one %d, or %08d, for the iteration, but is " + pattern);
  w_.tensor("iter") = Tensor::scalar(1.0f);
  expect_contains(error_in(w_, run("x%d")), "the iteration must be one int64, but is float[]");
}

}  // namespace
}  // namespace stepnet::testing::save_test
