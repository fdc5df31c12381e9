// What the tape knows per thread: whether it records, which node is running, and what is on for debugging; lines of the
// program that calls it, for messages; and which bytes belong to parameters.
//
// Threads: every thread has a state of its own; a backward that needs another thread takes its caller's along.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "stepnet/error.h"
#include "stepnet/profiler.h"
#include "stepnet/tensor.h"

namespace stepnet::autograd {

// A line of the program that calls the tape.
struct Place {
  const char* file = "";
  int line = 0;
  // As a default argument: the line of the caller. (std::source_location cannot be read by every tool that reads this.)
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool known() const { return line > 0; }
  std::string str() const { return known() ? fmt::format("{}:{}", file, line) : "an unknown place"; }
};

// Says where the call was made that an Error came from, unless that is known from a call inside it.
inline void add_call_place(Error& error, Place place) {
  if (!error.has("at")) error.add("at", place.str());
}

class Node;
class GraphTask;
class RecomputeGroup;
class TapeCapture;
struct HiddenLevels;
struct SavedValueHooks;
struct RandomState;

struct TapeState {
  bool recording = true;
  bool anomaly = false;
  bool anomaly_checks_nan = true;
  Node* running = nullptr;                       // whose derivative runs now
  GraphTask* task = nullptr;                     // of that node
  int depth = 0;                                 // of backward passes inside one another, on this thread
  std::shared_ptr<const SavedValueHooks> hooks;  // for values that are saved from now on
  const char* hooks_refused = nullptr;           // why no hooks may be set
  Profiler* profiler = nullptr;                  // gets the operators that run
  const Node* saving = nullptr;                  // inside a hook that packs: whose value, if that is known
  RandomState* draws = nullptr;                  // in place of the process's
  RecomputeGroup* group = nullptr;               // of passes that share what they recompute
  TapeCapture* capture = nullptr;                // that writes down what runs
  Device device;                                 // for operators whose inputs have no bytes anywhere
  const HiddenLevels* hidden_levels = nullptr;   // whose tangents operators do not see (core/autograd/tape_tangents.h)
};
TapeState& tape_state();

// Releases a node, or what may hold variables and so nodes; from inside the destruction of another one only later, so
// that nothing recurses.
void let_go(std::shared_ptr<void> object);

// For a scope: where operators run whose inputs do not say it.
class OnDevice {
 public:
  explicit OnDevice(Device device) : before_(tape_state().device) { tape_state().device = device; }
  ~OnDevice() { tape_state().device = before_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  Device before_;
};

// For a scope: nothing is recorded, so results need no gradient and nothing is saved. Writes still raise versions.
class NoGrad {
 public:
  explicit NoGrad(bool recording = false) : before_(tape_state().recording) { tape_state().recording = recording; }
  ~NoGrad() { tape_state().recording = before_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// For a scope inside NoGrad: records again.
class EnableGrad : public NoGrad {
 public:
  EnableGrad() : NoGrad(true) {}
};

// For a scope: nodes remember which node was running when they were made, and a gradient with a NaN is an Error that
// names the operator, and where it and those around it ran forward. Slow.
class AnomalyMode {
 public:
  explicit AnomalyMode(bool check_nan = true);
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  bool before_, checked_;
};

// For a scope: the operators that this thread runs on the tape, forward and backward, are recorded there by their
// types.
class ProfileScope {
 public:
  explicit ProfileScope(Profiler& profiler) : before_(tape_state().profiler) { tape_state().profiler = &profiler; }
  ~ProfileScope() { tape_state().profiler = before_; }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profiler* before_;
};

// The draws of random operators that run on the tape: a seed, and a number that each run of such an operator raises.
// One for the whole process, so that a program that runs its operators in one order draws the same numbers every time.
struct RandomState {
  uint64_t seed = 1;
  int64_t draws = 0;
};
RandomState random_state();
void set_random_state(const RandomState& state);
int64_t next_draw();  // the number of a run of a random operator

// For a scope: this thread draws from `state` on, and nobody else notices.
class RandomStateScope {
 public:
  explicit RandomStateScope(const RandomState& state) : state_(state), before_(tape_state().draws) {
    tape_state().draws = &state_;
  }
  ~RandomStateScope() { tape_state().draws = before_; }
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;

 private:
  RandomState state_;
  RandomState* before_;
};

// Sets what is called before bytes that may have been saved are overwritten: values that wait to be written elsewhere
// (stepnet/offload.h) must have been by then. Runs when the library is loaded.
bool set_before_write(void (*before_write)(const Tensor& value));
void before_write(const Tensor& value);

// What the tape has done in this process so far, for tests and reports.
enum class TapeEvent {
  gradient_moved,   // into an empty buffer or an empty leaf's gradient
  gradient_copied,  // into a leaf's gradient, as somebody else holds it
  added_in_place,   // a later gradient, into the sum of those before
  added_apart,      // the same into a new tensor
  input_cloned,     // an operator overwrites in place what a formula will read
  node_run,         // its derivative ran
  value_packed,     // by a hook on saved values
  value_unpacked,
};
void count(TapeEvent event);
int64_t counted(TapeEvent event);

struct ParameterMarks;

// Says that bytes belong to a leaf that requires a gradient, such as a parameter, whose owner keeps them whoever else
// does. Held by the leaf for as long as it is one. Threads: may be used from any thread.
class ParameterMark {
 public:
  ParameterMark() = default;
  explicit ParameterMark(const Storage* storage);
  ParameterMark(ParameterMark&& other) noexcept = default;
  ParameterMark& operator=(ParameterMark&& other) noexcept {
    std::swap(all_, other.all_);
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~ParameterMark();

 private:
  std::shared_ptr<ParameterMarks> all_;  // shared, as leaves may outlive the process's statics; null: no mark
  const Storage* storage_ = nullptr;
};

// True if these are a parameter's bytes, whichever tensor shows them.
bool is_parameter(const Tensor& value);

}  // namespace stepnet::autograd
