// H is the Hessian of L = sum of w .* y by all inputs at once, and v a vector of a tensor for each. H v is
//   - the gradient of <J^T w, v>, reverse mode over reverse mode,
//   - the gradient of <w, J v>, reverse over forward,
//   - the tangent of J^T w along v, forward over reverse,
//   - (J^T w (x + h v) - J^T w (x - h v)) / 2h but for what differences leave out.
#include "core/gradcheck/hessian_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>

#include "core/gradcheck/runs.h"
#include "core/passes/gradient_sums.h"
#include "stepnet/net.h"
#include "stepnet/op_spec.h"
#include "stepnet/random.h"

namespace stepnet {
namespace {

constexpr double kRounding = 1e-9;  // relative: the same sums in other orders

// Blobs that are added to the net begin with these.
std::string vector_name(const std::string& input) { return "hessian_vector/" + input; }
std::string copy_name(const std::string& blob) { return "hessian_copy/" + blob; }

// A net, and which of its blobs are the parts of a vector over all inputs; inputs that are missing have zeros.
struct VectorNet {
  NetDef net;
  std::map<std::string, GradientName> parts;
};

// J^T w.
VectorNet gradients_net(const GradientSubject& subject) {
  Differentiated d;
  try {
    d = differentiate(subject, subject.inputs);
  } catch (const NoDependence&) {
    return {};
  }
  d.net.clear_external_output();
  VectorNet made{std::move(d.net), {}};
  for (const std::string& input : subject.inputs) {
    const auto found = d.result.gradients.find(input);
    if (found == d.result.gradients.end() || !found->second.defined()) continue;
    // What is asked for may be a given blob, or that of several inputs.
    made.parts[input].dense = append_dense_copy(made.net, found->second, input, copy_name(input));
  }
  return made;
}

void read_vectors(const GradientSubject& subject, NetDef& net) {
  for (const std::string& input : subject.inputs) net.add_external_input(vector_name(input));
}

// The gradient of the sum of the targets .* what is given for them.
VectorNet differentiated(NetDef net, const GradientSubject& subject,
                         std::vector<std::pair<std::string, std::string>> targets) {
  GradientRequest request;
  request.targets = std::move(targets);
  request.wanted = {subject.inputs.begin(), subject.inputs.end()};
  if (request.targets.empty()) return {};
  VectorNet made{std::move(net), {}};
  try {
    const GradientResult result = add_gradient_operators(made.net, request);
    for (const std::string& input : subject.inputs) {
      const auto found = result.gradients.find(input);
      if (found != result.gradients.end() && found->second.defined()) made.parts[input] = found->second;
    }
  } catch (const NoDependence&) {
    return {};
  }
  return made;
}

VectorNet reverse_over_reverse(const GradientSubject& subject) {
  VectorNet first = gradients_net(subject);
  read_vectors(subject, first.net);
  std::vector<std::pair<std::string, std::string>> targets;
  for (const auto& [input, part] : first.parts) targets.emplace_back(part.dense, vector_name(input));
  return differentiated(std::move(first.net), subject, std::move(targets));
}

std::map<std::string, std::string> add_tangents(const GradientSubject& subject, NetDef& net,
                                                const std::set<std::string>& of) {
  TangentRequest request;
  for (const std::string& input : subject.inputs) request.given[input] = vector_name(input);
  request.wanted = of;
  return add_tangent_operators(net, request).tangents;
}

VectorNet reverse_over_forward(const GradientSubject& subject) {
  NetDef net = subject.net;
  net.clear_external_output();
  net.clear_external_input();
  for (const auto& feed : subject.feeds) net.add_external_input(feed.first);
  for (const std::string& output : subject.outputs) net.add_external_input(given_gradient(output));
  read_vectors(subject, net);
  const auto tangents = add_tangents(subject, net, {subject.outputs.begin(), subject.outputs.end()});
  std::vector<std::pair<std::string, std::string>> targets;
  for (const std::string& output : subject.outputs)
    if (const auto tangent = tangents.find(output); tangent != tangents.end())
      targets.emplace_back(append_dense_copy(net, {tangent->second, "", ""}, "", copy_name(output)),
                           given_gradient(output));
  return differentiated(std::move(net), subject, std::move(targets));
}

VectorNet forward_over_reverse(const GradientSubject& subject) {
  VectorNet first = gradients_net(subject);
  if (first.parts.empty()) return {};
  read_vectors(subject, first.net);
  std::set<std::string> wanted;
  for (const auto& [input, part] : first.parts) wanted.insert(part.dense);
  const auto tangents = add_tangents(subject, first.net, wanted);
  VectorNet made{std::move(first.net), {}};
  for (const auto& [input, part] : first.parts)
    if (const auto tangent = tangents.find(part.dense); tangent != tangents.end())
      made.parts[input].dense = tangent->second;
  return made;
}

// A vector net bound once, run again and again.
class VectorRuns {
 public:
  VectorRuns(VectorNet made, const GradientSubject& subject, const NamedTensors& weights, uint64_t seed)
      : made_(std::move(made)), subject_(subject), weights_(weights), seed_(seed) {
    workspace_.confine(subject.files);
  }

