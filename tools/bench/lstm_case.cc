// Sizes, random numbers, and the comparison of two contenders' results.
#include "tools/bench/lstm_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/error.h"

namespace stepnet::bench {
namespace {

template <class Distribution>
std::vector<float> draw(std::mt19937& generator, Distribution distribution, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = distribution(generator);
  return values;
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

std::string_view mode_name(Mode mode) { return mode == Mode::forward ? "forward" : "training"; }

LstmData random_data(const Size& size) {
  std::mt19937 generator(1);
  const float bound = 1.0F / std::sqrt(static_cast<float>(size.hidden));
  std::uniform_real_distribution<float> weight(-bound, bound);
  std::normal_distribution<float> normal;
  LstmData data{size, {}, {}, {}};
  data.x = draw(generator, normal, size.steps * size.batch * size.inputs);
  data.dy = draw(generator, normal, size.steps * size.batch * size.hidden);
  for (int k = 0; k < size.layers; ++k) {
    LayerData layer;
    layer.w_x = draw(generator, weight, 4 * size.hidden * size.layer_inputs(k));
    layer.b_x = draw(generator, weight, 4 * size.hidden);
    layer.w_h = draw(generator, weight, 4 * size.hidden * size.hidden);
    layer.b_h = draw(generator, weight, 4 * size.hidden);
    layer.h0 = draw(generator, normal, size.batch * size.hidden);
    layer.c0 = draw(generator, normal, size.batch * size.hidden);
    data.layers.push_back(std::move(layer));
  }
  return data;
}

void check_agreement(const Values& values, const Values& expected, double tolerance, const std::string& where) {
  require(values.size() == expected.size(), "{}: {} results instead of {}", where, values.size(), expected.size());
  for (const auto& [name, right] : expected) {
    const auto found = values.find(name);
    require(found != values.end() && found->second.size() == right.size(), "{}: {} is missing or of another size",
            where, name);
    double scale = 0, worst = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      const double difference = std::abs(static_cast<double>(found->second[i]) - static_cast<double>(right[i]));
      scale = std::max(scale, std::abs(static_cast<double>(right[i])));
      if (!(difference <= worst)) worst = difference;  // also if it is no number
    }
    require(worst <= tolerance * scale, "{}: {} differs by {:.3g}, where the largest value is {:.3g}", where, name,
            worst, scale);
  }
}

}  // namespace stepnet::bench
