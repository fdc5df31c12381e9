// CarriedStates: the blobs of a model that one run leaves for the next, such as an LSTM's h and c.
//
// Between runs the states stand under the names that the net reads. Threads: as the workspace.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/data/batch_source.h"
#include "recurrent/train/model.h"
#include "stepnet/workspace.h"

namespace stepnet {

class CarriedStates {
 public:
  // Creates the blobs in `workspace` itself, not in a parent. The workspace must outlive this.
  CarriedStates(const Model& model, DType dtype, Workspace& workspace);

  void reset(int64_t batch);  // zeros [1, batch, size], and first sensitivities
  // Also carries the sensitivities of a training net; those that it has stay. After a reset.
  void carry(const Sensitivities& sensitivities);
  // What the net wrote becomes what it reads next: the tensors change places, and no bytes move unless other tensors
  // share them. Throws Error if the net wrote another shape.
  void advance();
  // Without sensitivities: row i of the batch goes on from what was row rows[i]; the batch may grow or shrink, and a
  // row be taken twice.
  void gather(std::span<const int> rows);

  const std::vector<std::string>& written() const { return from_; }
  const std::vector<std::string>& read() const { return to_; }

 private:
  std::vector<std::string> from_, to_;
  std::vector<int64_t> sizes_;  // of states, which stand before sensitivities
  NetDef start_;                // makes first sensitivities
  void start();

  DType dtype_;
  Device device_;
  Workspace& workspace_;
};

// Gives the net a batch: on the CPU the tensors themselves.
void feed(Workspace& workspace, Device device, const Batch& batch);

}  // namespace stepnet
