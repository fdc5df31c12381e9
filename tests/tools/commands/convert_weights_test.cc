// `stepnet convert-weights`: files there and back, and what it refuses.
#include <gtest/gtest.h>

#include "core/io/npy.h"
#include "tests/core/temp_folder.h"
#include "tests/operators/op_test.h"
#include "tests/tools/command.h"

namespace stepnet::testing::convert_weights_test {
namespace {

const std::vector<std::string> kNames = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"};

std::vector<std::string> call(const std::string& from, const std::string& to, const std::string& out,
                              const std::vector<std::string>& files) {
  std::vector<std::string> arguments = {"convert-weights", "--from", from, "--to", to, "--cell", "gru", "--out", out};
  arguments.insert(arguments.end(), files.begin(), files.end());
  return arguments;
}

std::vector<std::string> write_weights(const TempFolder& folder) {
  const Shape shapes[] = {{6, 3}, {6, 2}, {6}, {6}};
  std::vector<std::string> files;
  for (size_t i = 0; i < kNames.size(); ++i) {
    files.push_back(folder.file(kNames[i] + ".npy"));
    write_npy(files.back(), normal<float>(shapes[i], i + 1));
  }
  return files;
}

TEST(ConvertWeights, ThereAndBack) {
  const TempFolder folder;
  const std::vector<std::string> files = write_weights(folder);
  const std::string onnx = folder.file("onnx"), back = folder.file("back");
  expect_command(call("pytorch", "onnx", onnx, files), 0,
                 fmt::format("{0}/W_l0.npy is float[1, 6, 3]\n{0}/R_l0.npy is float[1, 6, 2]\n"
                             "{0}/B_l0.npy is float[1, 12]\n",
                             onnx));
  expect_command(call("onnx", "pytorch", back, {onnx + "/W_l0.npy", onnx + "/R_l0.npy", onnx + "/B_l0.npy"}), 0, "");
  for (size_t i = 0; i < files.size(); ++i)
    EXPECT_EQ(read_all(back + "/" + kNames[i] + ".npy"), read_all(files[i])) << kNames[i];
}

TEST(ConvertWeights, OverwritesNothing) {
  const TempFolder folder;
  const std::vector<std::string> files = write_weights(folder);
  const std::string before = read_all(files[0]);
  expect_command(call("pytorch", "stepnet", folder.path(), files), 2,
                 fmt::format("error: {} is already there\n  fix name another folder with --out\n", files[0]));
  EXPECT_EQ(read_all(files[0]), before);
}

TEST(ConvertWeights, SaysWhatIsWrong) {
  const TempFolder folder;
  std::vector<std::string> files = write_weights(folder);
  files.pop_back();
  expect_command(call("pytorch", "onnx", folder.file("out"), files), 2,
                 "layers: 1, directions: 1 have 4 tensors (weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0), but 3 "
                 "are given");
  expect_command(call("torch", "onnx", folder.file("out"), files), 2, "--from");
  EXPECT_EQ(folder.count(), 4);
}

}  // namespace
}  // namespace stepnet::testing::convert_weights_test
