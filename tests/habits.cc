// Reads the source tree line by line; no preprocessor, as our own style leaves nothing for one to decide.
#include "tests/habits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

namespace stepnet::testing {
namespace {

namespace fs = std::filesystem;

const char* const kFolders[] = {"proto", "core", "operators", "recurrent", "gpu", "tests", "tools"};

// The house: each room, and those that it may include beside itself and proto/. A name that ends with / stands for all
// rooms below it, one that begins with = for the room of that top folder that has the same name (gpu/norm -> =operators
// is operators/norm). Tests and tools, which are not here, may include everything.
struct Room {
  std::string name;
  std::vector<std::string> may_include;
};
const std::vector<Room>& rooms() {
  static const std::vector<std::string> kernels = {"core", "core/tensor", "core/compute", "core/operator"};
  const auto with = [](std::vector<std::string> rooms, const std::vector<std::string>& more) {
    rooms.insert(rooms.end(), more.begin(), more.end());
    return rooms;
  };
  static const std::vector<std::string> net = with(kernels, {"core/net", "core/passes"});
  static const std::vector<std::string> step = with(net, {"recurrent/step", "recurrent/form"});
  static const std::vector<std::string> tape = with(net, {"core/autograd", "core/autograd/net", "core/autograd/saved"});
  static const std::vector<std::string> gpu = with(kernels, {"gpu/runtime", "gpu/loops", "operators/loops"});
  static const std::vector<Room> all = {
      {"proto", {}},
      {"core", {}},
      {"core/tensor", {"core"}},
      {"core/compute", {"core", "core/tensor"}},
      {"core/operator", {"core", "core/tensor", "core/compute"}},
      {"core/io", kernels},
      {"core/data", with(kernels, {"core/io"})},
      {"core/net", kernels},
      {"core/passes", with(kernels, {"core/net"})},
      {"core/estimate", with(net, {"core/io"})},
      {"core/gradcheck", with(net, {"core/io"})},
      {"core/autograd", kernels},
      {"core/autograd/saved", with(kernels, {"core/io", "core/autograd"})},
      {"core/autograd/net", with(net, {"core/autograd"})},
      {"operators/loops", kernels},
      {"operators/data", with(kernels, {"operators/loops", "core/io"})},
      {"operators/control", with(net, {"operators/loops", "core/gradcheck"})},
      {"operators/optimizer", with(kernels, {"operators/loops", "operators/control"})},
      {"operators/", with(kernels, {"operators/loops"})},
      {"recurrent/step", with(kernels, {"core/net"})},
      {"recurrent/form", with(net, {"recurrent/step"})},
      {"recurrent/network", step},
      {"recurrent/layers", with(tape, {"recurrent/form"})},
      {"recurrent/report", with(kernels, {"core/io"})},
      {"recurrent/train",
       with(with(step, tape), {"core/data", "core/io", "core/estimate", "recurrent/network", "recurrent/report"})},
      {"recurrent/distributed", with(net, {"core/io", "operators/collective", "recurrent/train"})},
      {"gpu/runtime", kernels},
      {"gpu/loops", with(kernels, {"gpu/runtime", "operators/"})},
      {"gpu/layers", with(gpu, {"recurrent/layers"})},
      {"gpu/vendor", with(gpu, {"gpu/layers", "core/io"})},
      {"gpu/", with(gpu, {"=operators"})},
  };
  return all;
}

// The rooms whose sources the public headers belong to. They stand in core/include/ and recurrent/include/, and are
// included as "stepnet/NAME.h". stepnet.h, which includes all of them, belongs to none.
const std::map<std::string, std::vector<std::string>>& public_headers() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"core", {"error"}},
      {"core/tensor", {"device", "half", "random", "shape", "tensor", "workspace"}},
      {"core/compute", {"elementwise_chain", "matmul", "profiler"}},
      {"core/operator", {"arguments", "bound_op", "formula", "op_spec", "operator", "run_context"}},
      {"core/io", {"checkpoint", "file_place", "text"}},
      {"core/net", {"net", "plan"}},
      {"core/passes", {"gradients"}},
      {"core/gradcheck", {"gradient_check"}},
      {"core/autograd",
       {"eager_op", "engine", "function", "node", "record", "saved_value", "stream_order", "tape", "typed_call",
        "variable"}},
      {"core/autograd/saved", {"offload", "rerun"}},
      {"core/autograd/net", {"net_function"}},
      {"recurrent/train", {"sampler", "train_options", "trainer"}},
  };
  return all;
}

