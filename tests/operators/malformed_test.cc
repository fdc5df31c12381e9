// Every operator on malformed inputs, arguments and names: an Error that says what is wrong, or a result, but no crash.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "stepnet/device.h"
#include "stepnet/net.h"
#include "tests/core/temp_folder.h"
#include "tests/operators/malformed_cases.h"

namespace stepnet::testing::malformed_test {
namespace {

// Ends the program if one call takes too long, and says which.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    set("");
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void set(const std::string& what) {
    const std::lock_guard lock(mutex_);
    what_ = what;
    ++number_;
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    for (uint64_t seen = 0; !done_; seen = number_) {
      changed_.wait_for(lock, std::chrono::seconds(60));
      if (done_ || what_.empty() || number_ != seen) continue;
      fmt::print(stderr, "this takes more than a minute: {}\n", what_);
      std::abort();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  uint64_t number_ = 0;
  bool done_ = false;
  std::thread thread_;
};

// Files whose names are made up go to a folder, and what is printed nowhere.
class InFolder {
 public:
  explicit InFolder(const std::string& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
    ::testing::internal::CaptureStdout();
  }
  ~InFolder() {
    ::testing::internal::GetCapturedStdout();
    std::filesystem::current_path(before_);
  }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  std::filesystem::path before_;
};

// What a huge size asks for is refused, and does not keep the machine busy.
class LittleMemory {
 public:
  LittleMemory() { limit_cpu_memory(allocator(Device{}).counters().live + (int64_t{16} << 20)); }
  ~LittleMemory() { limit_cpu_memory(-1); }  // what the machine has
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;
};

// Runs the operators before; false if one of them fails, since they read the changed values too.
bool run_before(const OpCall& call, Workspace& workspace, RunContext& context) {
  if (call.before.op_size() > 0) empty_folder(call.folder);  // they write its files
  context.keep_values = true;                                // for the operator, in a net of its own
  try {
    run_net_once(call.before, workspace, context);
    context.keep_values = false;
    return true;
  } catch (const Error&) {
    return false;
  }
}

struct Ran {
  std::string error;
  std::string outputs;  // types, shapes and bytes of those that are tensors
};

Ran run(const OpCall& call) {
  try {
    Workspace workspace;
    for (const auto& [name, value] : call.feeds) workspace.tensor(name) = value.clone();
    RunContext context;
    if (!run_before(call, workspace, context)) return {};
    NetDef net;
    *net.add_op() = call.def;
    run_net_once(net, workspace, context);
    Ran ran;
    for (const std::string& name : call.def.output()) {
      const Blob* blob = name.empty() ? nullptr : workspace.find(name);
      if (!blob || !blob->is_tensor() || blob->empty() || blob->tensor().dtype() == DType::string) continue;
      const Tensor& value = blob->tensor();
      ran.outputs += value.str();
      ran.outputs.append(reinterpret_cast<const char*>(value.raw()), value.bytes());
    }
    return ran;
  } catch (const Error& e) {
    return {e.what(), ""};
  }
}

class Malformed : public ::testing::Test {
 protected:
  void walk(void (*mutate)(const OpCall&, const std::function<void(const Mutation&)>&)) {
    int runs = 0, errors = 0;
    {
      const TempFolder folder;
      const InFolder here(folder.path());
      const LittleMemory memory;
      for (const auto& [type, calls] : calls_of_all_operators(folder.path()))
        for (const OpCall& call : calls)
          mutate(call, [&, type = type](const Mutation& m) {
            ++runs;
            errors += try_one(type, m) ? 1 : 0;
          });
    }
    EXPECT_GT(errors, 0);
    EXPECT_LT(errors, runs);
    for (const std::string& problem : problems_) ADD_FAILURE() << problem;
  }

 private:
  // Whether there was an Error.
  bool try_one(const std::string& type, const Mutation& m) {
    const std::string what = type + ", " + m.what;
    watchdog_.set(what);
    std::string text;
    try {
      text = run(m.call).error;
    } catch (const std::exception& e) {
      problems_.push_back(fmt::format("{}: no Error of ours but {}", what, e.what()));
    }
    if (text.empty()) return false;
    // What an operator's net says has other names.
    const bool has_net = std::ranges::any_of(op_spec(type).args, [](const ArgSpec& arg) { return arg.holds_net; });
    for (const std::string& word : {type, m.named})
      if (!has_net && text.find(word) == std::string::npos)
        problems_.push_back(fmt::format("{}: \"{}\" is not in the message: {}", what, word, text));
    return true;
  }

  std::vector<std::string> problems_;
  Watchdog watchdog_;
};

TEST_F(Malformed, TypesAndShapes) { walk(mutate_inputs); }
TEST_F(Malformed, Values) { walk(mutate_values); }
TEST_F(Malformed, Arguments) { walk(mutate_arguments); }
TEST_F(Malformed, Names) { walk(mutate_names); }

OpCall with_integer(OpCall call, const std::string& name, int64_t value) {
  auto& args = *call.def.mutable_arg();
  args.erase(std::remove_if(args.begin(), args.end(), [&](const Argument& a) { return a.name() == name; }), args.end());
  *call.def.add_arg() = make_arg(name, value);
  return call;
}

// An integer that does not fit is refused, or has its own result, where two that fit have different ones.
TEST(MalformedIntegers, AreNotTakenForThoseThatFit) {
  std::set<std::string> wrapped;
  int accepted = 0;
  const auto try_one = [&](const OpCall& call, const std::string& name, int64_t value) {
    const auto ran = [&](int64_t v) { return run(with_integer(call, name, v)); };
    const auto same = [](const Ran& x, const Ran& y) {
      return x.error.empty() == y.error.empty() && x.outputs == y.outputs;
    };
    constexpr int64_t kWraps = int64_t{1} << 32;
    const Ran fits = ran(value), next = ran(value + 1);
    if (!fits.error.empty() || same(fits, next)) return;
    ++accepted;
    if (same(fits, ran(value + kWraps)) && same(next, ran(value + 1 + kWraps)))
      wrapped.insert(fmt::format("{}, {}: {}", call.def.type(), name, value));
  };
  {
    const TempFolder folder;
    const InFolder here(folder.path());
    const LittleMemory memory;
    for (const auto& [type, calls] : calls_of_all_operators(folder.path()))
      for (const OpCall& call : calls)
        for (const ArgSpec& arg : op_spec(type).args)
          for (const int64_t value : {0, 1})
            if (arg.type == "int" || arg.type == "int32") try_one(call, arg.name, value);
  }
  EXPECT_GT(accepted, 100);
  EXPECT_EQ(fmt::format("{}", fmt::join(wrapped, "; ")), "");
}

}  // namespace
}  // namespace stepnet::testing::malformed_test
