// GradientNames: which blob names a backward pass may write.
//
// The public format calls the gradient of x "x_grad", for every version of x and through every pass-through. A name is
// therefore written again only when nobody still needs what it holds; otherwise a "_x_grad_autosplit_<n>" is taken.
// Nets that already have gradient operators get a prefix ("g2/x_grad"), so that no existing name is overwritten.
// Threads: none shared.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "proto/net.pb.h"

namespace stepnet {

struct GradientName;

class GradientNames {
 public:
  explicit GradientNames(const NetDef& net);

  std::string gradient_of(const std::string& blob, const std::string& suffix = "_grad") const {
    return prefix_ + blob + suffix;
  }
  // `base`, or base_1, base_2, ... if the net has that name.
  std::string fresh(const std::string& base);
  std::string temporary(const std::string& blob);
  // The first "_<base>_autosplit_<n>" that `usable` accepts and the forward net does not have.
  std::string split(const std::string& base, const std::function<bool(const std::string&)>& usable) const;
  // `base` or a split of it, whichever comes first that holds nothing anybody still needs.
  std::string unused(const std::string& base) const;

  // A blob of the net itself or one that is given to it: never written here.
  bool is_foreign(const std::string& name) const { return forward_.count(name) > 0; }
  bool taken(const std::string& name) const { return writes_.count(name) > 0; }  // written by this pass already
  void take(const std::string& name) { ++writes_[name]; }
  int writes(const std::string& name) const;

  // How many gradients that are still to be read are called this.
  int holders(const std::string& name) const;
  void hold(const GradientName& name);
  void release(const GradientName& name);

 private:
  std::string prefix_;
  std::set<std::string> forward_;
  std::map<std::string, int> writes_;
  std::map<std::string, int> holders_;
  int temporaries_ = 0;
};

}  // namespace stepnet
