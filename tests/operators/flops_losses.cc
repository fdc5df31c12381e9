// References of losses. A label -1, which takes its place out of the loss, is counted like the others.
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

constexpr double kLeast = 1e-20;

CountedRows classes_of(const Shape& s) { return rows_before(s, s.rank() == 1 ? 0 : 1); }

void mse(CountedCall& c) {
  Counted sum;
  for (size_t i = 0; i < c.x(0).v.size(); ++i) sum += square(c.x(0).v[i] - c.x(1).v[i]);
  c.y(0)[0] = sum / std::max(1.0, static_cast<double>(c.x(0).size()));
}

void cross_entropy(CountedCall& c) {
  const CountedRows rows = classes_of(c.x(0).shape);
  for (int64_t i = 0; i < c.x(0).size(); ++i) c.y(0)[i / rows.size] -= c.x(1).v[i] * log(max(c.x(0).v[i], kLeast));
}

void cross_entropy_gradient(CountedCall& c) {
  const CountedRows rows = classes_of(c.x(0).shape);
  for (int64_t i = 0; i < c.x(0).size(); ++i) {
    const Counted p = max(c.x(0).v[i], kLeast), dy = -c.x(2).v[i / rows.size];
    if (c.wants(0)) c.y(0)[i] = dy * c.x(1).v[i] / p;
    if (c.wants(1)) c.y(1)[i] = dy * log(p);
  }
}

// Inputs are X, label, dY, and the gradients u of dX and v of dlabel.
void cross_entropy_second(CountedCall& c) {
  const CountedRows rows = classes_of(c.x(0).shape);
  for (int64_t i = 0; i < c.x(0).size(); ++i) {
    const int64_t n = i / rows.size;
    const Counted p = max(c.x(0).v[i], kLeast), dy = c.x(2).v[n], label = c.x(1).v[i], v = c.x(4).at(i);
    const Counted of_x = c.x(3).at(i) / p;
    if (c.wants(0)) c.y(0)[i] = dy * (of_x * label - v) / p;
    if (c.wants(1)) c.y(1)[i] = -dy * of_x;
    if (c.wants(2)) c.y(2)[n] -= of_x * label + v * log(p);
  }
}

// Calls fn(row, place of its label) of inputs X and label.
template <class Fn>
void each_label(const CountedCall& c, Fn fn) {
  const CountedRows rows = classes_of(c.x(0).shape);
  for (int64_t n = 0; n < rows.count; ++n) fn(n, n * rows.size + static_cast<int64_t>(c.x(1).v[n].value));
}

void label_cross_entropy(CountedCall& c) {
  each_label(c, [&](int64_t n, int64_t at) { c.y(0)[n] = -log(max(c.x(0).v[at], kLeast)); });
}

void label_cross_entropy_gradient(CountedCall& c) {
  each_label(c, [&](int64_t n, int64_t at) { c.y(0)[at] = -c.x(2).v[n] / max(c.x(0).v[at], kLeast); });
}

void label_cross_entropy_second(CountedCall& c) {
  each_label(c, [&](int64_t n, int64_t at) {
    const Counted p = max(c.x(0).v[at], kLeast), share = c.x(3).v[at] / p;
    if (c.wants(0)) c.y(0)[at] = share * (c.x(2).v[n] / p);
    if (c.wants(1)) c.y(1)[n] = -share;
  });
}

CountedRows before_last(const Shape& s) { return rows_before(s, std::max(s.rank() - 1, 0)); }

void sigmoid_loss(CountedCall& c) {
  const CountedRows rows = before_last(c.x(0).shape);
  for (int64_t i = 0; i < c.x(0).size(); ++i) {
    const Counted x = c.x(0).v[i];
    c.y(0)[i / rows.size] += max(x, 0) - x * c.x(1).v[i] + log1p(exp(-abs(x)));
  }
  for (Counted& y : c.y(0)) y = y / std::max(1.0, static_cast<double>(rows.size));
}

