// The nets of tools/examples/tasks: each trains by the command in its first lines, and reaches what these say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>

#include "tests/core/errors.h"
#include "tests/core/heap_counter.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::example_tasks_test {
namespace {

struct Task {
  std::string command;  // with DATA and RUN in place of folders
  std::string metric;
  double least = 0;
};

Task read_task(const std::string& path) {
  std::istringstream lines(read_all(path));
  std::string line, command, text;
  while (std::getline(lines, line) && line.starts_with("#")) {
    const bool goes_on = !command.empty() && command.back() == '\\';
    if (goes_on) command.pop_back();
    if (goes_on || (command.empty() && line.starts_with("#   stepnet train"))) command += line.substr(1);
    text += line.substr(1) + "\n";
  }
  std::smatch match;
  EXPECT_TRUE(std::regex_search(text, match, std::regex("Reaches (\\w+) ([0-9.]*[0-9])"))) << path;
  return {command, match[1], std::stod(match[2])};
}

class ExampleTasks : public ::testing::TestWithParam<std::string> {};

// The longest take a minute under sanitizers, which see the same code in the others.
bool is_long(const std::string& name) { return name == "forecast" || name == "reversal" || name == "tags"; }

TEST_P(ExampleTasks, ReachWhatTheySay) {
  if (!counts_heap() && is_long(GetParam())) GTEST_SKIP() << "long under sanitizers";
  const TempFolder folder;
  const std::string data = folder.file("data"), out = folder.file("run");
  ASSERT_EQ(std::system((source_path("tools/examples/tasks/make_data") + " " + data).c_str()), 0);
  const Task task = read_task(source_path("tools/examples/tasks/" + GetParam() + ".pbtxt"));
  std::vector<std::string> arguments = words(task.command + " --threads 1 --quiet");
  arguments.erase(arguments.begin());
  for (std::string& argument : arguments) {
    argument = std::regex_replace(argument, std::regex("DATA"), data);
    argument = std::regex_replace(argument, std::regex("RUN"), out);
    argument = std::regex_replace(argument, std::regex("tools/examples"), source_path("tools/examples"));
  }
  expect_command(arguments, 0, "best " + task.metric);
  std::istringstream lines(read_all(out + "/metrics.jsonl"));
  double best = 0;
  const std::regex value("\"validation_" + task.metric + "\": ?([-0-9.e]+)");
  for (std::string line; std::getline(lines, line);)
    if (std::smatch match; std::regex_search(line, match, value)) best = std::max(best, std::stod(match[1]));
  EXPECT_GE(best, task.least);
}

TEST(ExampleTasksTest, AreAllTried) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tools/examples/tasks")))
    if (entry.path().extension() == ".pbtxt") names.push_back(entry.path().stem());
  EXPECT_EQ(names.size(), 7);
}

INSTANTIATE_TEST_SUITE_P(Each, ExampleTasks,
                         ::testing::Values("amplifier", "forecast", "forecast_streams", "gestures", "machines",
                                           "reversal", "tags"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stepnet::testing::example_tasks_test
