#include "tests/tools/command.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <sstream>
#include <thread>

#include "tools/source_path.h"

namespace stepnet::testing {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr auto kLongest =
    std::chrono::minutes(10);  // a command of a few seconds takes minutes where every access is watched
#else
constexpr auto kLongest = std::chrono::minutes(1);
#endif

std::string written(int file) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::pread(file, buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  return text;
}

}  // namespace

Command::Command(const std::vector<std::string>& arguments, const std::string& in_folder)
    : out_(::memfd_create("out", MFD_CLOEXEC)), err_(::memfd_create("err", MFD_CLOEXEC)) {
  std::vector<std::string> all = {command_path()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string folder = in_folder.empty() ? source_path("tests/data") : in_folder;
  process_ = ::fork();
  if (process_ != 0) return;
  if (::chdir(folder.c_str()) == 0 && ::dup2(out_, STDOUT_FILENO) >= 0 && ::dup2(err_, STDERR_FILENO) >= 0)
    ::execv(argv[0], argv.data());
  ::_exit(127);
}

Command::~Command() {
  if (!ended_ && process_ > 0) {
    send(SIGKILL);
    poll(0);
  }
  ::close(out_);
  ::close(err_);
}

void Command::send(int signal) const {
  if (!ended_ && process_ > 0) ::kill(process_, signal);
}

void Command::poll(int flags) {
  if (!ended_ && process_ > 0) ended_ = ::waitpid(process_, &status_, flags) == process_;
}

bool Command::running() {
  poll(WNOHANG);
  return !ended_;
}

Outcome Command::wait() {
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (running() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(ended_) << "the command does not end";
  send(SIGKILL);
  poll(0);
  return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, WIFSIGNALED(status_) ? WTERMSIG(status_) : 0, written(out_),
          written(err_)};
}

std::string on_terminal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), command_path());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int terminal = -1;
  const pid_t process = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (process == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(terminal, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
  ::waitpid(process, nullptr, 0);
  ::close(terminal);
  return text;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

std::string expect_command(const std::vector<std::string>& arguments, int code, const std::string& text) {
  const Outcome outcome = stepnet(arguments);
  const std::string printed = outcome.text();
  EXPECT_EQ(outcome.code, code) << fmt::format("{}\n{}", fmt::join(arguments, " "), printed);
  EXPECT_NE(printed.find(text), std::string::npos)
      << fmt::format("{}\nprints\n{}without\n{}", fmt::join(arguments, " "), printed, text);
  return printed;
}

}  // namespace stepnet::testing
