// References of losses that sum over alignments. Lattices are padded: places behind a sample's end are counted like the
// others.
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

// A number and its derivative along a direction.
struct Moving {
  Counted value = {}, slope = {};
};
Moving operator+(Moving a, Moving b) { return {a.value + b.value, a.slope + b.slope}; }
Moving operator-(Moving a, Moving b) { return {a.value - b.value, a.slope - b.slope}; }
Moving operator*(Moving a, Moving b) { return {a.value * b.value, a.value * b.slope + a.slope * b.value}; }
Moving exp(Moving a) {
  const Counted e = exp(a.value);
  return {e, e * a.slope};
}

Counted value_of(Counted a) { return a; }
Counted value_of(const Moving& a) { return a.value; }
Counted result_of(Counted a) { return a; }
Counted result_of(const Moving& a) { return a.slope; }

template <class N>
N none() {
  return N{-HUGE_VAL};
}

template <class N>
N log_sum(const std::vector<N>& terms) {
  Counted most = -HUGE_VAL, sum, slope;
  for (const N& term : terms) most = max(most, value_of(term));
  if (std::isinf(most.value)) most = 0;
  for (const N& term : terms) {
    const Counted share = exp(value_of(term) - most);
    sum += share;
    if constexpr (std::is_same_v<N, Moving>) slope += share * term.slope;
  }
  if constexpr (std::is_same_v<N, Moving>) {
    const Counted mean = slope / sum;
    return {most + log(sum), sum.value == 0 ? Counted() : mean};
  } else {
    return most + log(sum);
  }
}

// The scores of a place, from the first one on.
template <class N>
std::vector<N> row_of(const CountedCall& c, int64_t first, int64_t classes) {
  std::vector<N> row;
  for (int64_t j = first; j < first + classes; ++j)
    if constexpr (std::is_same_v<N, Moving>)
      row.push_back({c.x(0).v[j], c.x(5).v[j]});
    else
      row.push_back(c.x(0).v[j]);
  return row;
}

// Logarithms of the softmax, where they are read.
template <class N>
struct LogShares {
  std::vector<N> row;
  N sum;
  explicit LogShares(std::vector<N> scores) : row(std::move(scores)), sum(log_sum(row)) {}
  N operator[](int64_t c) const { return row[static_cast<size_t>(c)] - sum; }
};

int64_t whole(const CountedCall& c, int input, int64_t i) { return static_cast<int64_t>(c.x(input).v[i].value); }

struct Reduced {
  std::string how;
  Counted sum;
  int64_t samples;
  Reduced(const CountedCall& c, int64_t count)
      : how(c.find("reduction") ? c.text("reduction") : "mean"), samples(count) {}
  void add(CountedCall& c, int64_t b, Counted loss) {
    if (how == "none")
      c.put(0, b, loss);
    else
      sum += loss;
  }
  void put(CountedCall& c) {
    if (how == "mean" && samples > 0) sum = sum / static_cast<double>(samples);
    if (how != "none") c.put(0, 0, sum);
  }
};

// --- CTCLoss
// ----------------------------------------------------------------------------------------------------------

template <class N>
struct CtcLattice {
  const CountedCall& c;
  int64_t b, times, samples, classes, places, own_times, length, states, blank;
  std::vector<LogShares<N>> shares;
  std::vector<std::vector<N>> alphas;
  N total{};

  CtcLattice(const CountedCall& call, int64_t sample)
      : c(call),
        b(sample),
        times(c.x(0).shape[0]),
        samples(c.x(0).shape[1]),
        classes(c.x(0).shape[2]),
        places(c.x(1).shape[1]),
        own_times(whole(c, 2, b)),
        length(whole(c, 3, b)),
        states(2 * places + 1),
        blank(c.whole("blank", 0)) {
    for (int64_t t = 0; t < times; ++t) shares.emplace_back(row_of<N>(c, (t * samples + b) * classes, classes));
    alphas.emplace_back(static_cast<size_t>(states), none<N>())[0] = N{0};
    for (int64_t t = 0; t < times; ++t) {
      const std::vector<N> before = alphas.back();
      alphas.emplace_back();
      for (int64_t s = 0; s < states; ++s)
        alphas.back().push_back(
            log_sum<N>({before[s], s > 0 ? before[s - 1] : none<N>(), skips(s) ? before[s - 2] : none<N>()}) +
            shares[t][label(s)]);
    }
    const std::vector<N>& last = alphas[own_times];
    total = log_sum<N>({last[2 * length], length > 0 ? last[2 * length - 1] : none<N>()});
  }
  int64_t label(int64_t s) const { return s % 2 == 0 ? blank : s / 2 < length ? whole(c, 1, b * places + s / 2) : 0; }
  bool skips(int64_t s) const { return s % 2 == 1 && s >= 3 && label(s) != label(s - 2); }
  bool impossible() const { return value_of(total).value == -HUGE_VAL; }
};

