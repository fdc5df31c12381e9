// Vocabularies, and texts read as several streams.
#include "core/io/text_stream.h"

#include <gtest/gtest.h>

#include "stepnet/error.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::text_stream_test {
namespace {

using testing::error_text;

TEST(Vocabulary, IsTheTextsBytesInOrder) {
  const Vocabulary v = Vocabulary::of_text("banana\n\xE9");
  EXPECT_EQ(v.bytes(), "\nabn\xE9");
  EXPECT_EQ(v.index('b'), 2);
  EXPECT_EQ(v.index('\xE9'), 4);
  EXPECT_EQ(v.index('z'), -1);
  EXPECT_EQ(v.byte(3), 'n');
  EXPECT_EQ(v.encode("nab", "it"), std::string("\x03\x01\x02", 3));
}

TEST(Vocabulary, HoldsAll256Bytes) {
  std::string all;
  for (int i = 255; i >= 0; --i) all.push_back(static_cast<char>(i));
  const Vocabulary v = Vocabulary::of_text(all);
  EXPECT_EQ(v.size(), 256);
  const std::string tokens = v.encode(all, "it");
  for (int i = 0; i < 256; ++i) EXPECT_EQ(static_cast<unsigned char>(tokens[i]), 255 - i);
}

TEST(Vocabulary, RefusesWhatItDoesNotKnow) {
  const Vocabulary v = Vocabulary::of_text("abc");
  EXPECT_EQ(error_text([&] { v.encode("ab d", "\"t.txt\"", 100); }),
            "the byte 0x20 at offset 102 of \"t.txt\" is not among the 3 bytes of the vocabulary\n"
            "  fix the vocabulary is what the training part of the text holds: remove or replace the byte, or train on "
            "text that has it");
  EXPECT_EQ(error_text([] { Vocabulary::of_text(""); }), "the vocabulary is empty");
  EXPECT_EQ(error_text([] { Vocabulary("aba"); }), "the vocabulary has the byte 'a' twice");
}

// Every token of the naive reading: stream b, timestep t.
void expect_batch(const std::string& text, int64_t batch, int64_t first, int64_t count, const Tensor& input,
                  const Tensor& target) {
  const int64_t length = (static_cast<int64_t>(text.size()) - 1) / batch;
  ASSERT_EQ(input.shape(), Shape({count, batch}));
  ASSERT_EQ(target.shape(), Shape({count * batch}));
  for (int64_t t = 0; t < count; ++t)
    for (int64_t b = 0; b < batch; ++b) {
      EXPECT_EQ(input.data<int32_t>()[t * batch + b], text[b * length + first + t]);
      EXPECT_EQ(target.data<int32_t>()[t * batch + b], text[b * length + first + t + 1]);
    }
}

TEST(TextStreams, BatchesGoOnWhereTheLastStopped) {
  std::string text;
  for (int i = 0; i < 48; ++i) text.push_back(static_cast<char>(i * 37 % 101));
  TextStreams streams(text, 3, 4);  // 15 tokens to predict in each stream: three batches, three tokens unread
  EXPECT_EQ(streams.length(), 15);
  EXPECT_EQ(streams.batches(), 3);
  EXPECT_EQ(streams.tail(), 2);
  Tensor input, target;
  for (int64_t k = 0; k < 7; ++k) {
    EXPECT_EQ(streams.position(), k % 3);
    EXPECT_EQ(streams.at_start(), k % 3 == 0);
    streams.next(input, target);
    expect_batch(text, 3, k % 3 * 4, 4, input, target);
  }
  streams.set_position(2);
  streams.next(input, target);
  expect_batch(text, 3, 8, 4, input, target);
  EXPECT_TRUE(streams.at_start());
  EXPECT_EQ(error_text([&] { streams.set_position(3); }), "the position 3 is not among the 3 batches of the text");
}

TEST(TextStreams, TheTailGoesOnFromTheLastStream) {
  const std::string text = "0123456789";
  const TextStreams streams(text, 4, 2);  // two tokens in each stream, one behind them
  Tensor input, target;
  streams.copy(2, streams.tail(), 3, 1, input, target);
  ASSERT_EQ(input.shape(), Shape({1, 1}));
  EXPECT_EQ(input.item<int32_t>(), '8');
  EXPECT_EQ(target.item<int32_t>(), '9');
  EXPECT_THROW(streams.copy(3, 1, 3, 1, input, target), Error);
}

TEST(TextStreams, OneByteMoreThanABatchIsEnough) {
  TextStreams streams("abcdefg", 2, 3);
  EXPECT_EQ(streams.batches(), 1);
  EXPECT_EQ(error_text([] { TextStreams("abcdef", 2, 3, "it"); }),
            "it has 6 bytes, but one batch of 2 streams by 3 timesteps needs 7\n"
            "  fix use a longer text, a smaller batch or fewer timesteps");
  const int64_t huge = int64_t{1} << 62;
  EXPECT_THROW(TextStreams("abc", huge, huge), Error);
  EXPECT_THROW(TextStreams("abc", 0, 1), Error);
  EXPECT_THROW(TextStreams("", 1, 1), Error);
}

TEST(ReadTextFile, RefusesEmptyFiles) {
  const testing::TempFolder folder;
  testing::write_all(folder.file("empty"), "");
  EXPECT_EQ(error_text([&] { read_text_file(folder.file("empty")); }),
            "the text file \"" + folder.file("empty") + "\" is empty");
  EXPECT_THROW(read_text_file(folder.file("none")), Error);
  testing::write_all(folder.file("two"), std::string("a\0", 2));
  EXPECT_EQ(read_text_file(folder.file("two")), std::string("a\0", 2));
}

}  // namespace
}  // namespace stepnet::text_stream_test