// Inputs are dY, logits and targets.
void sigmoid_loss_gradient(CountedCall& c) {
  const CountedRows rows = before_last(c.x(1).shape);
  for (int64_t n = 0; n < rows.count; ++n) {
    const Counted share = c.x(0).v[n] / std::max(1.0, static_cast<double>(rows.size));
    for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i) {
      if (c.wants(0)) c.y(0)[i] = share * (sigmoid(c.x(1).v[i]) - c.x(2).v[i]);
      if (c.wants(1)) c.y(1)[i] = -share * c.x(1).v[i];
    }
  }
}

// Inputs are dY, logits, targets, and the gradients u of dlogits and v of dtargets.
void sigmoid_loss_second(CountedCall& c) {
  const CountedRows rows = before_last(c.x(1).shape);
  const double size = std::max(1.0, static_cast<double>(rows.size));
  for (int64_t n = 0; n < rows.count; ++n) {
    const Counted given = c.x(0).v[n] / size;
    for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i) {
      const Counted x = c.x(1).v[i], p = sigmoid(x), u = c.x(3).at(i), v = c.x(4).at(i);
      if (c.wants(0)) c.y(0)[n] += u * (p - c.x(2).v[i]) - v * x;
      if (c.wants(1)) c.y(1)[i] = given * (u * p * (1 - p) - v);
      if (c.wants(2)) c.y(2)[i] = -given * u;
    }
    if (c.wants(0)) c.y(0)[n] = c.y(0)[n] / size;
  }
}

// Lines of scores: a row flattened before the axis, or what stands along dimension 1.
struct Lines {
  int64_t count = 0, size = 0, inner = 1;
  bool distributions = false;
  const CountedTensor *targets = nullptr, *weights = nullptr;

  Lines(const CountedCall& c, int of_weights) : targets(&c.x(1)), weights(&c.x(of_weights)) {
    const Shape& s = c.x(0).shape;
    const bool spatial = c.def.type().starts_with("Spatial") || c.whole("spatial", 0) != 0;
    const CountedRows rows = rows_before(s, c.whole("axis", 1));
    count = spatial ? s[0] * s.size_between(2, s.rank()) : rows.count;
    size = spatial ? s[1] : rows.size;
    inner = spatial ? s.size_between(2, s.rank()) : 1;
    distributions = c.whole("label_prob", 0) != 0;
  }
  int64_t at(int64_t n, int64_t j) const { return n / inner * size * inner + j * inner + n % inner; }
  bool ignored(int64_t n) const { return !distributions && targets->v[n] < 0; }
  int64_t label(int64_t n) const { return std::max<int64_t>(static_cast<int64_t>(targets->v[n].value), 0); }
  Counted target(int64_t n, int64_t j) const {
    return distributions ? targets->v[n * size + j] : label(n) == j ? 1 : 0;
  }
  // The sum of the weights, or how many lines count.
  Counted weight_sum() const {
    Counted sum;
    for (int64_t n = 0; n < count; ++n) {
      if (weights->there)
        sum += ignored(n) ? Counted() : weights->v[n];
      else
        sum.value += ignored(n) ? 0 : 1;
    }
    return sum;
  }
  Counted times_weight(int64_t n, Counted x) const {
    const Counted weighted = weights->there ? x * weights->v[n] : x;
    return ignored(n) ? Counted() : weighted;
  }
};

Counted or_zero(Counted x) { return std::isfinite(x.value) ? x : Counted(); }

void softmax_loss(CountedCall& c) {
  const Lines lines(c, 2);
  Counted total;
  for (int64_t n = 0; n < lines.count; ++n) {
    Counted most = -HUGE_VAL, sum, loss;
    for (int64_t j = 0; j < lines.size; ++j) most = max(most, c.x(0).v[lines.at(n, j)]);
    for (int64_t j = 0; j < lines.size; ++j) sum += c.y(0)[lines.at(n, j)] = exp(c.x(0).v[lines.at(n, j)] - most);
    for (int64_t j = 0; j < lines.size; ++j) c.y(0)[lines.at(n, j)] = c.y(0)[lines.at(n, j)] / sum;
    const Counted log_sum = most + log(sum);
    if (lines.distributions)
      for (int64_t j = 0; j < lines.size; ++j) loss += lines.target(n, j) * (log_sum - c.x(0).v[lines.at(n, j)]);
    else
      loss = log_sum - c.x(0).v[lines.at(n, lines.label(n))];
    total += lines.times_weight(n, loss);
  }
  c.y(1)[0] = or_zero(c.arg("scale", 1) * total / lines.weight_sum());
}

