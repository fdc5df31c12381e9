// Blob and Workspace: named values that operators read and write.
//
// A Blob holds a Tensor or any other single object (a mutex, a database reader). A Workspace maps names to blobs; a
// name that it does not have is looked up in its parent. Blobs never move, so a Blob* stays valid while its workspace
// has it.
// Threads: look-ups and creation may come from several threads; the values themselves need the caller's order.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <typeindex>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {

class FileRoot;

// How often a blob was looked up by its name so far in this process. Running a net that is bound should add little.
int64_t name_lookups();
void count_name_lookup();

// What operators keep in a blob between a forward and a backward pass, for whoever runs these apart from each other.
class KeptState {
 public:
  virtual ~KeptState() = default;
  // Says that the forward pass has run for now: everything goes but what a backward pass reads. Returns the tensors
  // that stay. They may be emptied, and must be what they were when a backward pass runs.
  virtual std::vector<Tensor*> settle() = 0;
};

class Blob {
 public:
  bool empty() const { return !tensor_.defined() && !object_; }
  bool is_tensor() const { return !object_; }  // an empty blob counts: it may become a tensor
  Tensor& tensor();                            // drops another object if one is held
  const Tensor& tensor() const;                // throws Error if another object is held
  void clear();

  template <class T>
  bool holds() const {
    return object_ && *type_ == typeid(T);
  }
  template <class T>
  T& get() const;  // throws Error if it holds something else
  template <class T, class... A>
  T& emplace(A&&... args);
  KeptState* kept_state() const { return kept_state_; }  // null if it holds no such object
  std::string type_str() const;                          // "float[2, 3]", "nothing", or a type's name

 private:
  Tensor tensor_;
  std::shared_ptr<void> object_;  // shared so that a fetched object outlives its blob
  const std::type_info* type_ = nullptr;
  KeptState* kept_state_ = nullptr;  // the object, if it is one
};

class Workspace {
 public:
  explicit Workspace(Workspace* parent = nullptr) : parent_(parent) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  Blob* find(const std::string& name) const;    // here or in a parent; null if nowhere
  Blob& at(const std::string& name) const;      // throws Error with the nearest names
  Blob& create(const std::string& name);        // finds it anywhere, or creates it here
  Blob& create_local(const std::string& name);  // here, even if a parent has one
  // Lets the name stand here for a blob of another workspace, which must outlive this one.
  void show(const std::string& name, Blob& blob);
  void remove(const std::string& name);    // here only; no error if absent
  std::vector<std::string> names() const;  // local names, sorted
  Tensor& tensor(const std::string& name) { return create(name).tensor(); }
  const Tensor& fetch(const std::string& name) const;  // throws Error if absent or no tensor
  Workspace* parent() const { return parent_; }

  // Where relative paths of files start; "." unless set. Without meaning in a confined workspace.
  std::string root_folder = ".";
  // Confines all files that nets in this workspace, and in those below it, name to this root (stepnet/file_place.h).
  // The nearest workspace that is confined counts.
  void confine(std::shared_ptr<const FileRoot> root) { file_root_ = std::move(root); }
  std::shared_ptr<const FileRoot> file_root() const;  // null: files anywhere

 private:
  Workspace* parent_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Blob>, std::less<>> blobs_;  // those of others without an owner
  std::shared_ptr<const FileRoot> file_root_;  // shared with other workspaces, and with places in it
};

template <class T>
T& Blob::get() const {
  if (!holds<T>()) fail("the blob holds {}, not what is needed here", type_str());
  return *static_cast<T*>(object_.get());
}

template <class T, class... A>
T& Blob::emplace(A&&... args) {
  auto made = std::make_shared<T>(std::forward<A>(args)...);
  tensor_ = Tensor();
  object_ = made;
  type_ = &typeid(T);
  if constexpr (std::is_base_of_v<KeptState, T>)
    kept_state_ = made.get();
  else
    kept_state_ = nullptr;
  return *made;
}

}  // namespace stepnet
