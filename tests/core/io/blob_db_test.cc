// Blobs as records of the public format, and what happens when records lie.
#include "core/io/blob_db.h"

#include <google/protobuf/stubs/logging.h>

#include <cstring>
#include <limits>
#include <mutex>

#include "core/io/db.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::blob_db_test {
namespace {

using testing::error_text;
using testing::expect_contains;
using testing::read_all;
using testing::TempFolder;
using testing::write_all;

Tensor counting(DType dtype, const Shape& shape) {
  Tensor t = Tensor::zeros(dtype, shape);
  for (size_t i = 0; i < t.bytes(); ++i)
    t.raw()[i] = static_cast<std::byte>(dtype == DType::boolean ? i % 2 : i * 7 % 251);
  return t;
}

std::vector<std::pair<std::string, BlobProto>> records_of(const Blob& blob, const std::string& name, int64_t chunk) {
  std::vector<std::pair<std::string, BlobProto>> records;
  serialize_blob(
      blob, name,
      [&](const std::string& key, const std::string& value) { records.emplace_back(key, parse_blob_proto(value)); },
      chunk);
  return records;
}

TEST(Serialize, EveryTypeComesBack) {
  const DType types[] = {DType::float32, DType::float64, DType::int32,  DType::int64, DType::boolean,
                         DType::uint8,   DType::int8,    DType::uint16, DType::int16, DType::float16};
  for (const DType dtype : types) {
    for (const Shape& shape : {Shape{}, Shape{3, 4}, Shape{2, 0, 5}, Shape{1}}) {
      const Tensor t = counting(dtype, shape);
      const Tensor back = tensor_from_proto(tensor_to_proto(t, "x"));
      EXPECT_EQ(back.str(), t.str());
      EXPECT_TRUE(t.bytes() == 0 || std::memcmp(back.raw(), t.raw(), t.bytes()) == 0) << t.str();
    }
  }
  const Tensor texts = Tensor::of<std::string>({2}, {std::string("a\0b", 3), ""});
  const Tensor back = tensor_from_proto(tensor_to_proto(texts));
  EXPECT_EQ(back.data<std::string>()[0], std::string("a\0b", 3));
}

TEST(Serialize, RecordsAreThePublicOnes) {
  Blob blob;
  blob.tensor() = Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5});
  const auto records = records_of(blob, "w", 4);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].first, "w#%0");
  EXPECT_EQ(records[1].first, "w#%1");
  EXPECT_EQ(records[1].second.ShortDebugString(),
            "name: \"w\" type: \"Tensor\" tensor { dims: 2 dims: 3 data_type: FLOAT float_data: 4 float_data: 5 "
            "name: \"w\" segment { begin: 4 end: 6 } }");
  blob.tensor() = Tensor::zeros(DType::int16, {0, 3});
  EXPECT_EQ(records_of(blob, "e", 4)[0].second.ShortDebugString(),
            "name: \"e\" type: \"Tensor\" tensor { dims: 0 dims: 3 data_type: INT16 name: \"e\" segment { begin: 0 "
            "end: 0 } }");
  blob.emplace<std::string>("text");
  const auto text = records_of(blob, "s", 4);
  EXPECT_EQ(text[0].first, "s");
  EXPECT_EQ(text[0].second.ShortDebugString(), "name: \"s\" type: \"std::string\" content: \"text\"");
  blob.emplace<std::mutex>();
  EXPECT_EQ(records_of(blob, "m", 4)[0].second.type(), "std::unique_ptr<std::mutex>");
}

TEST(Serialize, HalvesAreBitPatterns) {
  Tensor t = Tensor::empty(DType::float16, {2});
  const uint16_t bits[] = {0x3c00, 0xfbff};
  std::memcpy(t.raw(), bits, sizeof(bits));
  const TensorProto proto = tensor_to_proto(t);
  EXPECT_EQ(proto.int32_data(1), 0xfbff);
  TensorProto bytes;
  bytes.add_dims(2);
  bytes.set_data_type(TensorProto::FLOAT16);
  bytes.set_byte_data(std::string(reinterpret_cast<const char*>(bits), 4));
  EXPECT_EQ(std::memcmp(tensor_from_proto(bytes).raw(), bits, 4), 0);
  bytes.set_byte_data("123");
  expect_contains(error_text([&] { tensor_from_proto(bytes); }), "odd number of bytes, 3");
}

