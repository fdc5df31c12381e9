#include "stepnet/gradient_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/gradcheck/blame.h"
#include "core/gradcheck/body_check.h"
#include "core/gradcheck/gradient_report.h"
#include "core/gradcheck/hessian_check.h"
#include "core/gradcheck/runs.h"
#include "stepnet/random.h"

namespace stepnet {
namespace {

constexpr double kSameBits = 1e-12;     // relative: other orders of the same sums
constexpr double kForwardError = 1e-9;  // relative, between forward and reverse mode

double largest(const Tensor& values) {
  double most = 1;
  for (const double v : values.span<double>()) most = std::max(most, std::fabs(v));
  return most;
}

// One difference against one derivative.
struct Comparison {
  std::string where;
  double derivative = 0, differences = 0, error = 0;
  bool right = true, kink = false;
};

// L where an input is moved by h times a direction: how it changes with h.
class Line {
 public:
  Line(MovedRuns& runs, const std::string& input, std::function<void(std::span<double>, double)> move)
      : runs_(runs), input_(input), move_(std::move(move)) {}

  double slope(double h) const { return runs_.difference(at(h), at(-h)) / (2 * h); }
  double slope_above(double h) const { return runs_.difference(at(h), at(0)) / h; }
  double slope_below(double h) const { return runs_.difference(at(0), at(-h)) / h; }

 private:
  std::vector<Tensor> at(double h) const {
    return runs_.at(input_, [&](std::span<double> values) { move_(values, h); });
  }

  MovedRuns& runs_;
  std::string input_;
  std::function<void(std::span<double>, double)> move_;
};

bool at_kink(const Line& line, double h, double derivative, double slack) {
  const double wide = kRefinement * h;
  return is_between_slopes({line.slope_below(h), line.slope_above(h)}, {line.slope_below(wide), line.slope_above(wide)},
                           derivative, slack);
}

Comparison compare_slopes(const Line& line, double h, double derivative, double tolerance, double scale) {
  Comparison c{"", derivative, 0, HUGE_VAL, false, false};
  for (int i = 0; i <= kRefinements; ++i, h /= kRefinement) {
    const double slope = line.slope(h), error = std::fabs(slope - derivative) / scale;
    if (error < c.error || i == 0) c.differences = slope, c.error = std::isfinite(error) ? error : HUGE_VAL;
    if (c.error <= tolerance) {
      c.right = true;
      return c;
    }
  }
  c.kink = c.right = at_kink(line, h * kRefinement, derivative, 1e3 * tolerance * scale);
  return c;
}

// A row tells of the worst of those that are no kinks.
void add_comparison(GradientRow& row, const Comparison& c) {
  ++row.tried;
  row.kinks += c.kink ? 1 : 0;
  if (c.kink) return;
  const bool worse = (row.right && !c.right) || (row.right == c.right && c.error > row.error);
  if (row.tried > 1 + row.kinks && !worse) return;
  row.right = c.right;
  row.error = c.error;
  row.where = c.where;
  row.derivative = c.derivative;
  row.differences = c.differences;
}

class InputCheck {
 public:
  InputCheck(MovedRuns& runs, const GradientSubject& subject, const GradientCheckOptions& options, std::string input,
             const Tensor& gradient)
      : runs_(runs),
        options_(options),
        input_(std::move(input)),
        value_(subject.feeds.at(input_)),
        gradient_(gradient),
        scale_(largest(gradient)) {}

  GradientRow run() {
    const bool many = value_.size() > options_.many_elements;
    const int directions = options_.directions.value_or(many ? kManyDirections : 0);
    GradientRow row = new_row();
    int wrong = -1;
    for (int d = 0; d < directions; ++d) {
      const Comparison c = direction(d);
      if (!c.right && wrong < 0) wrong = d;
      add_comparison(row, c);
    }
    if (directions > 0 && row.right) return row;
    GradientRow elements = new_row();
    if (wrong >= 0 && many) {
      add_comparison(elements, halved(wrong));
      elements.tried = row.tried;
    } else {
      for (int64_t i = 0; i < value_.size(); ++i) add_comparison(elements, element(i));
    }
    return elements.right && !row.right ? row : elements;
  }

