#include "tests/faults/campaigns.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <thread>

namespace stepnet::testing {
namespace {

using Clock = std::chrono::steady_clock;

const char* kind_name(CallKind kind) {
  constexpr const char* kNames[] = {"open", "close", "read", "write", "sync", "rename", "remove",
                                    "make", "cut",   "look", "list",  "lock", "map"};
  return kNames[static_cast<size_t>(kind)];
}

std::string text_of(const JournalEntry& entry) {
  const CallRecord& call = entry.call;
  std::string text = fmt::format("call {}, {} {}", call.number, kind_name(call.kind), entry.path);
  return entry.other.empty() ? text : text + " to " + entry.other;
}

class Report {
 public:
  explicit Report(std::string what) : what_(std::move(what)) {}
  void add(const std::string& where, const std::string& wrong) {
    ++tried_;
    if (wrong.empty()) return;
    ++found_;
    fmt::print("found {}: {}\n", where, wrong);
    std::fflush(stdout);
  }
  int end(const std::string& more = "") const {
    const std::chrono::duration<double> took = Clock::now() - start_;
    fmt::print("{}: {} tried{}, {} wrong, {:.0f} s\n", what_, tried_, more, found_, took.count());
    std::fflush(stdout);
    return found_;
  }

 private:
  std::string what_;
  Clock::time_point start_ = Clock::now();
  int tried_ = 0, found_ = 0;
};

std::vector<Fault> staying_faults_of(const JournalEntry& call) {
  for (const Fault fault : FaultyTraining::faults_of(call))
    if (fault == Fault::enospc) return {Fault::eio_on, Fault::enospc_on};
  return {Fault::eio_on};
}

template <class FaultsOf>
int fail_all(FaultyTraining& training, const std::string& what, const FaultChoice& choice, FaultsOf faults_of) {
  Report report(what);
  int index = 0;
  for (const bool goes_on : {false, true}) {
    const FileTree& tree = goes_on ? training.halfway() : training.before();
    std::map<std::pair<CallKind, std::string>, int> seen;
    for (const JournalEntry& call : training.calls_from(tree)) {
      const int nth = seen[{call.call.kind, call.path}]++;
      for (const Fault fault : faults_of(call))
        if (choice({call, fault, goes_on, nth, index++}))
          report.add(
              fmt::format("{}, {}, {}", goes_on ? "a run that goes on" : "a run", text_of(call), fault_name(fault)),
              training.check_fault(tree, call, fault));
    }
  }
  return report.end();
}

void lose_power_at(const FaultyTraining& training, const std::vector<JournalEntry>& journal, size_t calls,
                   const std::string& when, std::mt19937& draws, Report& report) {
  for (const Loss loss : kLosses)
    report.add(fmt::format("{}, {} after {}", when, loss_name(loss), text_of(journal[calls - 1])),
               training.check_loss(journal, calls, loss, draws));
}

}  // namespace

int fail_calls(FaultyTraining& training, const FaultChoice& choice) {
  return fail_all(training, "calls with faults", choice, FaultyTraining::faults_of);
}

int fail_disks(FaultyTraining& training, const FaultChoice& choice) {
  return fail_all(training, "disks that fail from a call on", choice, staying_faults_of);
}

int kill_runs(FaultyTraining& training, int count, unsigned seed) {
  Report report("kills");
  write_tree(training.before(), training.folder());
  const auto start = Clock::now();
  training.start()->wait();
  const auto longest = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  std::mt19937 draws(seed);
  std::uniform_int_distribution<int64_t> delay(0, longest * 11 / 10);
  write_tree(training.before(), training.folder());
  int finished = 0;
  int64_t saved = 0;
  for (int killed = 0; killed < count;) {
    const auto command = training.start();
    std::this_thread::sleep_for(std::chrono::microseconds(delay(draws)));
    command->send(SIGKILL);
    const Outcome outcome = command->wait();
    std::string wrong;
    const size_t from = outcome.err.find("going on after iteration ");
    if (from != outcome.err.npos && std::stoll(outcome.err.substr(from + 25)) < saved)
      wrong = fmt::format("{} had been saved: {}", saved, outcome.err);
    if (outcome.signal == SIGKILL) {
      ++killed;
      // A line says that the checkpoint before its iteration, of which every second has one, was saved.
      saved = std::max(saved, (std::max<int64_t>(training.last_logged(), 1) - 1) / 2 * 2);
      if (saved > 0 && !training.has_checkpoint()) wrong = "there is no checkpoint";
    } else {
      ++finished;
      if (wrong.empty()) wrong = outcome.code != 0 ? outcome.err : training.difference() + training.left_behind();
      write_tree(training.before(), training.folder());
      saved = 0;
    }
    report.add(fmt::format("kill {}", killed), wrong);
  }
  report.add("the end", training.check_end(saved));
  return report.end(fmt::format(", {} killed, {} runs ended before", count, finished));
}

int lose_power(FaultyTraining& training, int moments, unsigned seed) {
  Report report("losses of power");
  std::mt19937 draws(seed);
  const std::vector<JournalEntry> whole = training.calls_from(training.before());
  const auto any_of = [&](size_t calls) { return static_cast<unsigned>(draws() % calls); };
  for (int i = 0; i < moments; ++i) {
    std::vector<JournalEntry> journal = whole;
    size_t calls = any_of(static_cast<unsigned>(whole.size())) + 1;
    std::string when = "a run";
    if (i % 2 == 1) {
      // A run that is killed first: what it had not synced is there for the next one, and may still be lost.
      write_tree(training.before(), training.folder());
      journal = training.train(Fault::kill, static_cast<unsigned>(calls)).journal;
      const std::vector<JournalEntry> next = training.train().journal;
      when = fmt::format("a run that goes on after one killed at call {}", calls);
      calls = journal.size() + any_of(next.size()) + 1;
      journal.insert(journal.end(), next.begin(), next.end());
    }
    lose_power_at(training, journal, calls, when, draws, report);
  }
  return report.end(fmt::format(" at {} moments", moments));
}

int lose_power_after(FaultyTraining& training, const std::function<bool(const JournalEntry&)>& choice, unsigned seed) {
  Report report("losses of power");
  std::mt19937 draws(seed);
  const std::vector<JournalEntry> journal = training.calls_from(training.before());
  for (size_t i = 0; i < journal.size(); ++i)
    if (choice(journal[i])) lose_power_at(training, journal, i + 1, "a run", draws, report);
  return report.end();
}

}  // namespace stepnet::testing
