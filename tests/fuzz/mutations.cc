// See the header.
#include "tests/fuzz/mutations.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>

namespace stepnet::testing {
namespace {

using Random = std::mt19937_64;
constexpr size_t kLongestPart = 64;

size_t below(size_t bound, Random& random) { return bound == 0 ? 0 : random() % bound; }

struct Part {
  size_t begin = 0, size = 0;
};
Part some_part(const std::string& bytes, Random& random) {
  const size_t begin = below(bytes.size() + 1, random);
  return {begin, below(std::min(bytes.size() - begin, kLongestPart) + 1, random)};
}

void set_byte(std::string& bytes, Random& random) {
  if (!bytes.empty()) bytes[below(bytes.size(), random)] = static_cast<char>(random());
}

void flip_bit(std::string& bytes, Random& random) {
  if (!bytes.empty()) bytes[below(bytes.size(), random)] ^= static_cast<char>(1 << below(8, random));
}

// 1, 2, 4 or 8 bytes become a number that sizes and offsets stumble over.
void set_number(std::string& bytes, Random& random) {
  const size_t width = size_t{1} << below(4, random);
  if (bytes.size() < width) return;
  constexpr int64_t kAwkward[] = {
      0,     1,         -1,        127,        128,       255,       256,           32767,           65535,
      65536, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX / 2, int64_t{1} << 40};
  const int64_t value = kAwkward[below(std::size(kAwkward), random)];
  std::memcpy(bytes.data() + below(bytes.size() - width + 1, random), &value, width);
}

// A number in text becomes another.
void set_digits(std::string& bytes, Random& random) {
  constexpr const char* kAwkward[] = {"0",
                                      "-1",
                                      "1",
                                      "2147483647",
                                      "2147483648",
                                      "4294967296",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "18446744073709551616",
                                      "1e30",
                                      "nan",
                                      "inf",
                                      "0.5"};
  const size_t start = below(bytes.size(), random);
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto begin = std::find_if(bytes.begin() + static_cast<long>(start), bytes.end(), digit);
  const auto end = std::find_if_not(begin, bytes.end(), digit);
  if (begin != bytes.end()) bytes.replace(begin, end, kAwkward[below(std::size(kAwkward), random)]);
}

void cut(std::string& bytes, Random& random) {
  const Part part = some_part(bytes, random);
  bytes.erase(part.begin, part.size);
}

void cut_end(std::string& bytes, Random& random) { bytes.resize(below(bytes.size() + 1, random)); }

void put_part_of(const std::string& from, std::string& bytes, Random& random) {
  const Part part = some_part(from, random);
  const std::string copy = from.substr(part.begin, part.size);
  const size_t at = below(bytes.size() + 1, random);
  if (random() % 2)
    bytes.insert(at, copy);
  else
    bytes.replace(at, copy.size(), copy);
}

// Two words of a text change places.
void swap_words(std::string& bytes, Random& random) {
  const auto word_at = [&](size_t at) {
    const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    size_t begin = at, end = at;
    while (begin > 0 && in_word(bytes[begin - 1])) --begin;
    while (end < bytes.size() && in_word(bytes[end])) ++end;
    return Part{begin, end - begin};
  };
  Part a = word_at(below(bytes.size(), random)), b = word_at(below(bytes.size(), random));
  if (a.begin > b.begin) std::swap(a, b);
  if (a.begin + a.size > b.begin) return;
  const std::string first = bytes.substr(a.begin, a.size), second = bytes.substr(b.begin, b.size);
  bytes.replace(b.begin, b.size, first);
  bytes.replace(a.begin, a.size, second);
}

}  // namespace

std::string mutated(std::span<const Seed> seeds, Random& random) {
  constexpr void (*kChanges[])(std::string&, Random&) = {set_byte, flip_bit, set_number, set_digits,
                                                         cut,      cut_end,  swap_words};
  std::string bytes = seeds[below(seeds.size(), random)].bytes;
  for (size_t n = 1 + below(4, random); n > 0; --n) {
    const size_t which = below(std::size(kChanges) + 2, random);
    if (which < std::size(kChanges))
      kChanges[which](bytes, random);
    else
      put_part_of(which == std::size(kChanges) ? bytes : seeds[below(seeds.size(), random)].bytes, bytes, random);
  }
  return bytes;
}

}  // namespace stepnet::testing
