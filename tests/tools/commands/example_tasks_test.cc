// The nets of tools/examples/tasks: the commands in the first lines of each run, and reach what these say.
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
  std::vector<std::string> commands;  // with DATA and RUN in place of folders
  std::string metric;
  double reached = 0;
};

Task read_task(const std::string& path) {
  std::istringstream lines(read_all(path));
  Task task;
  std::string line, text;
  for (bool goes_on = false; std::getline(lines, line) && line.starts_with("#");) {
    if (goes_on) {
      task.commands.back() += line.substr(1);
    } else if (line.starts_with("#   stepnet ")) {
      task.commands.push_back(line.substr(1));
    }
    goes_on = line.ends_with('\\');
    if (goes_on) task.commands.back().pop_back();
    text += line.substr(1) + "\n";
  }
  std::smatch match;
  EXPECT_TRUE(std::regex_search(text, match, std::regex("Reaches (\\w+) ([0-9.]*[0-9])"))) << path;
  task.metric = match[1];
  task.reached = std::stod(match[2]);
  return task;
}

// Every number that stands after the name in the text.
std::vector<double> numbers_after(const std::string& name, const std::string& text) {
  const std::regex value(name + "(?:\": ?| +)([-0-9.e]+)");
  std::vector<double> numbers;
  for (std::sregex_iterator at(text.begin(), text.end(), value), end; at != end; ++at)
    numbers.push_back(std::stod((*at)[1]));
  return numbers;
}

class ExampleTasks : public ::testing::TestWithParam<std::string> {};

// The longest take a minute under sanitizers, which see the same code in the others.
bool is_long(const std::string& name) {
  return name == "forecast" || name.starts_with("reversal") || name == "tags" || name == "words";
}

TEST_P(ExampleTasks, ReachWhatTheySay) {
  if (!counts_heap() && is_long(GetParam())) GTEST_SKIP() << "long under sanitizers";
  const TempFolder folder;
  const std::string data = folder.file("data"), out = folder.file("run");
  ASSERT_EQ(std::system((source_path("tools/examples/tasks/make_data") + " " + data).c_str()), 0);
  const Task task = read_task(source_path("tools/examples/tasks/" + GetParam() + ".pbtxt"));
  ASSERT_FALSE(task.commands.empty());
  std::string text;
  for (const std::string& command : task.commands) {
    std::vector<std::string> arguments = words(command);
    arguments.erase(arguments.begin());
    for (std::string& argument : arguments) {
      argument = std::regex_replace(argument, std::regex("DATA"), data);
      argument = std::regex_replace(argument, std::regex("RUN"), out);
      argument = std::regex_replace(argument, std::regex("tools/examples"), source_path("tools/examples"));
    }
    if (arguments.front() != "vocab") arguments.insert(arguments.end(), {"--threads", "1"});
    if (arguments.front() == "train") arguments.push_back("--quiet");
    text += expect_command(arguments, 0, "");
  }
  // A run's metrics, or if these do not have it, what was printed.
  std::vector<double> values = numbers_after("validation_" + task.metric, read_all(out + "/metrics.jsonl"));
  if (values.empty()) values = numbers_after(task.metric, text);
  ASSERT_FALSE(values.empty()) << text;
  if (task.metric == "perplexity") {
    EXPECT_LE(std::ranges::min(values), task.reached);
  } else {
    EXPECT_GE(std::ranges::max(values), task.reached);
  }
}

TEST(ExampleTasksTest, AreAllTried) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tools/examples/tasks")))
    if (entry.path().extension() == ".pbtxt") names.push_back(entry.path().stem());
  EXPECT_EQ(names.size(), 10);
}

INSTANTIATE_TEST_SUITE_P(Each, ExampleTasks,
                         ::testing::Values("amplifier", "forecast", "forecast_streams", "gestures", "gestures_packed",
                                           "machines", "reversal", "reversal_beam", "tags", "words"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stepnet::testing::example_tasks_test
