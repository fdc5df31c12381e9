#include "recurrent/report/scores.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "stepnet/error.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

constexpr std::string_view kTop = "top_";
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Of accuracy and top_K; 0 for others.
int64_t best_of(const std::string& name) {
  if (name == "accuracy") return 1;
  int64_t best = 0;
  if (!name.starts_with(kTop)) return 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kTop.size(), end, best);
  return error == std::errc() && rest == end && best > 0 ? best : 0;
}

bool is_share(const std::string& name) { return name == "precision" || name == "recall" || name == "f1"; }
bool is_entropy(const std::string& name) { return name == "perplexity" || name == "bits"; }

std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  const auto read = [&]<class T>(T) {
    const auto from = tensor.span<T>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(from[i]);
  };
  if (!with_type(tensor.dtype(), read) && !with_half(tensor.dtype(), read)) fail("{} has no numbers", tensor);
  return values;
}

// Whether each target counts.
std::vector<bool> counted(const std::string& name, const Tensor& target, const Tensor& mask) {
  std::vector<bool> counts(static_cast<size_t>(target.size()), true);
  if (!mask.defined()) return counts;
  require(mask.size() == target.size(), "{} has {} targets, but a mask of {}", name, target, mask);
  const std::vector<double> values = numbers(mask);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = values[i] != 0;
  return counts;
}

// Of `count` values from `begin` on those that are at least 0.
std::vector<int64_t> symbols(const std::vector<double>& values, size_t begin, size_t count) {
  std::vector<int64_t> result;
  for (size_t i = begin; i < begin + count; ++i)
    if (values[i] >= 0) result.push_back(static_cast<int64_t>(values[i]));
  return result;
}

// Source: R. A. Wagner and M. J. Fischer, The string-to-string correction problem, 1974.
double edit_distance(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  std::vector<double> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) row[j] = static_cast<double>(j);
  for (size_t i = 0; i < from.size(); ++i) {
    double before = row[0];
    row[0] = static_cast<double>(i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const double change = before + (from[i] == to[j] ? 0 : 1);
      before = row[j + 1];
      row[j + 1] = std::min({change, before + 1, row[j] + 1});
    }
  }
  return row[to.size()];
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Of precision, recall and f1.
double share_of(const std::string& name, double hits, double predicted, double targets) {
  if (name == "precision") return share(hits, predicted);
  if (name == "recall") return share(hits, targets);
  return share(2 * hits, predicted + targets);
}

}  // namespace

bool is_mean(const std::string& name) { return name == "mean"; }

bool more_is_better(const std::string& name) {
  return best_of(name) > 0 || is_share(name) || name == "r2" || name == "auc";
}

OutcomeKind outcome_kind(const std::string& name) {
  if (best_of(name) > 0 || is_share(name) || is_entropy(name)) return OutcomeKind::classes;
  const bool is_number = name == "mean_absolute_error" || name == "mean_squared_error" || name == "r2";
  return is_number ? OutcomeKind::numbers : OutcomeKind::none;
}

void check_metric_name(const std::string& name) {
  const std::vector<std::string> known = {"accuracy",
                                          "top_5",
                                          "mean_absolute_error",
                                          "mean_squared_error",
                                          "r2",
                                          "precision",
                                          "recall",
                                          "f1",
                                          "perplexity",
                                          "bits",
                                          "auc",
                                          "edit_distance",
                                          "mean"};
  if (best_of(name) > 0 || std::ranges::count(known, name) > 0) return;
  fail("there is no metric \"{}\"; there are {}.{}", name, fmt::join(known, ", "), suggest(name, known));
}

Score::Score(std::string name) : name_(std::move(name)), best_(best_of(name_)) { check_metric_name(name_); }

void Score::add(const Tensor& prediction, const Tensor& target, const Tensor& mask, int64_t samples) {
  const bool of_two = (is_share(name_) || name_ == "auc") && prediction.size() == target.size();
  if (is_mean(name_)) {
    require(!mask.defined(), "{} takes no mask", name_);
    const std::vector<double> values = numbers(prediction);
    const double weight = values.size() == 1 ? static_cast<double>(samples) : 1;
    for (const double value : values) sum_ += weight * value;
    count_ += weight * static_cast<double>(values.size());
  } else if (name_ == "edit_distance") {
    require(!mask.defined(), "{} takes no mask: places below 0 do not count", name_);
    add_distances(prediction, target);
  } else if (best_ > 0 || is_entropy(name_) || (is_share(name_) && !of_two)) {
    add_classes(prediction, target, mask);
  } else {
    add_numbers(prediction, target, mask);
  }
}

