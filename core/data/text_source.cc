// Lines of a text as columns of tokens.
#include <cstring>
#include <utility>

#include "core/data/sequences.h"
#include "core/data/sources.h"
#include "core/data/tokenizer.h"
#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr std::string_view kStream = ":stream";

class TokenColumn final : public Column {
 public:
  TokenColumn(std::vector<int32_t> tokens, std::string path)
      : tokens_(std::move(tokens)), path_(std::move(path)), shape_(std::vector<int64_t>{}) {}
  DType dtype() const override { return DType::int32; }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return static_cast<int64_t>(tokens_.size()); }
  const std::string& file() const override { return path_; }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    if (count > 0) std::memcpy(to, tokens_.data() + first, static_cast<size_t>(count) * sizeof(int32_t));
  }

 private:
  std::vector<int32_t> tokens_;
  std::string path_;
  Shape shape_;
};

}  // namespace

std::vector<NamedColumn> open_lines(const SourceName& source) {
  std::string vocabulary = source.id;
  const bool is_stream = vocabulary.ends_with(kStream);
  if (is_stream) vocabulary.resize(vocabulary.size() - kStream.size());
  if (source.name.empty() || vocabulary.empty() || !source.parts.empty())
    throw Error(fmt::format("data are given as \"{}\"", source.text),
                "name the lines of a text as NAME=FILE.txt@VOCABULARY, or all of it as one series of tokens as "
                "NAME=FILE.txt@VOCABULARY:stream; `stepnet vocab` makes a vocabulary");
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(vocabulary);
  const FileReader file(source.path);
  const std::string text = file.text_at(0, file.size());
  std::vector<int32_t> tokens;
  std::vector<int64_t> lengths;
  for (const std::string_view line : lines_of(text)) {
    const std::vector<int32_t> more = tokenizer->encode(line);
    tokens.insert(tokens.end(), more.begin(), more.end());
    lengths.push_back(static_cast<int64_t>(more.size()));
    if (is_stream && tokenizer->end_of_line()) tokens.push_back(*tokenizer->end_of_line());
  }
  require(!lengths.empty(), "{} is empty", file.path());
  auto all = std::make_shared<TokenColumn>(std::move(tokens), file.path());
  if (is_stream) return {{source.name, std::move(all)}};
  return {{source.name, sequences(std::move(all), lengths, source.text)}};
}

}  // namespace stepnet
