// Damaged LMDB files: opening and walking them must work or throw Error, and never crash or hang.
//
// Each case runs in a process of its own, so that a crash is the failure of one case with its number.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "core/io/db.h"
#include "core/io/lmdb_check.h"
#include "stepnet/error.h"
#include "tests/core/temp_folder.h"

namespace stepnet::lmdb_fuzz_test {
namespace {

using testing::read_all;
using testing::TempFolder;
using testing::write_all;

constexpr size_t kPage = 4096;
constexpr int kWorked = 0, kRefused = 1;

// Three levels of pages, values of all sizes, and free pages.
std::string valid_database(const TempFolder& folder) {
  const std::string path = folder.file("valid");
  auto db = open_db("lmdb", path, DbMode::create);
  auto txn = db->transaction();
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 400; ++i) {
      const std::string key = fmt::format("{:0{}}", i * 7 % 400, 40 + 400 * (i % 2));
      txn->put(key, std::string(i % 29 == 0 ? 9000 + i + 999 * round : 20 + i % 50, static_cast<char>('a' + round)));
    }
    txn->commit();
  }
  txn.reset();
  db.reset();
  return read_all(path + "/data.mdb");
}

void read_everything(const std::string& path) {
  auto db = open_db("lmdb", path, DbMode::read);
  auto cursor = db->cursor();
  size_t sum = 0;
  for (; cursor->valid(); cursor->next()) {
    for (const char c : cursor->key()) sum += static_cast<unsigned char>(c);
    for (const char c : cursor->value()) sum += static_cast<unsigned char>(c);
  }
  cursor->seek("00000000000000000000000000000000000000050");
  cursor->seek("zzz");
  volatile size_t keep = sum;
  (void)keep;
}

void write_something(const std::string& path) {
  auto db = open_db("lmdb", path, DbMode::write);
  auto txn = db->transaction();
  for (int i = 0; i < 200; ++i)
    txn->put(fmt::format("{:0{}}", i * 3, 40 + 400 * (i % 2)), std::string(i % 10 == 0 ? 13000 : 10 + i, 'w'));
  txn->commit();
}

// The exit status of `fn` in a process of its own; 128 and more: ended by a signal.
template <class Fn>
int run_apart(Fn fn) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a hang ends as a crash
    try {
      fn();
    } catch (const Error&) {
      ::_exit(kRefused);
    }
    ::_exit(kWorked);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class LmdbFuzz : public ::testing::Test {
 protected:
  void SetUp() override {
    valid_ = valid_database(folder_);
    ASSERT_GT(valid_.size(), 100 * kPage);
    std::filesystem::create_directory(folder_.file("case"));
  }

  size_t random(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }
  void random_bytes(std::string& data, size_t at, size_t count) {
    for (size_t i = at; i < std::min(at + count, data.size()); ++i) data[i] = static_cast<char>(random(256));
  }

  // Runs `damage` many times on a fresh copy; returns how many of the cases were refused.
  template <class Damage>
  int run_cases(int cases, Damage damage) {
    int refused = 0;
    for (int i = 0; i < cases; ++i) {
      std::string data = valid_;
      damage(data);
      for (const auto& use : {read_everything, write_something}) {
        write_all(folder_.file("case/data.mdb"), data);
        const int status = run_apart([&] { use(folder_.file("case")); });
        EXPECT_TRUE(status == kWorked || status == kRefused) << "case " << i << " ended with status " << status;
        refused += status == kRefused;
      }
    }
    return refused;
  }

  TempFolder folder_;
  std::string valid_;
  std::mt19937_64 random_{20240701};
};

TEST_F(LmdbFuzz, UndamagedWorks) {
  EXPECT_EQ(run_cases(1, [](std::string&) {}), 0);
  const LmdbSummary summary = check_lmdb_file(folder_.file("valid/data.mdb"));
  EXPECT_EQ(summary.records, 400u);
  EXPECT_EQ(summary.depth, 3);
}

TEST_F(LmdbFuzz, Truncated) {
  const int refused = run_cases(60, [&](std::string& data) { data.resize(random(data.size())); });
  EXPECT_GT(refused, 90);
}

TEST_F(LmdbFuzz, FlippedBytesAnywhere) {
  run_cases(60, [&](std::string& data) {
    for (size_t n = 1 + random(8); n > 0; --n) data[random(data.size())] ^= static_cast<char>(1 + random(255));
  });
}

TEST_F(LmdbFuzz, PageHeaders) {
  const int refused = run_cases(100, [&](std::string& data) {
    const size_t page = random(data.size() / kPage);
    random_bytes(data, page * kPage + random(24), 1 + random(8));
  });
  EXPECT_GT(refused, 20);
}

TEST_F(LmdbFuzz, NodesAndOffsets) {
  run_cases(100, [&](std::string& data) {
    const size_t page = random(data.size() / kPage) * kPage;
    uint16_t upper = 0;
    std::memcpy(&upper, data.data() + page + 14, sizeof(upper));
    const size_t at = random(2) ? 16 + random(64) : std::min<size_t>(upper, kPage - 64) + random(64);
    random_bytes(data, page + at, 1 + random(3));
  });
}

TEST_F(LmdbFuzz, MetaPages) {
  const int refused = run_cases(100, [&](std::string& data) {
    const size_t page = random(2) * kPage;
    random_bytes(data, page + 16 + random(136), 1 + random(4));
  });
  EXPECT_GT(refused, 30);
}

TEST_F(LmdbFuzz, PagesSwappedOrBlank) {
  run_cases(60, [&](std::string& data) {
    const size_t a = random(data.size() / kPage) * kPage, b = random(data.size() / kPage) * kPage;
    if (random(2))
      std::swap_ranges(data.begin() + a, data.begin() + a + kPage, data.begin() + b);
    else
      std::fill_n(data.begin() + a, kPage, '\0');
    const uint64_t number = b / kPage;
    if (random(2)) std::memcpy(data.data() + b, &number, sizeof(number));
  });
}

}  // namespace
}  // namespace stepnet::lmdb_fuzz_test
