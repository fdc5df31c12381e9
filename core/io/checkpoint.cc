// Lengths are checked against the file's size before memory is taken, and every byte by a CRC before it is believed.
#include "stepnet/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/io/files.h"
#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

constexpr std::string_view kMagic = "STEPCKPT";
constexpr uint64_t kHeaderBytes = 8 + 4 + 8 + 4, kRecordHeaderBytes = 4 + 8 + 4;
constexpr uint32_t kText = 1, kTensor = 2, kEnd = 3;  // kinds of records

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

class Writer {
 public:
  explicit Writer(const FilePlace& place) : file_(place) {}
  void header(uint64_t save_number) {
    std::string text(kMagic);
    append(text, kCheckpointVersion);
    append(text, save_number);
    append(text, crc32_of(text.data(), text.size()));
    file_.write(text);
  }
  // The body is `text` and then `bytes` more.
  void record(uint32_t kind, const std::string& text, const void* data = nullptr, size_t bytes = 0) {
    std::string small;  // pieces that are written at once
    append<uint32_t>(small, kind);
    append<uint64_t>(small, text.size() + bytes);
    append(small, crc32_of(small.data(), small.size()));
    small += text;
    uint32_t crc = crc32_of(text.data(), text.size());
    if (bytes > 0) {
      file_.write(small);
      file_.write(data, bytes);
      crc = crc32_of(data, bytes, crc);
      small.clear();
    }
    append(small, crc);
    file_.write(small);
    ++records_;
  }
  void finish() {
    std::string count;
    append(count, records_);
    record(kEnd, count);
    file_.commit();
  }

 private:
  AtomicFile file_;
  uint64_t records_ = 0;
};

void append_name(std::string& to, const std::string& name) {
  append(to, static_cast<uint32_t>(name.size()));
  to += name;
}

void write_tensor(Writer& writer, const std::string& name, const Tensor& tensor) {
  require(tensor.defined(), "the checkpoint's tensor \"{}\" holds nothing", name);
  const Tensor host = on_device(tensor, {});
  std::string body;
  append_name(body, name);
  append(body, static_cast<uint8_t>(host.dtype()));
  append(body, static_cast<uint8_t>(host.rank()));
  for (const int64_t d : host.shape()) append(body, d);
  if (host.dtype() != DType::string) return writer.record(kTensor, body, host.raw(), host.bytes());
  for (const std::string& s : host.span<std::string>()) {
    append<uint64_t>(body, s.size());
    body += s;
  }
  writer.record(kTensor, body);
}

// Reads one record after the other; positions never leave the file.
class Reader {
 public:
  explicit Reader(const FilePlace& place) : file_(place) {}
  uint64_t header();
  Checkpoint contents();

 private:
  template <class... A>
  [[noreturn]] void damaged(fmt::format_string<A...> format, A&&... args) const {
    fail("the checkpoint {} is damaged: {}", file_.path(), fmt::format(format, std::forward<A>(args)...));
  }
  template <class... A>
  void check(bool ok, fmt::format_string<A...> format, A&&... args) const {
    if (!ok) [[unlikely]]
      damaged(format, std::forward<A>(args)...);
  }
  void begin_record();
  void end_record();
  // The next bytes of the record's body.
  void take(void* to, uint64_t bytes);
  template <class T>
  T take() {
    T value;
    take(&value, sizeof(value));
    return value;
  }
  std::string take_text(uint64_t bytes);
  Tensor take_tensor();
  DType take_dtype();
  Shape take_shape();

  FileReader file_;
  uint64_t at_ = 0;
  uint32_t kind_ = 0;
  uint64_t left_ = 0;  // of the record's body
  uint32_t crc_ = 0;   // of the body so far
};

uint64_t Reader::header() {
  require(file_.size() >= kHeaderBytes && file_.text_at(0, kMagic.size()) == kMagic,
          "{} is not a checkpoint of Stepnet", file_.path());
  const auto version = file_.value_at<uint32_t>(8);
  const std::string text = file_.text_at(0, kHeaderBytes - 4);
  check(crc32_of(text.data(), text.size()) == file_.value_at<uint32_t>(kHeaderBytes - 4), "its header is not whole");
  require(version == kCheckpointVersion, "the checkpoint {} has version {} of the format, but this build reads {}",
          file_.path(), version, kCheckpointVersion);
  at_ = kHeaderBytes;
  return file_.value_at<uint64_t>(12);
}

