// The on-disk layout, all little endian:
//
//   page   u64 number, u16 pad, u16 type, u16 lower, u16 upper (overflow: u32 pages), then u16 node offsets up to
//          `lower`; nodes fill the page from `upper` to its end
//   node   u16 low, u16 high, u16 flags, u16 key size, key, then in a leaf the value or the number of its first
//          overflow page; in a branch, low, high and flags together are the child's page number
//   meta   after a page header: u32 magic, u32 version, u64 address, u64 map size, tree of free pages, tree of records,
//          u64 last page, u64 transaction
//   tree   u32 pad (free tree: page size), u16 flags, u16 depth, u64 branch, leaf and overflow pages, records, root
#include "core/io/lmdb_check.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kVersion = 1;
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr size_t kPageHeader = 16, kNodeHeader = 8, kTreeBytes = 48, kMetaBytes = 136;
constexpr uint32_t kLeastPage = 512, kLargestPage = 32768;
constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // more than any file system holds, and no sum of two overflows
constexpr int kDeepest = 32;                        // LMDB's own bound
constexpr size_t kLongestKey = 511;
constexpr uint16_t kBranch = 1, kLeaf = 2, kOverflow = 4, kMeta = 8;  // types of pages
constexpr uint16_t kValueOnOverflowPages = 1;
constexpr uint16_t kFixedAddress = 1, kIntegerKeys = 8;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

struct Tree {
  uint32_t pad;
  uint16_t flags, depth;
  uint64_t records, root;
};

Tree load_tree(const std::byte* p) {
  return {load<uint32_t>(p), load<uint16_t>(p + 4), load<uint16_t>(p + 6), load<uint64_t>(p + 32),
          load<uint64_t>(p + 40)};
}

struct Meta {
  Tree free, main;
  uint64_t last_page, transaction;
};

struct Node {
  const std::byte* at;
  size_t room;  // bytes from here to the end of the page
  uint16_t low() const { return load<uint16_t>(at); }
  uint16_t high() const { return load<uint16_t>(at + 2); }
  uint16_t flags() const { return load<uint16_t>(at + 4); }
  size_t key_size() const { return load<uint16_t>(at + 6); }
  uint64_t value_size() const { return low() | static_cast<uint64_t>(high()) << 16; }
  uint64_t child() const { return value_size() | static_cast<uint64_t>(flags()) << 32; }
  std::string_view key() const { return {reinterpret_cast<const char*>(at + kNodeHeader), key_size()}; }
  const std::byte* value() const { return at + kNodeHeader + key_size(); }
};

class Checker {
 public:
  explicit Checker(const FileReader& file) : file_(file) {}
  LmdbSummary run();

 private:
  template <class... A>
  [[noreturn]] void damaged(fmt::format_string<A...> format, A&&... args) const {
    fail("the LMDB file {} is damaged: {}", file_.path(), fmt::format(format, std::forward<A>(args)...));
  }
  template <class... A>
  void check(bool ok, fmt::format_string<A...> format, A&&... args) const {
    if (!ok) [[unlikely]]
      damaged(format, std::forward<A>(args)...);
  }

  Meta read_meta(uint64_t index);
  void check_tree(const Tree& tree, const char* name) const;
  void walk(uint64_t number, int level);
  size_t check_header(const std::byte* page, uint64_t number, bool leaf) const;
  Node node(const std::byte* page, uint64_t number, size_t i) const;
  void check_branch(const std::byte* page, uint64_t number, size_t keys, int level);
  void check_leaf(const std::byte* page, uint64_t number, size_t keys);
  void check_no_overlap(std::vector<std::pair<size_t, size_t>>& spans, uint64_t number) const;
  void check_key(const Node& n, uint64_t number);
  uint64_t check_overflow(const Node& n, uint64_t number);
  void check_free_list(const Node& n, uint64_t number, uint64_t overflow_page);
  void check_free_pages();
  void use_pages(uint64_t first, uint64_t count);

