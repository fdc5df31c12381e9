// What --data may name beside arrays and tables: archives, recordings, files of sequences, databases and texts.
#include <gtest/gtest.h>

#include <cstring>

#include "core/data/column.h"
#include "core/io/db.h"
#include "core/io/npy.h"
#include "core/io/tensor_proto.h"
#include "tests/core/errors.h"
#include "tests/core/io/zip_bytes.h"
#include "tests/core/temp_folder.h"
#include "tools/source_path.h"

namespace stepnet::testing::sources_test {
namespace {

// Elements of samples [first, first + count).
template <class T>
std::vector<T> values(const Column& column, int64_t first, int64_t count) {
  size_t elements = 0;
  for (int64_t i = first; i < first + count; ++i) elements += static_cast<size_t>(shape_of(column, i).size());
  std::vector<T> read(elements);
  EXPECT_EQ(column.dtype(), dtype_of<T>());
  column.read(first, count, reinterpret_cast<std::byte*>(read.data()));
  return read;
}

// 16 bits for each sample of each frame.
std::string wav(int channels, int rate, const std::vector<int16_t>& samples, const std::string& before = "") {
  std::string bytes = "RIFF";
  const auto add = [&](size_t value, size_t width) { bytes.append(reinterpret_cast<const char*>(&value), width); };
  const size_t width = static_cast<size_t>(channels) * 2, all = samples.size() * 2;
  add(36 + before.size() + all, 4);
  bytes += "WAVE" + before + "fmt ";
  add(16, 4);
  add(1, 2);
  add(static_cast<size_t>(channels), 2);
  add(static_cast<size_t>(rate), 4);
  add(static_cast<size_t>(rate) * width, 4);
  add(width, 2);
  add(16, 2);
  bytes += "data";
  add(all, 4);
  return bytes.append(reinterpret_cast<const char*>(samples.data()), all);
}

class Sources : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }
  std::shared_ptr<const Column> open(const std::string& text) const {
    const std::vector<NamedColumn> all = open_columns(text);
    EXPECT_EQ(all.size(), 1);
    return all.at(0).column;
  }
  static std::string error(const std::string& text) {
    return error_text([&] { open_columns(text); });
  }
  void fill(const std::string& type, const std::vector<std::vector<Tensor>>& records) const {
    const auto db = open_db(type, path(type), DbMode::create);
    const auto transaction = db->transaction();
    for (size_t i = 0; i < records.size(); ++i) {
      TensorProtos protos;
      for (const Tensor& t : records[i]) *protos.add_protos() = tensor_to_proto(t);
      transaction->put(std::to_string(i), protos.SerializeAsString());
    }
    transaction->commit();
  }
  TempFolder folder_;
};

TEST_F(Sources, ArraysOfAnArchive) {
  write_all(path("a.npz"), numpy_archive());
  const std::vector<NamedColumn> all = open_columns(path("a.npz"));
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0].name, "x");
  EXPECT_EQ(all[0].column->shape(), Shape({2}));
  EXPECT_EQ(values<float>(*all[0].column, 1, 2), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(values<int64_t>(*open("label=" + path("a.npz") + ":y"), 0, 3), (std::vector<int64_t>{7, 8, 9}));
  expect_contains(error("x=" + path("a.npz") + ":z"), "has no array \"z\"");
  expect_contains(error("x=" + path("a.npz")), "NAME=FILE.npy");
  expect_contains(error(path("a.npz") + ":x"), "NAME=FILE.npy");
  expect_contains(error("x=" + path("a.npz") + ":"), "NAME=FILE.npy");
  write_all(path("b.npz"), numpy_archive().substr(0, 300));
  expect_contains(error(path("b.npz")), "is no zip archive");
  expect_contains(error(path("no.npz")), "No such file");
}

