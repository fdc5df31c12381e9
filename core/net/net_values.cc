#include "core/net/net_values.h"

#include <algorithm>
#include <map>

#include "core/net/mentions.h"
#include "core/operator/in_place.h"

namespace stepnet {
namespace {

class Walk {
 public:
  Walk(std::span<const NetStep> steps, const std::set<std::string>& visible) : steps_(steps), names_(visible) {
    for (const NetStep& step : steps) find_shared(step);
  }

  NetValues take() {
    for (size_t s = 0; s < steps_.size(); ++s) {
      read(static_cast<int>(s));
      write(static_cast<int>(s));
    }
    // What shares bytes with a visible blob is seen, too.
    std::set<const Blob*> seen;
    for (const Blob* blob : visible_) seen.insert(first_of(blob));
    for (NetValue& value : values_.all) value.is_visible = seen.count(first_of(value.blob)) > 0;
    return std::move(values_);
  }

 private:
  // Blobs that may share bytes, by the operators' rules.
  void find_shared(const NetStep& step) {
    for (const AliasRule& rule : step.op->spec->aliases) {
      const auto i = static_cast<size_t>(step.op->spec->input_index(rule.in));
      const auto o = static_cast<size_t>(step.op->spec->output_index(rule.out));
      if (i >= step.in.size() || o >= step.out.size() || !step.in[i] || !step.out[o]) continue;
      shared_.insert({step.in[i], step.out[o]});
      if (const Blob* a = first_of(step.in[i]), *b = first_of(step.out[o]); a != b) first_[a] = b;
    }
    if (step.op->spec->blob_kernel) shared_.insert(step.out.begin(), step.out.end());
  }

  // Of the blobs that may share bytes with it: the same for all of them.
  const Blob* first_of(const Blob* blob) const {
    for (auto at = first_.find(blob); at != first_.end(); at = first_.find(blob)) blob = at->second;
    return blob;
  }

  void read(int s) {
    const NetStep& step = steps_[s];
    std::vector<bool> wanted;
    for (const Blob* blob : step.out) wanted.push_back(blob != nullptr);
    const std::vector<bool> reads = value_reads(*step.op->spec, static_cast<int>(step.in.size()), wanted);
    for (size_t i = 0; i < step.in.size(); ++i) {
      if (!step.in[i]) continue;
      const auto now = now_.find(step.in[i]);
      if (now == now_.end()) {
        if (visible_.insert(step.in[i]).second) values_.read_first.push_back(step.in[i]);
      } else if (reads[i]) {
        values_.all[now->second].last = s;
      }
    }
    if (!step.op->spec->blob_kernel) return;
    for (const std::string& name : written_names_.in(step.op->def.SerializeAsString()))
      values_.all[now_.at(written_.at(name))].last = s;
  }

  void write(int s) {
    const NetStep& step = steps_[s];
    std::vector<int>& made = values_.made.emplace_back(step.out.size(), -1);
    for (size_t o = 0; o < step.out.size(); ++o) {
      Blob* blob = step.out[o];
      if (!blob) continue;
      const auto now = now_.find(blob);
      const bool goes_on =
          step.op->spec->blob_kernel || shared_.count(blob) > 0 || std::ranges::find(step.in, blob) != step.in.end();
      if (now != now_.end() && goes_on) {
        made[o] = now->second;
        values_.all[made[o]].last = s;
        continue;
      }
      if (now == now_.end() && keeps_value(*step.op->spec, static_cast<int>(step.in.size()), static_cast<int>(o)) &&
          visible_.insert(blob).second)
        values_.read_first.push_back(blob);
      made[o] = static_cast<int>(values_.all.size());
      values_.all.push_back({blob, s, s});
      now_[blob] = made[o];
      const std::string& name = step.op->def.output(static_cast<int>(o));
      written_names_.add(name);
      written_[name] = blob;
      if (names_.count(name) > 0) visible_.insert(blob);
    }
  }

  std::span<const NetStep> steps_;
  const std::set<std::string>& names_;
  std::set<const Blob*> visible_;
  std::set<const Blob*> shared_;              // a write to one of these may be seen under another name
  std::map<const Blob*, const Blob*> first_;  // links between blobs that share bytes
  std::map<const Blob*, int> now_;            // the value that a blob holds
  Mentions written_names_;
  std::map<std::string, const Blob*> written_;  // by name
  NetValues values_;
};

}  // namespace

NetValues values_of(std::span<const NetStep> steps, const std::set<std::string>& visible) {
  return Walk(steps, visible).take();
}

}  // namespace stepnet
