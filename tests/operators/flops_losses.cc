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

// The bound is the argument of that name.
Reference huber(const char* name, bool divided) {
  return [=](CountedCall& c) {
    const Counted bound = c.arg(name, 1);
    Counted sum;
    for (size_t i = 0; i < c.x(0).v.size(); ++i) {
      const Counted size = abs(c.x(0).v[i] - c.x(1).v[i]), part = min(size, bound);
      sum += part * (size - 0.5 * part);
    }
    c.y(0)[0] = sum / std::max(1.0, static_cast<double>(c.x(0).size()));
    if (divided) c.y(0)[0] = c.y(0)[0] / bound;
  };
}

// It counts rows, which is no arithmetic.
void accuracy(CountedCall& c) {
  const int64_t classes = c.x(0).shape[1], top = c.whole("top_k", 1);
  double right = 0;
  const auto score = [&](int64_t n, int64_t j) { return c.x(0).v[n * classes + j].value; };
  for (int64_t n = 0; n < c.x(0).shape[0]; ++n) {
    const auto label = static_cast<int64_t>(c.x(1).v[n].value);
    int64_t before = 0;
    for (int64_t j = 0; j < classes; ++j)
      before += score(n, j) > score(n, label) || (score(n, j) == score(n, label) && j < label) ? 1 : 0;
    right += before < top ? 1 : 0;
  }
  c.y(0)[0] = Counted(right / std::max(1.0, static_cast<double>(c.x(0).shape[0])));
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

CountedRows before_last(const Shape& s) { return rows_before(s, std::max(s.rank() - 1, 0)); }

Counted softplus(Counted x) { return max(x, 0) + log1p(exp(-abs(x))); }

Counted sigmoid_loss_of(const CountedCall& c, Counted x, Counted t) {
  if (c.whole("unjoined_lr_loss", 0) != 0) return (1 - t) * softplus(x) - x * t;
  if (c.whole("log_D_trick", 0) != 0) return (2 * t - 1) * softplus(-x);
  return max(x, 0) - x * t + log1p(exp(-abs(x)));
}

Counted sigmoid_slope(const CountedCall& c, Counted x, Counted t) {
  if (c.whole("unjoined_lr_loss", 0) != 0) return (1 - t) * sigmoid(x) - t;
  if (c.whole("log_D_trick", 0) != 0) return (1 - 2 * t) * (1 - sigmoid(x));
  return sigmoid(x) - t;
}

Counted sigmoid_target_slope(const CountedCall& c, Counted x) {
  if (c.whole("unjoined_lr_loss", 0) != 0) return -(softplus(x) + x);
  return c.whole("log_D_trick", 0) != 0 ? 2 * softplus(-x) : -x;
}

void sigmoid_loss(CountedCall& c) {
  const CountedRows rows = before_last(c.x(0).shape);
  for (int64_t i = 0; i < c.x(0).size(); ++i) c.y(0)[i / rows.size] += sigmoid_loss_of(c, c.x(0).v[i], c.x(1).v[i]);
  for (Counted& y : c.y(0)) y = y / std::max(1.0, static_cast<double>(rows.size));
}

// Inputs are dY, logits and targets.
void sigmoid_loss_gradient(CountedCall& c) {
  const CountedRows rows = before_last(c.x(1).shape);
  for (int64_t n = 0; n < rows.count; ++n) {
    const Counted share = c.x(0).v[n] / std::max(1.0, static_cast<double>(rows.size));
    for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i) {
      if (c.wants(0)) c.y(0)[i] = share * sigmoid_slope(c, c.x(1).v[i], c.x(2).v[i]);
      if (c.wants(1)) c.y(1)[i] = share * sigmoid_target_slope(c, c.x(1).v[i]);
    }
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

// Inputs are X, W, T, b and weights; outputs the loss, dX, dW and db.
void block_loss(CountedCall& c) {
  const CountedRows x = rows_before(c.x(0).shape, c.whole("axis", 1));
  const int64_t n = rows_before(c.x(1).shape, c.whole("axis_w", 1)).count, k = x.size;
  const bool weighted = c.x(4).there, slopes = c.wants(1) || c.wants(2) || c.wants(3);
  const Counted scale = c.arg("scale", 1);
  Counted weights, total;
  for (int64_t i = 0; i < x.count; ++i) {
    if (weighted)
      weights += c.x(4).v[i];
    else
      weights.value += 1;
  }
  const Counted unit = slopes ? or_zero(scale / weights) : Counted();
  for (int64_t i = 0; i < x.count; ++i) {
    const auto label = static_cast<size_t>(c.x(2).v[i].value);
    Numbers s(static_cast<size_t>(n));
    Counted most = -HUGE_VAL, sum;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t h = 0; h < k; ++h) s[j] += c.x(0).v[i * k + h] * c.x(1).v[j * k + h];
      if (c.x(3).there) s[j] += c.x(3).v[j];
      most = max(most, s[j]);
    }
    const Counted own = s[label];
    for (Counted& e : s) sum += e = exp(e - most);
    const Counted loss = most + log(sum) - own;
    total += weighted ? c.x(4).v[i] * loss : loss;
    if (!slopes) continue;
    const Counted factor = weighted ? unit * c.x(4).v[i] : unit, share = factor / sum;
    for (Counted& e : s) e = share * e;
    s[label] -= factor;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t h = 0; c.wants(1) && h < k; ++h) c.y(1)[i * k + h] += s[j] * c.x(1).v[j * k + h];
      for (int64_t h = 0; c.wants(2) && h < k; ++h) c.y(2)[j * k + h] += s[j] * c.x(0).v[i * k + h];
      if (c.wants(3)) c.y(3)[j] += s[j];
    }
  }
  c.put(0, 0, or_zero(scale * total / weights));
}

