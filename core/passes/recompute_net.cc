// The net that a plan of recomputation stands for.
#include <algorithm>

#include "core/passes/recompute.h"

namespace stepnet {
namespace {

class Rewriting {
 public:
  Rewriting(const NetDef& training, const MemoryValues& values) : training_(training), values_(values) {
    for (const OperatorDef& op : training.op()) {
      taken_.insert(op.input().begin(), op.input().end());
      taken_.insert(op.output().begin(), op.output().end());
    }
    taken_.insert(training.external_input().begin(), training.external_input().end());
  }

  void add(const Rerun& rerun) {
    std::map<std::string, std::string> renamed;  // in this segment
    std::vector<OperatorDef>& added = inserted_[rerun.before];
    for (const int op : rerun.ops) added.push_back(second(op, rerun, renamed));
    for (const int value : rerun.dropped) {
      for (const int reader : values_.value(value).readers) {
        if (reader < values_.forward) continue;
        const std::span<const int> reads = values_.flow.reads(reader);
        for (int k = 0; k < static_cast<int>(reads.size()); ++k)
          if (reads[k] == value) read_instead_[{reader, k}] = stand_in(value, training_.op(reader).input(k), renamed);
      }
    }
  }

  NetDef result(std::vector<std::string>* again) const {
    NetDef net = training_;
    net.clear_op();
    for (int i = 0; i < training_.op_size(); ++i) {
      if (const auto found = inserted_.find(i); found != inserted_.end())
        for (const OperatorDef& op : found->second) *net.add_op() = op;
      *net.add_op() = training_.op(i);
      OperatorDef& op = *net.mutable_op(net.op_size() - 1);
      for (int k = 0; k < op.input_size(); ++k)
        if (const auto found = read_instead_.find({i, k}); found != read_instead_.end()) op.set_input(k, found->second);
    }
    if (again) *again = names_;
    return net;
  }

 private:
  // The operator as it runs again.
  OperatorDef second(int i, const Rerun& rerun, std::map<std::string, std::string>& renamed) {
    OperatorDef op = training_.op(i);
    const std::span<const int> reads = values_.flow.reads(i);
    if (values_.ops[i].op.spec->random) op.SetExtension(draws_as, std::string(draw_name(op)));
    for (int k = 0; k < op.input_size(); ++k) {
      // What stays is read again even if the segment makes it once more beside something else.
      if (reads[k] < 0 || std::ranges::binary_search(rerun.sources, reads[k])) continue;
      if (const auto found = renamed.find(op.input(k)); found != renamed.end()) op.set_input(k, found->second);
    }
    for (std::string& name : *op.mutable_output()) {
      if (name.empty()) continue;
      const auto found = renamed.find(name);
      name = found != renamed.end() ? found->second : renamed[name] = fresh(name);
    }
    return op;
  }

  // What the gradient operator reads in place of its input of that name.
  std::string stand_in(int value, const std::string& name, const std::map<std::string, std::string>& renamed) {
    auto found = renamed.find(name);
    if (found == renamed.end())  // it reads it by another name of the same storage
      found = renamed.find(values_.flow.name(values_.value(value).blob));
    if (std::ranges::find(names_, found->second) == names_.end()) names_.push_back(found->second);
    return found->second;
  }

  std::string fresh(const std::string& name) {
    std::string made = name + "_again";
    for (int n = 1; taken_.count(made) > 0; ++n) made = fmt::format("{}_again_{}", name, n);
    taken_.insert(made);
    return made;
  }

  const NetDef& training_;
  const MemoryValues& values_;
  std::set<std::string> taken_;
  std::map<int, std::vector<OperatorDef>> inserted_;         // by the operator that they run right before
  std::map<std::pair<int, int>, std::string> read_instead_;  // by operator and input
  std::vector<std::string> names_;
};

}  // namespace

NetDef with_segments_again(const NetDef& training, const MemoryValues& values, const std::vector<Segment>& segments,
                           std::vector<std::string>* again) {
  Rewriting rewriting(training, values);
  for (const Segment& segment : segments) {
    if (!segment.again) continue;
    const Rerun rerun = plan_rerun(values, segment.begin, segment.end);
    if (rerun.possible) rewriting.add(rerun);
  }
  return rewriting.result(again);
}

}  // namespace stepnet
