// Load: which records go to which blobs, and what is said where they do not.
#include "core/io/blob_db.h"
#include "tests/operators/db_test.h"

namespace stepnet::testing::load_test {
namespace {

using Names = std::vector<std::string>;

class Load : public ::testing::Test {
 protected:
  Load() { to_.root_folder = folder_.path(); }

  // Saves each name with one float that counts up from `first`.
  void save(const std::string& db, const Names& names, float first = 1, const std::string& type = "minidb") {
    Workspace from;
    std::vector<NamedBlob> blobs;
    for (const std::string& name : names) {
      from.tensor(name) = Tensor::of<float>({1}, {first++});
      blobs.push_back({name, from.find(name)});
    }
    save_blobs(type, folder_.file(db), blobs);
  }
  OperatorDef load(const Names& outputs, std::vector<Argument> args) {
    args.push_back(make_arg("db_type", "minidb"));
    return make_op("Load", {}, outputs, args);
  }
  float value(const std::string& name) { return to_.fetch(name).data<float>()[0]; }

  TempFolder folder_;
  Workspace to_;
};

TEST_F(Load, OutputsByName) {
  save("db", {"a", "b", "c"});
  to_.tensor("c") = Tensor::scalar<int64_t>(5);
  run_in(to_, load({"c", "a"}, {make_arg("db", "db")}));
  EXPECT_EQ(value("a"), 1);
  EXPECT_EQ(value("c"), 3);
  EXPECT_EQ(to_.find("b"), nullptr);
  run_in(to_,
         make_op("Load", {}, {"b"},
                 {make_arg("db", folder_.file("db")), make_arg("db_type", "MiniDB"), make_arg("absolute_path", 1)}));
  EXPECT_EQ(value("b"), 2);
}

TEST_F(Load, PrefixesAndSourceNames) {
  save("db", {"old/a", "old/b"});
  run_in(to_, load({"new/a"}, {make_arg("db", "db"), make_arg("strip_prefix", "ld/"), make_arg("add_prefix", "new/")}));
  EXPECT_EQ(value("new/a"), 1);
  run_in(to_, load({"p", "q"}, {make_arg("db", "db"), make_arg("source_blob_names", Names{"old/b", "old/a"})}));
  EXPECT_EQ(value("p"), 2);
  EXPECT_EQ(value("q"), 1);
  const Argument names = make_arg("source_blob_names", Names{"old/b"});
  expect_contains(error_in(to_, load({"p", "q"}, {make_arg("db", "db"), names})), "has 1 names for 2 outputs");
  expect_contains(error_in(to_, load({"p"}, {make_arg("db", "db"), names, make_arg("load_all", 1)})),
                  "cannot be set together");
}

TEST_F(Load, All) {
  save("db", {"a", "b"});
  run_in(to_, load({}, {make_arg("db", "db"), make_arg("load_all", 1), make_arg("add_prefix", "x_")}));
  EXPECT_EQ(to_.names(), (Names{"x_a", "x_b"}));
  EXPECT_EQ(value("x_b"), 2);
  expect_contains(error_in(to_, load({}, {make_arg("db", "db")})), "it has no outputs; set load_all to 1");
}

TEST_F(Load, SeveralDatabases) {
  save("one", {"a", "b"});
  save("two", {"c", "a"}, 10);
  run_in(to_, load({"b", "c"}, {make_arg("dbs", Names{"one", "two"}), make_arg("db", "ignored")}));
  EXPECT_EQ(value("b"), 2);
  EXPECT_EQ(value("c"), 10);
  expect_contains(error_in(to_, load({"a"}, {make_arg("dbs", Names{"one", "one"})})), "has one twice");
  const std::string text = error_in(to_, load({}, {make_arg("dbs", Names{"one", "two"}), make_arg("load_all", 1)}));
  expect_contains(text, "blob \"a\" in " + folder_.file("two") + ": it is also in " + folder_.file("one"));
}

TEST_F(Load, MissingBlobs) {
  save("db", {"weights", "b"});
  to_.tensor("c") = Tensor::of<float>({1}, {9});
  const std::string text = error_in(to_, load({"weigths", "c", "b"}, {make_arg("db", "db")}));
  expect_contains(text, "2 of 3 blobs are not in " + folder_.file("db") + ": c, weigths.");
  expect_contains(error_in(to_, load({"weigths"}, {make_arg("db", "db")})), "Did you mean \"weights\"?");
  run_in(to_, load({"b", "c"}, {make_arg("db", "db"), make_arg("allow_incomplete", 1)}));
  EXPECT_EQ(value("b"), 2);
  EXPECT_EQ(value("c"), 9);
}

TEST_F(Load, IncompleteBlobs) {
  BlobProto part;
  part.set_type("Tensor");
  part.mutable_tensor()->add_dims(4);
  part.mutable_tensor()->add_float_data(1);
  part.mutable_tensor()->mutable_segment()->set_begin(1);
  part.mutable_tensor()->mutable_segment()->set_end(2);
  fill_db("minidb", folder_.file("db"), {{"a#%0", part.SerializeAsString()}});
  for (const int allowed : {0, 1})
    expect_contains(error_in(to_, load({"a"}, {make_arg("db", "db"), make_arg("allow_incomplete", allowed)})),
                    "blob \"a\" in " + folder_.file("db") + " is incomplete: 1 of 4 elements are there");
  part.mutable_tensor()->set_dims(0, int64_t{1} << 50);
  fill_db("minidb", folder_.file("db"), {{"a#%0", part.SerializeAsString()}});
  expect_contains(error_in(to_, load({"a"}, {make_arg("db", "db")})), "more elements than there are bytes");
}

TEST_F(Load, FromReaders) {
  save("db", {"a", "b", "c"});
  run_in(to_, make_op("CreateDB", {}, {"reader"}, {make_arg("db", folder_.file("db")), make_arg("db_type", "minidb")}));
  // The scan stops on the last record that was needed, and the next one starts there.
  run_in(to_, make_op("Load", {"reader"}, {"a", "b"}));
  EXPECT_EQ(value("b"), 2);
  run_in(to_, make_op("Load", {"reader"}, {"b", "c"}));
  EXPECT_EQ(value("c"), 3);
  expect_contains(error_in(to_, make_op("Load", {"reader"}, {"a"})), "1 of 1 blobs are not in");
  to_.tensor("t") = Tensor::scalar(1.0f);
  expect_contains(error_in(to_, make_op("Load", {"t"}, {"a"})), "the blob holds float[], not what is needed here");
}

TEST_F(Load, SourcesThatAreMissing) {
  expect_contains(error_in(to_, make_op("Load", {}, {"a"})), "needs a database reader as input, or the argument");
  expect_contains(error_in(to_, make_op("Load", {}, {"a"}, {make_arg("db", "x")})), "argument \"db_type\" is needed");
  expect_contains(error_in(to_, load({"a"}, {make_arg("db", "none")})), "cannot open " + folder_.file("none"));
}

TEST_F(Load, BigTensorsComeBackInChunks) {
  for (const std::string type : {"lmdb", "minidb"}) {
    Workspace from;
    Tensor& big = from.tensor("big") = Tensor::empty(DType::float32, {2500, 1000});
    for (int64_t i = 0; i < big.size(); ++i) big.data<float>()[i] = static_cast<float>(i % 65537);
    from.root_folder = folder_.path();
    run_in(from, make_op("Save", {"big"}, {}, {make_arg("db", type), make_arg("db_type", type)}));
    run_in(to_, make_op("Load", {}, {"big"}, {make_arg("db", type), make_arg("db_type", type)}));
    EXPECT_EQ(compare(to_.fetch("big"), big, 0), "");
  }
}

}  // namespace
}  // namespace stepnet::testing::load_test