void Reader::begin_record() {
  check(file_.size() - at_ >= kRecordHeaderBytes, "it is truncated at byte {}", file_.size());
  const std::string head = file_.text_at(at_, 12);
  check(crc32_of(head.data(), head.size()) == file_.value_at<uint32_t>(at_ + 12), "the record at byte {} is not whole",
        at_);
  kind_ = file_.value_at<uint32_t>(at_);
  left_ = file_.value_at<uint64_t>(at_ + 4);
  crc_ = 0;
  at_ += kRecordHeaderBytes;
  const uint64_t rest = file_.size() - at_;
  check(rest >= 4 && left_ <= rest - 4, "it is truncated: the record at byte {} has {} bytes, {} are left", at_, left_,
        rest);
}

void Reader::end_record() {
  check(left_ == 0, "a record has {} bytes too many at byte {}", left_, at_);
  check(file_.value_at<uint32_t>(at_) == crc_, "the record that ends at byte {} is not whole", at_);
  at_ += 4;
}

void Reader::take(void* to, uint64_t bytes) {
  check(bytes <= left_, "the record at byte {} is too short", at_);
  if (bytes == 0) return;
  file_.read_at(at_, to, bytes);
  crc_ = crc32_of(to, bytes, crc_);
  at_ += bytes;
  left_ -= bytes;
}

std::string Reader::take_text(uint64_t bytes) {
  check(bytes <= left_, "the record at byte {} is too short", at_);
  std::string text(bytes, '\0');
  take(text.data(), bytes);
  return text;
}

DType Reader::take_dtype() {
  const auto number = take<uint8_t>();
  try {
    return dtype_from_number(number);
  } catch (const Error& e) {
    damaged("{}", e.fact());
  }
}

Shape Reader::take_shape() {
  std::vector<int64_t> dims(take<uint8_t>());
  for (int64_t& d : dims) d = take<int64_t>();
  try {
    return Shape(std::span<const int64_t>(dims));
  } catch (const Error& e) {
    damaged("{}", e.fact());
  }
}

Tensor Reader::take_tensor() {
  const DType dtype = take_dtype();
  const Shape shape = take_shape();
  const uint64_t least = dtype == DType::string ? sizeof(uint64_t) : dtype_size(dtype);
  uint64_t bytes = 0;
  const bool counted = !__builtin_mul_overflow(static_cast<uint64_t>(shape.size()), least, &bytes);
  check(counted && (dtype == DType::string ? bytes <= left_ : bytes == left_), "{}{} is in a record of {} bytes",
        dtype_name(dtype), shape.str(), left_);
  Tensor tensor = Tensor::empty(dtype, shape);
  if (dtype == DType::string) {
    for (std::string& s : tensor.span<std::string>()) s = take_text(take<uint64_t>());
  } else {
    take(tensor.raw(), bytes);
  }
  if (dtype == DType::boolean)
    check(std::all_of(tensor.raw(), tensor.raw() + bytes, [](std::byte b) { return std::to_integer<int>(b) <= 1; }),
          "a bool is neither 0 nor 1");
  return tensor;
}

Checkpoint Reader::contents() {
  Checkpoint c;
  for (uint64_t records = 0;; ++records) {
    begin_record();
    if (kind_ == kEnd) {
      const auto count = take<uint64_t>();
      end_record();
      check(count == records, "it has {} records, but should have {}", records, count);
      check(at_ == file_.size(), "{} bytes follow its end", file_.size() - at_);
      return c;
    }
    check(kind_ == kText || kind_ == kTensor, "the record before byte {} has the unknown kind {}", at_, kind_);
    const std::string name = take_text(take<uint32_t>());
    if (kind_ == kText)
      c.texts[name] = take_text(left_);
    else
      c.tensors[name] = take_tensor();
    end_record();
  }
}

}  // namespace

