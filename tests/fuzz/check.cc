// `stepnet check`: text or binary of a net or plan, its short forms, schema, shapes and gradients, without a run.
//
// A first line "# --shape x=2,3 --loss y" gives the command these options, of which it may have --shape, --loss, --as
// and --strict. Nets may open files of an empty folder only.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "tests/fuzz/harness.h"
#include "tests/fuzz/support.h"
#include "tools/commands/commands.h"

namespace stepnet::testing {
namespace {

std::vector<std::string> options_in(std::string_view text) {
  std::vector<std::string> options;
  if (!text.starts_with("# --")) return options;
  std::istringstream words(std::string(text.substr(2, text.find('\n') - 2)));
  for (std::string word, value; words >> word;) {
    if (word == "--strict")
      options.push_back(word);
    else if ((word == "--shape" || word == "--loss" || word == "--as") && words >> value)
      options.push_back(word + "=" + value);
  }
  return options;
}

// What the command prints goes nowhere. Reports of sanitizers do not go through these streams; the text of an assertion
// does, of which the stack says the line.
class Silence {
 public:
  Silence() : out_(stdout), err_(stderr) {
    static std::FILE* const nowhere = std::fopen("/dev/null", "w");
    stdout = stderr = nowhere;
  }
  ~Silence() {
    stdout = out_;
    stderr = err_;
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  std::FILE *out_, *err_;
};

void check(std::vector<std::string> arguments) {
  const Silence silence;
  CLI::App app;
  tools::add_check_command(app);
  std::reverse(arguments.begin(), arguments.end());  // as CLI wants them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& e) {
    must(e.get_exit_code() != 0, "no option of these asks for help");
  }
}

}  // namespace

int fuzz_check(const uint8_t* data, size_t size) {
  const std::string root = fuzz_folder() + "/empty";
  std::filesystem::create_directory(root);
  std::vector<std::string> arguments = {"check", fuzz_file("input", text_of(data, size)), "--root", root};
  for (const std::string& option : options_in(text_of(data, size))) arguments.push_back(option);
  return may_refuse([&] { check(arguments); });
}

}  // namespace stepnet::testing
