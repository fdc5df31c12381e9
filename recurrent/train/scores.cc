#include "recurrent/train/scores.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

constexpr const char* kAbsolute = "mean_absolute_error";
constexpr const char* kSquared = "mean_squared_error";
constexpr const char* kR2 = "r2";
constexpr std::string_view kTop = "top_";

// Of accuracy and top_K; 0 for others.
int64_t best_of(const std::string& name) {
  if (name == "accuracy") return 1;
  int64_t best = 0;
  if (!name.starts_with(kTop)) return 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kTop.size(), end, best);
  return error == std::errc() && rest == end && best > 0 ? best : 0;
}

std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  const auto read = [&]<class T>(T) {
    const auto from = tensor.span<T>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(from[i]);
  };
  if (!with_type(tensor.dtype(), read) && !with_half(tensor.dtype(), read)) fail("{} has no numbers", tensor);
  return values;
}

}  // namespace

void check_metric_name(const std::string& name) {
  if (best_of(name) > 0 || name == kAbsolute || name == kSquared || name == kR2) return;
  const std::vector<std::string> known = {"accuracy", "top_5", kAbsolute, kSquared, kR2};
  fail("there is no metric \"{}\"; there are {}.{}", name, fmt::join(known, ", "), suggest(name, known));
}

Score::Score(std::string name) : name_(std::move(name)), best_(best_of(name_)) { check_metric_name(name_); }

void Score::add(const Tensor& prediction, const Tensor& target) {
  if (best_ > 0)
    add_classes(prediction, target);
  else
    add_numbers(prediction, target);
}

void Score::add_classes(const Tensor& scores, const Tensor& target) {
  const int64_t classes = scores.rank() > 0 ? scores.dim(scores.rank() - 1) : 0;
  require(classes > 0 && is_floating(scores.dtype()) && scores.size() == target.size() * classes &&
              !is_floating(target.dtype()),
          "{} needs whole numbers as targets, and a score for each class beside every target, but has {} and {}", name_,
          target, scores);
  const std::vector<double> s = numbers(scores), t = numbers(target);
  for (size_t i = 0; i < t.size(); ++i) {
    require(t[i] >= 0 && t[i] < static_cast<double>(classes), "target {} of {} is {}, which is none of {} classes", i,
            name_, t[i], classes);
    const double* row = s.data() + i * static_cast<size_t>(classes);
    const auto own = static_cast<int64_t>(t[i]);
    int64_t before = 0;  // classes that stand before the target's
    for (int64_t c = 0; c < classes; ++c) before += row[c] > row[own] || (row[c] == row[own] && c < own) ? 1 : 0;
    hits_ += before < best_ && !std::isnan(row[own]) ? 1 : 0;
  }
  count_ += static_cast<double>(t.size());
}

// Source of mean and spread: B. P. Welford, Note on a method for calculating corrected sums of squares and products,
// 1962.
void Score::add_numbers(const Tensor& prediction, const Tensor& target) {
  require(prediction.size() == target.size(), "{} needs a prediction for each target, but has {} and {}", name_,
          prediction, target);
  const std::vector<double> p = numbers(prediction), t = numbers(target);
  for (size_t i = 0; i < t.size(); ++i) {
    absolute_ += std::abs(p[i] - t[i]);
    squared_ += (p[i] - t[i]) * (p[i] - t[i]);
    count_ += 1;
    const double distance = t[i] - mean_;
    mean_ += distance / count_;
    spread_ += distance * (t[i] - mean_);
  }
}

double Score::value() const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  if (best_ > 0) return hits_ / count_;
  if (name_ == kAbsolute) return absolute_ / count_;
  if (name_ == kSquared) return squared_ / count_;
  return spread_ > 0 ? 1 - squared_ / spread_ : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace stepnet
