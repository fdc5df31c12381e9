// Vocabularies and texts: two bytes for batch and timesteps, one for the length of the vocabulary, the vocabulary, the
// text.
#include <algorithm>

#include "core/io/text_stream.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {
namespace {

// What `encode` gives are the places of the bytes.
std::string encoded(const Vocabulary& vocabulary, std::string_view text) {
  std::string tokens = vocabulary.encode(text, "the text");
  for (size_t i = 0; i < text.size(); ++i)
    must(vocabulary.byte(static_cast<unsigned char>(tokens[i])) == text[i], "a token stands for its byte");
  return tokens;
}

void read_streams(std::string tokens, int64_t batch, int64_t timesteps) {
  TextStreams streams(std::move(tokens), batch, timesteps);
  Tensor input, target;
  const int64_t batches = streams.batches();
  for (int64_t i = 0; i < std::min<int64_t>(batches, 20); ++i) streams.next(input, target);
  must(batches > 20 || streams.at_start(), "the text starts over after its last batch");
  streams.set_position(batches - 1);
  streams.next(input, target);
  const int64_t last = batch - 1;
  streams.copy(0, streams.length() + streams.tail(), last, 1, input, target);
}

}  // namespace

int fuzz_vocabulary(const uint8_t* data, size_t size) {
  Parts parts(data, size);
  const int64_t batch = parts.byte(), timesteps = parts.byte();
  const std::string_view bytes = parts.text(parts.byte());
  const std::string_view rest = parts.text(size);
  may_refuse([&] { read_streams(encoded(Vocabulary(std::string(bytes)), rest), batch, timesteps); });
  const std::string path = fuzz_file("input.txt", rest);
  return may_refuse([&] {
    const std::string text = read_text_file(path);
    must(text == rest, "a text is read as it is");
    must_work([&] { encoded(Vocabulary::of_text(text), text); });
    read_streams(encoded(Vocabulary::of_text(text), text), batch, timesteps);
  });
}

}  // namespace stepnet::testing
