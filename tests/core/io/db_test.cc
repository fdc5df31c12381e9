// Databases by type name, and readers that go round and round.
#include <cstring>
#include <filesystem>
#include <random>

#include "core/io/db.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::db_test {
namespace {

using testing::error_text;
using testing::expect_contains;
using testing::read_all;
using testing::TempFolder;
using testing::write_all;
using Records = std::vector<std::pair<std::string, std::string>>;

void fill(const std::string& type, const std::string& path, const Records& records, DbMode mode = DbMode::create) {
  const auto db = open_db(type, path, mode);
  const auto transaction = db->transaction();
  for (const auto& [key, value] : records) transaction->put(key, value);
  transaction->commit();
}

Records all(const std::string& type, const std::string& path) {
  Records records;
  const auto db = open_db(type, path, DbMode::read);
  for (const auto cursor = db->cursor(); cursor->valid(); cursor->next())
    records.emplace_back(cursor->key(), cursor->value());
  return records;
}

TEST(Db, MiniDbKeepsTheOrderOfWriting) {
  const TempFolder folder;
  const Records records = {{"b", "1"}, {"a", std::string("2\0\n", 3)}, {"b", std::string(100000, 'x')}};
  fill("minidb", folder.file("db"), records);
  EXPECT_EQ(all("MiniDB", folder.file("db")), records);
  fill("MiniDB", folder.file("db"), {{"c", "3"}}, DbMode::write);
  EXPECT_EQ(all("minidb", folder.file("db")).size(), 4u);
  fill("minidb", folder.file("db"), {{"d", "4"}});
  EXPECT_EQ(all("minidb", folder.file("db")), (Records{{"d", "4"}}));
}

TEST(Db, MiniDbBytesAreThePublicOnes) {
  const TempFolder folder;
  fill("minidb", folder.file("db"), {{"key", "value!"}});
  EXPECT_EQ(read_all(folder.file("db")), std::string("\x03\0\0\0\x06\0\0\0keyvalue!", 17));
}

TEST(Db, LmdbSortsByKey) {
  const TempFolder folder;
  fill("lmdb", folder.file("db"), {{"b", "1"}, {"a", "2"}, {"b", "3"}});
  EXPECT_EQ(all("LMDB", folder.file("db")), (Records{{"a", "2"}, {"b", "3"}}));
  fill("lmdb", folder.file("db"), {{"c", std::string(1 << 20, 'x')}}, DbMode::write);
  EXPECT_EQ(all("lmdb", folder.file("db")).size(), 3u);
  const auto db = open_db("lmdb", folder.file("db"), DbMode::read);
  const auto cursor = db->cursor();
  cursor->seek("aa");
  ASSERT_TRUE(cursor->valid());
  EXPECT_EQ(cursor->key(), "b");
  cursor->seek("d");
  EXPECT_FALSE(cursor->valid());
  expect_contains(error_text([&] { db->transaction(); }), "is open for reading only");
}

TEST(Db, WhatIsNotCommittedIsNotThere) {
  const TempFolder folder;
  for (const std::string type : {"lmdb", "minidb"}) {
    const std::string path = folder.file(type);
    auto db = open_db(type, path, DbMode::create);
    auto transaction = db->transaction();
    transaction->put("a", "1");
    transaction->commit();
    transaction->put("b", "2");
    transaction.reset();
    db.reset();
    EXPECT_EQ(all(type, path), (Records{{"a", "1"}})) << type;
  }
}

TEST(Db, CursorOutlivesItsDatabase) {
  const TempFolder folder;
  for (const std::string type : {"lmdb", "minidb"}) {
    fill(type, folder.file(type), {{"a", "1"}, {"b", "2"}});
    const auto cursor = open_db(type, folder.file(type), DbMode::read)->cursor();
    cursor->next();
    EXPECT_EQ(cursor->value(), "2");
  }
}

TEST(Db, EmptyDatabases) {
  const TempFolder folder;
  for (const std::string type : {"lmdb", "minidb"}) {
    fill(type, folder.file(type), {});
    EXPECT_TRUE(all(type, folder.file(type)).empty());
    EXPECT_EQ(error_text([&] { DbReader reader(type, folder.file(type)); }),
              "the database " + folder.file(type) + " has no records");
  }
}

TEST(Db, UnknownTypesAreListed) {
  EXPECT_EQ(error_text([] { open_db("lmbd", "x", DbMode::read); }),
            "there is no database type \"lmbd\"; there are: lmdb, minidb");
  EXPECT_EQ(error_text([] { open_db("leveldb", "x", DbMode::read); }),
            "database type \"leveldb\" is not supported in this build\n"
            "  fix set the database type to one of: lmdb, minidb");
  expect_contains(error_text([] { open_db("rocksdb", "x", DbMode::read); }), "is not supported in this build");
  EXPECT_EQ(error_text([] { open_db("lmdb", "", DbMode::read); }), "the path of the lmdb database is empty");
}

TEST(Db, MissingAndWrongPaths) {
  const TempFolder folder;
  write_all(folder.file("file"), "x");
  std::filesystem::create_directory(folder.file("folder"));
  expect_contains(error_text([&] { open_db("lmdb", folder.file("none"), DbMode::read); }), "No such file");
  expect_contains(error_text([&] { open_db("lmdb", folder.file("file"), DbMode::read); }), "is not an LMDB database");
  expect_contains(error_text([&] { open_db("lmdb", folder.file("folder"), DbMode::read); }), "data.mdb");
  expect_contains(error_text([&] { open_db("minidb", folder.file("none"), DbMode::write); }), "No such file");
  expect_contains(error_text([&] { open_db("minidb", folder.file("folder"), DbMode::read); }), "not a regular file");
  expect_contains(error_text([&] { open_db("minidb", folder.file("folder"), DbMode::create); }), "not a regular file");
  const std::string text = error_text([&] { open_db("lmdb", folder.file("folder"), DbMode::create); });
  expect_contains(text, "cannot create the LMDB database " + folder.file("folder") + ": File exists");
}

TEST(Db, LmdbRefusesOtherFiles) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.file("db"));
  write_all(folder.file("db/data.mdb"), "");
  expect_contains(error_text([&] { open_db("lmdb", folder.file("db"), DbMode::read); }), "is empty");
  write_all(folder.file("db/data.mdb"), "hello");
  expect_contains(error_text([&] { open_db("lmdb", folder.file("db"), DbMode::read); }), "too few for its two meta");
  write_all(folder.file("db/data.mdb"), std::string(10000, 'x'));
  expect_contains(error_text([&] { open_db("lmdb", folder.file("db"), DbMode::read); }), "is not an LMDB file");
}

