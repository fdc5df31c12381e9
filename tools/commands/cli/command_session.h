// Sessions of the nets that command lines name. Threads: pure functions.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/compute/threads.h"
#include "recurrent/train/memory_budget.h"

namespace stepnet::tools {

// The net's model, of another batch or number of timesteps where these are not 0; nothing if it has none.
std::optional<Model> model_in(const NetDef& net, int64_t batch, int64_t timesteps);

// A forward session: of the net, or of its model, whose input, target and carried states are fed beside
// `options.feeds`.
std::unique_ptr<NetSession> net_session(const NetDef& net, const std::optional<Model>& model, ForwardOptions options);

// Does the work; where memory runs out, the Error also says what an estimate finds that the session needs there. `make`
// is called in a dry run.
void with_estimate(FunctionRef<> work, Device device, const std::function<std::unique_ptr<NetSession>()>& make);

}  // namespace stepnet::tools