void ctc_loss(CountedCall& c) {
  const int64_t samples = c.x(0).shape[1];
  Reduced reduced(c, samples);
  for (int64_t b = 0; b < samples; ++b) {
    const CtcLattice<Counted> lattice(c, b);
    Counted loss = lattice.impossible() && c.whole("zero_infinity", 0) != 0 ? Counted() : -lattice.total;
    if (reduced.how == "mean") loss = loss / static_cast<double>(std::max<int64_t>(1, lattice.length));
    reduced.add(c, b, loss);
  }
  reduced.put(c);
}

template <class N>
void ctc_sample_gradient(CountedCall& c, const CtcLattice<N>& lattice, Counted factor) {
  const int64_t states = lattice.states;
  std::vector<N> after(static_cast<size_t>(states)), beta = after;
  for (int64_t t = lattice.times - 1; t >= 0; --t) {
    if (t >= lattice.own_times - 1) after.assign(after.size(), none<N>());
    if (t == lattice.own_times - 1) after[2 * lattice.length] = N{0};
    std::vector<N> shares(static_cast<size_t>(lattice.classes));
    for (int64_t s = 0; s < states; ++s) {
      beta[s] = log_sum<N>({after[s], s + 1 < states ? after[s + 1] : none<N>(),
                            s + 2 < states && lattice.skips(s + 2) ? after[s + 2] : none<N>()});
      const N share = exp(lattice.alphas[t + 1][s] + beta[s] - lattice.total);
      N& of_class = shares[lattice.label(s)];
      of_class = of_class + share;
    }
    for (int64_t s = 0; s < states; ++s) after[s] = beta[s] + lattice.shares[t][lattice.label(s)];
    for (int64_t j = 0; j < lattice.classes; ++j) {
      const Counted result = factor * result_of(exp(lattice.shares[t][j]) - shares[j]);
      const bool counts = t < lattice.own_times && !lattice.impossible();
      c.put(0, (t * lattice.samples + lattice.b) * lattice.classes + j, counts ? result : Counted());
    }
  }
}

template <class N>
void ctc_gradient(CountedCall& c) {
  const int64_t samples = c.x(0).shape[1];
  const Reduced reduced(c, samples);
  for (int64_t b = 0; b < samples; ++b) {
    const CtcLattice<N> lattice(c, b);
    Counted factor = c.x(4).v[reduced.how == "none" ? b : 0];
    if (reduced.how == "mean")
      factor = factor / static_cast<double>(samples) / static_cast<double>(std::max<int64_t>(1, lattice.length));
    ctc_sample_gradient(c, lattice, factor);
  }
}

// --- TransducerLoss
// ---------------------------------------------------------------------------------------------------

template <class N>
struct TransducerLattice {
  const CountedCall& c;
  int64_t b, times, width, classes, own_times, length, blank;
  std::vector<LogShares<N>> shares;
  std::vector<N> alphas;

  TransducerLattice(const CountedCall& call, int64_t sample)
      : c(call),
        b(sample),
        times(c.x(0).shape[1]),
        width(c.x(0).shape[2]),
        classes(c.x(0).shape[3]),
        own_times(whole(c, 2, b)),
        length(whole(c, 3, b)),
        blank(c.whole("blank", -1)) {
    if (blank < 0) blank += classes;
    for (int64_t at = 0; at < times * width; ++at)
      shares.emplace_back(row_of<N>(c, (b * times * width + at) * classes, classes));
    for (int64_t at = 0; at < times * width; ++at) {
      const bool by_blank = at >= width, by_label = at % width > 0;
      const N from_blank = (by_blank ? alphas[at - width] : N{0}) + shares[by_blank ? at - width : at][blank];
      const N from_label = (by_label ? alphas[at - 1] : N{0}) + shares[by_label ? at - 1 : at][label(at % width - 1)];
      const N sum = log_sum<N>({by_blank ? from_blank : none<N>(), by_label ? from_label : none<N>()});
      alphas.push_back(at == 0 ? N{0} : sum);
    }
  }
  int64_t label(int64_t u) const { return u >= 0 && u < length ? whole(c, 1, b * (width - 1) + u) : 0; }
  int64_t last() const { return (own_times - 1) * width + length; }
  N by_blank(int64_t at, const std::vector<N>& betas) const {
    const bool goes_on = at / width + 1 < own_times;
    const N way = shares[at][blank], sum = (goes_on ? betas[at + width] : N{0}) + way;
    return goes_on ? sum : at == last() ? way : none<N>();
  }
  N by_label(int64_t at, const std::vector<N>& betas) const {
    const bool goes_on = at % width < length;
    const N sum = (goes_on ? betas[at + 1] : N{0}) + shares[at][label(at % width)];
    return goes_on ? sum : none<N>();
  }
};

