// Recurrent cells as the builders of the public format write them, operator by operator: the sequence is already
// projected to the gates, LSTMUnit and GRUUnit read lengths, layer normalisation is LayerNorm with a product and a sum
// behind it, attention is made of products of batches. Each row has its formulas as a plain function of one timestep.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "tests/recurrent/cell_files.h"

namespace stepnet::testing {

struct Caffe2Row {
  std::string name;
  Cell cell = {};
  Reference reference = {};                                // null: there is only the unrolled net
  int64_t width = 0;                                       // of the sequence
  std::map<std::string, std::vector<int64_t>> feeds = {};  // beside X and lengths; in them -1 stands for the batch
  std::vector<std::vector<std::string>> choices = {};      // outputs that have gradients
};

void PrintTo(const Caffe2Row& row, std::ostream* out);

std::vector<Caffe2Row> lstm_rows();
std::vector<Caffe2Row> gru_rows();
std::vector<Caffe2Row> attention_rows();

// The builders' own options.
struct UnitOptions {
  bool drop_states = false;
  float forget_bias = 0;
};

// Lines as a step net; "dims=0" is a list, and LSTMUnit, GRUUnit and LayerNorm get the arguments that are no integers.
NetDef caffe2_step(const Lines& lines, const UnitOptions& options);

// One timestep of LSTMUnit: whether the sample is over is in "lengths".
void lstm_unit(const Weights& w, const StepOfStream& now, const UnitOptions& o, const Vec& gates, States& s);
bool is_over(const Weights& w, const StepOfStream& now);

inline const CellState kHidden = {"h_prev", "h", "h0", "h_all", "h_last"};
inline const CellState kMemory = {"c_prev", "c", "c0", "c_all", "c_last"};

}  // namespace stepnet::testing
