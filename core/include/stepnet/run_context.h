// RunContext: what a run hands to every operator beside its tensors.
//
// Threads: one per running thread; copied for substeps that run at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

namespace stepnet {

class AnomalyWatch;
class NetObserver;
class Profiler;
class TensorPacker;
class WeightPacks;

struct RunContext {
  uint64_t seed = 1;                // of the whole run; random operators mix in net, output and iteration
  int64_t iteration = 0;            // how often the net has run before
  int64_t timestep = 0;             // inside a recurrent network, else 0
  Profiler* profiler = nullptr;     // records time and bytes per operator if set
  NetObserver* observer = nullptr;  // sees the operators of the net, not those of nets inside, before and after each
  std::ostream* out = nullptr;      // where Print writes; standard output if null
  WeightPacks* packs = nullptr;     // matrices that do not change while the operators of a step net run
  TensorPacker* packer = nullptr;   // takes what recurrent networks keep for their backward pass, segment by segment
  const AnomalyWatch* anomalies = nullptr;  // looks at what operators make (core/operator/anomaly.h)
  // If set, is told of what makes a run slower than it should be and changes no result, once by each operator; may
  // throw, and may be called from several threads at once.
  const std::function<void(const std::string& warning)>* warn = nullptr;
  // A backward pass leaves what the forward pass kept as it is, where it would otherwise overwrite it, because another
  // pass will read it.
  bool keep_values = false;
};

}  // namespace stepnet
