// Evaluator: the mean loss of a model over a text, by the forward net alone.
//
// The text is read as several streams with states of their own, and every byte but the first of each stream's context
// counts once: nothing is left out at the end. Training's blobs are not touched; parameters are read where they are.
// Between two calls of loss() it holds no memory but the text's.
// Threads: one thread at a time.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "core/io/text_stream.h"
#include "recurrent/train/carried_states.h"
#include "recurrent/train/held_out.h"
#include "recurrent/train/model.h"
#include "stepnet/net.h"

namespace stepnet {

// The operators of the model's forward net that the loss, metrics and the next carried states depend on, in evaluation.
NetDef evaluation_net(const Model& model, const Workspace& parameters);
// Blobs that metrics read once it has run.
std::set<std::string> metric_blobs(const Model& model);

class Evaluator final : public HeldOut {
 public:
  // `tokens`: at least two. Streams and timesteps are fewer than asked for if the text is short.
  Evaluator(const Model& model, Workspace& parameters, DType dtype, std::string tokens, int64_t batch,
            int64_t timesteps, std::string_view what, bool plan_memory = true);

  double loss() override;  // nats per predicted byte; of a stage 0 but on the last rank, and all ranks must call it
  double estimate_seconds() override;
  int64_t predicted() const { return streams_.length() * streams_.batch() + streams_.tail(); }

 private:
  // The net with its blobs.
  struct Running {
    Running(const Model& model, Workspace& parameters, DType dtype, bool plan_memory);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    void create_inputs(const Model& model);

    Workspace blobs;
    CarriedStates states;
    Batch batch;  // the latest
    Net net;
  };

  double run(Running& running, int64_t begin, int64_t count, int64_t first, int64_t streams) const;  // summed loss

  Model model_;
  Workspace& parameters_;
  DType dtype_;
  bool plan_memory_;
  TextStreams streams_;
};

}  // namespace stepnet
