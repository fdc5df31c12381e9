#include "core/net/inner_net.h"

#include <algorithm>
#include <utility>

#include "core/net/dataflow.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

// A tensor with elements but without bytes: the net around needed it no more.
bool is_released(const Blob& blob) {
  return blob.is_tensor() && !blob.empty() && blob.tensor().size() > 0 && !blob.tensor().raw();
}

void add_place(Error& error, const char* argument, const OperatorDef& def) {
  const std::string where = source_text(def);
  error.add("in", fmt::format("{}{}the {} of {}", where, where.empty() ? "" : ", ", argument, def.type()));
}

}  // namespace

InnerNet::InnerNet() = default;
InnerNet::~InnerNet() = default;

void InnerNet::bind(const char* argument, const NetArg& net, Workspace& workspace) const {
  NetDef def = net.net;
  if (def.name().empty()) def.set_name(argument);
  auto bound = std::make_unique<Net>(def, workspace);
  reads_.clear();
  std::vector<std::string> names = read_from_outside(def);
  std::ranges::sort(names);
  for (const std::string& name : names) reads_.emplace_back(name, &workspace.at(name));
  net_ = std::move(bound);
}

void InnerNet::run(const char* argument, const NetArg& net, const BlobCall& call, const RunContext& context,
                   int64_t iteration, const std::shared_ptr<Workspace>& inside) const {
  Workspace& workspace = inside ? *inside : call.workspace;
  try {
    if (!net_ || &net_->workspace() != &workspace) {
      bind(argument, net, workspace);
      inside_ = inside;
    }
    for (const auto& [name, blob] : reads_)
      if (is_released(*blob))
        throw Error(fmt::format("the {} reads \"{}\", which the net around has let go of", argument, name),
                    "name it among the operator's inputs");
    RunContext inner = context;
    inner.observer = nullptr;
    net_->set_runs(iteration);
    net_->run(inner);
  } catch (Error& e) {
    if (e.has("op")) add_place(e, argument, call.def);
    throw;
  }
}

void check_inner_net(const char* argument, const NetArg& net) {
  try {
    check_net(net.net, nullptr);
  } catch (Error& e) {
    e.add("in", fmt::format("the {}", argument));
    throw;
  }
}

void forget_released_outputs(const BlobCall& call) {
  for (Blob* blob : call.out)
    if (blob && is_released(*blob)) blob->clear();
}

bool truth_of_input(const BlobCall& call, int i) {
  const Blob* blob = call.in[i];
  require(blob != nullptr, "input {} has an empty name", i);
  const bool is_one = blob->is_tensor() && !blob->empty() && blob->tensor().dtype() == DType::boolean &&
                      blob->tensor().size() == 1 && !is_released(*blob);
  if (!is_one) fail("\"{}\" must be one bool, but holds {}", call.def.input(i), blob->type_str());
  return on_device(blob->tensor(), {}).data<bool>()[0];
}

}  // namespace stepnet
