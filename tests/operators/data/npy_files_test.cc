// SaveNpy and LoadNpy.
#include "core/io/npy.h"
#include "tests/operators/db_test.h"

namespace stepnet::testing::npy_files_test {
namespace {

class NpyFiles : public ::testing::Test {
 protected:
  NpyFiles() { w_.root_folder = folder_.path(); }
  OperatorDef save(const std::string& path) { return make_op("SaveNpy", {"X"}, {}, {make_arg("path", path)}); }
  OperatorDef load(const std::string& path) { return make_op("LoadNpy", {}, {"Y"}, {make_arg("path", path)}); }

  TempFolder folder_;
  Workspace w_;
};

TEST_F(NpyFiles, WhatIsSavedIsLoaded) {
  for (const Tensor& x : {normal<float>({2, 3}), normal<double>({1}), integers<int64_t>({2, 0}, 0, 9),
                          Tensor::of<bool>({2}, {true, false}), normal<float>({})}) {
    w_.tensor("X") = x;
    run_in(w_, save("x.npy"));
    run_in(w_, load("x.npy"));
    const Tensor& y = w_.fetch("Y");
    EXPECT_EQ(y.str(), x.str());
    EXPECT_TRUE(y.dtype() == x.dtype() && std::equal(x.raw(), x.raw() + x.bytes(), y.raw()));
    EXPECT_EQ(compare(to_double(read_npy(folder_.file("x.npy"))), to_double(x), 0), "");
  }
  EXPECT_EQ(folder_.count(), 1);
}

TEST_F(NpyFiles, AbsolutePaths) {
  const TempFolder other;
  w_.tensor("X") = normal<float>({2});
  OperatorDef def = save(other.file("x.npy"));
  *def.add_arg() = make_arg("absolute_path", true);
  run_in(w_, def);
  EXPECT_EQ(other.count(), 1);
  EXPECT_EQ(folder_.count(), 0);
  expect_contains(error_in(w_, save(other.file("x.npy"))), "cannot be used");
}

TEST_F(NpyFiles, FailureKeepsTheOldFile) {
  w_.tensor("X") = normal<float>({2});
  run_in(w_, save("x.npy"));
  const std::string before = read_all(folder_.file("x.npy"));
  w_.tensor("X") = Tensor::of<std::string>({1}, {"text"});
  expect_contains(error_in(w_, save("x.npy")), "cannot be written as .npy");
  EXPECT_EQ(read_all(folder_.file("x.npy")), before);
  w_.at("X").clear();
  expect_contains(error_in(w_, save("x.npy")), "the input \"X\" holds nothing yet");
  w_.at("X").emplace<int>(1);
  error_in(w_, save("x.npy"));
  EXPECT_EQ(folder_.count(), 1);
}

TEST_F(NpyFiles, BadTargetsAreSaidBeforehand) {
  expect_contains(preflight_error(w_, save("")), "argument \"path\" must be the path of a .npy file, but is empty");
  expect_contains(preflight_error(w_, load("")), "argument \"path\" must be the path of a .npy file, but is empty");
  expect_contains(preflight_error(w_, save("no/x.npy")), folder_.file("no") + " cannot be used");
  std::filesystem::create_directory(folder_.file("taken"));
  expect_contains(preflight_error(w_, save("taken")), "taken exists and is not a file, so no .npy file can replace it");
}

TEST_F(NpyFiles, AFileThatIsNoneLeavesTheBlob) {
  w_.tensor("Y") = Tensor::of<float>({1}, {7});
  expect_contains(error_in(w_, load("missing.npy")), "missing.npy");
  write_all(folder_.file("bad.npy"), "no numbers here");
  expect_contains(error_in(w_, load("bad.npy")), "bad.npy is not a .npy file");
  EXPECT_EQ(floats_of(w_.fetch("Y")), (std::vector<float>{7}));
}

}  // namespace
}  // namespace stepnet::testing::npy_files_test