void write_checkpoint_file(const FilePlace& place, uint64_t save_number, const Checkpoint& contents) {
  Writer writer(place);
  writer.header(save_number);
  for (const auto& [key, value] : contents.texts) {
    std::string body;
    append_name(body, key);
    writer.record(kText, body + value);
  }
  for (const auto& [name, tensor] : contents.tensors) write_tensor(writer, name, tensor);
  writer.finish();
}

Checkpoint read_checkpoint_file(const FilePlace& place) {
  Reader reader(place);
  reader.header();
  return reader.contents();
}

std::optional<uint64_t> checkpoint_number(const FilePlace& place) {
  try {
    return Reader(place).header();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Which files of a folder are checkpoints, and in which order.
namespace {

constexpr const char* kEnding = ".ckpt";
constexpr const char* kLatest = "latest";
constexpr size_t kKept = 2;
constexpr size_t kLongestName = 255;

struct Saved {
  uint64_t number = 0;  // 0 where the header cannot be read
  std::string file;     // name in the folder
};

// What the file `latest` says; "" if there is none that can be right.
std::string read_latest(const FilePlace& folder) {
  try {
    const FileReader file(folder.in_folder(kLatest));
    if (file.size() > kLongestName + 1) return "";
    std::string name = file.text_at(0, file.size());
    if (name.ends_with('\n')) name.pop_back();
    return name.find('/') == std::string::npos && name.ends_with(kEnding) ? name : "";
  } catch (const Error&) {
    return "";
  }
}

// The files with a checkpoint's ending, newest first: the one that `latest` names, and the others by their numbers,
// which cannot be trusted where a header could not be read when a later one was numbered.
std::vector<Saved> saved_in(const FilePlace& folder, const std::string& latest) {
  std::vector<Saved> all;
  for (const std::string& file : names_in(folder))
    if (file.ends_with(kEnding)) all.push_back({checkpoint_number(folder.in_folder(file)).value_or(0), file});
  std::sort(all.begin(), all.end(), [](const Saved& a, const Saved& b) {
    return a.number != b.number ? a.number > b.number : a.file < b.file;
  });
  std::stable_partition(all.begin(), all.end(), [&](const Saved& s) { return s.file == latest; });
  return all;
}

}  // namespace

std::string save_checkpoint(const FilePlace& folder, const std::string& name, const Checkpoint& contents) {
  require(!name.empty() && name.find('/') == std::string::npos && name.size() + 5 <= kLongestName,
          "\"{}\" cannot be a checkpoint's name", name);
  const std::vector<Saved> before = saved_in(folder, read_latest(folder));
  const std::string file = name + kEnding;
  uint64_t last = 0;
  for (const Saved& s : before) last = std::max(last, s.number);
  write_checkpoint_file(folder.in_folder(file), last + 1, contents);
  write_file(folder.in_folder(kLatest), file + "\n");
  size_t kept = 1;
  for (const Saved& s : before) {
    // A file without a checkpoint's header may be anybody's.
    if (s.file == file || s.number == 0 || kept++ < kKept) continue;
    remove_aside(folder.in_folder(s.file));  // an old file too many does no harm
  }
  return folder.in_folder(file).str();
}

Checkpoint load_checkpoint(const FilePlace& place) { return read_checkpoint_file(place); }

std::optional<LoadedCheckpoint> load_latest(const FilePlace& folder) {
  const std::string latest = read_latest(folder);
  std::vector<Saved> all = saved_in(folder, latest);
  if (!latest.empty() && (all.empty() || all[0].file != latest)) all.insert(all.begin(), {0, latest});  // it is gone
  if (all.empty()) return std::nullopt;
  std::vector<std::string> notes;
  for (const Saved& s : all) {
    const FilePlace place = folder.in_folder(s.file);
    try {
      return LoadedCheckpoint{load_checkpoint(place), place.str(), notes};
    } catch (const Error& e) {
      notes.push_back(e.fact());
    }
  }
  fail("none of the checkpoints in {} can be read: {}", folder, fmt::join(notes, "; "));
}

}  // namespace stepnet
