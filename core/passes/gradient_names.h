// GradientNames: which blob names a backward pass may write.
//
// The public format calls the gradient of x "x_grad", for every version of x and through every pass-through. A name is
// therefore written again only when nobody still needs what it holds; otherwise a "_x_grad_autosplit_<n>" is taken.
// Names that may show the same bytes are held together. Nets that already have gradient operators get a prefix
// ("g2/x_grad"), so that no existing name is overwritten, and so do gradients inside a net. Threads: none shared.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct GradientName;

class GradientNames {
 public:
  // `prefix`: instead of the one that the net's gradient operators ask for, if it is not empty.
  explicit GradientNames(const NetDef& net, const std::string& prefix = "");

  std::string gradient_of(const std::string& blob, const std::string& suffix = "_grad") const {
    return prefix_ + blob + suffix;
  }
  // The net has gradients already, or these are inside it: they are written once each, so that they can be
  // differentiated again.
  bool is_higher_order() const { return !prefix_.empty(); }
  // `base`, or base_1, base_2, ... if the net has that name, or blobs whose names begin with it and a slash, as those
  // of a network do with its own.
  std::string fresh(const std::string& base);
  std::string temporary(const std::string& blob);
  // Numbers of splits, by the name that is split.
  using SplitNumbers = std::map<std::string, std::set<int>>;
  SplitNumbers splits_among(const std::map<std::string, int>& names) const;
  // The first "_<base>_autosplit_<n>" that `usable` accepts and the forward net does not have. What somebody holds is
  // not asked about, but for those of `own`.
  std::string split(const std::string& base, const std::function<bool(const std::string&)>& usable,
                    const SplitNumbers& own = {});
  // `base` or a split of it, whichever comes first that holds nothing anybody still needs.
  std::string unused(const std::string& base);

  // A blob of the net itself or one that is given to it: never written here.
  bool is_foreign(const std::string& name) const { return forward_.count(bytes_of(name)) > 0; }
  // Takes the name of a gradient that a caller gives, which other names must not write to.
  void take_given(const std::string& name);
  bool is_given(const std::string& name) const { return given_.count(name) > 0; }
  // True if the name may be another one of a given gradient's bytes.
  bool shows_given(const std::string& name) const { return bytes_of(name) != name && is_given(bytes_of(name)); }
  bool taken(const std::string& name) const { return writes_.count(name) > 0; }  // written by this pass already
  void take(const std::string& name);
  // Takes a name for what may be the bytes of another.
  void take_alias(const std::string& name, const std::string& of);
  // The name under which the bytes that the name may show were written.
  const std::string& bytes_of(const std::string& name) const;
  // How often the name was written, and the bytes that it shows now: the same as long as it holds the same value.
  struct Written {
    int name = 0, bytes = 0;
    std::string bytes_of;
    bool operator==(const Written&) const = default;
  };
  Written written(const std::string& name) const;

  // How many gradients that are still to be read are called this, or may lie in the same bytes.
  int holders(const std::string& name) const;
  void hold(const GradientName& name);
  void release(const GradientName& name);

 private:
  // The splits of one name: numbers below `next` have been given out; those of them that nobody holds are free. So the
  // first free one is found without a look at all that are held.
  struct Splits {
    int next = 0;
    std::set<int> free;
  };

  bool is_scope(const std::string& name) const;
  std::string split_name(const std::string& stem, int n) const;

  std::string prefix_;
  std::set<std::string> forward_, given_;
  std::map<std::string, std::string> bytes_of_;                 // but for names of bytes of their own
  std::map<std::string, int> writes_, byte_writes_;             // under the name; by any name, to its bytes
  std::map<std::string, std::deque<std::string>> holders_;      // of the name: the bytes that it had when it was held
  std::map<std::string, int> byte_holders_;                     // by the name of the bytes
  std::map<std::string, Splits> splits_;                        // by the name that is split
  std::map<std::string, std::pair<std::string, int>> numbers_;  // of splits: the name that is split, the number
  int temporaries_ = 0;
};

}  // namespace stepnet
