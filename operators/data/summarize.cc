// Summarize: the smallest and the largest element of a tensor, their mean and their standard deviation, over n - 1.
// All are NaN if an element is NaN. No derivative: the numbers are for people to read.

#include <algorithm>
#include <array>
#include <cmath>

#include "core/io/files.h"
#include "core/operator/flops.h"
#include "stepnet/file_place.h"
#include "stepnet/operator.h"
#include "stepnet/tensor.h"

namespace stepnet::cpu_summarize {
namespace {

struct SummarizeArgs {
  bool to_file = false;
};

using Statistics = std::array<double, 4>;  // min, max, mean, standard deviation

// In two passes, so that a mean far from zero costs no digits.
template <class T>
Statistics statistics_of(In<T> x) {
  const auto n = static_cast<double>(x.size());
  double low = HUGE_VAL, high = -HUGE_VAL, sum = 0, squares = 0;
  for (const T v : x) {
    low = std::min(low, static_cast<double>(v));
    high = std::max(high, static_cast<double>(v));
    sum += static_cast<double>(v);
  }
  const double mean = sum / n;
  if (std::isnan(mean)) return {mean, mean, mean, mean};
  for (const T v : x) squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  return {low, high, mean, x.size() == 1 ? 0 : std::sqrt(squares / (n - 1))};
}

template <class T>
Statistics summarize_as(const Tensor& x, Blob* out) {
  const Statistics found = statistics_of<T>(x.span<T>());
  if (!out) return found;
  Tensor y = Tensor::empty(x.dtype(), {static_cast<int64_t>(found.size())});
  std::ranges::transform(found, y.data<T>(), [](double v) { return static_cast<T>(v); });
  out->tensor() = std::move(y);
  return found;
}

// Scopes in a blob's name are no folders.
FilePlace file_of(const Workspace& workspace, std::string name) {
  std::ranges::replace(name, '/', '#');
  return net_file(workspace, name + ".summary", PathStart::root_folder);
}

void check(const SummarizeArgs& a, const OperatorDef& def, const Workspace& workspace) {
  if (a.to_file) require_writable_folder_of(file_of(workspace, def.input(0)));
}

void run(const SummarizeArgs& a, BlobCall& c) {
  require(c.in[0] != nullptr, "its input has an empty name");
  const Tensor& given = std::as_const(*c.in[0]).tensor();
  const DType type = given.dtype();
  require(type == DType::float32 || type == DType::float64, "\"{}\" must be float or double, but is {}", c.def.input(0),
          c.in[0]->type_str());
  require(given.size() > 0, "\"{}\" is {} and has no elements", c.def.input(0), given);
  const Tensor x = on_device(given, {});
  Blob* out = c.out.empty() ? nullptr : c.out[0];
  const auto [low, high, mean, deviation] =
      type == DType::float32 ? summarize_as<float>(x, out) : summarize_as<double>(x, out);
  if (!a.to_file) return;
  const FilePlace file = file_of(c.workspace, c.def.input(0));
  const std::string line = fmt::format("{} {} {} {}\n", low, high, mean, deviation);
  if (c.run.iteration == 0 && c.run.timestep == 0) {
    write_file(file, line);
  } else {
    append_line(file, line);
  }
}

REGISTER(summarize) {
  return op<SummarizeArgs>("Summarize")
      .doc(
          "The smallest and the largest element of a tensor, their mean and their standard deviation over n - 1, which "
          "is 0 of one element. All are NaN if an element is NaN. A tensor without elements is an error.")
      .arg("to_file", &SummarizeArgs::to_file, false,
           "1: also as a line of the file <name>.summary in the workspace's root folder, with # for / in the name; the "
           "first run starts the file anew")
      .input("X", "float or double, any shape, at least one element")
      .object()
      .output("Y", "[4], of X's type: smallest, largest, mean, standard deviation")
      .object()
      .optional()
      .flops([](const auto&, const ShapeCall& c) { return 4 * input_size(c, 0) + 3; })
      .blobs(run)
      .preflight(check)
      .side_effect()
      .example({"X=2,3"})
      .example({"X=1"})
      .no_gradient("its results are for people to read");
}

}  // namespace
}  // namespace stepnet::cpu_summarize