  const FileReader& file_;
  uint32_t page_size_ = 0;
  uint64_t pages_ = 0;      // that lie wholly in the file
  uint64_t last_page_ = 0;  // by the meta page
  std::vector<bool> used_;  // pages seen so far
  std::vector<uint64_t> free_pages_;
  const Tree* tree_ = nullptr;  // the one that is being walked
  bool free_tree_ = false;
  uint64_t records_ = 0;
  std::optional<std::string> last_key_;
};

LmdbSummary Checker::run() {
  require(file_.size() > 0, "the LMDB file {} is empty", file_.path());
  require(file_.size() < kMostBytes, "the LMDB file {} has {} bytes, which is too many", file_.path(), file_.size());
  const Meta first = read_meta(0), second = read_meta(1);
  // LMDB takes the meta page of the later transaction; transactions alternate between the two.
  const bool use_second = first.transaction < second.transaction;
  const Meta& meta = use_second ? second : first;
  check((meta.transaction & 1) == (use_second ? 1 : 0), "transaction {} stands in the wrong meta page",
        meta.transaction);
  last_page_ = meta.last_page;
  pages_ = file_.size() / page_size_;
  used_.assign(pages_, false);
  use_pages(0, 2);
  for (const Tree* tree : {&meta.main, &meta.free}) {
    tree_ = tree;
    free_tree_ = tree == &meta.free;
    records_ = 0;
    last_key_.reset();
    check_tree(*tree, free_tree_ ? "free pages" : "records");
    if (tree->root != kNoPage) walk(tree->root, 1);
    check(records_ == tree->records, "the tree of {} has {} entries, but should have {}",
          free_tree_ ? "free pages" : "records", records_, tree->records);
  }
  check_free_pages();
  return {file_.size(), meta.main.records, meta.main.depth};
}

void Checker::check_free_pages() {
  std::sort(free_pages_.begin(), free_pages_.end());
  for (size_t i = 0; i < free_pages_.size(); ++i) {
    const uint64_t page = free_pages_[i];
    check(page >= pages_ || !used_[page], "page {} is both free and in use", page);
    check(i == 0 || page != free_pages_[i - 1], "page {} is free twice", page);
  }
}

Meta Checker::read_meta(uint64_t index) {
  const uint64_t at = index * page_size_;  // page_size_ is known from the first meta page
  check(file_.size() >= at + kPageHeader + kMetaBytes, "it has {} bytes, too few for its two meta pages", file_.size());
  std::byte page[kPageHeader + kMetaBytes];
  file_.read_at(at, page, sizeof(page));
  const std::byte* meta = page + kPageHeader;
  if (load<uint32_t>(meta) != kMagic) {
    require(index != 0, "{} is not an LMDB file of this kind of machine: its first bytes are not LMDB's", file_.path());
    damaged("the second meta page is not one");
  }
  const uint32_t version = load<uint32_t>(meta + 4);
  require(version == kVersion, "the LMDB file {} has format version {}, but this build reads version {}", file_.path(),
          version, kVersion);
  check(load<uint64_t>(page) == index && load<uint16_t>(page + 10) == kMeta, "meta page {} has a wrong header", index);
  Meta m{load_tree(meta + 24), load_tree(meta + 24 + kTreeBytes), load<uint64_t>(meta + 24 + 2 * kTreeBytes),
         load<uint64_t>(meta + 32 + 2 * kTreeBytes)};
  const uint32_t size = m.free.pad;
  check(size >= kLeastPage && size <= kLargestPage && (size & (size - 1)) == 0, "meta page {} has page size {}", index,
        size);
  check(index == 0 || size == page_size_, "the meta pages have page sizes {} and {}", page_size_, size);
  page_size_ = size;
  check(m.last_page >= 1 && m.last_page < kMostBytes / size, "meta page {} has the last page {}", index, m.last_page);
  return m;
}

