// CTCGreedyDecoder and CTCBeamSearchDecoder on a GPU: how many labels there are follows from data, so the host waits
// for these, decodes them, and copies the labels back. Meaning: see operators/segments/ctc_decoders.cc.
#include "operators/segments/ctc_decoders.h"

#include "gpu/runtime/launch.h"
#include "stepnet/device.h"

namespace stepnet::gpu_ctc_decoders {
namespace {

template <class T>
void put(const Call& call, int o, const std::vector<T>& values) {
  Tensor host = Tensor::empty(dtype_of<T>(), {static_cast<int64_t>(values.size())});
  std::ranges::copy(values, host.span<T>().begin());
  gpu::sized_output(call, o, dtype_of<T>(), host.shape()).copy_from(host);
}

// Calls decode(outputs) with the inputs on the host.
template <class T, class Decode>
void run(const Call& call, const Decode& decode) {
  const Tensor inputs = copied_to(call.in(0), {}), lengths = call.has(1) ? copied_to(call.in(1), {}) : Tensor();
  const DecodedLabels decoded = decode(CtcOutputs<T>(inputs, call.has(1) ? &lengths : nullptr));
  put(call, 0, decoded.lengths);
  put(call, 1, decoded.values);
  if (call.wants(2)) put(call, 2, std::vector<T>(decoded.probabilities.begin(), decoded.probabilities.end()));
}

template <class T>
void greedy(const CtcGreedyArgs& a, gpu::In<T>, Call& call) {
  run<T>(call, [&](const CtcOutputs<T>& outputs) { return decode_greedily(a, outputs); });
}

template <class T>
void beam_search(const CtcBeamArgs& a, gpu::In<T>, Call& call) {
  run<T>(call, [&](const CtcOutputs<T>& outputs) { return decode_by_beam(a, outputs); });
}

REGISTER(ctc_greedy_decoder_cuda) { return cuda<CtcGreedyArgs>("CTCGreedyDecoder", greedy<float>, greedy<double>); }
REGISTER(ctc_beam_search_decoder_cuda) {
  return cuda<CtcBeamArgs>("CTCBeamSearchDecoder", beam_search<float>, beam_search<double>);
}

}  // namespace
}  // namespace stepnet::gpu_ctc_decoders
