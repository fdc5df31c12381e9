#include "tests/core/io/zip_bytes.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "core/io/files.h"

namespace stepnet::testing {
namespace {

void append(std::string& to, uint64_t value, size_t bytes) { to.append(reinterpret_cast<const char*>(&value), bytes); }

// Blocks of at most 65,535 bytes, each with its length and that one's complement.
std::string deflated(const std::string& content) {
  constexpr size_t kMost = 0xFFFF;
  std::string packed;
  for (size_t at = 0; at == 0 || at < content.size(); at += kMost) {
    const size_t bytes = std::min(kMost, content.size() - at);
    append(packed, at + bytes == content.size() ? 1 : 0, 1);
    append(packed, bytes, 2);
    append(packed, ~bytes, 2);
    packed += content.substr(at, bytes);
  }
  return packed;
}

}  // namespace

std::string zip_of(const std::vector<ZipMember>& members, const std::string& comment, bool wide) {
  constexpr uint64_t kWide = 0xFFFFFFFF;
  std::string zip, directory;
  for (const ZipMember& m : members) {
    const std::string packed = m.deflated ? deflated(m.content) : m.content;
    const uint64_t at = zip.size(), method = m.deflated ? 8 : 0;
    std::string facts;  // what both headers have: version, flags, method, time, checksum, sizes
    append(facts, 20, 2);
    append(facts, 0, 2);
    append(facts, method, 2);
    append(facts, 0, 4);
    append(facts, crc32_of(m.content.data(), m.content.size()), 4);
    append(facts, wide ? kWide : packed.size(), 4);
    append(facts, wide ? kWide : m.content.size(), 4);
    append(facts, m.name.size(), 2);
    zip += "PK\3\4" + facts;
    append(zip, 3, 2);
    zip += m.name + "!!!" + packed;  // an extra field that the directory does not have
    directory += "PK\1\2";
    append(directory, 20, 2);
    directory += facts;
    append(directory, wide ? 28 : 0, 2);
    directory.append(10, '\0');  // comment, part of the archive, attributes
    append(directory, wide ? kWide : at, 4);
    directory += m.name;
    if (!wide) continue;
    append(directory, 1, 2);
    append(directory, 24, 2);
    for (const uint64_t number : {uint64_t{m.content.size()}, uint64_t{packed.size()}, at})
      append(directory, number, 8);
  }
  const uint64_t begin = zip.size();
  zip += directory;
  if (wide) {
    const uint64_t record = zip.size();
    zip += "PK\6\6";
    append(zip, 44, 8);
    append(zip, 0, 4);
    append(zip, 0, 8);
    append(zip, members.size(), 8);
    append(zip, members.size(), 8);
    append(zip, directory.size(), 8);
    append(zip, begin, 8);
    zip += "PK\6\7";
    append(zip, 0, 4);
    append(zip, record, 8);
    append(zip, 1, 4);
  }
  zip += "PK\5\6";
  append(zip, 0, 4);
  append(zip, wide ? 0xFFFF : members.size(), 2);
  append(zip, wide ? 0xFFFF : members.size(), 2);
  append(zip, wide ? kWide : directory.size(), 4);
  append(zip, wide ? kWide : begin, 4);
  append(zip, comment.size(), 2);
  return zip + comment;
}

std::string numpy_archive() {
  const std::string hex =
      "504b03042d000000080000002100ccca9cbdffffffffffffffff05001400782e6e7079010010009800000000000000550000"
      "00000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc"
      "294e058a17672416a402f91ac63a0a469a3a0ab50a64032e063068b007120e4004c40d40bcc00100504b03042d0000000800"
      "0000210008651b5bffffffffffffffff05001400792e6e70790100100098000000000000004d000000000000009bec17ea1b"
      "10c9c850c650ad9e925a9c5ca46ea5a06e9369a1aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402"
      "f91ac63a9a3a0ab50a14002e760608e080d29c501a00504b01022d032d000000080000002100ccca9cbd5500000098000000"
      "050000000000000000000000800100000000782e6e7079504b01022d032d00000008000000210008651b5b4d000000980000"
      "0005000000000000000000000080018c000000792e6e7079504b0506000000000200020066000000100100000000";
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    int value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

}  // namespace stepnet::testing
