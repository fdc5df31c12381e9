// Checkpoints: whole or refused, the newest that can be read, two kept.
#include "stepnet/checkpoint.h"

#include <cstring>

#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::checkpoint_test {
namespace {

using testing::error_text;
using testing::expect_contains;
using testing::read_all;
using testing::TempFolder;
using testing::write_all;

Checkpoint sample(int iteration) {
  Checkpoint c;
  c.texts = {{"iteration", std::to_string(iteration)}, {"", std::string("\0\n", 2)}};
  c.tensors["w"] = Tensor::of<float>({2, 2}, {1, 2, 3, static_cast<float>(iteration)});
  c.tensors["words"] = Tensor::of<std::string>({2}, {"", std::string("a\0b", 3)});
  c.tensors["none"] = Tensor::zeros(DType::int64, {0, 4});
  c.tensors["flag"] = Tensor::scalar(true);
  return c;
}

void expect_same(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.texts, b.texts);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, t] : a.tensors) {
    const Tensor& other = b.tensors.at(name);
    ASSERT_EQ(t.str(), other.str()) << name;
    if (t.dtype() == DType::string) {
      EXPECT_TRUE(std::equal(t.span<std::string>().begin(), t.span<std::string>().end(), other.data<std::string>()));
    } else if (t.bytes() > 0) {
      EXPECT_EQ(std::memcmp(t.raw(), other.raw(), t.bytes()), 0) << name;
    }
  }
}

TEST(Checkpoint, ComesBackAsItWas) {
  const TempFolder folder;
  const std::string path = save_checkpoint(folder.path(), "step-5", sample(5));
  EXPECT_EQ(path, folder.file("step-5.ckpt"));
  EXPECT_EQ(read_all(folder.file("latest")), "step-5.ckpt\n");
  expect_same(load_checkpoint(path), sample(5));
  save_checkpoint(folder.path(), "empty", {});
  expect_same(load_checkpoint(folder.file("empty.ckpt")), {});
}

TEST(Checkpoint, TwoNewestAreKept) {
  const TempFolder folder;
  write_all(folder.file("mine.ckpt"), "not a checkpoint");
  EXPECT_FALSE(std::filesystem::exists(folder.file("latest")));
  for (const int i : {1, 2, 10, 3}) save_checkpoint(folder.path(), "step-" + std::to_string(i), sample(i));
  EXPECT_EQ(folder.count(), 4);
  EXPECT_TRUE(std::filesystem::exists(folder.file("step-10.ckpt")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("mine.ckpt")));
  const auto latest = load_latest(folder.path());
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->contents.texts.at("iteration"), "3");
  EXPECT_EQ(latest->path, folder.file("step-3.ckpt"));
  EXPECT_TRUE(latest->notes.empty());
  save_checkpoint(folder.path(), "step-3", sample(4));
  EXPECT_TRUE(std::filesystem::exists(folder.file("step-10.ckpt")));
  EXPECT_EQ(load_latest(folder.path())->contents.texts.at("iteration"), "4");
}

TEST(Checkpoint, DamagedNewestFallsBack) {
  const TempFolder folder;
  EXPECT_FALSE(load_latest(folder.path()));
  save_checkpoint(folder.path(), "a", sample(1));
  const std::string newest = save_checkpoint(folder.path(), "b", sample(2));
  std::string bytes = read_all(newest);
  bytes[bytes.size() / 2] ^= 1;
  write_all(newest, bytes);
  auto latest = load_latest(folder.path());
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->path, folder.file("a.ckpt"));
  ASSERT_EQ(latest->notes.size(), 1u);
  expect_contains(latest->notes[0], "the checkpoint " + newest + " is damaged");
  std::filesystem::remove(newest);
  latest = load_latest(folder.path());
  EXPECT_EQ(latest->path, folder.file("a.ckpt"));
  expect_contains(latest->notes[0], "cannot open " + newest);
  write_all(folder.file("latest"), "../../etc/passwd\n");
  EXPECT_TRUE(load_latest(folder.path())->notes.empty());
  write_all(folder.file("a.ckpt"), "");
  expect_contains(error_text([&] { load_latest(folder.path()); }), "none of the checkpoints in " + folder.path());
}

TEST(Checkpoint, EveryDamagedByteAndEveryLengthIsNoticed) {
  const TempFolder folder;
  const std::string path = save_checkpoint(folder.path(), "a", sample(1));
  const std::string whole = read_all(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] ^= static_cast<char>(1 << i % 8);
    write_all(path, bytes);
    expect_contains(error_text([&] { load_checkpoint(path); }), path);
    write_all(path, whole.substr(0, i));
    expect_contains(error_text([&] { load_checkpoint(path); }), path);
  }
  write_all(path, whole + "x");
  expect_contains(error_text([&] { load_checkpoint(path); }), "1 bytes follow its end");
}

TEST(Checkpoint, ForeignFilesAndNames) {
  const TempFolder folder;
  write_all(folder.file("a"), "something else, and longer than a header");
  EXPECT_EQ(error_text([&] { load_checkpoint(folder.file("a")); }),
            folder.file("a") + " is not a checkpoint of Stepnet");
  expect_contains(error_text([&] { load_checkpoint(folder.file("none")); }), "No such file");
  expect_contains(error_text([&] { save_checkpoint(folder.file("none"), "a", {}); }), "cannot read the folder");
  for (const std::string name : {"", "a/b", "../a"})
    expect_contains(error_text([&] { save_checkpoint(folder.path(), name, {}); }), "cannot be a checkpoint's name");
  Checkpoint undefined;
  undefined.tensors["x"] = Tensor();
  EXPECT_EQ(error_text([&] { save_checkpoint(folder.path(), "b", undefined); }),
            "the checkpoint's tensor \"x\" holds nothing");
  EXPECT_EQ(folder.count(), 1);
}

}  // namespace
}  // namespace stepnet::checkpoint_test
