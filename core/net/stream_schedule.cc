#include "core/net/stream_schedule.h"

#include <algorithm>

namespace stepnet {
namespace {

constexpr int kLeastChain = 2;  // operators that are worth a stream

bool runs_alone(const NetStep& step, Device device) {
  return step.op->spec->blob_kernel != nullptr || !(step.op->device == device);
}

// By blob: the same for those that may share bytes. What operators on blobs do with theirs is not known.
std::vector<int> shared_bytes(std::span<const NetStep> steps, const Dataflow& flow) {
  JoinedGroups groups(flow.blobs());
  for (int b = 0; b < flow.blobs(); ++b) groups.join(b, flow.group(b));
  for (size_t s = 0; s < steps.size(); ++s) {
    if (!steps[s].op->spec->blob_kernel) continue;
    for (const int out : flow.output_blobs(static_cast<int>(s)))
      for (const int in : flow.input_blobs(static_cast<int>(s)))
        if (in >= 0 && out >= 0) groups.join(in, out);
  }
  std::vector<int> numbers;
  for (int b = 0; b < flow.blobs(); ++b) numbers.push_back(groups.of(b));
  return numbers;
}

// What an operator follows: `made` by those that it reads from, and all others that have to come before it.
struct Follows {
  std::vector<int> made, all;
  bool alone = false;
};

class Walk {
 public:
  Walk(std::span<const NetStep> steps, const Dataflow& flow, Device device, const std::vector<int>& numbers)
      : steps_(steps), flow_(flow), device_(device), numbers_(numbers) {}

  std::vector<Follows> take() {
    for (size_t s = 0; s < steps_.size(); ++s) {
      Follows& now = all_.emplace_back();
      now.alone = runs_alone(steps_[s], device_);
      if (now.alone)
        run_alone(static_cast<int>(s));
      else
        follow(static_cast<int>(s));
      std::ranges::sort(now.all, std::greater<>());
      now.all.erase(std::unique(now.all.begin(), now.all.end()), now.all.end());
    }
    return std::move(all_);
  }

 private:
  struct Uses {
    int writer = -1;
    std::vector<int> readers;
  };

  void run_alone(int s) {
    for (int before = std::max(alone_, 0); before < s; ++before) all_[s].all.push_back(before);
    alone_ = s;
    uses_.clear();
  }

  void follow(int s) {
    Follows& now = all_[s];
    if (alone_ >= 0) now.all.push_back(alone_);
    const std::vector<int> read = numbers_of_read(s);
    for (const int blob : read)
      if (const int writer = uses_[blob].writer; writer >= 0) {
        now.made.push_back(writer);
        now.all.push_back(writer);
      }
    for (const int blob : flow_.output_blobs(s)) {
      if (blob < 0) continue;
      const Uses& uses = uses_[numbers_[blob]];
      if (uses.writer >= 0) now.all.push_back(uses.writer);
      now.all.insert(now.all.end(), uses.readers.begin(), uses.readers.end());
    }
    for (const int blob : read) uses_[blob].readers.push_back(s);
    for (const int blob : flow_.output_blobs(s))
      if (blob >= 0) uses_[numbers_[blob]] = {s, {}};
  }

  std::vector<int> numbers_of_read(int s) const {
    std::vector<int> numbers;
    for (int i = 0; i < static_cast<int>(flow_.input_blobs(s).size()); ++i)
      if (flow_.read(s, i) >= 0) numbers.push_back(numbers_[flow_.input_blobs(s)[i]]);
    return numbers;
  }

  std::span<const NetStep> steps_;
  const Dataflow& flow_;
  Device device_;
  const std::vector<int>& numbers_;
  std::vector<Follows> all_;
  std::map<int, Uses> uses_;
  int alone_ = -1;  // the latest that runs alone
};

struct Chains {
  std::vector<int> of;      // by operator; -1: runs alone
  std::vector<int> length;  // by chain
};

// An operator goes on with the longest chain that has ended so far in what it reads.
Chains find_chains(const std::vector<Follows>& follows) {
  Chains chains;
  std::vector<int> end;  // by chain: its latest operator
  for (size_t s = 0; s < follows.size(); ++s) {
    int best = -1;
    for (const int maker : follows[s].made) {
      const int chain = chains.of[maker];
      if (end[chain] == maker && (best < 0 || chains.length[chain] > chains.length[best])) best = chain;
    }
    if (follows[s].alone) {
      chains.of.push_back(-1);
      continue;
    }
    if (best < 0) {
      best = static_cast<int>(end.size());
      end.push_back(0);
      chains.length.push_back(0);
    }
    end[best] = static_cast<int>(s);
    ++chains.length[best];
    chains.of.push_back(best);
  }
  return chains;
}

// Gives streams in the order of the net, and knows of each which operators of the others it is behind already.
class Assignment {
 public:
  Assignment(const std::vector<Follows>& follows, const Chains& chains, int most)
      : follows_(follows), chains_(chains), most_(most), stream_of_chain_(chains.length.size(), -1) {
    behind_.assign(static_cast<size_t>(most), std::vector<int>(static_cast<size_t>(most), kNothing));
    behind_[0][0] = StreamSchedule::kStart;
    latest_.assign(static_cast<size_t>(most), StreamSchedule::kStart);
  }