// Inputs are X, T, [weights,] P, dloss.
void softmax_loss_gradient(CountedCall& c) {
  const bool weighted = c.in.size() == 5 && c.x(2).there;
  const int p = c.in.size() == 5 ? 3 : 2;
  const Lines lines(c, weighted ? 2 : static_cast<int>(c.in.size()));
  const Counted factor = c.arg("scale", 1) * c.x(p + 1).v[0] / lines.weight_sum();
  for (int64_t n = 0; n < lines.count; ++n) {
    const Counted f = or_zero(lines.times_weight(n, factor));
    Counted sum;
    for (int64_t j = 0; lines.distributions && j < lines.size; ++j) sum += lines.target(n, j);
    const Counted of_p = lines.distributions ? f * sum : f;
    for (int64_t j = 0; j < lines.size; ++j) {
      const Counted share = of_p * c.x(p).v[lines.at(n, j)];
      c.y(0)[lines.at(n, j)] = lines.distributions ? share - lines.target(n, j) * f : share;
    }
    if (!lines.distributions) c.y(0)[lines.at(n, lines.label(n))] -= f;
  }
}

// Log of the sum of exponentials, and the loss, of each line of X.
struct LineLosses {
  Numbers log_sums, losses;
  LineLosses(const CountedCall& c, const Lines& lines) {
    for (int64_t n = 0; n < lines.count; ++n) {
      Counted most = -HUGE_VAL, sum, loss;
      for (int64_t j = 0; j < lines.size; ++j) most = max(most, c.x(0).v[lines.at(n, j)]);
      for (int64_t j = 0; j < lines.size; ++j) sum += exp(c.x(0).v[lines.at(n, j)] - most);
      log_sums.push_back(most + log(sum));
      for (int64_t j = 0; j < lines.size; ++j)
        loss += lines.target(n, j) * (log_sums.back() - c.x(0).v[lines.at(n, j)]);
      losses.push_back(loss);
    }
  }
};

Counted mean_of(const Lines& lines, const Numbers& values, Counted weight_sum) {
  Counted sum;
  for (int64_t n = 0; n < lines.count; ++n) sum += lines.times_weight(n, values[n]);
  return sum / weight_sum;
}

// These three are counted whole, whatever is wanted of them. Inputs here are X, T, dloss, weights.
void target_gradient(CountedCall& c) {
  const Lines lines(c, 3);
  const LineLosses each(c, lines);
  const Counted total = lines.weight_sum(), mean = mean_of(lines, each.losses, total);
  const Counted factor = c.arg("scale", 1) * c.x(2).v[0] / total;
  for (int64_t n = 0; n < lines.count; ++n) {
    c.put(1, n, or_zero(factor * (each.losses[n] - mean)));
    const Counted of_line = lines.times_weight(n, factor);
    for (int64_t j = 0; j < lines.size; ++j)
      c.put(0, lines.at(n, j), or_zero(of_line * (each.log_sums[n] - c.x(0).v[lines.at(n, j)])));
  }
}