  // Where the inputs are moved, and along these vectors; both may be empty.
  NamedTensors run(const NamedTensors& moved, const NamedTensors& vectors) {
    NamedTensors values;
    if (!made_.parts.empty()) {
      feed(moved, vectors);
      if (!net_) net_ = std::make_unique<Net>(made_.net, workspace_);
      run_once(*net_, seed_);
    }
    for (const std::string& input : subject_.inputs) {
      const Shape& shape = subject_.feeds.at(input).shape();
      const auto part = made_.parts.find(input);
      values[input] = part == made_.parts.end() ? Tensor::zeros(DType::float64, shape)
                                                : gradient_value(workspace_, part->second, shape);
      require(values[input].shape() == shape, "of \"{}\" {} the part of the product is {}", input, shape,
              values[input].shape());
    }
    return values;
  }

  std::set<std::string> operators() const {
    std::set<std::string> types;
    for (const OperatorDef& op : made_.net.op()) types.insert(op.type());
    return types;
  }

 private:
  void feed(const NamedTensors& moved, const NamedTensors& vectors) {
    const auto put = [&](const std::string& name, const Tensor& value) {
      workspace_.tensor(name) = copied_to(value, subject_.device);
    };
    for (const auto& [name, value] : subject_.feeds) put(name, moved.count(name) > 0 ? moved.at(name) : value);
    for (const auto& [name, value] : weights_) put(given_gradient(name), value);
    for (const auto& [name, value] : vectors) put(vector_name(name), value);
  }

  VectorNet made_;
  const GradientSubject& subject_;
  const NamedTensors& weights_;
  uint64_t seed_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

double largest(const NamedTensors& vector) {
  double most = 1;
  for (const auto& [name, part] : vector)
    for (const double v : part.span<double>()) most = std::max(most, std::fabs(v));
  return most;
}

// Takes the worse of what a row has and this; what is no number is worst.
void add(GradientRow& row, double error, double tolerance, double derivative, double other,
         const std::function<std::string()>& where) {
  if (!std::isfinite(error)) error = HUGE_VAL;
  if (!row.where.empty() && error <= row.error) return;
  row.right = row.right && error <= tolerance;
  row.error = error;
  row.where = where();
  row.derivative = derivative;
  row.differences = other;
}

std::string place(const std::string& input, const Tensor& part, int64_t i, int number) {
  return fmt::format("{}{}, direction {}", input, place_text(part.shape(), i), number + 1);
}

// Two ways to the same vector.
void compare(const NamedTensors& product, const NamedTensors& other, int number, GradientRow& row) {
  const double scale = largest(product);
  for (const auto& [input, part] : product) {
    const std::string& name = input;
    const Tensor& values = part;
    const std::span<const double> x = part.span<double>(), y = other.at(input).span<double>();
    for (int64_t i = 0; i < values.size(); ++i)
      add(row, std::fabs(x[i] - y[i]) / scale, kRounding, x[i], y[i], [&] { return place(name, values, i, number); });
  }
  ++row.tried;
}

// u.(H v) against v.(H u).
void compare_symmetry(const NamedTensors& u, const NamedTensors& hv, const NamedTensors& v, const NamedTensors& hu,
                      int number, GradientRow& row) {
  double first = 0, second = 0, scale = 1;
  for (const auto& [input, part] : hv)
    for (int64_t i = 0; i < part.size(); ++i) {
      const double a = u.at(input).data<double>()[i] * part.data<double>()[i];
      const double b = v.at(input).data<double>()[i] * hu.at(input).data<double>()[i];
      first += a;
      second += b;
      scale += std::fabs(a) + std::fabs(b);
    }
  const double error = std::fabs(first - second) / scale;
  add(row, error, kRounding, first, second, [&] { return fmt::format("direction {}", number + 1); });
  ++row.tried;
}

// The gradient on both sides of the inputs, h times a direction away.
struct Sides {
  NamedTensors below, here, above;
  double h = 0;