TEST_F(Sources, SequencesOfAnArchiveAndArraysStoredAsTheyAre) {
  write_npy(path("rows.npy"), Tensor::of<float>({3, 1}, {1, 2, 3}));
  write_npy(path("lengths.npy"), Tensor::of<int32_t>({2}, {1, 2}));
  write_npy(path("one.npy"), Tensor::scalar<float>(1));
  const std::string rows = read_all(path("rows.npy"));
  write_all(path("a.npz"), zip_of({{"rows.npy", rows}, {"n.npy", read_all(path("lengths.npy")), true}}));
  const auto column = open("x=" + path("a.npz") + ":rows:n");
  EXPECT_TRUE(column->varies());
  EXPECT_EQ(column->length(1), 2);
  EXPECT_EQ(values<float>(*column, 0, 2), (std::vector<float>{1, 2, 3}));
  write_all(path("b.npz"), zip_of({{"rows.npy", rows}, {"s.npy", read_all(path("one.npy"))}}));
  expect_contains(error(path("b.npz")), "give the arrays that are samples one by one");
  write_all(path("c.npz"), zip_of({{"rows.npy", rows.substr(0, rows.size() - 1)}}));
  expect_contains(error(path("c.npz")), "but has 11 bytes of elements");
}

TEST_F(Sources, Recordings) {
  write_all(path("a.wav"), wav(2, 8000, {0, 16384, -32768, 8192, 1, -1}, std::string("LIST\3\0\0\0abc\0", 12)));
  const auto column = open("x=" + path("a.wav"));
  EXPECT_EQ(column->samples(), 3);
  EXPECT_EQ(column->shape(), Shape({2}));
  EXPECT_EQ(values<float>(*column, 1, 2), (std::vector<float>{-1, 0.25F, 1 / 32768.0F, -1 / 32768.0F}));
  EXPECT_EQ(values<float>(*column, 0, 1), (std::vector<float>{0, 0.5F}));
  const std::string whole = read_all(path("a.wav"));
  write_all(path("b.wav"), whole.substr(0, whole.size() - 4));
  expect_contains(error("x=" + path("b.wav")), "is cut off: 12 bytes of sound should be there, but 8 are");
  write_all(path("c.wav"), "no sound");
  expect_contains(error("x=" + path("c.wav")), "is no recording that can be read");
  write_all(path("d.wav"), "");
  expect_contains(error("x=" + path("d.wav")), "is no recording that can be read");
  expect_contains(error(path("a.wav")), "data are given as");
}

TEST_F(Sources, FilesThatAreSequences) {
  write_all(path("2.wav"), wav(1, 8000, {256, 512}));
  write_all(path("10.wav"), wav(1, 8000, {1024}));
  write_all(path(".hidden.wav"), "");
  const auto column = open("x=" + path("*.wav"));
  ASSERT_EQ(column->samples(), 2);
  EXPECT_TRUE(column->varies());
  EXPECT_EQ(column->length(0), 1);  // 10.wav, by the order of bytes
  EXPECT_EQ(column->shape(), Shape({2, 1}));
  const float unit = 1 / 32768.0F;
  EXPECT_EQ(values<float>(*column, 0, 2), (std::vector<float>{1024 * unit, 256 * unit, 512 * unit}));
  write_all(path("files.list"), "2.wav\r\n\n" + path("10.wav") + "\n2.wav");
  EXPECT_EQ(values<float>(*open("x=" + path("files.list")), 0, 3),
            (std::vector<float>{256 * unit, 512 * unit, 1024 * unit, 256 * unit, 512 * unit}));
  write_all(path("3.wav"), wav(1, 16000, {1}));
  expect_contains(error("x=" + path("*.wav")), "has 16000 frames a second, but ");
  write_all(path("3.wav"), wav(2, 8000, {1, 1}));
  expect_contains(error("x=" + path("*.wav")), "has rows of float[2]");
  expect_contains(error("x=" + path("*.flac")), "no file is named like");
  write_all(path("files.list"), "\n");
  expect_contains(error("x=" + path("files.list")), "names no files");
  write_all(path("files.list"), "a.csv");
  expect_contains(error("x=" + path("files.list")), "is neither .npy nor .wav nor .flac");
}