  StreamSchedule take() {
    for (size_t s = 0; s < follows_.size(); ++s) add(static_cast<int>(s));
    plan_.is_waited_for.assign(follows_.size(), false);
    for (const auto& waits : plan_.waits)
      for (const int s : waits)
        if (s != StreamSchedule::kStart) plan_.is_waited_for[s] = true;
    for (int t = 1; t < most_; ++t) {
      if (latest_[t] == StreamSchedule::kStart) continue;
      plan_.streams = t + 1;
      if (behind_[0][t] >= latest_[t]) continue;
      plan_.at_end.push_back(latest_[t]);
      plan_.is_waited_for[latest_[t]] = true;
    }
    return std::move(plan_);
  }

 private:
  static constexpr int kNothing = StreamSchedule::kStart - 1;

  int stream_for(int s) {
    const int chain = chains_.of[s];
    if (chain < 0) return 0;
    if (chains_.length[chain] < kLeastChain) return follows_[s].all.empty() ? 0 : plan_.stream[follows_[s].all[0]];
    int& stream = stream_of_chain_[chain];
    if (stream < 0) stream = free_stream(s);
    return stream;
  }

  // The first on which nothing is queued that the operator does not follow anyway; else the one that is idle longest.
  int free_stream(int s) const {
    std::vector<int> known(static_cast<size_t>(most_), StreamSchedule::kStart);
    for (const int before : follows_[s].all) raise(known, behind_at_[before]);
    for (int t = 0; t < most_; ++t)
      if (known[t] >= latest_[t]) return t;
    return static_cast<int>(std::ranges::min_element(latest_) - latest_.begin());
  }

  static void raise(std::vector<int>& known, const std::vector<int>& more) {
    for (size_t t = 0; t < known.size(); ++t) known[t] = std::max(known[t], more[t]);
  }

  void add(int s) {
    const int here = stream_for(s);
    std::vector<int>& behind = behind_[here];
    std::vector<int>& waits = plan_.waits.emplace_back();
    for (const int before : follows_[s].all) {  // the latest first, which stands for others
      if (behind[plan_.stream[before]] >= before) continue;
      waits.push_back(before);
      raise(behind, behind_at_[before]);
    }
    if (behind[0] < StreamSchedule::kStart) {
      waits.push_back(StreamSchedule::kStart);
      behind[0] = StreamSchedule::kStart;
    }
    plan_.stream.push_back(here);
    latest_[here] = s;
    behind[here] = s;
    behind_at_.push_back(behind);
  }

  const std::vector<Follows>& follows_;
  const Chains& chains_;
  const int most_;
  std::vector<int> stream_of_chain_;
  std::vector<std::vector<int>> behind_;     // by stream: the latest operator of each stream that it is behind
  std::vector<std::vector<int>> behind_at_;  // by operator, when it is done
  std::vector<int> latest_;                  // by stream
  StreamSchedule plan_;
};

}  // namespace

StreamSchedule schedule_streams(std::span<const NetStep> steps, const Dataflow& flow, Device device, int most) {
  if (most < 2) return {};
  const std::vector<int> shared = shared_bytes(steps, flow);
  const std::vector<Follows> follows = Walk(steps, flow, device, shared).take();
  const Chains chains = find_chains(follows);
  StreamSchedule plan = Assignment(follows, chains, most).take();
  if (plan.streams == 1) return {};
  const std::vector<Blob*> blobs = blobs_of(steps, flow);
  for (int b = 0; b < flow.blobs(); ++b) plan.shared[blobs[b]] = shared[b];
  for (const NetStep& step : steps)
    for (const Blob* blob : step.out)
      if (blob) plan.is_written[blob] = true;
  return plan;
}

}  // namespace stepnet
