// A net without anything that makes it fast: each operator alone, on copies, its outputs in memory of their own, and
// every version of a blob a new value. Independent of stepnet/net.h, of the passes and of storages: what names share
// is kept by names.
//
// The rules that it follows: an operator reads all its inputs before it writes. An Alias makes its output another name
// of what its input shows, and so does MatchShape where the shapes are equal. A write in place changes what all names
// of the value show, though not their shapes. Any other write gives the name a value of its own, and others keep what
// they show. Threads: not for concurrent use.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"
#include "stepnet/tensor.h"

namespace stepnet::testing {

class ReferenceBlobs {
 public:
  ReferenceBlobs() = default;
  ReferenceBlobs(const ReferenceBlobs& other);  // other values, shared by the same names
  ReferenceBlobs& operator=(ReferenceBlobs other);

  void feed(const std::string& name, const Tensor& value);
  bool has(const std::string& name) const { return shown_.count(name) > 0; }
  Tensor at(const std::string& name) const;  // not to be written
  std::vector<std::string> names() const;

  // Throws Error as the operator does; nothing has changed then.
  void run(const OperatorDef& op, const std::string& net_name, int64_t iteration);
  void run(const NetDef& net, int64_t iteration);

 private:
  struct Name {
    std::shared_ptr<Tensor> value;  // shared by names of one value ...
    Shape shape;                    // ... each of which has a shape of its own
  };
  void write(const OperatorDef& op, int output, const Tensor& value, const std::map<std::string, Name>& before);

  std::map<std::string, Name> shown_;
};

}  // namespace stepnet::testing
