#include "stepnet/workspace.h"

#include <cxxabi.h>

#include <atomic>
#include <cstdlib>

namespace stepnet {

namespace {
std::atomic<int64_t> lookups{0};
}  // namespace

int64_t name_lookups() { return lookups.load(std::memory_order_relaxed); }
void count_name_lookup() { lookups.fetch_add(1, std::memory_order_relaxed); }

Tensor& Blob::tensor() {
  if (object_) clear();
  return tensor_;
}

const Tensor& Blob::tensor() const {
  if (object_) fail("a tensor is needed here, not {}", type_str());
  return tensor_;
}

void Blob::clear() {
  tensor_ = Tensor();
  object_.reset();
  type_ = nullptr;
  kept_state_ = nullptr;
}

std::string Blob::type_str() const {
  if (!object_) return tensor_.str();
  int status = 0;
  char* name = abi::__cxa_demangle(type_->name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : type_->name();
  std::free(name);
  return text;
}

std::shared_ptr<const FileRoot> Workspace::file_root() const {
  for (const Workspace* w = this; w; w = w->parent_)
    if (w->file_root_) return w->file_root_;
  return nullptr;
}

Blob* Workspace::find(const std::string& name) const {
  count_name_lookup();
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = blobs_.find(name); it != blobs_.end()) return it->second.get();
  }
  return parent_ ? parent_->find(name) : nullptr;
}

Blob& Workspace::at(const std::string& name) const {
  if (Blob* blob = find(name)) return *blob;
  std::vector<std::string> all;
  for (const Workspace* w = this; w; w = w->parent_) {
    const auto names = w->names();
    all.insert(all.end(), names.begin(), names.end());
  }
  fail("there is no blob \"{}\".{}", name, suggest(name, all));
}

Blob& Workspace::create(const std::string& name) {
  if (Blob* blob = find(name)) return *blob;
  return create_local(name);
}

Blob& Workspace::create_local(const std::string& name) {
  const std::lock_guard lock(mutex_);
  auto& slot = blobs_[name];
  if (!slot) slot = std::make_shared<Blob>();
  return *slot;
}

void Workspace::show(const std::string& name, Blob& blob) {
  const std::lock_guard lock(mutex_);
  blobs_[name] = std::shared_ptr<Blob>(std::shared_ptr<void>(), &blob);
}

void Workspace::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  blobs_.erase(name);
}

std::vector<std::string> Workspace::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, blob] : blobs_) names.push_back(name);
  return names;
}

const Tensor& Workspace::fetch(const std::string& name) const {
  const Tensor& tensor = std::as_const(at(name)).tensor();
  require(tensor.defined(), "the blob \"{}\" holds nothing yet", name);
  return tensor;
}

}  // namespace stepnet
