// Reads the source tree line by line; no preprocessor, as our own style leaves nothing for one to decide.
#include "tests/habits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace stepnet::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLines = 400;
const char* const kGenerated = "operators/ops.h";  // of any length
const char* const kFolders[] = {"proto", "core", "operators", "recurrent", "gpu", "tests", "tools"};

// What each folder may include; tests and tools, which are not here, may include everything.
const std::map<std::string, std::set<std::string>>& visible_folders() {
  static const std::map<std::string, std::set<std::string>> visible = {
      {"proto", {"proto"}},
      {"core", {"proto", "core"}},
      {"operators", {"proto", "core", "operators"}},
      {"recurrent", {"proto", "core", "operators", "recurrent"}},
      {"gpu", {"proto", "core", "operators", "recurrent", "gpu"}},
  };
  return visible;
}

std::string folder_of(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

bool is_code(const std::string& path) {
  const std::string end = fs::path(path).extension().string();
  return end == ".cc" || end == ".h" || end == ".cu" || end == ".cuh" || end == ".cpp";
}

template <class Fn>
void each_line(const std::string& text, Fn fn) {
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    fn(++number, std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
}

std::string_view trim_front(std::string_view s) {
  const size_t at = s.find_first_not_of(" \t");
  return at == s.npos ? std::string_view() : s.substr(at);
}

// What follows `#word` on a preprocessor line; empty if the line is none such.
std::string_view after_directive(std::string_view line, std::string_view word) {
  line = trim_front(line);
  if (!line.starts_with('#')) return {};
  line = trim_front(line.substr(1));
  return line.starts_with(word) ? trim_front(line.substr(word.size())) : std::string_view();
}

// The name of a macro that takes arguments, "" if the line defines none.
std::string_view function_macro(std::string_view line) {
  const std::string_view rest = after_directive(line, "define");
  const auto stop =
      std::find_if(rest.begin(), rest.end(), [](unsigned char c) { return !std::isalnum(c) && c != '_'; });
  if (stop == rest.end() || *stop != '(') return {};
  return rest.substr(0, stop - rest.begin());
}

bool has_word(std::string_view line, std::string_view word) {
  const auto in_name = [&](size_t i) {
    return i < line.size() && (std::isalnum(static_cast<unsigned char>(line[i])) || line[i] == '_');
  };
  for (size_t at = line.find(word); at != line.npos; at = line.find(word, at + 1))
    if (!(at > 0 && in_name(at - 1)) && !in_name(at + word.size())) return true;
  return false;
}

}  // namespace

std::vector<SourceFile> read_tree(const std::string& root) {
  std::vector<SourceFile> files;
  for (const char* folder : kFolders) {
    if (!fs::exists(fs::path(root) / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (!entry.is_regular_file() || !is_code(path)) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      files.push_back({path, {std::istreambuf_iterator<char>(in), {}}});
    }
  }
  return files;
}

Findings check_includes(const SourceFile& file) {
  Findings found;
  const auto visible = visible_folders().find(folder_of(file.path));
  each_line(file.text, [&](int number, std::string_view line) {
    std::string_view rest = after_directive(line, "include");
    if (!rest.starts_with('"')) return;
    rest = rest.substr(1, rest.find('"', 1) - 1);
    const std::string target = folder_of(rest);
    if (std::find(std::begin(kFolders), std::end(kFolders), target) == std::end(kFolders))
      found.push_back(fmt::format("{}:{}: \"{}\" is not a path from the root of the tree", file.path, number, rest));
    else if (visible != visible_folders().end() && !visible->second.contains(target))
      found.push_back(fmt::format("{}:{}: {}/ must not include {}", file.path, number, visible->first, rest));
  });
  return found;
}

Findings check_length(const SourceFile& file) {
  int lines = 0;
  each_line(file.text, [&](int number, std::string_view) { lines = number; });
  if (lines <= kMaxLines || file.path == kGenerated) return {};
  return {fmt::format("{}: {} lines, {} are allowed", file.path, lines, kMaxLines)};
}

Findings check_text(const SourceFile& file) {
  static const std::string unfinished[] = {std::string("TO") + "DO", std::string("FIX") + "ME"};
  Findings found;
  const bool header = file.path.ends_with(".h") || file.path.ends_with(".cuh");
  each_line(file.text, [&](int number, std::string_view line) {
    const std::string_view macro = function_macro(line);
    if (!macro.empty() && macro != "REGISTER")
      found.push_back(fmt::format("{}:{}: macro {} takes arguments", file.path, number, macro));
    if (header && trim_front(line).starts_with("using namespace"))
      found.push_back(fmt::format("{}:{}: using namespace in a header", file.path, number));
    for (const std::string& word : unfinished)
      if (has_word(line, word)) found.push_back(fmt::format("{}:{}: {}", file.path, number, word));
  });
  return found;
}

Findings check_twins(const std::set<std::string>& paths, const std::set<std::string>& shared) {
  Findings found;
  for (const std::string& path : paths) {
    const std::string stem = fs::path(path).stem().string();
    if (fs::path(path).parent_path() == "operators" && path.ends_with(".h") && !shared.contains(stem + ".h") &&
        !paths.contains("gpu/" + stem + ".cu"))
      found.push_back(fmt::format("{} is there, but gpu/{}.cu is not", path, stem));
    const bool is_kernels = path.starts_with("gpu/") && path.ends_with(".cu");
    if (is_kernels && !paths.contains("operators/" + stem + ".cc") && !paths.contains("gpu/" + stem + ".h"))
      found.push_back(fmt::format("{} is there, but operators/{}.cc is not", path, stem));
  }
  for (const std::string& name : shared)
    if (paths.contains("gpu/" + fs::path(name).stem().string() + ".cu"))
      found.push_back(fmt::format("operators/{} has a twin in gpu/ and needs no exception", name));
  return found;
}

}  // namespace stepnet::testing
