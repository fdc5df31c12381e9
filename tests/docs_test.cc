// What README.md, CONTRIBUTING.md and docs/ show is there and works: links lead somewhere, nets are nets that Stepnet
// accepts, excerpts are what the files have, and command lines run.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "core/io/npy.h"
#include "recurrent/form/passes.h"
#include "recurrent/form/short_form.h"
#include "stepnet/net.h"
#include "stepnet/op_spec.h"
#include "stepnet/text.h"
#include "tests/core/temp_folder.h"
#include "tests/operators/op_test.h"
#include "tests/pages.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::docs_test {
namespace {

namespace fs = std::filesystem;

const std::set<std::string> kLanguages = {"sh", "protobuf", "proto", "cpp", "cmake", "python", "csv", "text"};

bool is_in_tree(const std::string& name) { return name.find('/') != name.npos; }

bool has_heading(const Page& page, const std::string& anchor) {
  for (size_t at = 0, end = 0; at < page.text.size(); at = end + 1) {
    end = std::min(page.text.find('\n', at), page.text.size());
    if (page.text[at] == '#' && anchor_of(page.text.substr(at, end - at)) == anchor) return true;
  }
  return false;
}

// What is wrong with a link of the page, "" if it leads somewhere.
std::string wrong_with(const Page& page, const std::string& link) {
  if (link.find("://") != link.npos) return "";
  const size_t hash = link.find('#');
  const std::string file = link.substr(0, hash);
  const fs::path path = file.empty() ? fs::path(page.path) : fs::path(page.path).parent_path() / file;
  if (!fs::exists(source_path(path.string()))) return fmt::format("{}: {} is not there", page.path, link);
  if (hash == link.npos || has_heading(read_page(path.string()), link.substr(hash + 1))) return "";
  return fmt::format("{}: {} has no heading for {}", page.path, path.string(), link);
}

TEST(Docs, LinksLeadSomewhere) {
  static const std::regex links(R"(\]\(([^)\s]+)\))"), code("`[^`]*`");
  for (const Page& page : read_pages()) {
    const std::string text = std::regex_replace(page.prose(), code, "");
    for (std::sregex_iterator i(text.begin(), text.end(), links), end; i != end; ++i)
      EXPECT_EQ(wrong_with(page, (*i)[1]), "");
  }
}

// A link whose text is a test's name, and that leads to a file of tests, leads to that test.
TEST(Docs, TestsThatAreNamedAreThere) {
  static const std::regex links(R"(\[`(\w+)\.(\w+)`\]\(([^)\s#]+_test\.cc)\))");
  int count = 0;
  for (const Page& page : read_pages()) {
    const std::string text = page.prose();
    for (std::sregex_iterator i(text.begin(), text.end(), links), end; i != end; ++i, ++count) {
      const fs::path path = fs::path(page.path).parent_path() / (*i)[3].str();
      const std::string file = read_all(source_path(path.string())), suite = (*i)[1], name = (*i)[2];
      bool is_there = false;
      for (const char* macro : {"TEST", "TEST_F", "TEST_P"})
        is_there = is_there || file.find(fmt::format("\n{}({}, {})", macro, suite, name)) != file.npos;
      EXPECT_TRUE(is_there) << page.path << ": " << path.string() << " has no test " << suite << "." << name;
    }
  }
  EXPECT_GE(count, 50);
}

TEST(Docs, TheIndexNamesEveryPage) {
  const std::string index = read_page("docs/index.md").text;
  for (const Page& page : read_pages())
    if (page.path.starts_with("docs/") && page.path != "docs/index.md") {
      EXPECT_NE(index.find("](" + page.path.substr(5) + ")"), index.npos) << page.path;
    }
}

TEST(Docs, EveryBlockSaysWhatItIs) {
  for (const Page& page : read_pages()) {
    EXPECT_FALSE(page.text.empty()) << page.path;
    for (const CodeBlock& block : page.blocks)
      EXPECT_TRUE(kLanguages.contains(block.language)) << page.place(block) << " is in \"" << block.language << "\"";
  }
}

// A page that shows a file of the tree shows it as it is, all of it or a part.
TEST(Docs, ExcerptsAreWhatTheFilesHave) {
  int count = 0;
  for (const Page& page : read_pages())
    for (const CodeBlock& block : page.blocks) {
      if (!is_in_tree(block.name)) continue;
      ++count;
      const std::string file = read_all(source_path(block.name));
      if (block.language == "protobuf")
        EXPECT_EQ(block.text, file) << page.place(block);
      else
        EXPECT_NE(file.find(block.text), file.npos) << page.place(block) << " is not in " << block.name;
    }
  EXPECT_GE(count, 3);
}

// A build without MPI does not have the operators of this page.
bool is_for_this_build(const Page& page) {
  return page.path != "docs/distributed.md" || find_op("CreateCommonWorld") != nullptr;
}

TEST(Docs, NetsAreNets) {
  int count = 0;
  for (const Page& page : read_pages())
    for (const CodeBlock& block : page.blocks) {
      if (block.language != "protobuf" || !is_for_this_build(page)) continue;
      ++count;
      try {
        NetDef net = parse_net_text(block.text, page.place(block));
        expand_recurrent(net);
        check_net(net, nullptr);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
  EXPECT_GE(count, 3);
}

// docs/recurrent.md shows one network in both forms.
TEST(Docs, TheFullFormIsWhatTheShortFormBecomes) {
  const TempFolder folder;
  std::vector<std::string> printed;
  for (const CodeBlock& block : read_page("docs/recurrent.md").blocks) {
    if (block.language != "protobuf" || block.text.find("RecurrentNetwork") == std::string::npos) continue;
    const std::string path = folder.file("net.pbtxt");
    write_all(path, block.text);
    printed.push_back(std::regex_replace(stepnet("expand " + path).out, std::regex("\\s*name: \"\""), ""));
  }
  ASSERT_EQ(printed.size(), 2U);
  EXPECT_NE(printed[0].find("backward_step_net"), std::string::npos);
  EXPECT_EQ(printed[0], printed[1]);
}

TEST(Docs, EveryPassHasARow) {
  const std::string page = read_page("docs/passes.md").text;
  for (const std::string& pass : pass_names()) EXPECT_NE(page.find("| `" + pass + "` | "), page.npos) << pass;
}

// The help of a subcommand; of the command itself for "".
const std::string& help(const std::string& subcommand) {
  static std::map<std::string, std::string> known;
  std::string& text = known[subcommand];
  if (text.empty()) text = stepnet(subcommand + " --help").text();
  return text;
}

std::set<std::string> subcommands() {
  std::istringstream lines(help("").substr(help("").find("Subcommands:\n")));
  std::string line, name;
  std::getline(lines, line);
  std::set<std::string> names;
  while (std::getline(lines, line) && std::istringstream(line) >> name) names.insert(name);
  return names;
}

TEST(Docs, EverySubcommandHasARow) {
  const std::string page = read_page("docs/commands.md").text;
  EXPECT_GE(subcommands().size(), 6U);
  for (const std::string& name : subcommands()) EXPECT_NE(page.find("| `stepnet " + name + "` | "), page.npos) << name;
}

// Commands inside of sentences do not run, but what they name is there.
TEST(Docs, CommandsInSentencesAreThere) {
  static const std::regex options(R"((^|\s)(--[a-z0-9-]+))");
  int count = 0;
  for (const Page& page : read_pages())
    for (const std::string& code : page.inline_code()) {
      const std::vector<std::string> parts = words(code);
      if (parts.size() < 2 || parts[0] != "stepnet" || !std::islower(static_cast<unsigned char>(parts[1][0]))) continue;
      EXPECT_TRUE(subcommands().contains(parts[1])) << page.path << ": " << code;
      for (std::sregex_iterator i(code.begin(), code.end(), options), end; i != end; ++i, ++count)
        EXPECT_NE(help(parts[1]).find((*i)[2].str() + " "), std::string::npos) << page.path << ": " << code;
    }
  EXPECT_GE(count, 5);
}

// A page's commands, run one after the other in a folder that has what they name.
class PageCommands : public ::testing::TestWithParam<std::string> {
 protected:
  PageCommands() : page_(read_page(GetParam())) {
    for (const char* folder : {"tools", "tests"}) fs::create_symlink(source_path(folder), folder_.file(folder));
    std::string text;  // of less than 62 different bytes, all of which are in its first part
    for (int i = 0; i < 12; ++i) text += read_all(source_path("LICENSE")).substr(0, 800);
    for (const char* name : {"FILE", "book.txt"}) write_all(folder_.file(name), text);
    fs::create_directory(folder_.file("build"));
    fs::create_symlink(plugin_path(), folder_.file("build/libscale_by.so"));
    constexpr int64_t T = 20, B = 32, I = 64, H = 128;
    const std::pair<const char*, Shape> arrays[] = {
        {"x", {T, B, I}},        {"weight_ih_l0", {4 * H, I}}, {"weight_hh_l0", {4 * H, H}},
        {"bias_ih_l0", {4 * H}}, {"bias_hh_l0", {4 * H}},      {"inputs", {30, T, 3}}};
    for (const auto& [name, shape] : arrays)
      write_npy(folder_.file(fmt::format("{}.npy", name)), uniform<float>(shape, -1, 1));
    Tensor targets = Tensor::empty(DType::int64, {30});
    for (int64_t i = 0; i < targets.size(); ++i) targets.data<int64_t>()[i] = i % 3;
    write_npy(folder_.file("targets.npy"), targets);
    for (const CodeBlock& block : page_.blocks)
      if (!block.name.empty() && !is_in_tree(block.name)) write_all(folder_.file(block.name), block.text);
  }

  void try_line(const std::string& line, const std::string& place);
  void run(const std::string& line, const std::string& place);
  void run_ranks(const std::string& line, const std::string& place);

  const Page page_;
  const TempFolder folder_;
};

// The same command, but short.
std::string quick(std::string line) {
  static const std::pair<std::regex, const char*> shorter[] = {{std::regex("--iterations [0-9]+"), "--iterations 2"},
                                                               {std::regex("--length [0-9]+"), "--length 4"},
                                                               {std::regex("--beams [0-9]+"), "--beams 2"},
                                                               {std::regex("gradcheck --all"), "gradcheck Tanh"}};
  for (const auto& [from, to] : shorter) line = std::regex_replace(line, from, to);
  const auto has = [&line](const char* text) { return line.find(text) != line.npos; };
  if (has("stepnet bench") && !has("--iterations")) line += " --iterations 2";
  if (has(" train ") && !has("--resume")) line += " --batch 4 --timesteps 8";
  return line;
}

void PageCommands::run(const std::string& line, const std::string& place) {
  const std::string script = folder_.file("line.sh"), output = folder_.file("printed");
  write_all(script, fmt::format("cd '{}'\nstepnet() {{ '{}' \"$@\"; }}\n{}\n", folder_.path(), command_path(), line));
  const int status = std::system(fmt::format("bash '{}' >'{}' 2>&1", script, output).c_str());
  const std::string printed = read_all(output);
  static const std::regex no_gpu("(there is|this build has) no (CUDA )?device");
  if (line.find("--device cuda") != line.npos && std::regex_search(printed, no_gpu)) return;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << place << ": " << line << "\n" << printed;
}

// mpirun starts programs, not functions of the shell. Tests may run as root, and on few cores. Open MPI leaves memory
// behind, which a sanitizer would take for a leak.
void PageCommands::run_ranks(const std::string& line, const std::string& place) {
  if (!is_for_this_build(page_)) return;
  run("export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
      "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0\n" +
          std::regex_replace(line, std::regex(" stepnet "), " '" + command_path() + "' "),
      place);
}

bool is_assignment(const std::string& word) { return std::regex_match(word, std::regex("[A-Z_]+=.*")); }

// A preset's name stands behind --preset.
std::string wrong_with_presets(const std::string& line) {
  static const std::regex presets("--preset ([a-z]+)");
  const std::string known = read_all(source_path("CMakePresets.json"));
  for (std::sregex_iterator i(line.begin(), line.end(), presets), end; i != end; ++i)
    if (known.find("{\"name\": \"" + (*i)[1].str() + "\"") == known.npos) return "there is no preset " + (*i)[1].str();
  return "";
}

// Filters of this program's tests: each pattern must have a test that it fits.
std::string wrong_with_filter(const std::string& line) {
  static const std::regex filters("--gtest_filter='?([^' ]+)");
  std::smatch filter;
  if (!std::regex_search(line, filter, filters)) return "";
  std::istringstream patterns(filter[1]);
  for (std::string pattern; std::getline(patterns, pattern, ':');) {
    bool fits = false;
    const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
    for (int s = 0; s < tests.total_test_suite_count(); ++s) {
      const ::testing::TestSuite& suite = *tests.GetTestSuite(s);
      for (int t = 0; t < suite.total_test_count(); ++t)
        fits = fits || ::fnmatch(pattern.c_str(),
                                 fmt::format("{}.{}", suite.name(), suite.GetTestInfo(t)->name()).c_str(), 0) == 0;
    }
    if (!fits) return fmt::format("no test fits {}", pattern);
  }
  return "";
}

// Scripts take long, and set the machine up: they do not run here, but have every option that is shown.
std::string wrong_with_script(std::string program, const std::vector<std::string>& parts) {
  if (program.starts_with("FOLDER/")) program = program.substr(7);
  if (program == "run_tests") program = "tools/bundled_tests";
  const fs::path path = source_path(program);
  if (!is_in_tree(program) || ::access(path.c_str(), X_OK) != 0) return program + " is no program";
  std::string texts;
  for (const auto& entry : fs::directory_iterator(path.parent_path()))
    if (entry.is_regular_file()) texts += read_all(entry.path());
  for (const std::string& option : parts)
    if (option.starts_with("--") && texts.find(option.substr(0, option.find('='))) == texts.npos)
      return fmt::format("{} has no {}", program, option);
  return "";
}

void PageCommands::try_line(const std::string& line, const std::string& place) {
  const std::vector<std::string> parts = words(line);
  const auto program = std::find_if_not(parts.begin(), parts.end(), is_assignment);
  ASSERT_NE(program, parts.end()) << place << ": " << line;
  std::string wrong;
  if (*program == "stepnet" || program->ends_with("/stepnet")) {
    if (is_for_this_build(page_))
      run(std::regex_replace(quick(line), std::regex(R"((^|\s)\S*/stepnet )"), "$1stepnet "), place);
  } else if (*program == "mpirun")
    run_ranks(line, place);
  else if (*program == "mkdir" || *program == "cp")
    run(line, place);
  else if (*program == "cmake" || *program == "ctest")
    wrong = wrong_with_presets(line);
  else if (program->ends_with("/stepnet_tests"))
    wrong = wrong_with_filter(line);
  else
    wrong = wrong_with_script(*program, parts);
  EXPECT_EQ(wrong, "") << place << ": " << line;
}

TEST_P(PageCommands, Run) {
  for (const CodeBlock& block : page_.blocks) {
    if (block.language != "sh") continue;
    for (std::string line : command_lines(block.text)) {
      line = std::regex_replace(line, std::regex(" && "), "\n");
      std::istringstream steps(line);
      for (std::string step; std::getline(steps, step);) try_line(step, page_.place(block));
    }
  }
}

std::vector<std::string> paths_of_pages() {
  std::vector<std::string> paths;
  for (const Page& page : read_pages())
    if (std::ranges::any_of(page.blocks, [](const CodeBlock& b) { return b.language == "sh"; }))
      paths.push_back(page.path);
  return paths;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  return std::regex_replace(info.param, std::regex("[^A-Za-z0-9]"), "_");
}

INSTANTIATE_TEST_SUITE_P(Docs, PageCommands, ::testing::ValuesIn(paths_of_pages()), name_of);

}  // namespace
}  // namespace stepnet::testing::docs_test
