// Stepnet as a contender: a file's layer, stacked, and for training with its gradient operators.
//
// Threads: for the main thread.
#pragma once

#include "stepnet/net.h"
#include "stepnet/workspace.h"
#include "tools/bench/cell_case.h"

namespace stepnet::bench {

// The file's text with numbers for ${1H}, ${2H} and so on; the path starts at the source tree's root.
NetDef load_net(const std::string& path, int64_t hidden);

DType dtype_of_name(const std::string& name);  // "float32", "bfloat16", ...

// What a run has to do at least, as `stepnet estimate` counts it: arithmetic, and the bytes of the values that
// operators read and write, each once; a recurrent network is one operator.
struct NetWork {
  double flops = 0, bytes = 0;
};

class StepnetNet : public Contender {
 public:
  // All that is fed is rounded to the type, and results are float again.
  StepnetNet(const NetFile& file, const CellData& data, Mode mode, Device device = {}, DType dtype = DType::float32);
  void run() override;
  Values results() const override;
  NetWork work() const;
  // The first layer's state for the next run: what the net wrote as `last` is what it reads as `initial`.
  void keep_state(const std::string& initial, const std::string& last);

 private:
  void feed(const std::string& blob, const std::vector<int64_t>& shape, const std::vector<float>& values);
  void add_gradients(NetDef& def, const std::string& top);

  Device device_;
  DType dtype_;
  Workspace workspace_;
  std::map<std::string, std::string> blobs_;  // result to blob
  std::unique_ptr<Net> net_;
};

}  // namespace stepnet::bench
