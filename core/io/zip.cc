// The file: members, each with a header of its own, then the directory, which names all of them, and a record that says
// where the directory is. Sizes and offsets that 32 bits cannot hold are all ones there, and stand in a record of 64
// bit or in an extra field. Source: PKWARE, APPNOTE.TXT, .ZIP File Format Specification 6.3.
#include "core/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr uint32_t kEnd = 0x06054B50, kEnd64 = 0x06064B50, kEnd64Place = 0x07064B50;
constexpr uint32_t kMember = 0x02014B50, kHeader = 0x04034B50;
constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kEnd64PlaceBytes = 20, kMemberBytes = 46, kHeaderBytes = 30;
constexpr uint32_t kWide = 0xFFFFFFFF;  // stands elsewhere, in 64 bits
constexpr uint16_t kWideExtra = 1;
constexpr uint16_t kStored = 0, kDeflated = 8, kEncrypted = 1;
constexpr uint64_t kMostRatio = 1040;  // deflate packs 258 bytes into two bits, at best
constexpr size_t kChunk = 1 << 16;

template <class T>
T value_in(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// Where the record at the end is. A comment may stand behind it.
uint64_t find_end(const ByteSource& file) {
  constexpr uint64_t kLongestComment = 0xFFFF;
  const uint64_t size = file.size();
  require(size >= kEndBytes, "{} is no zip archive", file.name());
  const uint64_t first = size - std::min(size, kEndBytes + kLongestComment);
  const std::string tail = file.text_at(first, size - first);
  for (uint64_t at = tail.size() - kEndBytes + 1; at-- > 0;)
    if (value_in<uint32_t>(tail, at) == kEnd && at + kEndBytes + value_in<uint16_t>(tail, at + 20) == tail.size())
      return first + at;
  fail("{} is no zip archive, or its end is missing", file.name());
}

class Inflater {
 public:
  explicit Inflater(const std::string& name) {
    require(inflateInit2(&stream_, -MAX_WBITS) == Z_OK, "no memory to inflate {}", name);
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

std::vector<std::byte> inflate_all(const ByteSource& packed, uint64_t size, const std::string& name) {
  std::vector<std::byte> bytes(size);
  Inflater inflater(name);
  z_stream& s = inflater.stream();
  std::string chunk;
  std::byte beyond{};  // more than is due would go here
  uint64_t read = 0, done = 0;
  for (int result = Z_OK; result != Z_STREAM_END;) {
    if (s.avail_in == 0 && read < packed.size()) {
      chunk = packed.text_at(read, std::min<uint64_t>(kChunk, packed.size() - read));
      read += chunk.size();
      s.next_in = reinterpret_cast<Bytef*>(chunk.data());
      s.avail_in = static_cast<uInt>(chunk.size());
    }
    const auto room = static_cast<uInt>(std::min<uint64_t>(size - done, std::numeric_limits<uInt>::max() / 2));
    s.next_out = reinterpret_cast<Bytef*>(room > 0 ? bytes.data() + done : &beyond);
    s.avail_out = std::max<uInt>(room, 1);
    const uInt before = s.avail_out;
    result = inflate(&s, Z_NO_FLUSH);
    require(result == Z_OK || result == Z_STREAM_END, "{} is damaged: it cannot be inflated", name);
    require(room > 0 || s.avail_out == before, "{} is damaged: it holds more than its {} bytes", name, size);
    done += before - s.avail_out;
  }
  require(done == size, "{} is damaged: it holds {} bytes instead of {}", name, done, size);
  return bytes;
}

}  // namespace

ZipFile::ZipFile(const FilePlace& place) : file_(file_bytes(place)) { read_directory(); }

void ZipFile::read_directory() {
  const uint64_t end = find_end(*file_);
  const std::string record = file_->text_at(end, kEndBytes);
  uint64_t count = value_in<uint16_t>(record, 10), bytes = value_in<uint32_t>(record, 12);
  uint64_t begin = value_in<uint32_t>(record, 16);
  require(value_in<uint16_t>(record, 4) == 0 || value_in<uint16_t>(record, 4) == 0xFFFF,
          "{} is one of several parts of an archive, which are not read", path());
  if (end >= kEnd64PlaceBytes && file_->value_at<uint32_t>(end - kEnd64PlaceBytes) == kEnd64Place) {
    const auto at = file_->value_at<uint64_t>(end - kEnd64PlaceBytes + 8);
    const std::string wide = file_->text_at(at, kEnd64Bytes);
    require(value_in<uint32_t>(wide, 0) == kEnd64, "{} is damaged: its directory is not found", path());
    count = value_in<uint64_t>(wide, 32);
    bytes = value_in<uint64_t>(wide, 40);
    begin = value_in<uint64_t>(wide, 48);
  }
  require(begin <= end && bytes <= end - begin && count <= bytes / kMemberBytes,
          "{} is damaged: its directory does not fit into it", path());
  std::set<std::string> seen;
  for (uint64_t at = begin; count > 0; --count) {
    members_.push_back(read_member(at, begin + bytes));
    const std::string& name = members_.back().name;
    require(seen.insert(name).second, "{} has two members \"{}\"", path(), name);
  }
}

ZipFile::Member ZipFile::read_member(uint64_t& at, uint64_t end) const {
  require(end - at >= kMemberBytes, "{} is damaged: its directory is cut off", path());
  const std::string record = file_->text_at(at, kMemberBytes);
  require(value_in<uint32_t>(record, 0) == kMember, "{} is damaged: its directory is unreadable", path());
  const uint64_t name = value_in<uint16_t>(record, 28), extra = value_in<uint16_t>(record, 30);
  const uint64_t all = kMemberBytes + name + extra + value_in<uint16_t>(record, 32);
  require(end - at >= all, "{} is damaged: its directory is cut off", path());
  Member member{.name = file_->text_at(at + kMemberBytes, name),
                .flags = value_in<uint16_t>(record, 8),
                .method = value_in<uint16_t>(record, 10),
                .crc = value_in<uint32_t>(record, 16),
                .packed = value_in<uint32_t>(record, 20),
                .size = value_in<uint32_t>(record, 24),
                .header = value_in<uint32_t>(record, 42)};
  read_wide_sizes(member, file_->text_at(at + kMemberBytes + name, extra));
  at += all;
  return member;
}

// The extra field has those of the numbers that 32 bits could not hold, in this order.
void ZipFile::read_wide_sizes(Member& member, const std::string& extra) const {
  uint64_t* const all[] = {&member.size, &member.packed, &member.header};
  for (size_t at = 0; at + 4 <= extra.size();) {
    const size_t end = at + 4 + value_in<uint16_t>(extra, at + 2);
    const bool is_wide = value_in<uint16_t>(extra, at) == kWideExtra;
    at += 4;
    for (uint64_t* number : all)
      if (is_wide && *number == kWide) {
        require(at + 8 <= std::min(end, extra.size()), "{} is damaged: member \"{}\" lacks a size", path(),
                member.name);
        *number = value_in<uint64_t>(extra, at);
        at += 8;
      }
    at = end;
    if (is_wide) return;
  }
  for (const uint64_t* number : all)
    require(*number != kWide, "{} is damaged: member \"{}\" lacks a size", path(), member.name);
}

std::vector<std::string> ZipFile::names() const {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.name);
  return names;
}

// Where its bytes begin: the header at the member itself may have another extra field than the directory.
uint64_t ZipFile::begin_of(const Member& member) const {
  const std::string header = file_->text_at(member.header, kHeaderBytes);
  require(value_in<uint32_t>(header, 0) == kHeader, "{} is damaged: member \"{}\" is not where it should be", path(),
          member.name);
  return member.header + kHeaderBytes + value_in<uint16_t>(header, 26) + value_in<uint16_t>(header, 28);
}

ByteSourcePtr ZipFile::open(const std::string& name) const {
  const auto found = std::ranges::find(members_, name, &Member::name);
  require(found != members_.end(), "{} has no member \"{}\".{}", path(), name, suggest(name, names()));
  const Member& member = *found;
  const std::string shown = fmt::format("{}:{}", path(), name);
  require((member.flags & kEncrypted) == 0, "{} is encrypted, which is not read", shown);
  require(member.method == kStored || member.method == kDeflated,
          "{} is packed by method {}; members that are stored or deflated are read", shown, member.method);
  ByteSourcePtr packed = part_of(file_, begin_of(member), member.packed, shown);
  if (member.method == kStored) {
    require(member.size == member.packed, "{} is damaged: it is stored in {} bytes, but has {}", shown, member.packed,
            member.size);
    return packed;
  }
  require(member.size / kMostRatio <= member.packed, "{} is damaged: {} bytes cannot hold {}", shown, member.packed,
          member.size);
  std::vector<std::byte> bytes = inflate_all(*packed, member.size, shown);
  require(crc32_of(bytes.data(), bytes.size()) == member.crc, "{} is damaged: its checksum is wrong", shown);
  return memory_bytes(std::move(bytes), shown);
}

}  // namespace stepnet