// Inputs are dloss and what it is multiplied with.
void block_loss_gradient(CountedCall& c) {
  for (int o = 0; o < static_cast<int>(c.out.size()); ++o)
    for (int64_t i = 0; c.wants(o) && i < c.x(o + 1).size(); ++i) c.y(o)[i] = c.x(0).v[0] * c.x(o + 1).v[i];
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

// Counted whole, whatever is wanted. Inputs are X, T, dloss, weights.
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

// Lines of scores along dimension 1, each with a label. A label that is ignored is counted like the others.
struct ClassLines {
  const CountedCall& c;
  int64_t count, size, inner, ignored;
  double smoothing;
  std::string reduction;
  const CountedTensor& weights;

  ClassLines(const CountedCall& call, int of_weights)
      : c(call),
        count(c.x(1).size()),
        size(c.x(0).shape[1]),
        inner(c.x(0).shape.size_between(2, c.x(0).shape.rank())),
        ignored(c.whole("ignore_index", -100)),
        smoothing(c.arg("label_smoothing", 0)),
        reduction(c.find("reduction") ? c.text("reduction") : "mean"),
        weights(c.x(of_weights)) {}
  int64_t at(int64_t n, int64_t j) const { return n / inner * size * inner + j * inner + n % inner; }
  bool counts(int64_t n) const { return static_cast<int64_t>(c.x(1).v[n].value) != ignored; }
  int64_t label(int64_t n) const { return counts(n) ? static_cast<int64_t>(c.x(1).v[n].value) : 0; }
  Counted weighted(int64_t j, Counted x) const { return weights.there ? x * weights.v[j] : x; }
  // The exponentials of a line, and their sum.
  Counted exponentials(int64_t n, Numbers& each, Counted& most) const {
    most = -HUGE_VAL;
    Counted sum;
    for (int64_t j = 0; j < size; ++j) most = max(most, c.x(0).v[at(n, j)]);
    for (int64_t j = 0; j < size; ++j) sum += each.emplace_back(exp(c.x(0).v[at(n, j)] - most));
    return sum;
  }
  Counted weight_sum() const {
    Counted sum;
    for (int64_t n = 0; n < count; ++n) {
      if (weights.there)
        sum += counts(n) ? weights.v[label(n)] : Counted();
      else
        sum.value += counts(n) ? 1 : 0;
    }
    return sum;
  }
};

Reference class_loss(bool softmax) {
  return [=](CountedCall& c) {
    const ClassLines lines(c, 2);
    Counted total;
    for (int64_t n = 0; n < lines.count; ++n) {
      Counted log_sum, most;
      Numbers each;
      if (softmax) {
        const Counted sum = lines.exponentials(n, each, most);
        log_sum = most + log(sum);
      }
      const auto surprise = [&](int64_t j) {
        return lines.weighted(j, softmax ? log_sum - c.x(0).v[lines.at(n, j)] : -c.x(0).v[lines.at(n, j)]);
      };
      Counted loss = surprise(lines.label(n)), sum;
      if (lines.smoothing != 0) {
        for (int64_t j = 0; j < lines.size; ++j) sum += surprise(j);
        loss = (1 - lines.smoothing) * loss + lines.smoothing / static_cast<double>(lines.size) * sum;
      }
      if (!lines.counts(n)) loss = Counted();
      if (lines.reduction == "none")
        c.put(0, n, loss);
      else
        total += loss;
    }
    if (lines.reduction == "mean") total = or_zero(total / lines.weight_sum());
    if (lines.reduction != "none") c.put(0, 0, total);
  };
}

// Inputs are X, T, dloss, weight.
Reference class_loss_gradient(bool softmax) {
  return [=](CountedCall& c) {
    const ClassLines lines(c, 3);
    const bool mean = lines.reduction == "mean", smooth = lines.smoothing != 0;
    Counted share = 1, total = lines.weights.there ? 0 : static_cast<double>(lines.size);
    if (mean) share = or_zero(1 / lines.weight_sum());
    if (softmax && smooth && lines.weights.there)
      for (const Counted& w : lines.weights.v) total += w;
    for (int64_t n = 0; n < lines.count; ++n) {
      const Counted dloss = c.x(2).v[lines.reduction == "none" ? n : 0], factor = mean ? share * dloss : dloss;
      const int64_t label = lines.label(n);
      const Counted own = lines.weighted(label, factor), of_label = smooth ? (1 - lines.smoothing) * own : own;
      const Counted of_all = smooth ? lines.smoothing / static_cast<double>(lines.size) * factor : Counted();
      Numbers dx(static_cast<size_t>(lines.size)), each;
      if (softmax) {
        Counted most;
        const Counted sum = lines.exponentials(n, each, most);
        const Counted scale = (smooth ? of_label + of_all * total : of_label) / sum;
        for (int64_t j = 0; j < lines.size; ++j) dx[j] = scale * each[j];
      }
      for (int64_t j = 0; smooth && j < lines.size; ++j) {
        const Counted spread = lines.weighted(j, of_all);
        dx[j] = softmax ? dx[j] - spread : -spread;
      }
      dx[label] = softmax || smooth ? dx[label] - of_label : -of_label;
      for (int64_t j = 0; j < lines.size; ++j) c.put(0, lines.at(n, j), lines.counts(n) ? dx[j] : Counted());
    }
  };
}

}  // namespace

