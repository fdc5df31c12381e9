// Model: a forward net with what training and sampling need to know about it (the extension `stepnet.model`), checked.
//
// Parameters are the floating outputs of the init net. The carried states are blobs that a run leaves for the next.
// Threads: immutable after reading.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/passes/rerun_segments.h"
#include "recurrent/form/sensitivities.h"
#include "recurrent/network/segments.h"
#include "recurrent/train/ranks.h"
#include "stepnet/file_place.h"
#include "stepnet/proto/recurrent.pb.h"
#include "stepnet/workspace.h"

namespace stepnet {

struct Model {
  NetDef source;   // as the user gave it
  NetDef forward;  // without the extension; the short form of recurrent operators as given
  NetDef init;
  std::string loss, input, target, logits;
  std::vector<CarryLink> carry;
  std::vector<DataLink> data;  // in place of input, target and logits: it is trained on samples
  std::vector<MetricLink> metrics;
  std::vector<ParameterGroup> groups;
  std::map<std::string, TensorType> fed;  // of `data`, by blob, for one batch; known once data are there
  int64_t timesteps = 0, batch = 0;
  FileRootPtr files = {};       // below which its nets may open files (Workspace::confine); null: anywhere
  Device device;                // that its nets run on, as the forward net says; the init net runs on the CPU
  SegmentChoice segments = {};  // that its recurrent networks run by in training
  // What of the training net's forward part runs again (core/passes/recompute.h), and the bytes of blobs whose types
  // only a run says.
  struct Recomputation {
    std::vector<Segment> segments;
    std::map<std::string, int64_t> bytes;
  };
  Recomputation again = {};
  RanksPtr ranks = {};  // that train it together, `batch` samples each; null: this process alone
  // Of a wavefront (recurrent/train/wavefront.h): what of the whole this rank has. Its loss is that of the last rank.
  struct Stage {
    int rank = 0, ranks = 1;
    // Blobs that come from the rank before and go to the next one, for each block of timesteps, and their types.
    std::vector<std::string> received, sent;
    std::vector<TensorType> received_types, sent_types;
    // What of the init net's outputs this rank has; another rank's may have to be made as well, to make these.
    std::set<std::string> owned;
    // Whether gradients of what it sends come back, and whether it sends those of what it receives.
    bool gets_gradients = false, gives_gradients = false;
    // The same forward net on all timesteps at once, however many they are, and what it receives and sends; "":
    // nothing.
    NetDef in_one;
    std::string received_in_one, sent_in_one;
    bool is_last() const { return rank + 1 == ranks; }
  };
  std::optional<Stage> stage = {};
  std::optional<LearningRule> learning = {};  // how gradients reach over windows of timesteps; none: not at all
};

// What a metric is called wherever its value stands.
std::string shown_name(const MetricLink& metric);

// Of the groups the first whose pattern the parameter fits; null: none.
const ParameterGroup* group_of(const Model& model, const std::string& parameter);

// Throws Error: no extension, a missing or unknown name, a name in the wrong role, sizes below 1.
Model read_model(const NetDef& net);

// What one batch gives the forward net, by name; empty for a net that no reader feeds.
std::map<std::string, TensorType> batch_types(const Model& model);

// What is known before a net of the model is built: types of the tensors in these workspaces, and of one batch.
std::map<std::string, TensorType> known_types(const Model& model, const Workspace& blobs);

// The forward net with the short form of its recurrent operators expanded: with a backward step net for training, or
// for evaluation without one, with is_test = 1 where an operator has that argument and, of a stage, with its messages.
// With the types of blobs that are there before the net runs, linear attention runs by chunks of timesteps
// (recurrent/form/attention_chunks.h).
enum class Mode { train, evaluate };
NetDef expanded_forward(const Model& model, Mode mode, const std::map<std::string, TensorType>& types = {});

// The operators of `net` that `output` and the blobs in `also` depend on, in order.
NetDef needed_for(const NetDef& net, const std::string& output, const std::vector<std::string>& also);

// Whether a run of its net leaves the loss, which of a stage only the last rank's does.
inline bool has_loss(const Model& model) { return !model.stage || model.stage->is_last(); }

// Takes out of a workspace in which the init net of a stage has run what other ranks have.
void keep_own(const Model& model, Workspace& parameters);

// Names of the parameters in a workspace in which the init net has run; throws Error if there are none.
std::vector<std::string> parameter_names(const Model& model, const Workspace& workspace);

// Runs the forward net once on one batch of zeros, in a workspace of its own below `parameters`, and returns the number
// of classes, 0 without logits. The ranks of a wavefront must all call it. Throws Error where shapes do not fit, the
// loss is no single value, or there are fewer classes than `tokens`.
int64_t check_by_running(const Model& model, Workspace& parameters, DType dtype, int64_t tokens);

// Lets the model's forward net compute in the type: float32 (nothing changes), float16 or bfloat16. `more`: blobs that
// exist beside the model's own. Throws Error on another type, or if there are no float32 parameters.
void use_precision(Model& model, DType type, const std::map<std::string, TensorType>& more = {});

}  // namespace stepnet
