// Sizes, random numbers, and the comparison of a contender's results with the exact ones.
#include "tools/bench/cell_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "stepnet/error.h"

namespace stepnet::bench {
namespace {

template <class Distribution>
std::vector<float> draw(std::mt19937& generator, Distribution distribution, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = distribution(generator);
  return values;
}

std::vector<int64_t> shape_of(const ParameterInfo& parameter, const Size& size, int layer) {
  const int64_t rows = parameter.rows * size.hidden;
  if (parameter.fan == Fan::none) return {rows};
  return {rows, parameter.fan == Fan::inputs ? size.layer_inputs(layer) : size.hidden};
}

}  // namespace

std::string Size::str() const { return fmt::format("{},{},{},{},{}", steps, batch, inputs, hidden, layers); }

const std::vector<Size>& grid() {
  static const std::vector<Size> sizes = {
      {25, 10, 62, 100, 1},    {35, 20, 200, 200, 2},  {35, 20, 650, 650, 2},
      {50, 32, 512, 512, 1},   {100, 64, 256, 256, 1}, {100, 1, 512, 512, 1},
      {35, 20, 1500, 1500, 2}, {1000, 1, 512, 512, 1}, {1000, 1, 128, 128, 1},
  };
  return sizes;
}

const std::vector<Size>& quick_grid() {
  static const std::vector<Size> sizes = {{25, 10, 62, 100, 1}, {35, 20, 200, 200, 2}, {100, 1, 512, 512, 1}};
  return sizes;
}

std::string_view mode_name(Mode mode) { return mode == Mode::forward ? "forward" : "training"; }

CellData random_data(const Cell& cell, const Size& size) {
  std::mt19937 generator(1);
  const float bound = 1.0F / std::sqrt(static_cast<float>(size.hidden));
  std::normal_distribution<float> normal;
  CellData data{&cell, size, {}, {}, {}};
  data.x = draw(generator, normal, size.steps * size.batch * size.inputs);
  data.dy = draw(generator, normal, size.steps * size.batch * size.hidden);
  for (int k = 0; k < size.layers; ++k) {
    Arrays layer;
    for (const ParameterInfo& parameter : cell.parameters) {
      const std::vector<int64_t> shape = shape_of(parameter, size, k);
      const std::uniform_real_distribution<float> weight(parameter.mean - bound, parameter.mean + bound);
      layer[parameter.name] = {shape, draw(generator, weight, shape.size() == 1 ? shape[0] : shape[0] * shape[1])};
    }
    for (const std::string& state : cell.states)
      layer[state] = {{1, size.batch, size.hidden}, draw(generator, normal, size.batch * size.hidden)};
    data.layers.push_back(std::move(layer));
  }
  return data;
}

void check_agreement(const Values& values, const ExactValues& expected, Mode mode, double tolerance,
                     const std::string& where) {
  for (const auto& [name, right] : expected) {
    if (mode == Mode::forward && name != "h_all") continue;
    const auto found = values.find(name);
    require(found != values.end() && found->second.size() == right.size(), "{}: {} is missing or of another size",
            where, name);
    double scale = 0, worst = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      const double difference = std::abs(static_cast<double>(found->second[i]) - right[i]);
      scale = std::max(scale, std::abs(right[i]));
      if (!(difference <= worst)) worst = difference;  // also if it is no number
    }
    require(worst <= tolerance * scale,
            "{}: {} differs from the exact result by {:.3g}, where the largest value is {:.3g}", where, name, worst,
            scale);
  }
}

}  // namespace stepnet::bench
