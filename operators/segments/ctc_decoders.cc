// CTCGreedyDecoder and CTCBeamSearchDecoder: labels from a net that was trained by CTCLoss. An alignment says for each
// timestep a class or the blank, which is class 0; without repetitions, and then without blanks, it is labels.
//
// The first takes the class with the greatest value at each timestep. The second searches for the labels whose
// alignments have the greatest probability together (Hannun et al. 2014, without a language model): of the prefixes so
// far it keeps beam_width, and lengthens them by the classes with more than prune_threshold. Probabilities are computed
// in double. Labels are integers; the probabilities of candidates, which are not, have no derivative yet.
#include "operators/segments/ctc_decoders.h"

#include "core/operator/flops.h"

namespace stepnet::cpu_ctc_decoders {
namespace {

void check_inputs(const ShapeCall& c) {
  if (!c.known(0)) return;
  require(c.shape(0).rank() == 3 && c.shape(0)[2] > 0, "INPUTS is {}, but must be [T, B, C], with a class at least",
          c.shape(0));
  if (c.known(1))
    require(c.shape(1) == Shape{c.shape(0)[1]}, "SEQ_LEN is {}, but must be [{}]", c.shape(1), c.shape(0)[1]);
}

void infer_greedy(const CtcGreedyArgs&, ShapeCall& c) {
  check_inputs(c);
  if (c.known(0)) c.set(0, DType::int32, Shape{c.shape(0)[1]});
}

void infer_beam(const CtcBeamArgs& a, ShapeCall& c) {
  check_inputs(c);
  if (!c.known(0)) return;
  c.set(0, DType::int32, Shape{c.shape(0)[1] * a.num_candidates});
  c.set(2, c.dtype(0), Shape{c.shape(0)[1] * a.num_candidates});
}

template <class T>
void put(const DecodedLabels& decoded, Out<T> probabilities, Call& call) {
  std::ranges::copy(decoded.lengths, call.out_span<int32_t>(0).begin());
  Tensor& values = call.out(1);
  values.resize(DType::int32, Shape{static_cast<int64_t>(decoded.values.size())});
  std::ranges::copy(decoded.values, values.span<int32_t>().begin());
  for (size_t i = 0; i < probabilities.size(); ++i) probabilities[i] = static_cast<T>(decoded.probabilities[i]);
}

template <class T>
void greedy(const CtcGreedyArgs& a, In<T>, Call& call) {
  put<T>(decode_greedily(a, CtcOutputs<T>(call.in(0), call.has(1) ? &call.in(1) : nullptr)), {}, call);
}

template <class T>
void beam_search(const CtcBeamArgs& a, In<T>, Call& call) {
  put(decode_by_beam(a, CtcOutputs<T>(call.in(0), call.has(1) ? &call.in(1) : nullptr)), call.out_span<T>(2), call);
}

// As if as many prefixes as may be were kept, and lengthened by all classes.
double beam_flops(const CtcBeamArgs& a, const ShapeCall& c) { return 11.0 * a.beam_width * input_size(c, 0); }

template <class Args>
OpBuilder<Args>& declare_inputs(OpBuilder<Args>& b, const char* what) {
  return b.input("INPUTS", what)
      .input("SEQ_LEN", "[B], how many timesteps of each sample count; all if left out")
      .types({DType::int32, DType::int64})
      .optional();
}

ArgCheck<int32_t> positive() {
  return [](const int32_t& v) { return v > 0 ? "" : "must be at least 1"; };
}

REGISTER(ctc_greedy_decoder) {
  OpBuilder<CtcGreedyArgs> b("CTCGreedyDecoder");
  b.doc("Labels by the most likely class at each timestep, without blanks, which are class 0.")
      .arg("merge_repeated", &CtcGreedyArgs::merge_repeated, true, "a class that repeats is one label");
  return declare_inputs(b, "[T, B, C], scores or probabilities of C classes for B samples")
      .output("OUTPUT_LEN", "[B], how many labels each sample has")
      .types({DType::int32})
      .output("VALUES", "the labels of all samples, one behind the other")
      .types({DType::int32})
      .shape(infer_greedy)
      .cpu(greedy<float>, greedy<double>)
      .stop_gradient()
      .example({"INPUTS=4,2,3", "SEQ_LEN=int32,2:4,2"})
      .example({"INPUTS=4,1,2"}, {"merge_repeated=false"})
      .example({"INPUTS=0,2,2"});
}

REGISTER(ctc_beam_search_decoder) {
  OpBuilder<CtcBeamArgs> b("CTCBeamSearchDecoder");
  b.doc("The most likely labels, by a search over their prefixes. The blank is class 0.")
      .arg("beam_width", &CtcBeamArgs::beam_width, 10, "how many prefixes are kept from one timestep to the next",
           positive())
      .arg("num_candidates", &CtcBeamArgs::num_candidates, 1,
           "how many results each sample has, at most beam_width; one that is not there is empty, with a probability "
           "of 0",
           positive())
      .arg("prune_threshold", &CtcBeamArgs::prune_threshold, 0.001F,
           "classes that are not more likely are not tried, unless none is");
  return declare_inputs(b, "[T, B, C], probabilities of C classes for B samples")
      .output("OUTPUT_LEN", "[B num_candidates], how many labels each candidate has")
      .types({DType::int32})
      .output("VALUES", "the labels of all candidates, one behind the other")
      .types({DType::int32})
      .output("OUTPUT_PROB", "[B num_candidates], how likely each candidate is")
      .optional()
      .shape(infer_beam)
      .flops(beam_flops)
      .cpu(beam_search<float>, beam_search<double>)
      .example({"INPUTS=4,2,3,0..1", "SEQ_LEN=int32,2:4,2"})
      .example({"INPUTS=3,1,3,0..1"}, {"beam_width=3", "num_candidates=2", "prune_threshold=0.25"})
      .example({"INPUTS=0,2,2"});
}

}  // namespace
}  // namespace stepnet::cpu_ctc_decoders
