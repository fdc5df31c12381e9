// The file of choices among algorithms: what is kept and read, what is refused, and who is asked for the time.
#include "gpu/vendor/product_choices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "core/io/files.h"
#include "stepnet/error.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::product_choices_test {
namespace {

using gpu::ChoiceKey;
using gpu::ProductChoices;

const ChoiceKey kKey{"a GPU", "130100", "float [2, 3] [3, 4]"};

class ProductChoicesFile : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  const std::string path_ = folder_.file("choices");
  const ProductChoices choices_{path_};

  std::string content() const {
    const FileReader file(path_);
    return file.text_at(0, file.size());
  }
  // "" or what is wrong with the file that this is.
  std::string refusal(const std::string& text) const {
    write_file(path_, text);
    try {
      choices_.read();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  void expect_refusal(const std::string& text, const std::string& expected) const {
    const std::string found = refusal(text);
    EXPECT_EQ(found.substr(0, path_.size() + expected.size() + 1), path_ + ":" + expected) << found;
  }
};

TEST_F(ProductChoicesFile, HasNothingUntilSomethingIsKept) {
  EXPECT_TRUE(choices_.read().empty());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(choices_.keep(kKey, "7 1").algorithm, "7 1");
  ASSERT_EQ(choices_.read().size(), 1U);
  EXPECT_EQ(choices_.read().at(kKey).algorithm, "7 1");
}

TEST_F(ProductChoicesFile, WhatIsThereStays) {
  choices_.keep(kKey, "7 1");
  EXPECT_EQ(choices_.keep(kKey, "8 1").algorithm, "7 1");
  ChoiceKey other = kKey;
  for (std::string* part : {&other.device, &other.version, &other.product}) {
    *part = "another";
    choices_.keep(other, "9");
    EXPECT_EQ(choices_.read().at(other).algorithm, "9");
  }
  EXPECT_EQ(choices_.read().at(kKey).algorithm, "7 1");
  EXPECT_EQ(choices_.read().size(), 4U);
}

TEST_F(ProductChoicesFile, ALineIsThis) {
  choices_.keep(kKey, "7 1");
  EXPECT_EQ(content(),
            R"({"device":"a GPU","library":"130100","product":"float [2, 3] [3, 4]","algorithm":"7 1","crc32":")" +
                content().substr(content().size() - 11));
}

TEST_F(ProductChoicesFile, WhatIsNoSuchLineIsRefused) {
  choices_.keep(kKey, "7 1");
  const std::string line = content(), ending = line.substr(line.size() - 11, 8);
  expect_refusal(line + "\n", "2: is no JSON object of texts");
  expect_refusal(line + "{}\n", "2: has no member \"device\"");
  expect_refusal(line + line, "2: is about the same product as line 1");
  expect_refusal(line.substr(0, 40), "1: is no JSON object of texts");
  expect_refusal(std::string(100000, '['), "1: is no JSON object of texts");
  const auto with = [&](const std::string& part, const std::string& instead) {
    std::string text = line;
    return text.replace(text.find(part), part.size(), instead);
  };
  expect_refusal(with("\"7 1\"", "\"8 1\""), fmt::format("1: has the checksum \"{}\", but what it says has ", ending));
  expect_refusal(with("[2, 3]", "[3, 3]"), "1: has the checksum");
  expect_refusal(with("\"7 1\"", "7"), "1: is no JSON object of texts");
  expect_refusal(with("{", "{\"more\":\"\","), "1: has a member \"more\", which lines of choices do not have");
  expect_refusal(with("algorithm", "algorithms"), "1: has no member \"algorithm\"");
  EXPECT_NE(refusal(with("\"7 1\"", "\"8 1\"")).find("fix remove the line"), std::string::npos);
  EXPECT_EQ(refusal(line), "");
}

// Any byte may have changed: the file is then refused, or says the same as before.
TEST_F(ProductChoicesFile, DamageIsSeen) {
  for (int i = 0; i < 4; ++i) choices_.keep({"a GPU", "130100", std::to_string(i)}, std::to_string(i + 7));
  const std::string good = content();
  const auto before = choices_.read();
  const auto same = [&](const auto& now) {
    return now.size() == before.size() && std::ranges::equal(now, before, [](const auto& a, const auto& b) {
             return a.first == b.first && a.second.algorithm == b.second.algorithm;
           });
  };
  std::minstd_rand random(1);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    const size_t at = random() % text.size();
    if (i % 3 == 0)
      text.erase(at, 1 + random() % 50);
    else if (i % 3 == 1)
      text[at] = static_cast<char>(random());
    else
      text.insert(at, 1, static_cast<char>(random()));
    std::ofstream(path_, std::ios::binary) << text;
    try {
      const auto now = choices_.read();
      // A line that is gone as a whole is not missed.
      EXPECT_TRUE(same(now) || now.size() < before.size()) << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind(path_ + ":", 0), 0U) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST_F(ProductChoicesFile, WhatIsNoFileIsRefused) {
  EXPECT_NE(error_of([&] { ProductChoices(folder_.path()).read(); }).find(folder_.path()), std::string::npos);
  const ProductChoices nowhere(folder_.file("missing/choices"));
  EXPECT_TRUE(nowhere.read().empty());
  EXPECT_NE(error_of([&] { nowhere.keep(kKey, "7"); }).find("missing"), std::string::npos);
  std::filesystem::resize_file((write_file(path_, ""), path_), (1 << 24) + 1);
  EXPECT_NE(error_of([&] { choices_.read(); }).find("a file of choices has at most 16777216"), std::string::npos);
}

TEST_F(ProductChoicesFile, ManyMayKeepAtATime) {
  std::vector<std::string> taken(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < taken.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) choices_.keep({"a GPU", "130100", fmt::format("{} {}", t, i)}, "7");
      taken[t] = choices_.keep(kKey, std::to_string(t)).algorithm;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(choices_.read().size(), 81U);
  for (const std::string& each : taken) EXPECT_EQ(each, choices_.read().at(kKey).algorithm);
}

// What it takes, and how often the time of each was asked for.
struct Timed {
  std::vector<std::optional<double>> times;
  std::vector<int> asked = std::vector<int>(times.size());
  const gpu::Milliseconds time = [this](size_t i) {
    ++asked[i];
    return times[i];
  };
};

const std::vector<std::string> kAlgorithms = {"7", "8", "9"};

TEST_F(ProductChoicesFile, WithoutAFileTheFirstIsTaken) {
  const Timed timed{{3, 2, 1}};
  EXPECT_EQ(gpu::choose(kAlgorithms, kKey, nullptr, &timed.time), 0U);
  EXPECT_EQ(timed.asked, std::vector<int>(3));
}

TEST_F(ProductChoicesFile, TheFastestIsTakenAndKept) {
  const Timed timed{{3, 1, 2}}, later{{1, 3, 2}};
  EXPECT_EQ(gpu::choose(kAlgorithms, kKey, &choices_, &timed.time), 1U);
  EXPECT_EQ(timed.asked, std::vector<int>(3, 1));
  EXPECT_EQ(gpu::choose(kAlgorithms, kKey, &choices_, &later.time), 1U);
  EXPECT_EQ(gpu::choose({"9", "8"}, kKey, &choices_, nullptr), 1U);
  EXPECT_EQ(later.asked, std::vector<int>(3));
}

TEST_F(ProductChoicesFile, WhatDoesNotRunIsNotTaken) {
  const Timed timed{{std::nullopt, 2, 1.5}}, none{{std::nullopt, std::nullopt, std::nullopt}};
  EXPECT_EQ(gpu::choose(kAlgorithms, kKey, &choices_, &timed.time), 2U);
  EXPECT_EQ(gpu::choose(kAlgorithms, {"b", "", ""}, &choices_, &none.time), 0U);
}

TEST_F(ProductChoicesFile, WhatMayNotBeTimedStaysAsItWas) {
  const Timed timed{{3, 1, 2}};
  EXPECT_EQ(gpu::choose(kAlgorithms, kKey, &choices_, nullptr), 0U);
  EXPECT_EQ(gpu::choose(kAlgorithms, kKey, &choices_, &timed.time), 0U);
  EXPECT_EQ(timed.asked, std::vector<int>(3));
}

TEST_F(ProductChoicesFile, OneAlgorithmIsNoChoice) {
  EXPECT_EQ(gpu::choose({"7"}, kKey, &choices_, nullptr), 0U);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ProductChoicesFile, AnAlgorithmThatIsNotOfferedIsRefused) {
  choices_.keep({"a GPU", "130000", "another"}, "1");
  choices_.keep(kKey, "10");
  EXPECT_EQ(error_of([&] { gpu::choose(kAlgorithms, kKey, &choices_, nullptr); }),
            path_ +
                ":2: the algorithm \"10\" is not one that cuBLASLt 130100 offers on \"a GPU\" for float [2, 3] [3, 4]\n"
                "  fix remove the line, and the product is timed again, which may change results by roundings; or "
                "bring the file back");
}

}  // namespace
}  // namespace stepnet::testing::product_choices_test