 private:
  GradientRow new_row() const {
    GradientRow row{input_};
    row.elements = value_.size();
    return row;
  }

  Comparison element(int64_t i) {
    const double h = options_.step * std::max(1.0, std::fabs(value_.span<double>()[i]));
    const Line line(runs_, input_, [i](std::span<double> values, double by) { values[i] += by; });
    Comparison c = compare_slopes(line, h, gradient_.span<double>()[i], options_.tolerance, scale_);
    c.where = place_text(value_.shape(), i);
    return c;
  }

  Comparison direction(int number) { return direction(number, 0, value_.size()); }

  // Of the direction those components alone.
  Comparison direction(int number, int64_t begin, int64_t end) {
    const uint64_t key = random_key(options_.seed, "direction", input_, number, 0);
    const auto v = [key](int64_t i) { return random_normal(key, static_cast<uint64_t>(i)); };
    double derivative = 0;
    const auto gradient = gradient_.span<double>();
    for (int64_t i = begin; i < end; ++i) derivative += gradient[i] * v(i);
    const Line line(runs_, input_, [v, begin, end](std::span<double> values, double by) {
      for (int64_t i = begin; i < end; ++i) values[i] += by * v(i);
    });
    const double scale = scale_ * std::sqrt(static_cast<double>(std::max<int64_t>(1, end - begin)));
    Comparison c = compare_slopes(line, options_.step, derivative, options_.tolerance, scale);
    c.where = fmt::format("direction {}", number + 1);
    return c;
  }

  // An element that makes the direction wrong, found by halves.
  Comparison halved(int number) {
    int64_t begin = 0, end = value_.size();
    while (end - begin > 1) {
      const int64_t middle = begin + (end - begin) / 2;
      const Comparison first = direction(number, begin, middle), second = direction(number, middle, end);
      const auto off = [](const Comparison& c) { return c.kink ? 0 : std::fabs(c.differences - c.derivative); };
      // A difference that is no number is the worst.
      (off(first) >= off(second) || std::isnan(off(first)) ? end : begin) = middle;
    }
    return element(begin);
  }

  MovedRuns& runs_;
  const GradientCheckOptions& options_;
  std::string input_;
  const Tensor& value_;
  const Tensor& gradient_;
  double scale_;
};

// "" or where two gradients of an input differ most.
std::string difference_text(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return fmt::format("{} against {}", a.str(), b.str());
  const double scale = largest(b);
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.span<double>()[i], y = b.span<double>()[i];
    if (!(std::fabs(x - y) <= kSameBits * scale))
      return fmt::format("{}: {} against {}", place_text(a.shape(), i), x, y);
  }
  return "";
}

class Check {
 public:
  Check(const GradientSubject& subject, const GradientCheckOptions& options, int order, GradientReport& report)
      : subject_(subject), options_(options), order_(order), report_(report), runs_(subject, options.seed) {}

  void run() {
    const GradientRun together = gradients_of(subject_.inputs);
    report_.operators.insert(together.operators.begin(), together.operators.end());
    for (const std::string& name : together.unasked)
      broken("the backward pass writes \"{}\", which nobody asked for", name);
    for (const std::string& input : subject_.inputs) check_input(input, together);
    for (const auto& [what, in_place] : in_place_subjects(subject_)) {
      try {
        check_in_place(what, in_place, together);
      } catch (const Error&) {  // refused, as where a shape differs or a formula reads the input: not wrong
      }
    }
  }

  const NamedTensors& weights() const { return runs_.weights(); }

 private:
  template <class... A>
  void broken(fmt::format_string<A...> text, A&&... args) {
    report_.broken.push_back((order_ > 1 ? std::string(order_name(order_)) + " order: " : "") +
                             fmt::format(text, std::forward<A>(args)...));
  }

  // First gradients may be constant: the differences then must be 0.
  GradientRun gradients_of(const std::vector<std::string>& inputs) const {
    try {
      return run_gradients(subject_, runs_.weights(), options_.seed, inputs);
    } catch (const NoDependence&) {
      if (order_ == 1) throw;
      return {};
    }
  }

