// The cells of tools/examples/cells, for tests: a file's inputs by its own comment, the loop over time of a reference
// that is written in plain formulas, and the file's operator as a cell that can be unrolled.
//
// A reference is a function of one timestep of one stream: it gets the row of the sequence, the weights by name, and
// the states by the names that the step net gives them after the step; it replaces them, and adds the blobs that the
// operator shows besides. It knows nothing of Stepnet.
// Threads: not for concurrent use.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <valarray>
#include <vector>

#include "tests/recurrent/unrolled.h"

namespace stepnet::testing {

using Vec = std::valarray<double>;

// What a reference reads: every blob that is fed or made in front of the loop.
class Weights {
 public:
  explicit Weights(std::map<std::string, Tensor> blobs) : blobs_(std::move(blobs)) {}
  Vec operator[](const std::string& name) const;                  // all elements
  Vec row(const std::string& name, int64_t at, int64_t n) const;  // [at, n] of a tensor [.., B, D...], or [n] of [n, D]
  Vec affine(const std::string& w, const std::string& b, const Vec& x) const;  // W x + b; no b if its name is ""
  int64_t rows(const std::string& name) const;                                 // the first dimension
  const Tensor& tensor(const std::string& name) const;

 private:
  std::map<std::string, Tensor> blobs_;  // float64, but for integers
};

struct StepOfStream {
  int64_t t, stream;
  Vec x;
};

using States = std::map<std::string, Vec>;
using Reference = std::function<void(const Weights&, const StepOfStream&, States&)>;

Vec sigmoid(const Vec& x);
Vec part(const Vec& x, size_t index, size_t of);  // of so many equal parts
Vec joined(const Vec& a, const Vec& b);
double dot(const Vec& a, const Vec& b);

struct CellFile {
  std::string name;
  Reference reference;
  bool random = false;     // has Dropouts in the loop: compared in evaluation, where nothing is drawn
  bool surrogate = false;  // its gradients are not derivatives
};

void PrintTo(const CellFile& c, std::ostream* out);
const std::vector<CellFile>& cell_files();  // one for each file, by name
std::vector<CellFile> smooth_cell_files();  // those whose gradients differences can check

using Sizes = std::map<char, int64_t>;

// The net of the file, as it is written or with all Dropouts in evaluation; and its sources' comment read as feeds. A
// name with a folder is of another file in tools/examples.
NetDef cell_net(const std::string& name, bool evaluate = false);
Feeds cell_feeds(const std::string& name, DType dtype, const Sizes& sizes);

// The first recurrent operator of a net, and the passes that it is to run without.
OperatorDef& recurrent_op(NetDef& net);
NetDef without_passes(NetDef net, const std::vector<std::string>& passes);
std::string text_of(const std::vector<std::string>& passes);

// Every blob after a forward run.
std::map<std::string, Tensor> run_forward(const NetDef& net, const Feeds& feeds);
// The outputs of the net's recurrent operator by the reference; `blobs` come from run_forward.
std::map<std::string, Tensor> run_reference(const NetDef& net, const std::map<std::string, Tensor>& blobs,
                                            Reference reference);
// The gradients of all feeds against central differences, for every choice of passes; every external output of `net`,
// whose RecurrentNetworks are in short form, has a gradient from outside. Returns "" or every difference.
std::string check_net_gradients(const NetDef& net, const Feeds& feeds);
// The recurrent operator alone, for check_against_unrolled, with what it reads in `blobs` as feeds.
std::pair<Cell, Feeds> cell_of(const NetDef& net, const std::map<std::string, Tensor>& blobs);

}  // namespace stepnet::testing