TEST_F(Sources, ArraysThatAreSequences) {
  write_npy(path("a1.npy"), Tensor::of<int32_t>({2, 2}, {1, 2, 3, 4}));
  write_npy(path("a2.npy"), Tensor::empty(DType::int32, {0, 2}));
  write_npy(path("a3.npy"), Tensor::of<int32_t>({1, 2}, {5, 6}));
  const auto column = open("x=" + path("a*.npy"));
  ASSERT_EQ(column->samples(), 3);
  EXPECT_EQ(column->length(1), 0);
  EXPECT_EQ(values<int32_t>(*column, 0, 3), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(values<int32_t>(*column, 1, 1).empty());
  EXPECT_EQ(values<int32_t>(*column, 0, 1), (std::vector<int32_t>{1, 2, 3, 4}));  // so that the first file is open
  write_npy(path("a3.npy"), Tensor::of<int32_t>({2, 2}, {5, 6, 7, 8}));
  expect_contains(error_text([&] { values<int32_t>(*column, 2, 1); }), "is another file than it was");
}

TEST_F(Sources, RecordsOfDatabases) {
  for (const std::string type : {"lmdb", "minidb"}) {
    fill(type, {{Tensor::of<float>({2}, {1, 2}), Tensor::scalar<int64_t>(7)},
                {Tensor::of<float>({1}, {3}), Tensor::scalar<int64_t>(8)},
                {Tensor::empty(DType::float32, {0}), Tensor::scalar<int64_t>(9)}});
    const std::string place = type + ":" + path(type);
    const auto x = open("x=" + place + ":0"), label = open("label=" + place + ":1");
    EXPECT_TRUE(x->varies());
    EXPECT_EQ(x->shape(), Shape({2}));
    EXPECT_EQ(x->length(2), 0);
    EXPECT_EQ(values<float>(*x, 0, 3), (std::vector<float>{1, 2, 3}));
    EXPECT_FALSE(label->varies());
    EXPECT_EQ(label->shape().rank(), 0);
    EXPECT_EQ(values<int64_t>(*label, 2, 1), (std::vector<int64_t>{9}));
    EXPECT_EQ(values<int64_t>(*label, 0, 2), (std::vector<int64_t>{7, 8}));
    expect_contains(error("x=" + place + ":2"), "record \"0\" of " + path(type) + " has 2 tensors");
    expect_contains(error("x=" + place), "NAME=TYPE:PLACE:INDEX");
    expect_contains(error("x=" + place + ":-1"), "NAME=TYPE:PLACE:INDEX");
    expect_contains(error(place + ":1"), "NAME=TYPE:PLACE:INDEX");
    expect_contains(error("x=" + type + ":" + path("no") + ":0"), path("no"));
  }
}

TEST_F(Sources, RecordsThatDoNotFitAreNamed) {
  fill("minidb", {{Tensor::of<float>({1, 2}, {1, 2}), Tensor::of<std::string>({1}, {"text"})},
                  {Tensor::of<float>({1, 1}, {1}), Tensor::scalar(1)}});
  const std::string place = "x=minidb:" + path("minidb");
  expect_contains(error(place + ":0"), "tensor 0 of record \"1\"");
  expect_contains(error(place + ":1"), "is of texts, which are no data");
  const auto db = open_db("minidb", path("bad"), DbMode::create);
  const auto transaction = db->transaction();
  transaction->put("a", "\xFF\xFF");
  transaction->commit();
  expect_contains(error("x=minidb:" + path("bad") + ":0"), "is not a TensorProtos message");
}

TEST_F(Sources, LinesOfTokens) {
  write_all(path("words"), "<unk>\n<eos>\nthe\ncat\n");
  write_all(path("a.txt"), "the cat\n\n  the dog the\n");
  const auto lines = open("x=" + path("a.txt") + "@" + path("words"));
  ASSERT_EQ(lines->samples(), 3);
  EXPECT_TRUE(lines->varies());
  EXPECT_EQ(lines->length(1), 0);
  EXPECT_EQ(values<int32_t>(*lines, 0, 3), (std::vector<int32_t>{2, 3, 2, 0, 2}));
  const auto stream = open("x=" + path("a.txt") + "@" + path("words") + ":stream");
  EXPECT_FALSE(stream->varies());
  EXPECT_EQ(stream->shape().rank(), 0);
  EXPECT_EQ(values<int32_t>(*stream, 0, stream->samples()), (std::vector<int32_t>{2, 3, 1, 1, 2, 0, 2, 1}));
  expect_contains(error("x=" + path("a.txt")), "NAME=FILE.txt@VOCABULARY");
  expect_contains(error(path("a.txt") + "@" + path("words")), "NAME=FILE.txt@VOCABULARY");
  expect_contains(error("x=" + path("a.txt") + "@" + path("no")), "No such file");
  write_all(path("a.txt"), "");
  expect_contains(error("x=" + path("a.txt") + "@" + path("words")), "is empty");
}

// Written by h5py: x = [[1, 2], [3, 4], [5, 6]] of float32, and g/y = [7, 8, 9] of uint16, big-endian.
TEST_F(Sources, DatasetsOfHdf5) {
  const std::string file = source_path("tests/data/samples.h5");
  std::shared_ptr<const Column> x;
  try {
    x = open("x=" + file + ":x");
  } catch (const Error& e) {
    expect_contains(e.what(), "this build reads no HDF5 files");
    GTEST_SKIP() << e.what();
  }
  EXPECT_EQ(x->samples(), 3);
  EXPECT_EQ(x->shape(), Shape({2}));
  EXPECT_EQ(values<float>(*x, 1, 2), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(values<uint16_t>(*open("y=" + file + ":/g/y"), 0, 3), (std::vector<uint16_t>{7, 8, 9}));
  expect_contains(error("x=" + file + ":z"), "has no dataset \"z\"");
  expect_contains(error("x=" + file + ":g"), "has no dataset \"g\"");
  expect_contains(error("x=" + file + ":text"), "of a type that is not read");
  expect_contains(error("x=" + file + ":one"), "its first dimension must count samples");
  expect_contains(error("x=" + file), "NAME=FILE.h5:DATASET");
  expect_contains(error("x=" + path("no.h5") + ":x"), "No such file");
  const std::string whole = read_all(file);
  write_all(path("cut.h5"), whole.substr(0, whole.size() / 2));
  expect_contains(error("x=" + path("cut.h5") + ":x"), "is no HDF5 file, or it is damaged");
  write_all(path("other.h5"), "no file of that kind");
  expect_contains(error("x=" + path("other.h5") + ":x"), "is no HDF5 file");
}

TEST_F(Sources, FormsOfTablesAreAsBefore) {
  write_all(path("a@b.csv"), "id,v\n1,5\n1,6\n2,7\n");
  const auto all = open_columns(path("a@b.csv") + "@id");
  ASSERT_EQ(all.size(), 1);
  EXPECT_EQ(all[0].column->length(0), 2);
  EXPECT_EQ(values<double>(*open("x=" + path("a@b.csv") + ":v@id"), 1, 1), (std::vector<double>{7}));
  expect_contains(error(path("a@b.csv") + "@"), "data are given as");
  expect_contains(error("x=" + path("a@b.csv") + ":v@"), "data are given as");
  write_npy(path("x.npy"), Tensor::of<float>({1}, {1}));
  expect_contains(error("x=" + path("x.npy") + "@id"), "data are given as");
  expect_contains(error("x=" + path("x.dat")), "data are given as");
}

}  // namespace
}  // namespace stepnet::testing::sources_test
