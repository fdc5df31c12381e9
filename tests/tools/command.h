// The stepnet command in a process of its own, as a user starts it: its exit code and what it prints.
//
// Threads: one thread per process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace stepnet::testing {

struct Outcome {
  int code = -1;    // exit code; -1 if a signal ended it
  int signal = 0;   // the signal that ended it
  std::string out;  // standard output
  std::string err;  // standard error
  std::string text() const { return out + err; }
};

class Command {
 public:
  // Starts it in `folder`, tests/data if that is empty.
  explicit Command(const std::vector<std::string>& arguments, const std::string& folder = "");
  ~Command();  // kills it if it still runs
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  void send(int signal) const;
  bool running();
  // Waits for its end; kills it after a minute.
  Outcome wait();

 private:
  void poll(int flags);

  pid_t process_ = -1;
  int out_ = -1, err_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

inline Outcome stepnet(const std::vector<std::string>& arguments) { return Command(arguments).wait(); }

// What the command prints on a terminal, to standard output and to standard error.
std::string on_terminal(std::vector<std::string> arguments);

// Arguments that are separated by blanks.
std::vector<std::string> words(const std::string& line);
inline Outcome stepnet(const std::string& line) { return stepnet(words(line)); }

// The command ends with this code, and prints this text among other things. Returns what it printed.
std::string expect_command(const std::vector<std::string>& arguments, int code, const std::string& text);
inline std::string expect_command(const std::string& line, int code, const std::string& text) {
  return expect_command(words(line), code, text);
}

}  // namespace stepnet::testing