TEST(Serialize, ByteIsReadAsUint8) {
  TensorProto proto;
  proto.add_dims(2);
  proto.set_data_type(TensorProto::BYTE);
  proto.set_byte_data("\x01\xff");
  const Tensor t = tensor_from_proto(proto);
  EXPECT_EQ(t.str(), "uint8[2]");
  EXPECT_EQ(t.data<uint8_t>()[1], 255);
}

TEST(Serialize, WhatCannotBeSaved) {
  Blob blob;
  const auto save = [&](const std::string& name) { return error_text([&] { records_of(blob, name, 10); }); };
  EXPECT_EQ(save("x"), "cannot save blob \"x\": it holds nothing yet");
  blob.tensor() = Tensor::scalar(1.0f);
  EXPECT_EQ(save("a#%b"), "cannot save blob \"a#%b\": its name contains \"#%\", which separates chunks");
  EXPECT_EQ(save(""), "cannot save blob \"\": its name is empty");
  blob.emplace<std::vector<int>>();
  expect_contains(save("x"), "cannot save blob \"x\": objects of type std::vector<int");
}

TensorProto proto_of(const std::vector<int64_t>& dims, int values) {
  TensorProto proto;
  for (const int64_t d : dims) proto.add_dims(d);
  for (int i = 0; i < values; ++i) proto.add_float_data(static_cast<float>(i));
  return proto;
}

TEST(Serialize, MessagesThatCannotBeRight) {
  const auto text = [](const TensorProto& proto) { return error_text([&] { tensor_from_proto(proto); }); };
  EXPECT_EQ(text(proto_of({2, 3}, 5)), "elements 0 to 6 of float[2, 3] are due, but the record holds 5 values");
  expect_contains(text(proto_of({1L << 40}, 5)), "but the record holds 5 values");
  text(proto_of({1L << 40, 1L << 40}, 5));
  text(proto_of({-2}, 2));
  text(proto_of({1, 1, 1, 1, 1, 1, 1, 1, 1}, 1));
  TensorProto part = proto_of({6}, 2);
  part.mutable_segment()->set_begin(2);
  part.mutable_segment()->set_end(4);
  EXPECT_EQ(text(part), "only elements 2 to 4 of a tensor of shape [6] are there");
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{-1, 1}, {4, 7}, {5, 3}}) {
    part.mutable_segment()->set_begin(begin);
    part.mutable_segment()->set_end(end);
    expect_contains(text(part), "is outside of a tensor of shape [6]");
  }
  TensorProto object = proto_of({}, 1);
  object.set_data_type(TensorProto::UNDEFINED);
  expect_contains(text(object), "data_type UNDEFINED");
  TensorProto narrow;
  narrow.add_dims(1);
  narrow.set_data_type(TensorProto::INT8);
  narrow.add_int32_data(128);
  EXPECT_EQ(text(narrow), "value 128 does not fit the element type int8");
}

BlobProto segment_of(const std::vector<int64_t>& dims, int64_t begin, int64_t end, float value = 1) {
  BlobProto blob;
  blob.set_type("Tensor");
  for (const int64_t d : dims) blob.mutable_tensor()->add_dims(d);
  for (int64_t i = begin; i < end; ++i) blob.mutable_tensor()->add_float_data(value);
  blob.mutable_tensor()->mutable_segment()->set_begin(begin);
  blob.mutable_tensor()->mutable_segment()->set_end(end);
  return blob;
}

TEST(BlobAssembler, TakesChunksInAnyOrder) {
  BlobAssembler assembler;
  int64_t budget = 100;
  assembler.add(segment_of({5}, 3, 5, 2), budget);
  EXPECT_FALSE(assembler.complete());
  EXPECT_EQ(assembler.progress(), "2 of 5 elements");
  assembler.add(segment_of({5}, 0, 3, 1), budget);
  ASSERT_TRUE(assembler.complete());
  EXPECT_EQ(budget, 95);
  Blob blob;
  assembler.move_into(blob, {});
  EXPECT_EQ(blob.tensor().data<float>()[2], 1);
  EXPECT_EQ(blob.tensor().data<float>()[3], 2);
  EXPECT_EQ(error_text([&] { assembler.add(segment_of({5}, 0, 3), budget); }), "a record is there twice");
}

