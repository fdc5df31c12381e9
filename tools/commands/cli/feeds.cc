#include "tools/commands/cli/feeds.h"

#include <filesystem>

#include "core/io/npy.h"
#include "stepnet/error.h"
#include "stepnet/random.h"
#include "tools/commands/cli/usage.h"

namespace stepnet::tools {

Feeds read_feeds(const std::vector<std::string>& texts) {
  std::vector<std::string> types;
  Feeds feeds;
  for (const std::string& text : texts) {
    if (text.ends_with(']')) {
      types.push_back(text);
      continue;
    }
    const size_t equals = text.find('=');
    require(equals != std::string::npos && equals > 0 && equals + 1 < text.size(),
            "--feed takes BLOB=FILE.npy, or BLOB=TYPE[SIZE,...] for values that are drawn, but is \"{}\"", text);
    const auto [blob, path] = parse_feed(text);
    if (path.find_first_not_of("0123456789,x[] ") == std::string::npos && !std::filesystem::exists(path))
      throw Error(
          fmt::format("--feed \"{}\" gives sizes without a type", text),
          fmt::format("values are drawn for --feed {}=float[2,3], and read for --feed {}=FILE.npy", blob, blob));
    require(feeds.values.emplace(blob, read_npy(path)).second, "--feed gives the blob \"{}\" twice", blob);
  }
  feeds.types = parse_types("--feed", types);
  for (const auto& [blob, value] : feeds.values)
    require(feeds.types.emplace(blob, TensorType::of(value.dtype(), value.shape())).second,
            "--feed gives the blob \"{}\" twice", blob);
  return feeds;
}

Tensor drawn(const std::string& name, const TensorType& type, uint64_t seed) {
  Tensor value = Tensor::zeros(type.dtype, type.shape);
  const uint64_t key = random_key(seed, "bench", name, 0, 0);
  for (int64_t i = 0; i < value.size(); ++i) {
    const double number = 0.2 * random_uniform(key, static_cast<uint64_t>(i)) - 0.1;
    if (type.dtype == DType::float64) value.data<double>()[i] = number;
    if (type.dtype == DType::float32) value.data<float>()[i] = static_cast<float>(number);
  }
  return value;
}

}  // namespace stepnet::tools