// The room of a public header by its name in includes; empty if there is no such header.
std::string room_of_public(const std::string& name) {
  if (name.starts_with("stepnet/proto/")) return "proto";
  for (const auto& [room, stems] : public_headers())
    for (const std::string& stem : stems)
      if (name == "stepnet/" + stem + ".h") return room;
  return "";
}

// The name in includes of the file of a public header; empty if it is none.
std::string public_name(const std::string& path) {
  for (const char* folder : {"core/include/", "recurrent/include/"})
    if (path.starts_with(folder)) return path.substr(std::string_view(folder).size());
  return "";
}

std::string room_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(path.substr(0, slash == path.npos ? 0 : slash));
}

std::string folder_of(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

// Null if the folder is none of the house.
const Room* find_room(const std::string& name) {
  for (const Room& room : rooms())
    if (room.name == name ||
        (room.name.ends_with('/') && name.starts_with(room.name) && name.find('/', room.name.size()) == name.npos))
      return &room;
  return nullptr;
}

bool may_include(const Room& room, const std::string& own, const std::string& other) {
  if (other == own || other == "proto") return true;
  return std::ranges::any_of(room.may_include, [&](const std::string& name) {
    if (name.ends_with('/')) return other.starts_with(name);
    if (name.starts_with('=')) return other == name.substr(1) + own.substr(own.find('/'));
    return other == name;
  });
}

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

// The type that the line begins to define at the level of a namespace, which is not indented; "" if there is none, or
// if it is a specialization or a part of another type.
std::string_view type_defined(std::string_view line) {
  for (const std::string_view word : {"struct ", "class ", "enum class ", "union "}) {
    if (!line.starts_with(word)) continue;
    const std::string_view rest = line.substr(word.size());
    const size_t end = rest.find_first_of(" <:;");
    const bool is_definition = line.ends_with("{") || line.ends_with("};");
    return is_definition && end != rest.npos && rest[end] == ' ' ? rest.substr(0, end) : std::string_view();
  }
  return {};
}

// The names of types in namespaces with names, as "a::b::Type".
std::set<std::string> types_of(const SourceFile& file) {
  std::set<std::string> types;
  std::vector<std::string> spaces;
  each_line(file.text, [&](int, std::string_view line) {
    if (line.starts_with("namespace ") && line.ends_with("{")) {
      line = line.substr(line.find(' ') + 1);
      spaces.emplace_back(line.substr(0, line.find_last_not_of(" {") + 1));
    } else if (line.starts_with("}  // namespace") && !spaces.empty()) {
      spaces.pop_back();
    } else if (const std::string_view type = type_defined(line);
               !type.empty() && std::ranges::find(spaces, "") == spaces.end()) {
      types.insert(fmt::format("{}::{}", fmt::join(spaces, "::"), type));
    }
  });
  return types;
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
  const std::string public_as = public_name(file.path);
  const std::string own = public_as.empty() ? room_of(file.path) : room_of_public(public_as);
  const std::string top = folder_of(file.path);
  const bool is_umbrella = public_as == "stepnet/stepnet.h";
  const bool sees_all = top == "tests" || top == "tools" || is_umbrella;
  const Room* room = sees_all ? nullptr : find_room(own);
  if (!room && !sees_all)
    found.push_back(public_as.empty() ? fmt::format("{}: {} is no room of the house", file.path, own)
                                      : fmt::format("{}: no public header of any room", file.path));
  each_line(file.text, [&](int number, std::string_view line) {
    std::string_view rest = after_directive(line, "include");
    if (!rest.starts_with('"')) return;
    rest = rest.substr(1, rest.find('"', 1) - 1);
    const std::string name(rest);
    const bool is_public = name.starts_with("stepnet/");
    const std::string other = is_public ? room_of_public(name) : room_of(rest);
    const bool is_path = std::find(std::begin(kFolders), std::end(kFolders), folder_of(rest)) != std::end(kFolders);
    if (!public_as.empty() && !is_public)
      found.push_back(fmt::format("{}:{}: a public header must not include {}", file.path, number, rest));
    else if (is_public ? other.empty() && !sees_all : !is_path)
      found.push_back(fmt::format("{}:{}: \"{}\" is not a path from the root of the tree, nor a public header",
                                  file.path, number, rest));
    else if (room && !may_include(*room, own, other))
      found.push_back(fmt::format("{}:{}: {}/ must not include {}", file.path, number, own, rest));
  });
  return found;
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

Findings check_test_namespace(const SourceFile& file) {
  const std::string stem = fs::path(file.path).stem().string();
  const bool is_shared = stem == "op_test" || stem == "gpu_test";  // what tests of operators and of gpu/ include
  if (!file.path.starts_with("tests/") || !file.path.ends_with("_test.cc") || is_shared) return {};
  if (file.text.find("::" + stem + " {\n") != file.text.npos) return {};
  return {fmt::format("{}: its names are not in a namespace ...::{}", file.path, stem)};
}

Findings check_types(const std::vector<SourceFile>& files) {
  Findings found;
  std::map<std::string, std::string> places;
  for (const SourceFile& file : files)
    for (const std::string& type : types_of(file))
      if (const auto [known, is_new] = places.emplace(type, file.path); !is_new)
        found.push_back(fmt::format("{} is a type of {} and of {}", type, known->second, file.path));
  return found;
}

Findings check_rooms() {
  Findings found;
  std::map<std::string, std::set<std::string>> below;  // what a room sees, directly or through others
  for (const Room& room : rooms())
    for (const Room& other : rooms())
      if (&room != &other && may_include(room, room.name, other.name) && other.name != "proto")
        below[room.name].insert(other.name);
  for (size_t round = 0; round < rooms().size(); ++round)
    for (auto& [name, seen] : below)
      for (const std::string& other : std::set<std::string>(seen))
        if (below.count(other)) seen.insert(below[other].begin(), below[other].end());
  for (const auto& [name, seen] : below)
    if (seen.contains(name)) found.push_back(fmt::format("{}/ is in a circle", name));
  return found;
}

Findings check_twins(const std::set<std::string>& paths, const std::set<std::string>& shared) {
  Findings found;
  for (const std::string& path : paths) {
    const fs::path place(path);
    const std::string stem = place.stem().string(), room = place.parent_path().string();
    const std::string family = room.find('/') == room.npos ? "" : room.substr(room.find('/') + 1);
    const bool is_family = !family.empty() && family != "loops" && family != "runtime" && family != "vendor";
    if (!is_family) continue;
    const std::string name = family + "/" + stem;
    if (room.starts_with("operators/") && path.ends_with(".h") && !shared.contains(name + ".h") &&
        !paths.contains("gpu/" + name + ".cu"))
      found.push_back(fmt::format("{} is there, but gpu/{}.cu is not", path, name));
    if (room.starts_with("gpu/") && path.ends_with(".cu") && !paths.contains("operators/" + name + ".cc"))
      found.push_back(fmt::format("{} is there, but operators/{}.cc is not", path, name));
  }
  for (const std::string& name : shared)
    if (paths.contains("gpu/" + name.substr(0, name.size() - 2) + ".cu"))
      found.push_back(fmt::format("operators/{} has a twin in gpu/ and needs no exception", name));
  return found;
}

}  // namespace stepnet::testing