void Checker::check_tree(const Tree& tree, const char* name) const {
  if (free_tree_) {
    check((tree.flags & 0xff) == kIntegerKeys && !(tree.flags & kFixedAddress), "the tree of {} has flags {:#x}", name,
          tree.flags);
  } else {
    require(tree.flags == 0, "the LMDB file {} holds several values per key or unusual keys (flags {:#x})",
            file_.path(), tree.flags);
  }
  check(tree.depth <= kDeepest, "the tree of {} has depth {}", name, tree.depth);
  check((tree.root == kNoPage) == (tree.depth == 0), "the tree of {} has root {} and depth {}", name, tree.root,
        tree.depth);
}

void Checker::use_pages(uint64_t first, uint64_t count) {
  check(first <= last_page_ && count <= last_page_ - first + 1, "pages {} to {} are used, but the last page is {}",
        first, first + count - 1, last_page_);
  check(first < pages_ && count <= pages_ - first, "pages {} to {} of {} bytes are needed, but the file has {} bytes",
        first, first + count - 1, page_size_, file_.size());
  for (uint64_t p = first; p < first + count; ++p) {
    check(!used_[p], "page {} is used twice", p);
    used_[p] = true;
  }
}

void Checker::walk(uint64_t number, int level) {
  use_pages(number, 1);
  std::vector<std::byte> page(page_size_);
  file_.read_at(number * page_size_, page.data(), page.size());
  const bool leaf = level == tree_->depth;
  const size_t keys = check_header(page.data(), number, leaf);
  if (leaf)
    check_leaf(page.data(), number, keys);
  else
    check_branch(page.data(), number, keys, level);
}

// Returns the number of keys.
size_t Checker::check_header(const std::byte* page, uint64_t number, bool leaf) const {
  check(load<uint64_t>(page) == number, "page {} has the number {}", number, load<uint64_t>(page));
  const uint16_t type = load<uint16_t>(page + 10);
  check(type == (leaf ? kLeaf : kBranch), "page {} has type {:#x} where a {} is due", number, type,
        leaf ? "leaf" : "branch");
  const size_t lower = load<uint16_t>(page + 12), upper = load<uint16_t>(page + 14);
  check(lower >= kPageHeader && lower % 2 == 0 && lower <= upper && upper <= page_size_,
        "page {} has bounds {} and {} in {} bytes", number, lower, upper, page_size_);
  const size_t keys = (lower - kPageHeader) / 2;
  const size_t least = leaf || free_tree_ ? 1 : 2;
  check(keys >= least, "page {} has {} keys, fewer than {}", number, keys, least);
  return keys;
}

Node Checker::node(const std::byte* page, uint64_t number, size_t i) const {
  const size_t upper = load<uint16_t>(page + 14);
  const size_t at = load<uint16_t>(page + kPageHeader + 2 * i);
  check(at >= upper && at % 2 == 0 && at + kNodeHeader <= page_size_, "node {} of page {} is at offset {}", i, number,
        at);
  const Node n{page + at, page_size_ - at};
  check(kNodeHeader + n.key_size() <= n.room && n.key_size() <= kLongestKey, "node {} of page {} has a key of {} bytes",
        i, number, n.key_size());
  return n;
}

void Checker::check_no_overlap(std::vector<std::pair<size_t, size_t>>& spans, uint64_t number) const {
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i)
    check(spans[i - 1].second <= spans[i].first, "nodes of page {} overlap at offset {}", number, spans[i].first);
}

void Checker::check_branch(const std::byte* page, uint64_t number, size_t keys, int level) {
  std::vector<std::pair<size_t, size_t>> spans;
  std::vector<uint64_t> children;
  for (size_t i = 0; i < keys; ++i) {
    const Node n = node(page, number, i);
    // The first key of a branch stands for everything smaller and is not read.
    check(i == 0 || !free_tree_ || n.key_size() == sizeof(uint64_t), "node {} of page {} has a key of {} bytes", i,
          number, n.key_size());
    const size_t at = static_cast<size_t>(n.at - page);
    spans.emplace_back(at, at + kNodeHeader + n.key_size());
    children.push_back(n.child());
  }
  check_no_overlap(spans, number);
  for (const uint64_t child : children) walk(child, level + 1);
}

