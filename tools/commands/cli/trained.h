// Options that say which trained model to use, and on what samples.
//
// Threads: for the main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "recurrent/train/trained_model.h"

namespace CLI {
class App;
}

namespace stepnet::tools {

struct TrainedOptions {
  std::string file, out, checkpoint, root;
  std::vector<std::string> data;
  int64_t batch = 0;
  int threads = 0;
  bool strict = false;
};

void add_trained_options(CLI::App& command, TrainedOptions& options);
// Throws Error as TrainedModel does, and if neither a run nor a checkpoint is given. Sets the number of threads.
std::unique_ptr<TrainedModel> load_trained(const TrainedOptions& options);

}  // namespace stepnet::tools