TEST(BlobAssembler, RefusesWhatDoesNotFit) {
  const auto second = [](const BlobProto& record) {
    BlobAssembler assembler;
    int64_t budget = 100;
    assembler.add(segment_of({10}, 3, 6), budget);
    return error_text([&] { assembler.add(record, budget); });
  };
  EXPECT_EQ(second(segment_of({10}, 3, 6)), "elements 3 to 6 are there twice");
  EXPECT_EQ(second(segment_of({10}, 5, 7)), "elements 5 to 7 are there twice");
  EXPECT_EQ(second(segment_of({10}, 0, 4)), "elements 0 to 4 are there twice");
  EXPECT_EQ(second(segment_of({11}, 0, 1)), "its records disagree: float[10] and float[11]");
  BlobProto object;
  object.set_type("std::string");
  EXPECT_EQ(second(object), "records of a tensor and of a std::string have its name");
  object.set_type("SomethingElse");
  BlobAssembler assembler;
  int64_t budget = 100;
  EXPECT_EQ(error_text([&] { assembler.add(object, budget); }), "objects of type \"SomethingElse\" are not read");
  EXPECT_EQ(error_text([&] { assembler.add(segment_of({1L << 35}, 0, 1), budget); }),
            "float[34359738368] has more elements than there are bytes in the database");
  EXPECT_EQ(error_text([] { parse_blob_proto("hello"); }), "its 5 bytes are not a saved blob");
}

TEST(SaveLoad, ObjectsAndTensors) {
  const TempFolder folder;
  for (const std::string type : {"lmdb", "minidb"}) {
    Workspace from, to;
    from.tensor("big") = counting(DType::int32, {1500, 1000});
    from.tensor("none") = Tensor::zeros(DType::float32, {0, 2});
    from.create("text").emplace<std::string>("hello");
    from.create("mutex").emplace<std::mutex>();
    std::vector<NamedBlob> blobs;
    for (const std::string& name : from.names()) blobs.push_back({name, from.find(name)});
    save_blobs(type, folder.file(type), blobs);
    BlobLoader loader(to, {.all = true});
    loader.read_all(type, folder.file(type));
    loader.finish();
    EXPECT_EQ(to.names(), from.names());
    ASSERT_EQ(to.fetch("big").str(), "int32[1500, 1000]");
    EXPECT_EQ(std::memcmp(to.fetch("big").raw(), from.fetch("big").raw(), from.fetch("big").bytes()), 0);
    EXPECT_EQ(to.fetch("none").str(), "float[0, 2]");
    EXPECT_EQ(to.at("text").get<std::string>(), "hello");
    EXPECT_TRUE(to.at("mutex").holds<std::mutex>());
  }
  EXPECT_EQ(folder.count(), 2);
}

TEST(SaveLoad, ReaderComesBackAtItsRecord) {
  const TempFolder folder;
  Workspace w;
  w.tensor("a") = Tensor::scalar(1.0f);
  w.tensor("b") = Tensor::scalar(2.0f);
  const NamedBlob data[] = {{"a", w.find("a")}, {"b", w.find("b")}};
  save_blobs("lmdb", folder.file("data"), data);
  std::string key, value;
  w.create("reader").emplace<DbReader>("lmdb", folder.file("data")).read(key, value);
  const NamedBlob reader[] = {{"reader", w.find("reader")}};
  save_blobs("minidb", folder.file("saved"), reader);
  Workspace to;
  BlobLoader loader(to, {.all = true});
  loader.read_all("minidb", folder.file("saved"));
  loader.finish();
  to.at("reader").get<DbReader>().read(key, value);
  EXPECT_EQ(key, "b#%0");
}

TEST(SaveLoad, DamagedDatabasesAreRefused) {
  const TempFolder folder;
  Workspace w;
  w.tensor("a") = counting(DType::float32, {40});
  w.tensor("b") = Tensor::of<std::string>({2}, {"x", "y"});
  const NamedBlob blobs[] = {{"a", w.find("a")}, {"b", w.find("b")}};
  save_blobs("minidb", folder.file("db"), blobs);
  const std::string whole = read_all(folder.file("db"));
  const google::protobuf::LogSilencer quiet;  // a build with assertions prints what is no UTF-8
  int refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      write_all(folder.file("damaged"), bytes);
      Workspace to;
      try {
        BlobLoader loader(to, {.all = true});
        loader.read_all("minidb", folder.file("damaged"));
        loader.finish();
      } catch (const Error& e) {
        ++refused;
        expect_contains(e.what(), folder.file("damaged"));
      }
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace stepnet::blob_db_test