TEST(Db, KeysAndValuesThatCannotBeStored) {
  const TempFolder folder;
  const auto lmdb = open_db("lmdb", folder.file("lmdb"), DbMode::create);
  const auto in_lmdb = lmdb->transaction();
  in_lmdb->put(std::string(511, 'k'), "");
  expect_contains(error_text([&] { in_lmdb->put(std::string(512, 'k'), "v"); }),
                  "has 512 bytes; 1 to 511 are possible");
  expect_contains(error_text([&] { in_lmdb->put("", "v"); }), "has 0 bytes");
  const auto minidb = open_db("minidb", folder.file("minidb"), DbMode::create);
  const auto in_minidb = minidb->transaction();
  expect_contains(error_text([&] { in_minidb->put("", "v"); }), "a key of 0 bytes");
  expect_contains(error_text([&] { in_minidb->put("k", ""); }), "a value of 0 bytes");
}

// Its pages are mapped, and reading one that is gone would be a SIGBUS.
TEST(Db, AnLmdbThatIsCutOffUnderItsReader) {
  const TempFolder folder;
  const std::string path = folder.file("db");
  fill("lmdb", path, {{"a", std::string(1 << 16, '1')}, {"b", std::string(1 << 16, '2')}});
  const auto db = open_db("lmdb", path, DbMode::read);
  const auto cursor = db->cursor();
  std::filesystem::resize_file(path + "/data.mdb", 8192);
  const std::string expected =
      fmt::format("the LMDB database {} had {} bytes when it was opened, and has 8192 now", path, db->bytes());
  expect_contains(error_text([&] { cursor->next(); }), expected);
  expect_contains(error_text([&] { cursor->seek("a"); }), expected);
  expect_contains(error_text([&] { db->cursor(); }), expected);
}