  void check_input(const std::string& input, const GradientRun& together) {
    const auto found = together.gradients.find(input);
    const bool has = found != together.gradients.end();
    const Tensor gradient = has ? found->second : Tensor::zeros(DType::float64, subject_.feeds.at(input).shape());
    if (gradient.shape() != subject_.feeds.at(input).shape()) {
      broken("the gradient of {} \"{}\" is {}", subject_.feeds.at(input).str(), input, gradient.str());
      return;
    }
    GradientRow row = InputCheck(runs_, subject_, options_, input, gradient).run();
    row.order = order_;
    report_.rows.push_back(std::move(row));
    if (!has || together.gradients.size() == 1) return;
    const GradientRun alone = gradients_of({input});
    const auto same = alone.gradients.find(input);
    const std::string differs = same == alone.gradients.end()
                                    ? difference_text(Tensor::zeros(DType::float64, gradient.shape()), gradient)
                                    : difference_text(same->second, gradient);
    if (!differs.empty()) broken("the gradient of \"{}\", alone against together with others, at {}", input, differs);
    for (const std::string& name : alone.unasked)
      broken("the backward pass for \"{}\" alone writes \"{}\", which nobody asked for", input, name);
  }

  void check_in_place(const std::string& what, const GradientSubject& in_place, const GradientRun& plain) {
    NamedTensors weights;
    for (size_t k = 0; k < in_place.outputs.size(); ++k)
      weights[in_place.outputs[k]] = runs_.weights().at(subject_.outputs[k]);
    const GradientRun run = run_gradients(in_place, weights, options_.seed, in_place.inputs);
    for (const auto& [input, gradient] : plain.gradients) {
      const std::string differs = difference_text(run.gradients.at(input), gradient);
      if (!differs.empty()) broken("the gradient of \"{}\" with {} differs at {}", input, what, differs);
    }
  }

  const GradientSubject& subject_;
  const GradientCheckOptions& options_;
  int order_;
  GradientReport& report_;
  MovedRuns runs_;
};

void check_subject(const GradientSubject& subject) {
  require(!subject.outputs.empty(), "there is no output to differentiate");
  require(!subject.inputs.empty(), "there is no input whose gradient is to be checked");
  for (const std::string& name : subject.inputs) {
    const auto found = subject.feeds.find(name);
    require(found != subject.feeds.end(), "\"{}\" is not fed", name);
    require(found->second.dtype() == DType::float64, "\"{}\" is {}, but gradients are checked in double", name,
            found->second.str());
  }
}

// A net that lists some of its inputs must list all. What operators say about devices counts before the net's word.
GradientSubject prepared(GradientSubject subject) {
  if (subject.device.kind == DeviceKind::cuda) {
    subject.net.mutable_device_option()->set_device_type(CUDA);
    subject.net.mutable_device_option()->set_device_id(subject.device.index);
  }
  subject.net.clear_external_input();
  for (const auto& feed : subject.feeds) subject.net.add_external_input(feed.first);
  return subject;
}

// The derivative along one direction, by forward mode.
Comparison forward_comparison(MovedRuns& runs, const GradientSubject& subject, const GradientCheckOptions& options,
                              const std::string& input, const NamedTensors& gradients, int number,
                              GradientReport& report) {
  const Tensor v = direction_of(subject, input, options.seed, number);
  const double derivative = run_tangents(subject, runs.weights(), options.seed, input, number);
  double reverse = 0, scale = 1;
  if (const auto gradient = gradients.find(input); gradient != gradients.end())
    for (int64_t i = 0; i < v.size(); ++i) {
      const double term = v.data<double>()[i] * gradient->second.data<double>()[i];
      reverse += term;
      scale += std::fabs(term);
    }
  if (!(std::fabs(reverse - derivative) <= kForwardError * scale))
    report.broken.push_back(fmt::format("along a direction of \"{}\" forward mode gives {}, and reverse mode {}", input,
                                        derivative, reverse));
  const Line line(runs, input, [&](std::span<double> values, double by) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += by * v.data<double>()[i];
  });
  return compare_slopes(line, options.step, derivative, options.tolerance, scale);
}

