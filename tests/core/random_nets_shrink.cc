// Smaller nets with the same fault.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "tests/core/random_nets_check.h"

namespace stepnet::testing {
namespace {

// False if what is asked of it is not there any more.
bool tidy(RandomNet& r) {
  std::set<std::string> used, written;
  for (const OperatorDef& op : r.net.op()) {
    used.insert(op.input().begin(), op.input().end());
    written.insert(op.output().begin(), op.output().end());
  }
  used.insert(written.begin(), written.end());
  std::erase_if(r.feeds, [&](const NetFeed& feed) { return used.count(feed.name) == 0; });
  std::erase_if(r.wanted, [&](const std::string& name) { return used.count(name) == 0; });
  for (size_t t = r.targets.size(); t-- > 0;)
    if (written.count(r.targets[t]) == 0) {
      r.targets.erase(r.targets.begin() + static_cast<int64_t>(t));
      r.given.erase(r.given.begin() + static_cast<int64_t>(t));
    }
  const std::vector<std::string> outputs(r.net.external_output().begin(), r.net.external_output().end());
  r.net.clear_external_output();
  for (const std::string& name : outputs)
    if (written.count(name) > 0) r.net.add_external_output(name);
  r.net.clear_external_input();
  for (const NetFeed& feed : r.feeds) r.net.add_external_input(feed.name);
  std::set<std::string> known(r.net.external_input().begin(), r.net.external_input().end());
  for (const OperatorDef& op : r.net.op()) {
    for (const std::string& name : op.input())
      if (!name.empty() && known.count(name) == 0) return false;
    known.insert(op.output().begin(), op.output().end());
  }
  return r.net.op_size() > 0;
}

// Each net with one thing less.
std::vector<RandomNet> smaller(const RandomNet& r) {
  std::vector<RandomNet> nets;
  for (int i = r.net.op_size() - 1; i >= 0; --i) {
    RandomNet less = r;
    less.net.mutable_op()->DeleteSubrange(i, 1);
    nets.push_back(std::move(less));
  }
  for (int i = r.net.external_output_size() - 1; i >= 0; --i) {
    RandomNet less = r;
    less.net.mutable_external_output()->DeleteSubrange(i, 1);
    nets.push_back(std::move(less));
  }
  for (size_t i = 0; i < r.targets.size(); ++i) {
    RandomNet less = r;
    less.targets.erase(less.targets.begin() + static_cast<int64_t>(i));
    less.given.erase(less.given.begin() + static_cast<int64_t>(i));
    nets.push_back(less);
    if (r.given[i].empty()) continue;
    less = r;
    less.given[i] = "";
    nets.push_back(std::move(less));
  }
  for (size_t i = 0; i < r.wanted.size() && r.wanted.size() > 1; ++i) {
    RandomNet less = r;
    less.wanted.erase(less.wanted.begin() + static_cast<int64_t>(i));
    nets.push_back(std::move(less));
  }
  for (size_t i = 0; i < r.batches.size() && r.batches.size() > 1; ++i) {
    RandomNet less = r;
    less.batches.erase(less.batches.begin() + static_cast<int64_t>(i));
    nets.push_back(std::move(less));
  }
  // An operator gone, and what it wrote read from where it read.
  for (int i = 0; i < r.net.op_size(); ++i) {
    const OperatorDef& gone = r.net.op(i);
    if (gone.input_size() == 0 || gone.output_size() == 0) continue;
    RandomNet less = r;
    for (int k = i + 1; k < r.net.op_size(); ++k)
      std::ranges::replace(*less.net.mutable_op(k)->mutable_input(), gone.output(0), gone.input(0));
    less.net.mutable_op()->DeleteSubrange(i, 1);
    nets.push_back(std::move(less));
  }
  return nets;
}

}  // namespace

RandomNet shrink(RandomNet r, const std::function<bool(const RandomNet&)>& is_wrong) {
  for (bool found = true; found;) {
    found = false;
    for (RandomNet& less : smaller(r)) {
      if (!tidy(less) || !is_wrong(less)) continue;
      r = std::move(less);
      found = true;
      break;
    }
  }
  return r;
}

std::pair<uint64_t, uint64_t> campaign_seeds() {
  const char* text = std::getenv("STEPNET_RANDOM_NETS");
  std::istringstream given(text ? text : "");
  uint64_t count = 0, first = 1;
  given >> count >> first;
  return {count, first};
}

std::string text_of(const RandomNet& r) {
  std::string text = r.net.DebugString();
  for (const NetFeed& feed : r.feeds)
    text += fmt::format("# fed: {} {}\n", feed.name,
                        feed.fixed.defined() ? feed.fixed.str() : fmt::format("[{}]", fmt::join(feed.sizes, ", ")));
  for (size_t t = 0; t < r.targets.size(); ++t)
    text += fmt::format("# differentiated: {}, from \"{}\"\n", r.targets[t], r.given[t]);
  text += fmt::format("# wanted: {}; batches: {}\n", fmt::join(r.wanted, ", "), fmt::join(r.batches, ", "));
  return text;
}

}  // namespace stepnet::testing