void Score::add_class(const double* scores, int64_t classes, int64_t own) {
  count_ += 1;
  if (outcome_) {
    const bool is_nan = std::any_of(scores, scores + classes, [](double score) { return std::isnan(score); });
    require(!is_nan, "{} has a score that is nan, so no class is predicted", name_);
    outcome_(
        {static_cast<double>(own), static_cast<double>(std::max_element(scores, scores + classes) - scores), classes});
  }
  if (is_entropy(name_)) {
    const double most = *std::max_element(scores, scores + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(scores[c] - most);
    sum_ += most + std::log(sum) - scores[own];
    return;
  }
  if (best_ > 0) {
    int64_t before = 0;  // classes that stand before the target's
    for (int64_t c = 0; c < classes; ++c)
      before += scores[c] > scores[own] || (scores[c] == scores[own] && c < own) ? 1 : 0;
    hits_ += before < best_ && !std::isnan(scores[own]) ? 1 : 0;
    return;
  }
  const int64_t predicted = std::max_element(scores, scores + classes) - scores;
  classes_[predicted].predicted += 1;
  classes_[own].targets += 1;
  if (predicted == own) classes_[own].hits += 1;
}

void Score::add_classes(const Tensor& scores, const Tensor& target, const Tensor& mask) {
  const int64_t classes = scores.rank() > 0 ? scores.dim(scores.rank() - 1) : 0;
  require(classes > 0 && is_floating(scores.dtype()) && scores.size() == target.size() * classes &&
              !is_floating(target.dtype()),
          "{} needs whole numbers as targets, and a score for each class beside every target, but has {} and {}", name_,
          target, scores);
  const std::vector<double> s = numbers(scores), t = numbers(target);
  const std::vector<bool> counts = counted(name_, target, mask);
  for (size_t i = 0; i < t.size(); ++i) {
    if (!counts[i]) continue;
    require(t[i] >= 0 && t[i] < static_cast<double>(classes), "target {} of {} is {}, which is none of {} classes", i,
            name_, t[i], classes);
    add_class(s.data() + i * static_cast<size_t>(classes), classes, static_cast<int64_t>(t[i]));
  }
}

// Source of mean and spread: B. P. Welford, Note on a method for calculating corrected sums of squares and products,
// 1962.
void Score::add_numbers(const Tensor& prediction, const Tensor& target, const Tensor& mask) {
  require(prediction.size() == target.size(), "{} needs a prediction for each target, but has {} and {}", name_,
          prediction, target);
  const std::vector<double> p = numbers(prediction), t = numbers(target);
  const std::vector<bool> counts = counted(name_, target, mask);
  for (size_t i = 0; i < t.size(); ++i) {
    if (!counts[i]) continue;
    count_ += 1;
    if (is_share(name_) || name_ == "auc") {
      require(t[i] == 0 || t[i] == 1, "target {} of {} is {}, but must be 0 or 1", i, name_, t[i]);
      two_ = true;
      if (name_ == "auc") {
        require(!std::isnan(p[i]), "prediction {} of {} is {}", i, name_, p[i]);
        order_.emplace_back(p[i], t[i] == 1);
      }
      const int64_t predicted = p[i] > 0.5 ? 1 : 0, own = t[i] == 1 ? 1 : 0;
      classes_[predicted].predicted += 1;
      classes_[own].targets += 1;
      if (predicted == own) classes_[own].hits += 1;
      if (outcome_) outcome_({t[i], static_cast<double>(predicted), 2});
      continue;
    }
    if (outcome_) outcome_({t[i], p[i], 0});
    absolute_ += std::abs(p[i] - t[i]);
    squared_ += (p[i] - t[i]) * (p[i] - t[i]);
    const double distance = t[i] - mean_;
    mean_ += distance / count_;
    spread_ += distance * (t[i] - mean_);
  }
}

void Score::add_distances(const Tensor& prediction, const Tensor& target) {
  require(prediction.rank() == 2 && target.rank() == 2 && prediction.dim(0) == target.dim(0) &&
              !is_floating(prediction.dtype()) && !is_floating(target.dtype()),
          "{} needs whole numbers [samples, places] as predictions and targets, but has {} and {}", name_, prediction,
          target);
  const std::vector<double> p = numbers(prediction), t = numbers(target);
  const auto from = static_cast<size_t>(prediction.dim(1)), to = static_cast<size_t>(target.dim(1));
  for (size_t sample = 0; sample < static_cast<size_t>(target.dim(0)); ++sample) {
    const std::vector<int64_t> own = symbols(t, sample * to, to);
    sum_ += edit_distance(symbols(p, sample * from, from), own);
    count_ += static_cast<double>(own.size());
  }
}

double Score::of_classes() const {
  if (two_) {
    const auto one = classes_.find(1);
    return one == classes_.end() ? 0 : share_of(name_, one->second.hits, one->second.predicted, one->second.targets);
  }
  double sum = 0;
  for (const auto& [own, counts] : classes_) sum += share_of(name_, counts.hits, counts.predicted, counts.targets);
  return sum / static_cast<double>(classes_.size());
}

// The share of pairs of a 1 and a 0 that stand in order. Source: J. A. Hanley and B. J. McNeil, The meaning and use of
// the area under a receiver operating characteristic (ROC) curve, 1982.
double Score::area() const {
  std::vector<std::pair<double, bool>> order = order_;
  std::ranges::sort(order);
  double zeros = 0, ones = 0, pairs = 0;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double equal_ones = 0, equal_zeros = 0;
    for (; end < order.size() && order[end].first == order[begin].first; ++end)
      (order[end].second ? equal_ones : equal_zeros) += 1;
    pairs += equal_ones * (zeros + equal_zeros / 2);
    zeros += equal_zeros;
    ones += equal_ones;
    begin = end;
  }
  return zeros > 0 && ones > 0 ? pairs / (zeros * ones) : kNan;
}

double Score::value() const {
  if (count_ == 0) return kNan;
  if (best_ > 0) return hits_ / count_;
  if (is_share(name_)) return of_classes();
  if (name_ == "auc") return area();
  if (name_ == "perplexity") return std::exp(sum_ / count_);
  if (name_ == "bits") return sum_ / count_ / std::log(2.0);
  if (is_mean(name_) || name_ == "edit_distance") return sum_ / count_;
  if (name_ == "mean_absolute_error") return absolute_ / count_;
  if (name_ == "mean_squared_error") return squared_ / count_;
  return spread_ > 0 ? 1 - squared_ / spread_ : kNan;
}

}  // namespace stepnet
