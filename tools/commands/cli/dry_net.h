// DryNet: a net, or a training step of it, as options of a command describe it, made ready to run without data.
//
// Threads: one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/estimate/session.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/model.h"
#include "recurrent/train/ranks.h"
#include "recurrent/train/wavefront.h"
#include "stepnet/train_options.h"

namespace CLI {
class App;
}

namespace stepnet::tools {

struct DryNetOptions {
  std::string file, init, loss, root, device = "cpu", precision = "float32";
  std::vector<std::string> feeds, parameters, bounds;
  OptimizerOptions optimizer;
  int64_t batch = 0, timesteps = 0;
  int threads = 0, ranks = 1;
  int64_t memory_budget = 0;
  int64_t pipeline = 0;  // blocks of timesteps in which ranks run their layers; 0: ranks have parts of the batch
  int stage = 0;         // the rank that the figures are of, then
  bool train = false, keep_all = false, strict = false;
};
void add_dry_net_options(CLI::App& command, DryNetOptions& options);

class DryNet {
 public:
  // Reads the file and the init net. Borrows the options.
  explicit DryNet(const DryNetOptions& options);
  Device device() const;
  // In a dry scope of that device, which gets the options' bounds. Throws Error where types are missing.
  std::unique_ptr<NetSession> session(DryScope& scope);
  // The same to be run with data, on the device: what is fed, and parameters that no net makes, are zeros. Outside of
  // any dry scope.
  std::unique_ptr<NetSession> real_session();
  // Of a training step as `stepnet train` runs it, after session().
  int64_t planned_peak() { return training_peak(training_); }
  // Of a pipeline, after session(): how the ranks share the net.
  const WavefrontPlan& plan() const { return plan_; }

 private:
  void share_batch();
  void share_layers();
  std::unique_ptr<NetSession> training();
  std::unique_ptr<NetSession> forward();

  const DryNetOptions& options_;
  NetDef net_, init_;
  FileRootPtr files_;
  std::optional<Model> model_;
  RanksPtr ranks_;  // null: one process
  std::map<std::string, TensorType> feeds_;
  TrainingEstimate training_;
  WavefrontPlan plan_;
};

}  // namespace stepnet::tools
