#include "core/autograd/net/net_runner.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kMostWaiting = 16;

}  // namespace

NetRunner::NetRunner(const NetDef& net, const NetOptions& options) : net_(net, workspace_, options) {
  for (const std::string& name : net.external_input()) inputs_.push_back(&workspace_.create(name));
  for (const std::string& name : workspace_.names()) blobs_.push_back(workspace_.find(name));
}

void NetRunner::run(uint64_t seed, int64_t iteration, TensorPacker* packer, NetObserver* observer) {
  RunContext context;
  context.seed = seed;
  context.packer = packer;
  context.observer = observer;
  net_.set_runs(iteration);
  net_.run(context);
}

void NetRunner::clear() {
  for (Blob* blob : blobs_) blob->clear();
}

std::unique_ptr<NetRunner> NetRunners::take(const NetDef& net, const NetOptions& options) {
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) {
      std::unique_ptr<NetRunner> runner = std::move(waiting_.back());
      waiting_.pop_back();
      return runner;
    }
  }
  return std::make_unique<NetRunner>(net, options);
}

void NetRunners::put_back(std::unique_ptr<NetRunner> runner) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() < kMostWaiting) waiting_.push_back(std::move(runner));
}

}  // namespace stepnet::autograd
