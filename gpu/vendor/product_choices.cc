#include "gpu/vendor/product_choices.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "core/io/files.h"
#include "core/io/json.h"
#include "stepnet/error.h"
#include "stepnet/file_place.h"

namespace stepnet::gpu {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 24;

std::string checksum(const ChoiceKey& key, const std::string& algorithm) {
  const std::string text = fmt::format("{}\n{}\n{}\n{}", key.device, key.version, key.product, algorithm);
  return fmt::format("{:08x}", crc32_of(text.data(), text.size()));
}

std::string line_of(const ChoiceKey& key, const std::string& algorithm) {
  Json line = Json::object();
  line.add("device", key.device).add("library", key.version).add("product", key.product);
  return line.add("algorithm", algorithm).add("crc32", checksum(key, algorithm)).line() + "\n";
}

constexpr const char* kFix =
    "remove the line, and the product is timed again, which may change results by roundings; or bring the file back";

std::pair<ChoiceKey, std::string> parsed(std::string_view line) {
  std::optional<std::map<std::string, std::string>> members = json_texts(line);
  if (!members) throw Error("is no JSON object of texts", kFix);
  const auto take = [&](const char* name) {
    const auto found = members->find(name);
    if (found == members->end()) throw Error(fmt::format("has no member \"{}\"", name), kFix);
    std::string text = std::move(found->second);
    members->erase(found);
    return text;
  };
  ChoiceKey key{take("device"), take("library"), take("product")};
  std::string algorithm = take("algorithm");
  const std::string sum = take("crc32");
  if (!members->empty())
    throw Error(fmt::format("has a member \"{}\", which lines of choices do not have", members->begin()->first), kFix);
  if (sum != checksum(key, algorithm))
    throw Error(fmt::format("has the checksum \"{}\", but what it says has {}", sum, checksum(key, algorithm)), kFix);
  return {std::move(key), std::move(algorithm)};
}

// Other processes that keep a choice wait, as long as it is alive, where the file system has locks; no file is left
// behind. Nobody may wait for a device meanwhile: it may itself wait for one of the others.
class Turn {
 public:
  explicit Turn(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    fd_ = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Turn() {
    if (fd_ >= 0) ::close(fd_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int fd_ = -1;
};

size_t index_of(const std::vector<std::string>& algorithms, const ChoiceKey& key, const ProductChoices::Choice& choice,
                const std::string& path) {
  const auto found = std::ranges::find(algorithms, choice.algorithm);
  if (found == algorithms.end())
    throw Error(fmt::format("{}:{}: the algorithm \"{}\" is not one that cuBLASLt {} offers on \"{}\" for {}", path,
                            choice.line, choice.algorithm, key.version, key.device, key.product),
                kFix);
  return static_cast<size_t>(found - algorithms.begin());
}

size_t fastest(size_t count, const Milliseconds& time) {
  size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < count; ++i)
    if (const std::optional<double> took = time(i); took && *took < least) {
      best = i;
      least = *took;
    }
  return best;
}

}  // namespace

std::map<ChoiceKey, ProductChoices::Choice> ProductChoices::read() const {
  struct stat there {};
  if (!look_at(path_, there)) return {};
  const FileReader file(path_);
  require(file.size() <= kMostBytes, "{} has {} bytes; a file of choices has at most {}", path_, file.size(),
          kMostBytes);
  const std::string text = file.text_at(0, file.size());
  std::map<ChoiceKey, Choice> choices;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    ++number;
    try {
      auto [key, algorithm] = parsed(std::string_view(text).substr(at, end - at));
      const auto [it, is_new] = choices.try_emplace(std::move(key), Choice{std::move(algorithm), number});
      if (!is_new) throw Error(fmt::format("is about the same product as line {}", it->second.line), kFix);
    } catch (Error& error) {
      error.prefix(fmt::format("{}:{}", path_, number));
      throw;
    }
    at = end + 1;
  }
  return choices;
}

ProductChoices::Choice ProductChoices::keep(const ChoiceKey& key, const std::string& algorithm) const {
  const Turn turn(path_);
  std::map<ChoiceKey, Choice> choices = read();
  if (const auto found = choices.find(key); found != choices.end()) return found->second;
  choices[key] = {algorithm};
  std::string text;
  int line = 0;
  for (auto& [each, choice] : choices) {
    text += line_of(each, choice.algorithm);
    choice.line = ++line;
  }
  write_file(path_, text);
  return choices[key];
}

std::optional<ProductChoices> choices_of_environment() {
  const char* path = std::getenv("STEPNET_PRODUCT_CHOICES");
  return path && *path ? std::optional<ProductChoices>(path) : std::nullopt;
}

size_t choose(const std::vector<std::string>& algorithms, const ChoiceKey& key, const ProductChoices* choices,
              const Milliseconds* time) {
  if (!choices || algorithms.size() < 2) return 0;
  const auto known = choices->read();
  if (const auto found = known.find(key); found != known.end())
    return index_of(algorithms, key, found->second, choices->path());
  const size_t best = time ? fastest(algorithms.size(), *time) : 0;
  return index_of(algorithms, key, choices->keep(key, algorithms[best]), choices->path());
}

}  // namespace stepnet::gpu