GradientRow forward_row(MovedRuns& runs, const GradientSubject& subject, const GradientCheckOptions& options,
                        const std::string& input, const NamedTensors& gradients, GradientReport& report) {
  GradientRow row{input};
  row.check = "forward";
  row.elements = subject.feeds.at(input).size();
  const int directions = std::max(1, options.directions.value_or(1));
  for (int d = 0; d < directions; ++d) {
    Comparison c = forward_comparison(runs, subject, options, input, gradients, d, report);
    c.where = directions > 1 ? fmt::format("forward {}", d + 1) : "forward";
    add_comparison(row, c);
  }
  return row;
}

// Leaves out what has no derivative, and names it in the report.
void leave_out_refused(GradientSubject& gradients, GradientReport& report) {
  if (gradients.outputs.empty()) gradients.inputs.clear();
  std::erase_if(gradients.inputs, [&](const std::string& input) {
    const std::string why = refusal(gradients, input);
    if (!why.empty()) report.refused[input] = why;
    return !why.empty();
  });
}

// Checks the subject's gradients, which are derivatives of this order of what was given, and then their own.
void check_order(const GradientSubject& subject, const GradientCheckOptions& options, int order,
                 GradientReport& report) {
  Check check(subject, options, order, report);
  check.run();
  GradientSubject gradients;
  try {
    gradients = gradients_as_subject(subject, check.weights());
  } catch (const NoDependence&) {  // they are constant
    return;
  }
  check_bodies(gradients, options.seed, report);
  if (order == options.order) return;
  if (options.where_possible) leave_out_refused(gradients, report);
  if (!gradients.outputs.empty() && !gradients.inputs.empty()) check_order(gradients, options, order + 1, report);
}

void check_forward(const GradientSubject& subject, const GradientCheckOptions& options, GradientReport& report) {
  MovedRuns runs(subject, options.seed);
  const GradientRun gradients = run_gradients(subject, runs.weights(), options.seed, subject.inputs);
  std::vector<std::string> moving;
  for (const std::string& input : subject.inputs) try {
      report.rows.push_back(forward_row(runs, subject, options, input, gradients.gradients, report));
      moving.push_back(input);
    } catch (const Error& e) {
      if (!options.where_possible) throw;
      report.refused[input] = e.fact();
    }
  if (moving.empty()) return;
  GradientSubject moved = tangents_as_subject(subject, moving, options.seed);
  // What moves as a direction does is made by no operator.
  std::erase_if(moved.outputs, [&](const std::string& name) { return moved.feeds.count(name) > 0; });
  for (const OperatorDef& op : moved.net.op()) report.operators.insert(op.type());
  GradientCheckOptions reverse = options;
  reverse.order = options.order - 1;
  if (reverse.order > 0 && !moved.outputs.empty()) check_order(moved, reverse, 1, report);
}

}  // namespace

std::string place_text(const Shape& shape, int64_t i) {
  std::string text;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    text = fmt::format("{}{}{}", i % shape[d], text.empty() ? "" : ", ", text);
    i /= shape[d];
  }
  return "[" + text + "]";
}

namespace {

GradientReport check_derivatives(const GradientSubject& given, const GradientCheckOptions& options) {
  check_subject(given);
  const GradientSubject subject = prepared(given);
  GradientReport report;
  options.forward ? check_forward(subject, options, report) : check_order(subject, options, 1, report);
  if (options.hessian) check_hessian(subject, options, report);
  return report;
}

}  // namespace

GradientReport check_gradients(const GradientSubject& subject, const GradientCheckOptions& options) {
  require(!options.directions || *options.directions >= 0, "directions: {}, but they are counted from 0",
          options.directions.value_or(0));
  require(options.order >= 1 && options.order <= 3, "order: {}, but derivatives are checked of order 1, 2 and 3",
          options.order);
  GradientReport report = check_derivatives(subject, options);
  if (!report.right()) find_blamed(prepared(subject), options, check_derivatives, report);
  return report;
}

}  // namespace stepnet