void Checker::check_leaf(const std::byte* page, uint64_t number, size_t keys) {
  std::vector<std::pair<size_t, size_t>> spans;
  for (size_t i = 0; i < keys; ++i) {
    const Node n = node(page, number, i);
    check((n.flags() & ~kValueOnOverflowPages) == 0, "node {} of page {} has flags {:#x}", i, number, n.flags());
    const bool outside = n.flags() & kValueOnOverflowPages;
    const uint64_t held = outside ? sizeof(uint64_t) : n.value_size();
    check(held <= n.room - kNodeHeader - n.key_size(), "node {} of page {} has a value of {} bytes", i, number, held);
    check_key(n, number);
    const uint64_t overflow = outside ? check_overflow(n, number) : 0;
    if (free_tree_) check_free_list(n, number, overflow);
    const size_t at = static_cast<size_t>(n.at - page);
    spans.emplace_back(at, at + kNodeHeader + n.key_size() + held);
    ++records_;
  }
  check_no_overlap(spans, number);
}

void Checker::check_key(const Node& n, uint64_t number) {
  if (free_tree_) {
    check(n.key_size() == sizeof(uint64_t), "page {} of the free pages has a key of {} bytes", number, n.key_size());
    // Transaction numbers in big-endian order compare as text.
    uint64_t id = load<uint64_t>(n.at + kNodeHeader);
    std::string key(sizeof(id), '\0');
    for (size_t i = sizeof(id); i-- > 0; id >>= 8) key[i] = static_cast<char>(id & 0xff);
    check(!last_key_ || *last_key_ < key, "the keys of page {} are out of order", number);
    last_key_ = std::move(key);
    return;
  }
  check(n.key_size() > 0, "page {} has an empty key", number);
  check(!last_key_ || *last_key_ < n.key(), "the keys of page {} are out of order", number);
  last_key_.emplace(n.key());
}

// Returns the first overflow page.
uint64_t Checker::check_overflow(const Node& n, uint64_t number) {
  const uint64_t first = load<uint64_t>(n.value());
  check(first >= 2 && first < pages_, "page {} has a value on page {}, but the file has {} pages", number, first,
        pages_);
  std::byte header[kPageHeader];
  file_.read_at(first * page_size_, header, sizeof(header));
  check(load<uint64_t>(header) == first && load<uint16_t>(header + 10) == kOverflow,
        "page {} should hold a large value, but has number {} and type {:#x}", first, load<uint64_t>(header),
        load<uint16_t>(header + 10));
  const uint64_t count = load<uint32_t>(header + 12);
  check(count >= 1, "the large value on page {} has no pages", first);
  use_pages(first, count);
  check(n.value_size() <= count * page_size_ - kPageHeader, "the value on page {} has {} bytes, but its {} pages fewer",
        first, n.value_size(), count);
  return first;
}

// A list of free pages: their number, then the pages in falling order.
void Checker::check_free_list(const Node& n, uint64_t number, uint64_t overflow_page) {
  const uint64_t bytes = n.value_size();
  check(bytes >= sizeof(uint64_t) && bytes % sizeof(uint64_t) == 0, "page {} has a list of {} bytes", number, bytes);
  std::vector<uint64_t> list(bytes / sizeof(uint64_t));
  if (overflow_page != 0)
    file_.read_at(overflow_page * page_size_ + kPageHeader, list.data(), bytes);
  else
    std::memcpy(list.data(), n.value(), bytes);
  const uint64_t count = list[0];
  check(count < list.size(), "page {} has a list of {} free pages in {} bytes", number, count, bytes);
  for (uint64_t i = 1; i <= count; ++i) {
    check(list[i] >= 2 && list[i] <= last_page_, "page {} is said to be free, but the last page is {}", list[i],
          last_page_);
    check(i == 1 || list[i] < list[i - 1], "the free pages on page {} are out of order", number);
    free_pages_.push_back(list[i]);
  }
}

}  // namespace

LmdbSummary check_lmdb_file(const FileReader& data_file) { return Checker(data_file).run(); }
LmdbSummary check_lmdb_file(const FilePlace& data_file) { return check_lmdb_file(FileReader(data_file)); }

}  // namespace stepnet