void transducer_loss(CountedCall& c) {
  const int64_t samples = c.x(0).shape[0];
  Reduced reduced(c, samples);
  for (int64_t b = 0; b < samples; ++b) {
    const TransducerLattice<Counted> lattice(c, b);
    reduced.add(c, b, -(lattice.alphas[lattice.last()] + lattice.shares[lattice.last()][lattice.blank]));
  }
  reduced.put(c);
}

template <class N>
void transducer_node(CountedCall& c, const TransducerLattice<N>& lattice, int64_t at, const std::vector<N>& betas,
                     Counted factor) {
  const N alpha = lattice.alphas[at], total = betas[0];
  const N all = exp(alpha + betas[at] - total), by_blank = exp(alpha + lattice.by_blank(at, betas) - total),
          by_label = exp(alpha + lattice.by_label(at, betas) - total);
  const bool has_label = at % lattice.width < lattice.length;
  std::vector<N> slopes;
  for (int64_t j = 0; j < lattice.classes; ++j) slopes.push_back(all * exp(lattice.shares[at][j]));
  const N less_blank = slopes[lattice.blank] - by_blank,
          less_label = slopes[lattice.label(at % lattice.width)] - by_label;
  slopes[lattice.blank] = less_blank;
  if (has_label) slopes[lattice.label(at % lattice.width)] = less_label;
  const bool counts = at / lattice.width < lattice.own_times && at % lattice.width <= lattice.length;
  for (int64_t j = 0; j < lattice.classes; ++j) {
    const Counted result = factor * result_of(slopes[j]);
    c.put(0, (lattice.b * lattice.times * lattice.width + at) * lattice.classes + j, counts ? result : Counted());
  }
}

template <class N>
void transducer_gradient(CountedCall& c) {
  const int64_t samples = c.x(0).shape[0];
  const Reduced reduced(c, samples);
  for (int64_t b = 0; b < samples; ++b) {
    const TransducerLattice<N> lattice(c, b);
    Counted factor = c.x(4).v[reduced.how == "none" ? b : 0];
    if (reduced.how == "mean") factor = factor / static_cast<double>(samples);
    const int64_t nodes = lattice.times * lattice.width;
    std::vector<N> betas(static_cast<size_t>(nodes));
    for (int64_t at = nodes - 1; at >= 0; --at)
      betas[at] = log_sum<N>({lattice.by_blank(at, betas), lattice.by_label(at, betas)});
    for (int64_t at = 0; at < nodes; ++at) transducer_node(c, lattice, at, betas, factor);
  }
}

// --- CTCBeamSearchDecoder
// ---------------------------------------------------------------------------------------------

// Of a prefix and a class: what it adds to the prefix, to the one that is longer by the class, and to that from what it
// had before it was left behind; and the sum that prefixes are ordered by.
void beam_search(CountedCall& c) {
  c.compares = false;
  for (const Counted p : c.x(0).v)
    for (int64_t k = 0; k < c.whole("beam_width", 10); ++k) {
      Counted blank, label;
      label += p * (blank + label);
      label += p * label;
      blank += p * (blank + label);
      label += p * label;
      blank = blank + label;
    }
}

}  // namespace

void add_alignment_references(References& r) {
  r["CTCLoss"] = ctc_loss;
  r["CTCLossGradient"] = ctc_gradient<Counted>;
  r["CTCLossHessian"] = ctc_gradient<Moving>;
  r["CTCBeamSearchDecoder"] = beam_search;
  r["TransducerLoss"] = transducer_loss;
  r["TransducerLossGradient"] = transducer_gradient<Counted>;
  r["TransducerLossHessian"] = transducer_gradient<Moving>;
}

}  // namespace stepnet::testing
