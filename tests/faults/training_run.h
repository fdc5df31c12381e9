// FaultyTraining: a short training run by the command `stepnet train`, under faults of its file calls, and what it must
// come to all the same.
//
// The folder holds a net, a text and the run. Checks return what is wrong, "" if nothing is.
// Threads: one thread per object.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/core/temp_folder.h"
#include "tests/faults/disk_model.h"
#include "tests/tools/command.h"

namespace stepnet::testing {

// Why the shim cannot be used here; "" if it can.
std::string no_shim();
bool is_sanitized();

class FaultyTraining {
 public:
  explicit FaultyTraining(bool validates = true);  // runs the training once, undisturbed

  const std::string& folder() const { return folder_; }
  // What the folder holds before the run, and when it was killed in the middle, while it wrote a checkpoint.
  const FileTree& before() const { return before_; }
  const FileTree& halfway();

  struct Session {
    Outcome outcome;
    std::vector<JournalEntry> journal;
  };
  // Starts the run, or goes on with it if there is a checkpoint. `at`: the call that gets the fault.
  Session train(Fault fault = Fault::none, unsigned at = 0) const;
  std::unique_ptr<Command> start(Fault fault = Fault::none, unsigned at = 0, const std::string& every = "2") const;

  // The calls of a session without faults that starts from `tree`.
  std::vector<JournalEntry> calls_from(const FileTree& tree) const;
  // The faults that a call can have.
  static std::vector<Fault> faults_of(const JournalEntry& call);

  // Starts from `tree` with a fault, looks at how the command ends, goes on without fault, and compares.
  std::string check_fault(const FileTree& tree, const JournalEntry& call, Fault fault) const;
  // Loses power after `calls` of `journal`, which starts from before(), goes on, and compares.
  std::string check_loss(const std::vector<JournalEntry>& journal, size_t calls, Loss loss, std::mt19937& draws) const;
  // Goes on to the end; it must not fall behind the checkpoint of `saved`, and end as the undisturbed run.
  // `after_error`: a session before has ended with an error, and may have saved an iteration that the undisturbed run
  // does not save.
  std::string check_end(int64_t saved, bool after_error = false) const;
  // How the run in the folder differs from the undisturbed one, and what was left behind in it.
  std::string difference(bool after_error = false) const;
  std::string left_behind() const;

  // The last iteration whose checkpoint was on the disk, with all that save() does, in the first `calls` of a journal.
  static int64_t saved_in(const std::vector<JournalEntry>& journal, size_t calls);
  bool has_checkpoint() const;
  // The last iteration of which the metrics have a whole line; 0 if there is none.
  int64_t last_logged() const;

 private:
  std::string run() const { return folder_ + "/run"; }
  std::map<std::string, std::string> facts() const;
  std::map<std::string, std::string> older_tensors() const;  // of the last checkpoint but one

  TempFolder place_;
  bool validates_;
  std::string folder_, journal_;
  FileTree before_, halfway_;
  std::map<std::string, std::string> expected_;
  std::vector<std::map<std::string, std::string>> older_;  // of iterations 5 and 4, undisturbed
};

const char* fault_name(Fault fault);

}  // namespace stepnet::testing
