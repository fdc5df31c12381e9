// RecurrentNetworkBlobFetcher: copies the step blobs of a RecurrentNetwork's last run to blobs of the workspace.
//
// The blob b of timestep t becomes <prefix>_b<t>, the public format's name: "rnn_h0", "rnn_h1", ... . There are the
// linked blobs, as the tensors that they are rows of hold them now, the timestep, and the blobs that are kept. Those
// that the backward step net reads are always kept; all are where the fetcher stands in the RecurrentNetwork's own net,
// but for blobs whose shape depends on data. Blobs of the backward step net are not there. No derivative.
#include <algorithm>
#include <set>

#include "recurrent/form/example_nets.h"
#include "recurrent/network/kept.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

struct FetcherArgs {
  std::string prefix;
};

// The network has let go of them.
void bring_back_links(const RecurrentScratch& scratch, const Workspace& workspace) {
  for (const Link& link : scratch.forward_spec.links) {
    const Blob* blob = workspace.find(link.external);
    if (blob && blob->is_tensor() && blob->tensor().defined())
      scratch.forward->bring_back(link.internal, {blob->tensor(), link.offset, link.window});
  }
}

void run(const FetcherArgs& args, BlobCall& call) {
  require(call.in[0] && call.in[0]->holds<RecurrentScratch>() && call.in[0]->get<RecurrentScratch>().forward,
          "the input must be the scratch output of a RecurrentNetwork that has run");
  const auto& scratch = call.in[0]->get<RecurrentScratch>();
  bring_back_links(scratch, call.workspace);
  std::vector<std::string> names;
  std::set<std::string> made;
  for (int64_t t = 0; t < scratch.sequence[0]; ++t)
    for (const auto& [blob, value] : scratch.forward->blobs(t)) {
      names.push_back(fmt::format("{}_{}{}", args.prefix, blob, t));
      if (names.back() == call.def.input(0) || !made.insert(names.back()).second)
        fail("\"{}\" of timestep {} would be called \"{}\", as another blob is", blob, t, names.back());
      call.workspace.create(names.back()).tensor() = value.clone();
    }
  if (!call.out[0]) return;
  Tensor& result = call.out[0]->tensor();
  result = Tensor::empty(DType::string, {static_cast<int64_t>(names.size())});
  std::ranges::move(names, result.data<std::string>());
}

REGISTER(recurrent_network_blob_fetcher) {
  return op<FetcherArgs>(kBlobFetcher)
      .doc(
          "Copies the step blobs of a RecurrentNetwork's last run to the workspace, blob b of timestep t as "
          "<prefix>_b<t>. In the RecurrentNetwork's own net it makes it keep them all.")
      .arg("prefix", &FetcherArgs::prefix, std::string("rnn"), "what the names start with")
      .input("scratch", "the last output of a RecurrentNetwork")
      .object()
      .output("names", "the names of the blobs that were made")
      .types({DType::string})
      .blobs(run)
      .runs_dry()
      .example_net(kFetcherExample, {"X=2,1,2", "h0=1,2"})
      .side_effect()
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
