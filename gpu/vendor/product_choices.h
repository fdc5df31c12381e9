// Which of several algorithms a product runs by: the library's first, unless a file of choices is given.
//
// With a file, a product that it does not have is timed by each of them; the fastest is kept in the file and taken from
// it ever after, so that results have the same bits in later runs. A line of the file is a JSON object with the members
// device, library, product, algorithm and crc32, all of them text. Lines of other devices and of other versions of the
// library stay as they are.
// Threads: all may be called from several threads, and processes may share a file. Errors: Error that names file and
// line for what is no such line, and for an algorithm that the library does not offer.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace stepnet::gpu {

struct ChoiceKey {
  std::string device, version, product;  // the version is the library's
  auto operator<=>(const ChoiceKey&) const = default;
};

class ProductChoices {
 public:
  explicit ProductChoices(std::string path) : path_(std::move(path)) {}

  struct Choice {
    std::string algorithm;
    int line = 0;  // of the file
  };
  std::map<ChoiceKey, Choice> read() const;  // none if there is no file
  // Puts an algorithm into the file, whole or not at all, unless another process has put one there meanwhile. Returns
  // what is there then.
  Choice keep(const ChoiceKey& key, const std::string& algorithm) const;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The file that the environment's STEPNET_PRODUCT_CHOICES names; none if it is not set, or empty.
std::optional<ProductChoices> choices_of_environment();

// The i-th algorithm's time; none if it does not run.
using Milliseconds = std::function<std::optional<double>(size_t i)>;

// Returns which of the algorithms, by their names, is taken. Without choices, or a choice, that is the first. Where
// nothing may be timed (`time` is null) the first is kept, too: what has once been taken stays.
size_t choose(const std::vector<std::string>& algorithms, const ChoiceKey& key, const ProductChoices* choices,
              const Milliseconds* time);

}  // namespace stepnet::gpu
