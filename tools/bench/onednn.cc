// Memory, reorders and execution.
#include "tools/bench/onednn.h"

#include <algorithm>
#include <cstring>

#include "stepnet/error.h"

namespace stepnet::bench {

dnnl::engine& cpu() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& cpu_stream() {
  static dnnl::stream stream(cpu());
  return stream;
}

dnnl::memory::desc floats(const dnnl::memory::dims& dims, Tag tag) { return {dims, dnnl::memory::data_type::f32, tag}; }

dnnl::memory with_values(const dnnl::memory::desc& desc, const std::vector<float>& values) {
  dnnl::memory memory(desc, cpu());
  require(desc.get_size() == values.size() * sizeof(float), "{} values are given for {} bytes", values.size(),
          desc.get_size());
  std::memcpy(memory.get_data_handle(), values.data(), desc.get_size());
  return memory;
}

dnnl::memory zeros(const dnnl::memory::desc& desc) {
  dnnl::memory memory(desc, cpu());
  fill_zero(memory);
  return memory;
}

void fill_zero(dnnl::memory& memory) { std::memset(memory.get_data_handle(), 0, memory.get_desc().get_size()); }

std::vector<float> values_of(const dnnl::memory& memory) {
  const auto* begin = static_cast<const float*>(memory.get_data_handle());
  return {begin, begin + memory.get_desc().get_size() / sizeof(float)};
}

Reordered::Reordered(const dnnl::memory& from, const dnnl::memory::desc& to)
    : from_(from), to_(from), same_(from.get_desc() == to) {
  if (same_) return;
  to_ = zeros(to);
  reorder_ = dnnl::reorder(from_, to_);
}

void Reordered::run() const {
  if (!same_) reorder_.execute(cpu_stream(), {{DNNL_ARG_FROM, from_}, {DNNL_ARG_TO, to_}});
}

void append_onednn_weights(const std::vector<float>& weights, int64_t hidden, std::vector<float>& out) {
  const int64_t columns = static_cast<int64_t>(weights.size()) / (4 * hidden);
  for (int64_t k = 0; k < columns; ++k)
    for (int64_t gate = 0; gate < 4; ++gate)
      for (int64_t j = 0; j < hidden; ++j)
        out.push_back(weights[static_cast<size_t>((onednn_gate(gate) * hidden + j) * columns + k)]);
}

}  // namespace stepnet::bench