void add_loss_references(References& r) {
  r["MSELoss"] = mse;
  r["Accuracy"] = accuracy;
  r["HuberLoss"] = huber("delta", false);
  r["SmoothL1Loss"] = huber("beta", true);
  r["CrossEntropy"] = cross_entropy;
  r["CrossEntropyGradient"] = cross_entropy_gradient;
  r["LabelCrossEntropy"] = label_cross_entropy;
  r["LabelCrossEntropyGradient"] = label_cross_entropy_gradient;
  r["SigmoidCrossEntropyWithLogits"] = sigmoid_loss;
  r["SigmoidCrossEntropyWithLogitsGradient"] = sigmoid_loss_gradient;
  r["SoftmaxWithLoss"] = r["SpatialSoftmaxWithLoss"] = softmax_loss;
  r["SoftmaxWithLossGradient"] = r["SpatialSoftmaxWithLossGradient"] = softmax_loss_gradient;
  r["FCSoftmaxWithLoss"] = block_loss;
  r["FCSoftmaxWithLossGradient"] = block_loss_gradient;
  r["SoftmaxLossTargetGradient"] = target_gradient;
  r["NLLLoss"] = class_loss(false);
  r["NLLLossGradient"] = class_loss_gradient(false);
  r["CrossEntropyLoss"] = class_loss(true);
  r["CrossEntropyLossGradient"] = class_loss_gradient(true);
}

}  // namespace stepnet::testing