  double slope(const std::string& input, int64_t i) const { return at(above, below, input, i) / 2; }
  double slope_above(const std::string& input, int64_t i) const { return at(above, here, input, i); }
  double slope_below(const std::string& input, int64_t i) const { return at(here, below, input, i); }

 private:
  double at(const NamedTensors& to, const NamedTensors& from, const std::string& input, int64_t i) const {
    return (to.at(input).data<double>()[i] - from.at(input).data<double>()[i]) / h;
  }
};

// They come nearer until what is looked at agrees.
class GradientLine {
 public:
  GradientLine(VectorRuns& runs, const GradientSubject& subject, const NamedTensors& v, double step)
      : runs_(runs), subject_(subject), v_(v), here_(at(0)), step_(step) {}

  const Sides& sides(size_t refinement) {
    while (sides_.size() <= refinement) {
      sides_.push_back({at(-step_), here_, at(step_), step_});
      step_ /= kRefinement;
    }
    return sides_[refinement];
  }

 private:
  NamedTensors at(double h) {
    NamedTensors moved;
    for (const auto& [input, direction] : v_) {
      Tensor value = subject_.feeds.at(input).clone();
      for (int64_t i = 0; i < value.size(); ++i) value.data<double>()[i] += h * direction.data<double>()[i];
      moved[input] = std::move(value);
    }
    return runs_.run(moved, {});
  }

  VectorRuns& runs_;
  const GradientSubject& subject_;
  const NamedTensors& v_;
  NamedTensors here_;
  double step_;
  std::deque<Sides> sides_;
};

bool at_kink(GradientLine& line, const std::string& input, int64_t i, double derivative, double slack) {
  const Sides &wide = line.sides(kRefinements - 1), &near = line.sides(kRefinements);
  return is_between_slopes({near.slope_below(input, i), near.slope_above(input, i)},
                           {wide.slope_below(input, i), wide.slope_above(input, i)}, derivative, slack);
}

void compare_differences(GradientLine& line, const NamedTensors& product, const GradientCheckOptions& options,
                         int number, GradientRow& row) {
  const double scale = largest(product);
  for (const auto& [input, part] : product) {
    const std::string& name = input;
    const Tensor& values = part;
    for (int64_t i = 0; i < values.size(); ++i) {
      const double derivative = values.data<double>()[i];
      double best = HUGE_VAL, found = line.sides(0).slope(name, i);
      for (size_t n = 0; n <= kRefinements && !(best <= options.tolerance); ++n) {
        const double slope = line.sides(n).slope(name, i), error = std::fabs(slope - derivative) / scale;
        if (error < best) best = error, found = slope;
      }
      const bool is_kink =
          !(best <= options.tolerance) && at_kink(line, name, i, derivative, 1e3 * options.tolerance * scale);
      if (is_kink)
        ++row.kinks;
      else
        add(row, best, options.tolerance, derivative, found, [&] { return place(name, values, i, number); });
    }
  }
  ++row.tried;
}

NamedTensors random_vector(const GradientSubject& subject, uint64_t seed, int number) {
  NamedTensors vector;
  for (const std::string& input : subject.inputs) {
    const uint64_t key = random_key(seed, "hessian", input, number, 0);
    Tensor part = Tensor::empty(DType::float64, subject.feeds.at(input).shape());
    for (int64_t i = 0; i < part.size(); ++i) part.data<double>()[i] = random_normal(key, static_cast<uint64_t>(i));
    vector[input] = std::move(part);
  }
  return vector;
}

void require_free_names(const NetDef& net) {
  for (const OperatorDef& op : net.op())
    for (const auto* names : {&op.input(), &op.output()})
      for (const std::string& name : *names)
        require(!name.starts_with(vector_name("")) && !name.starts_with(copy_name("")),
                "\"{}\" begins as blobs do that a check of the Hessian adds", name);
}

// Why there is no second derivative by this input; "" if there is one, or if it is zero.
std::string second_refusal(const GradientSubject& subject, const NamedTensors& weights, const std::string& input) {
  try {
    GradientSubject gradients = gradients_as_subject(subject, weights);
    return gradients.outputs.empty() ? "" : refusal(gradients, input);
  } catch (const NoDependence&) {
    return "";
  }
}

struct Way {
  const char* name;
  VectorNet (*make)(const GradientSubject&);
};
constexpr Way kOtherWays[] = {{"reverse over forward", reverse_over_forward},
                              {"forward over reverse", forward_over_reverse}};

GradientRow hessian_row(const std::string& name, const GradientSubject& subject) {
  GradientRow row{.input = name, .order = 2};
  row.check = "hessian";
  for (const std::string& input : subject.inputs) row.elements += subject.feeds.at(input).size();
  return row;
}

class HessianCheck {
 public:
  HessianCheck(const GradientSubject& subject, const NamedTensors& weights, const GradientCheckOptions& options)
      : subject_(subject), weights_(weights), options_(options), reverse_(runs(reverse_over_reverse(subject))) {}

