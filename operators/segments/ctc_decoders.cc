// CTCGreedyDecoder and CTCBeamSearchDecoder: labels from the outputs of a net that was trained by CTCLoss.
namespace stepnet::cpu_ctc_decoders {}
