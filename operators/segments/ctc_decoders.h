// Labels of samples from probabilities of classes, as ctc_decoders.cc says, on the host. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "stepnet/operator.h"

namespace stepnet {

struct CtcGreedyArgs {
  bool merge_repeated = true;
};

struct CtcBeamArgs {
  int32_t beam_width = 0, num_candidates = 0;
  float prune_threshold = 0;
};

// Of all samples' candidates, one behind the other.
struct DecodedLabels {
  std::vector<int32_t> lengths, values;
  std::vector<double> probabilities;

  void add(std::span<const int32_t> labels, double probability) {
    lengths.push_back(static_cast<int32_t>(labels.size()));
    values.insert(values.end(), labels.begin(), labels.end());
    probabilities.push_back(probability);
  }
};

// The probabilities [T, B, C] of a call on the host, and how many timesteps of each sample count.
template <class T>
struct CtcOutputs {
  const T* x;
  int64_t times, samples, classes;
  std::vector<int64_t> lengths;

  // Throws Error on a length out of range. The tensors are on the host; `given` may be null.
  CtcOutputs(const Tensor& inputs, const Tensor* given)
      : x(inputs.data<T>()), times(inputs.dim(0)), samples(inputs.dim(1)), classes(inputs.dim(2)) {
    for (int64_t b = 0; b < samples; ++b) {
      const int64_t length = !given                           ? times
                             : given->dtype() == DType::int32 ? int64_t{given->data<int32_t>()[b]}
                                                              : given->data<int64_t>()[b];
      require(length >= 0 && length <= times, "SEQ_LEN of sample {} is {}, but must be in 0..{}", b, length, times);
      lengths.push_back(length);
    }
  }
  std::span<const T> at(int64_t t, int64_t b) const {
    return {x + (t * samples + b) * classes, static_cast<size_t>(classes)};
  }
};

template <class T>
DecodedLabels decode_greedily(const CtcGreedyArgs& a, const CtcOutputs<T>& outputs) {
  DecodedLabels decoded;
  for (int64_t b = 0; b < outputs.samples; ++b) {
    std::vector<int32_t> labels;
    int32_t before = 0;
    for (int64_t t = 0; t < outputs.lengths[b]; ++t) {
      const std::span<const T> shares = outputs.at(t, b);
      const auto best = static_cast<int32_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
      if (best != 0 && !(a.merge_repeated && best == before)) labels.push_back(best);
      before = best;
    }
    decoded.add(labels, 0);
  }
  return decoded;
}

// The search over prefixes of labels of one sample.
class PrefixBeam {
 public:
  using Prefix = std::vector<int32_t>;

  explicit PrefixBeam(const CtcBeamArgs& a) : args_(a), shares_{{Prefix(), {1, 0}}}, kept_{Prefix()} {}

  template <class T>
  void step(std::span<const T> p) {
    Shares next;
    const std::vector<int32_t> classes = likely(p);
    for (const Prefix& prefix : kept_) {
      const Share before = shares_[prefix];
      for (const int32_t c : classes) extend(prefix, before, c, p, next);
    }
    shares_ = std::move(next);
    ranked_.clear();
    for (const auto& each : shares_) ranked_.push_back(each.first);
    std::ranges::stable_sort(ranked_, std::greater<>(), [&](const Prefix& prefix) { return shares_[prefix].both(); });
    const size_t most = std::min(ranked_.size(), static_cast<size_t>(args_.beam_width));
    kept_ = std::set<Prefix>(ranked_.begin(), ranked_.begin() + static_cast<std::ptrdiff_t>(most));
    rescale();
  }

  void add_candidates(DecodedLabels& decoded) {
    for (int32_t k = 0; k < args_.num_candidates; ++k) {
      const bool is_there = static_cast<size_t>(k) < ranked_.size();
      const Prefix prefix = is_there ? ranked_[static_cast<size_t>(k)] : Prefix();
      decoded.add(prefix, is_there ? shares_[prefix].both() * std::exp(log_scale_) : 0);
    }
  }

 private:
  // Of alignments with a prefix: those that end in a blank, and the others.
  struct Share {
    double blank = 0, label = 0;
    double both() const { return blank + label; }
  };
  using Shares = std::map<Prefix, Share>;

  // Classes that are tried: all if none is likely enough.
  template <class T>
  std::vector<int32_t> likely(std::span<const T> p) const {
    std::vector<int32_t> all, some;
    for (size_t c = 0; c < p.size(); ++c) {
      all.push_back(static_cast<int32_t>(c));
      if (static_cast<float>(p[c]) > args_.prune_threshold) some.push_back(static_cast<int32_t>(c));
    }
    return some.empty() ? all : some;
  }

  template <class T>
  void extend(const Prefix& prefix, const Share& before, int32_t c, std::span<const T> p, Shares& next) {
    const auto share = static_cast<double>(p[static_cast<size_t>(c)]);
    if (c == 0) {
      next[prefix].blank += share * before.both();
      return;
    }
    Prefix longer = prefix;
    longer.push_back(c);
    const bool repeats = !prefix.empty() && prefix.back() == c;
    next[longer].label += share * (repeats ? before.blank : before.both());
    if (repeats) next[prefix].label += share * before.label;
    if (kept_.contains(longer)) return;
    // A prefix that was left behind is taken up again with what it had.
    const auto left = shares_.find(longer);
    if (left == shares_.end()) return;
    next[longer].blank += static_cast<double>(p[0]) * left->second.both();
    next[longer].label += share * left->second.label;
  }

  // So that products over many timesteps stay numbers.
  void rescale() {
    const double most = ranked_.empty() ? 0 : shares_[ranked_.front()].both();
    if (!(most > 0) || most > 1e-100) return;
    for (auto& each : shares_) each.second = {each.second.blank / most, each.second.label / most};
    log_scale_ += std::log(most);
  }

  CtcBeamArgs args_;
  Shares shares_;
  std::set<Prefix> kept_;
  std::vector<Prefix> ranked_ = {Prefix()};  // by probability; of equal ones the first in order
  double log_scale_ = 0;
};

template <class T>
DecodedLabels decode_by_beam(const CtcBeamArgs& a, const CtcOutputs<T>& outputs) {
  require(a.beam_width >= a.num_candidates, "num_candidates is {}, but the beam_width {}", a.num_candidates,
          a.beam_width);
  DecodedLabels decoded;
  for (int64_t b = 0; b < outputs.samples; ++b) {
    PrefixBeam beam(a);
    for (int64_t t = 0; t < outputs.lengths[b]; ++t) beam.step(outputs.at(t, b));
    beam.add_candidates(decoded);
  }
  return decoded;
}

}  // namespace stepnet
