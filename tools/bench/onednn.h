// What the two contenders made of oneDNN primitives share.
//
// Threads: the engine and the stream belong to the main thread.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

namespace stepnet::bench {

using Tag = dnnl::memory::format_tag;

dnnl::engine& cpu();
dnnl::stream& cpu_stream();

dnnl::memory::desc floats(const dnnl::memory::dims& dims, Tag tag);
dnnl::memory with_values(const dnnl::memory::desc& desc, const std::vector<float>& values);
dnnl::memory zeros(const dnnl::memory::desc& desc);
void fill_zero(dnnl::memory& memory);
std::vector<float> values_of(const dnnl::memory& memory);

// A primitive with everything it reads and writes.
struct Execution {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> memories;
  void run() const { primitive.execute(cpu_stream(), memories); }
};

// `from` in another layout: a second memory and the reorder that fills it, or `from` itself and nothing to run.
class Reordered {
 public:
  Reordered() = default;
  Reordered(const dnnl::memory& from, const dnnl::memory::desc& to);
  const dnnl::memory& memory() const { return to_; }
  void run() const;

 private:
  dnnl::memory from_, to_;
  dnnl::primitive reorder_;
  bool same_ = true;
};

// Where the gate of an LSTM that is Stepnet's g-th stands in oneDNN, and the other way round: i, f, o, g and i, f, g,
// o.
constexpr int64_t onednn_gate(int64_t gate) { return gate < 2 ? gate : 5 - gate; }
// Appends an LSTM's weights [4H, K] or biases [4H] of Stepnet as [K, 4, H] of oneDNN.
void append_onednn_weights(const std::vector<float>& weights, int64_t hidden, std::vector<float>& out);

}  // namespace stepnet::bench