TEST(Db, TruncatedMiniDb) {
  const TempFolder folder;
  fill("minidb", folder.file("db"), {{"first", "12345"}, {"second", "67890"}});
  const std::string whole = read_all(folder.file("db"));
  const size_t record = 8 + 5 + 5;
  for (size_t size = 0; size < whole.size(); ++size) {
    write_all(folder.file("cut"), whole.substr(0, size));
    if (size == 0 || size == record)
      EXPECT_EQ(all("minidb", folder.file("cut")).size(), size / record);
    else
      expect_contains(error_text([&] { all("minidb", folder.file("cut")); }), "is truncated");
  }
}

TEST(Db, AbsurdMiniDbRecords) {
  const TempFolder folder;
  const auto with_lengths = [&](int32_t key, int32_t value) {
    std::string bytes(40, 'x');
    std::memcpy(bytes.data(), &key, 4);
    std::memcpy(bytes.data() + 4, &value, 4);
    write_all(folder.file("db"), bytes);
    return error_text([&] { all("minidb", folder.file("db")); });
  };
  EXPECT_EQ(with_lengths(0, 5), "minidb file " + folder.file("db") +
                                    " is damaged: the record at byte 0 has key length 0 and value length 5");
  expect_contains(with_lengths(-1, 5), "key length -1");
  expect_contains(with_lengths(1, -5), "value length -5");
  expect_contains(with_lengths(2147483647, 2147483647), "needs 4294967302 bytes, 40 are left");
  expect_contains(with_lengths(1, 32), "the record at byte 0 needs 41 bytes, 40 are left");
}

TEST(Db, TargetsAreCheckedBeforehand) {
  const TempFolder folder;
  fill("lmdb", folder.file("lmdb"), {{"a", "1"}});
  fill("minidb", folder.file("minidb"), {{"a", "1"}});
  EXPECT_EQ(error_text([&] { check_db_target("lmdb", folder.file("lmdb")); }),
            "the lmdb database " + folder.file("lmdb") + " already exists\n  fix remove it, or choose another path");
  expect_contains(error_text([&] { check_db_target("lmdb", folder.file("none/db")); }), "cannot be used");
  expect_contains(error_text([&] { check_db_target("minidb", folder.file("lmdb")); }), "is not a file");
  check_db_target("minidb", folder.file("minidb"));
  check_db_target("lmdb", folder.file("new"));
}

std::string next_key(DbReader& reader) {
  std::string key, value;
  reader.read(key, value);
  return key;
}

std::string next_keys(DbReader& reader, int count) {
  std::string keys;
  for (int i = 0; i < count; ++i) keys += next_key(reader);
  return keys;
}

TEST(DbReader, StartsOverAtTheEnd) {
  const TempFolder folder;
  const Records records = {{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}, {"e", "5"}};
  for (const std::string type : {"lmdb", "minidb"}) {
    fill(type, folder.file(type), records);
    DbReader whole(type, folder.file(type));
    EXPECT_EQ(next_keys(whole, 12), "abcdeabcdeab");
    DbReader first(type, folder.file(type), 2, 0), second(type, folder.file(type), 2, 1);
    EXPECT_EQ(next_keys(first, 7), "aceacea");
    EXPECT_EQ(next_keys(second, 5), "bdbdb");
    DbReader last(type, folder.file(type), 7, 4);
    EXPECT_EQ(next_keys(last, 3), "eee");
    EXPECT_EQ(error_text([&] { DbReader(type, folder.file(type), 7, 5); }),
              "the database " + folder.file(type) + " has 5 records, so shard 5 of 7 has none");
    EXPECT_EQ(error_text([&] { DbReader(type, folder.file(type), 2, 2); }),
              "the shard must be one of 0 to 1, but is 2");
  }
}

TEST(DbReader, SavedReaderGoesOn) {
  const TempFolder folder;
  for (const std::string type : {"lmdb", "minidb"}) {
    fill(type, folder.file(type), {{"a", "1"}, {"b", "2"}, {"c", "3"}});
    DbReader reader(type, folder.file(type));
    next_keys(reader, 2);
    DbReader again(reader.to_proto("reader"));
    EXPECT_EQ(next_key(again), type == "lmdb" ? "c" : "a");  // minidb cannot look for a key
  }
}

}  // namespace
}  // namespace stepnet::db_test
