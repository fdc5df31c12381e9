#include "core/io/text_stream.h"

#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {

std::string byte_text(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  if (value > 0x20 && value < 0x7F) return fmt::format("'{}'", byte);
  return fmt::format("0x{:02X}", value);
}

Vocabulary Vocabulary::of_text(std::string_view text) {
  std::array<bool, 256> seen{};
  for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
  std::string bytes;
  for (int i = 0; i < 256; ++i)
    if (seen[i]) bytes.push_back(static_cast<char>(i));
  return Vocabulary(std::move(bytes));
}

Vocabulary::Vocabulary(std::string bytes) : bytes_(std::move(bytes)) {
  require(!bytes_.empty(), "the vocabulary is empty");
  index_.fill(-1);
  for (size_t i = 0; i < bytes_.size(); ++i) {
    int16_t& place = index_[static_cast<unsigned char>(bytes_[i])];
    require(place < 0, "the vocabulary has the byte {} twice", byte_text(bytes_[i]));
    place = static_cast<int16_t>(i);
  }
}

std::string Vocabulary::encode(std::string_view text, std::string_view what, int64_t offset) const {
  std::string tokens(text.size(), '\0');
  for (size_t i = 0; i < text.size(); ++i) {
    const int token = index(text[i]);
    if (token < 0)
      throw Error(fmt::format("the byte {} at offset {} of {} is not among the {} bytes of the vocabulary",
                              byte_text(text[i]), offset + static_cast<int64_t>(i), what, size()),
                  "the vocabulary is what the training part of the text holds: remove or replace the byte, or train on "
                  "text that has it");
    tokens[i] = static_cast<char>(token);
  }
  return tokens;
}

std::string read_text_file(const FilePlace& place) {
  const FileReader file(place);
  require(file.size() > 0, "the text file \"{}\" is empty", place);
  return file.text_at(0, file.size());
}

TextStreams::TextStreams(std::string tokens, int64_t batch, int64_t timesteps, std::string_view what)
    : tokens_(std::move(tokens)), batch_(batch), timesteps_(timesteps) {
  require(batch >= 1, "the batch must be at least 1, but is {}", batch);
  require(timesteps >= 1, "the number of timesteps must be at least 1, but is {}", timesteps);
  const auto size = static_cast<int64_t>(tokens_.size());
  // The products below must not overflow on absurd sizes.
  const bool fits = batch < size && timesteps < size && batch <= (size - 1) / timesteps;
  if (!fits)
    throw Error(fmt::format("{} has {} bytes, but one batch of {} streams by {} timesteps needs {:.0f}", what, size,
                            batch, timesteps, static_cast<double>(batch) * static_cast<double>(timesteps) + 1),
                "use a longer text, a smaller batch or fewer timesteps");
  length_ = (size - 1) / batch;
}

void TextStreams::set_position(int64_t position) {
  require(position >= 0 && position < batches(), "the position {} is not among the {} batches of the text", position,
          batches());
  position_ = position;
}

void TextStreams::next(Tensor& input, Tensor& target, int64_t first, int64_t streams) {
  copy(position_ * timesteps_, timesteps_, first, streams, input, target);
  position_ = (position_ + 1) % batches();
}

void TextStreams::copy(int64_t begin, int64_t count, int64_t first, int64_t streams, Tensor& input,
                       Tensor& target) const {
  const int64_t last = (first + streams - 1) * length_ + begin + count;  // the last target
  require(begin >= 0 && count >= 0 && first >= 0 && streams >= 1 && last < static_cast<int64_t>(tokens_.size()),
          "timesteps {} to {} of streams {} to {} are not in the text", begin, begin + count, first, first + streams);
  input.resize(DType::int32, {count, streams});
  target.resize(DType::int32, {count * streams});
  auto* in = input.data<int32_t>();
  auto* out = target.data<int32_t>();
  for (int64_t b = 0; b < streams; ++b) {
    const auto* from = reinterpret_cast<const unsigned char*>(tokens_.data()) + (first + b) * length_ + begin;
    for (int64_t t = 0; t < count; ++t) {
      in[t * streams + b] = from[t];
      out[t * streams + b] = from[t + 1];
    }
  }
  input.mark_written();
  target.mark_written();
}

}  // namespace stepnet
