// `stepnet run --root`: nets and plans that try to reach files outside of the root folder, each in its own way.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>

#include "core/io/blob_db.h"
#include "core/io/db.h"
#include "core/io/npy.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"

namespace stepnet::testing::confined_test {
namespace {

namespace fs = std::filesystem;

// base/root is the root folder, base/outside what nobody may touch.
struct Place {
  TempFolder base;
  std::string root = base.file("root"), outside = base.file("outside");
  std::string in(const std::string& name) const { return root + "/" + name; }
  std::string out(const std::string& name) const { return outside + "/" + name; }
};

void save_one(const std::string& type, const FilePlace& place) {
  Workspace w;
  w.tensor("x") = Tensor::of<float>({2}, {3, 4});
  const NamedBlob blob{"x", &w.at("x")};
  save_blobs(type, place, {&blob, 1});
}

// Files of every kind, with the same names inside and outside.
void fill(const std::string& folder) {
  fs::create_directories(folder + "/folder");
  write_npy(folder + "/x.npy", Tensor::of<float>({2}, {1, 2}));
  write_npy(folder + "/folder/x.npy", Tensor::of<float>({2}, {1, 2}));
  save_one("minidb", folder + "/x.minidb");
  save_one("lmdb", folder + "/x.lmdb");
  write_all(folder + "/text", "abcabcabcabc");
}

// Everything that can be seen of a folder without changing it.
std::map<std::string, std::string> snapshot(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat info {};
    ::lstat(entry.path().c_str(), &info);
    all[entry.path().string()] =
        fmt::format("{} {} {}.{}", info.st_mode, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    if (entry.is_regular_file() && !entry.is_symlink()) all[entry.path().string()] += read_all(entry.path().string());
  }
  return all;
}

void nothing(const Place&) {}

using Prepare = void (*)(const Place&);

struct Trick {
  const char* name;
  std::string net;      // $OUT is the folder outside
  std::string message;  // of the refusal
  Prepare prepare = nothing;
  bool works_without = true;  // without --root the net does what it tries
  friend void PrintTo(const Trick& trick, std::ostream* out) { *out << trick.net; }
};

std::string arg(const std::string& name, const std::string& text) {
  return fmt::format(" arg {{ name: \"{}\" s: \"{}\" }}", name, text);
}
std::string load_npy(const std::string& path) {
  return "op { type: \"LoadNpy\" output: \"y\"" + arg("path", path) + " arg { name: \"absolute_path\" i: 1 } }";
}
std::string fill_of(const std::string& blob) {
  return "op { type: \"ConstantFill\" output: \"" + blob +
         "\" arg { name: \"shape\" ints: 2 } arg { name: \"value\" f: 1 } } ";
}
std::string save_npy(const std::string& path) {
  return fill_of("v") + "op { type: \"SaveNpy\" input: \"v\"" + arg("path", path) +
         " arg { name: \"absolute_path\" i: 1 } }";
}
std::string save_db(const std::string& type, const std::string& path) {
  return fill_of("v") + "op { type: \"Save\" input: \"v\"" + arg("db", path) + arg("db_type", type) +
         " arg { name: \"absolute_path\" i: 1 } }";
}
std::string load_db(const std::string& type, const std::string& path) {
  return "op { type: \"Load\" output: \"x\"" + arg("db", path) + arg("db_type", type) +
         " arg { name: \"absolute_path\" i: 1 } }";
}
std::string to_file(const std::string& type, const std::string& blob) {
  return fill_of(blob) + "op { type: \"" + type + "\" input: \"" + blob + "\" arg { name: \"to_file\" i: 1 } }";
}
std::string create_db(const std::string& path) {
  return "op { type: \"CreateDB\" output: \"r\"" + arg("db", path) + arg("db_type", "minidb") + " }";
}

void link_file(const Place& p) { fs::create_symlink(p.out("x.npy"), p.in("link")); }
void link_folder(const Place& p) { fs::create_directory_symlink(p.outside, p.in("link")); }
void link_inside(const Place& p) { fs::create_symlink("x.npy", p.in("link")); }
void dangling(const Place& p) { fs::create_symlink(p.out("new"), p.in("link")); }
void log_link(const Place& p) { fs::create_symlink(p.out("new"), p.in("v.log")); }
void summary_link(const Place& p) { fs::create_symlink(p.out("new"), p.in("v.summary")); }
void log_name(const Place& p) { fs::create_hard_link(p.out("text"), p.in("v.log")); }
void pipe_file(const Place& p) { ::mkfifo(p.in("pipe").c_str(), 0600); }
void socket_file(const Place& p) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = p.in("socket");
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(fd);
}
void linked_data(const Place& p) {
  fs::create_directory(p.in("db"));
  fs::create_symlink(p.out("x.lmdb/data.mdb"), p.in("db/data.mdb"));
}
void piped_data(const Place& p) {
  fs::create_directory(p.in("db"));
  ::mkfifo(p.in("db/data.mdb").c_str(), 0600);
}
void linked_lmdb(const Place& p) { fs::create_directory_symlink(p.out("x.lmdb"), p.in("db")); }
// A database in the root with a database reader in it, which was made outside.
void saved_reader(const Place& p) {
  Workspace w;
  w.create("x").emplace<DbReader>("minidb", p.out("x.minidb"));
  const NamedBlob blob{"x", &w.at("x")};
  save_blobs("minidb", p.in("reader"), {&blob, 1});
}

constexpr const char* kLeaves = "leads out of it, but nets may only open files below the folder";
constexpr const char* kAbsolute = "is absolute, but nets may only open files below the folder";
constexpr const char* kLink = "links are not followed";
constexpr const char* kIrregular = "is not a regular file";

std::vector<Trick> reading_tricks() {
  const std::string names =
      "op { type: \"Load\" output: \"x\" arg { name: \"dbs\" strings: \"x.minidb\" strings: "
      "\"../outside/x.minidb\" } arg { name: \"db_type\" s: \"minidb\" } }";
  const std::string text =
      "op { type: \"CreateTextReader\" output: \"r\" arg { name: \"file\" s: \"$OUT/text\" } "
      "arg { name: \"batch\" i: 1 } arg { name: \"timesteps\" i: 1 } }";
  const std::string exists =
      "op { type: \"DBExists\" output: \"b\" arg { name: \"db_name\" s: \"../outside/x.minidb\" "
      "} arg { name: \"db_type\" s: \"minidb\" } }";
  return {
      {"above", load_npy("../outside/x.npy"), kLeaves},
      {"above by a folder", load_npy("folder/../../outside/x.npy"), kLeaves},
      {"above by a folder that is not there", load_npy("none/../../outside/x.npy"), kLeaves, nothing, false},
      {"absolute", load_npy("$OUT/x.npy"), kAbsolute},
      {"a device", load_npy("/dev/zero"), kAbsolute, nothing, false},
      {"a linked file", load_npy("link"), kLink, link_file},
      {"in a linked folder", load_npy("link/x.npy"), kLink, link_folder},
      {"above in a linked folder", load_npy("link/../outside/x.npy"), "No such file", link_folder},
      {"a link to a file of the root", load_npy("link"), kLink, link_inside},
      {"a pipe", load_npy("pipe"), kIrregular, pipe_file, false},
      {"a socket", load_npy("socket"), kIrregular, socket_file, false},
      {"a folder", load_npy("folder"), kIrregular, nothing, false},
      {"the root", load_npy("."), kIrregular, nothing, false},
      {"no name", load_npy(""), "is empty", nothing, false},
      {"a zero byte", load_npy("x.npy\\000/../../outside"), "has a zero byte"},
      {"a long name", load_npy(std::string(300, 'n')), "File name too long", nothing, false},
      {"a very long name", load_npy(std::string(5000, 'n')), "File name too long", nothing, false},
      {"databases", names, kLeaves, nothing, false},
      {"a database above", load_db("minidb", "../outside/x.minidb"), kLeaves},
      {"a linked LMDB folder", load_db("lmdb", "db"), kLink, linked_lmdb},
      {"an LMDB file that is a link", load_db("lmdb", "db"), kLink, linked_data},
      {"an LMDB file that is a pipe", load_db("lmdb", "db"), kIrregular, piped_data, false},
      {"a reader", create_db("../outside/x.minidb"), kLeaves},
      {"an absolute reader", create_db("$OUT/x.minidb"), kAbsolute},
      {"a reader from a database", load_db("minidb", "reader"), kAbsolute, saved_reader},
      {"a text", text, kAbsolute},
      {"whether it exists", exists, kLeaves},
  };
}

std::vector<Trick> writing_tricks() {
  const std::string every = fill_of("v") +
                            "op { type: \"ConstantFill\" output: \"i\" arg { name: \"shape\" ints: 1 } arg { name: "
                            "\"dtype\" i: 10 } } op { type: \"Checkpoint\" input: \"i\" input: \"v\" arg { name: "
                            "\"db\" s: \"../outside/at_%d\" } arg { name: \"db_type\" s: \"minidb\" } }";
  const std::string nested =
      "op { type: \"GivenTensorBoolFill\" output: \"c\" arg { name: \"values\" ints: 1 } } op { "
      "type: \"If\" input: \"c\" arg { name: \"then_net\" n { " +
      save_npy("../outside/new") + " } } }";
  const std::string twice =
      "op { type: \"GivenTensorBoolFill\" output: \"c\" arg { name: \"values\" ints: 1 } } op { "
      "type: \"If\" input: \"c\" arg { name: \"then_net\" n { " +
      nested + " } } }";
  const auto plan = [](const std::string& step_fields) {
    return "name: \"p\" network { name: \"n\" " + save_npy("../outside/new") + " } execution_step { " + step_fields +
           " substep { network: \"n\" } substep { network: \"n\" } }";
  };
  return {
      {"above", save_npy("../outside/new"), kLeaves},
      {"over a file above", save_npy("../outside/x.npy"), kLeaves},
      {"absolute", save_npy("$OUT/new"), kAbsolute},
      {"over a link", save_npy("link"), "is not a file", link_file},
      {"in a linked folder", save_npy("link/new"), kLink, link_folder},
      {"over a link to nothing", save_npy("link"), "is not a file", dangling},
      {"over a pipe", save_npy("pipe"), "is not a file", pipe_file, false},
      {"over a folder", save_npy("folder"), "is not a file", nothing, false},
      {"a database", save_db("minidb", "$OUT/new"), kAbsolute},
      {"a database over a link", save_db("minidb", "link"), "is not a file", dangling},
      {"an LMDB database in a linked folder", save_db("lmdb", "link/new"), kLink, link_folder},
      {"an LMDB database above", save_db("lmdb", "../outside/new"), kLeaves},
      {"every so often", every, kLeaves},
      {"a log through a link", to_file("Print", "v"), kLink, log_link},
      {"a log in a linked folder", to_file("Print", "link/v"), kLink, link_folder},
      {"a log above", to_file("Print", "../outside/v"), kLeaves},
      {"a log with a name outside", to_file("Print", "v"), "has 2 names", log_name},
      {"a summary through a link", to_file("Summarize", "v"), "exists and is not a regular file", summary_link},
      {"a net inside", nested, kLeaves},
      {"a net inside a net inside", twice, kLeaves},
      {"a plan", plan(""), kLeaves},
      {"a plan with threads", plan("concurrent_substeps: true"), kLeaves},
      {"a plan with workspaces of its own", plan("create_workspace: true num_concurrent_instances: 2"), kLeaves,
       nothing, false},
  };
}

std::string with_place(std::string text, const Place& place) {
  for (size_t at = 0; (at = text.find("$OUT")) != text.npos;) text.replace(at, 4, place.outside);
  return text;
}

// Runs the net in the root folder, which is how it finds the same names where nothing confines it.
Outcome run_in_root(const Place& place, const std::string& net, const std::vector<std::string>& options) {
  write_all(place.base.file("net.pbtxt"), with_place(net, place));
  std::vector<std::string> all = {"run", place.base.file("net.pbtxt"), "--threads", "2", "--device", "cpu"};
  all.insert(all.end(), options.begin(), options.end());
  return Command(all, place.root).wait();
}

std::string trick_name(const ::testing::TestParamInfo<Trick>& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == ' ') c = '_';
  return name;
}