// Inputs are P, T, dloss, the gradient u of dX, weights.
void loss_second(CountedCall& c) {
  const Lines lines(c, 4);
  const Counted total = lines.weight_sum(), factor = c.arg("scale", 1) * c.x(2).v[0] / total;
  Numbers q;
  for (int64_t n = 0; n < lines.count; ++n) {
    Counted sum, along, target_along;
    for (int64_t j = 0; j < lines.size; ++j) {
      const Counted u = c.x(3).v[lines.at(n, j)];
      sum += lines.target(n, j), along += u * c.x(0).v[lines.at(n, j)], target_along += u * lines.target(n, j);
    }
    const Counted of_line = lines.times_weight(n, factor), of_p = of_line * sum;
    q.push_back(along * sum - target_along);
    for (int64_t j = 0; j < lines.size; ++j) {
      c.put(0, lines.at(n, j), or_zero(of_p * c.x(3).v[lines.at(n, j)]));
      c.put(1, lines.at(n, j), or_zero(of_line * (along - c.x(3).v[lines.at(n, j)])));
    }
  }
  const Counted mean = mean_of(lines, q, total);
  c.put(2, 0, or_zero(c.arg("scale", 1) * mean));
  for (int64_t n = 0; n < lines.count; ++n) c.put(3, n, or_zero(factor * (q[n] - mean)));
}

// Inputs are X, T, dloss, the gradients v of dT and z of dweights, weights.
void target_second(CountedCall& c) {
  const Lines lines(c, 5);
  const LineLosses each(c, lines);
  const Counted total = lines.weight_sum(), mean = mean_of(lines, each.losses, total);
  const Counted factor = c.arg("scale", 1) * c.x(2).v[0] / total;
  Counted z_sum, outside;
  Numbers s;
  for (int64_t n = 0; n < lines.count; ++n) {
    z_sum += c.x(4).at(n), outside += c.x(4).at(n) * (each.losses[n] - mean);
    s.emplace_back();
    for (int64_t j = 0; j < lines.size; ++j)
      s.back() += c.x(3).at(lines.at(n, j)) * (each.log_sums[n] - c.x(0).v[lines.at(n, j)]);
  }
  const Counted z_mean = z_sum / total, outside_mean = outside / total, s_mean = mean_of(lines, s, total);
  c.put(2, 0, or_zero(c.arg("scale", 1) * (s_mean + outside_mean)));
  for (int64_t n = 0; n < lines.count; ++n) {
    const Counted of_line = lines.times_weight(n, factor);
    const Counted b = factor * (c.x(4).at(n) - lines.times_weight(n, z_mean));
    Counted sum;
    Numbers a;
    for (int64_t j = 0; j < lines.size; ++j)
      sum += a.emplace_back(of_line * c.x(3).at(lines.at(n, j)) + b * lines.target(n, j));
    for (int64_t j = 0; j < lines.size; ++j) {
      const Counted surprise = each.log_sums[n] - c.x(0).v[lines.at(n, j)];
      c.put(0, lines.at(n, j), or_zero(exp(-surprise) * sum - a[j]));
      c.put(1, lines.at(n, j), or_zero(b * surprise));
    }
    c.put(3, n, or_zero(factor * (s[n] - s_mean - (outside_mean + z_mean * (each.losses[n] - mean)))));
  }
}

}  // namespace

void add_loss_references(References& r) {
  r["MSELoss"] = mse;
  r["CrossEntropy"] = cross_entropy;
  r["CrossEntropyGradient"] = cross_entropy_gradient;
  r["CrossEntropySecondGradient"] = cross_entropy_second;
  r["LabelCrossEntropy"] = label_cross_entropy;
  r["LabelCrossEntropyGradient"] = label_cross_entropy_gradient;
  r["LabelCrossEntropySecondGradient"] = label_cross_entropy_second;
  r["SigmoidCrossEntropyWithLogits"] = sigmoid_loss;
  r["SigmoidCrossEntropyWithLogitsGradient"] = sigmoid_loss_gradient;
  r["SigmoidCrossEntropyWithLogitsSecondGradient"] = sigmoid_loss_second;
  r["SoftmaxWithLoss"] = r["SpatialSoftmaxWithLoss"] = softmax_loss;
  r["SoftmaxWithLossGradient"] = r["SpatialSoftmaxWithLossGradient"] = softmax_loss_gradient;
  r["SoftmaxLossTargetGradient"] = target_gradient;
  r["SoftmaxLossSecondGradient"] = loss_second;
  r["SoftmaxLossTargetSecondGradient"] = target_second;
}

}  // namespace stepnet::testing