  void run(GradientReport& report) {
    for (const std::string& type : reverse_->operators()) report.operators.insert(type);
    const int directions = std::max(1, options_.directions.value_or(kHessianDirections));
    check_symmetry(directions, report);
    for (const Way& way : kOtherWays) check_way(way, directions, report);
    check_differences(directions, report);
  }

 private:
  std::unique_ptr<VectorRuns> runs(VectorNet made) const {
    return std::make_unique<VectorRuns>(std::move(made), subject_, weights_, options_.seed);
  }
  NamedTensors vector(int number) const { return random_vector(subject_, options_.seed, number); }

  void check_symmetry(int directions, GradientReport& report) {
    GradientRow row = hessian_row("symmetry", subject_);
    for (int d = 0; d < directions; ++d) {
      const NamedTensors v = vector(2 * d), u = vector(2 * d + 1);
      products_.push_back(reverse_->run({}, v));
      compare_symmetry(u, products_.back(), v, reverse_->run({}, u), d, row);
    }
    report.rows.push_back(std::move(row));
  }

  void check_way(const Way& way, int directions, GradientReport& report) {
    VectorNet made;
    try {
      made = way.make(subject_);
    } catch (const Error& e) {
      report.refused[way.name] = e.fact();
      return;
    }
    GradientRow row = hessian_row(way.name, subject_);
    const auto other = runs(std::move(made));
    for (const std::string& type : other->operators()) report.operators.insert(type);
    for (int d = 0; d < directions; ++d) compare(products_[d], other->run({}, vector(2 * d)), d, row);
    report.rows.push_back(std::move(row));
  }

  void check_differences(int directions, GradientReport& report) {
    GradientRow row = hessian_row("differences", subject_);
    const auto gradients = runs(gradients_net(subject_));
    for (int d = 0; d < directions; ++d) {
      const NamedTensors v = vector(2 * d);
      GradientLine line(*gradients, subject_, v, options_.step);
      compare_differences(line, products_[d], options_, d, row);
    }
    report.rows.push_back(std::move(row));
  }

  const GradientSubject& subject_;
  const NamedTensors& weights_;
  const GradientCheckOptions& options_;
  std::unique_ptr<VectorRuns> reverse_;
  std::vector<NamedTensors> products_;  // H v, by direction
};

}  // namespace

void check_hessian(const GradientSubject& given, const GradientCheckOptions& options, GradientReport& report) {
  require_free_names(given.net);
  GradientSubject subject = given;
  const NamedTensors weights = MovedRuns(subject, options.seed).weights();
  if (options.where_possible)
    std::erase_if(subject.inputs, [&](const std::string& input) {
      const std::string why = second_refusal(given, weights, input);
      if (!why.empty()) report.refused[input] = why;
      return !why.empty();
    });
  if (subject.inputs.empty()) return;
  HessianCheck(subject, weights, options).run(report);
}

}  // namespace stepnet