// Else a trick may be refused because it is none.
std::vector<Trick> that_work(std::vector<Trick> tricks) {
  std::erase_if(tricks, [](const Trick& t) { return !t.works_without; });
  return tricks;
}

class Confined : public ::testing::TestWithParam<Trick> {
 protected:
  Confined() {
    fill(place_.root);
    fill(place_.outside);
    GetParam().prepare(place_);
  }
  Place place_;
};
class Unconfined : public Confined {};

TEST_P(Confined, IsRefused) {
  const auto before = snapshot(place_.outside);
  const Outcome outcome = run_in_root(place_, GetParam().net, {"--root", place_.root});
  EXPECT_EQ(outcome.code, 2) << outcome.text();
  EXPECT_TRUE(outcome.err.starts_with("error: ")) << outcome.err;
  expect_contains(outcome.err, GetParam().message);
  EXPECT_EQ(snapshot(place_.outside), before);
}

TEST_P(Unconfined, Works) {
  const Outcome outcome = run_in_root(place_, GetParam().net, {});
  EXPECT_EQ(outcome.code, 0) << outcome.text();
}

INSTANTIATE_TEST_SUITE_P(Reading, Confined, ::testing::ValuesIn(reading_tricks()), trick_name);
INSTANTIATE_TEST_SUITE_P(Writing, Confined, ::testing::ValuesIn(writing_tricks()), trick_name);
INSTANTIATE_TEST_SUITE_P(Reading, Unconfined, ::testing::ValuesIn(that_work(reading_tricks())), trick_name);
INSTANTIATE_TEST_SUITE_P(Writing, Unconfined, ::testing::ValuesIn(that_work(writing_tricks())), trick_name);

}  // namespace
}  // namespace stepnet::testing::confined_test
