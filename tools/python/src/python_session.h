// Session: a workspace of Python's, and the arrays that show bytes of it.
//
// An array that was given out never changes: before a net runs, blobs whose bytes it shows get others. Nets of one
// session run one at a time, whatever thread runs them.
// Threads: with the interpreter's lock held, but for the lock on runs.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "stepnet/workspace.h"

namespace stepnet::python {

class Session {
 public:
  Workspace& workspace() { return workspace_; }

  // The value of a tensor, read only; of a blob that holds something else a sentence. Throws Error if there is none.
  nanobind::object get(const std::string& name);
  // The tensor itself, for other libraries.
  Tensor lend(const std::string& name);
  void set(const std::string& name, nanobind::handle value);
  void remove(const std::string& name);
  bool contains(const std::string& name);
  std::vector<std::string> names();

  // Parts blobs from what was given out. `kept`: those whose values the net goes on with; the others lose theirs.
  void part_from_arrays(const std::set<std::string>& kept);
  // Copies for blobs that show these bytes, which are the caller's.
  void part_from(const std::shared_ptr<Storage>& bytes);

  std::mutex& runs() { return runs_; }

 private:
  struct Lent {
    std::shared_ptr<Storage> storage;
  };
  std::shared_ptr<Lent> note_lent(const Tensor& value);

  Workspace workspace_;
  std::vector<std::weak_ptr<Lent>> lent_;
  std::mutex runs_;
};

// Has a session's runs for itself. Never waits with the interpreter's lock.
class RunLock {
 public:
  explicit RunLock(std::mutex& mutex) : lock_(mutex, std::try_to_lock) {
    if (lock_.owns_lock()) return;
    const nanobind::gil_scoped_release others;
    lock_.lock();
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

void bind_session(nanobind::module_& module);

}  // namespace stepnet::python
