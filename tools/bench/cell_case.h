// What is timed: cells and their parameters, sizes, numbers, and what every contender has to offer.
//
// Threads: for the main thread, which opens OpenMP's regions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet::bench {

struct Size {
  int64_t steps, batch, inputs, hidden;
  int layers;
  // A layer above the first reads the one below.
  int64_t layer_inputs(int layer) const { return layer == 0 ? inputs : hidden; }
  std::string str() const;  // "T,B,I,H,layers"
};
const std::vector<Size>& grid();
const std::vector<Size>& quick_grid();  // a part of it that is measured in a minute or two

enum class Mode { forward, training };
std::string_view mode_name(Mode mode);

// What a parameter is multiplied with: nothing, if it is a vector; a layer's input; or a state.
enum class Fan { none, inputs, hidden };
struct ParameterInfo {
  std::string name;
  int rows;  // times H
  Fan fan;
  float mean = 0;
};

struct NetFile {
  std::string name, path;                         // the path from the source tree's root
  bool whole = false;                             // not one layer, but all, whose blobs end in _0, _1, ...
  std::vector<std::string> disabled_passes = {};  // of RecurrentNetwork
};

// A cell, and the nets that write it down. Each net reads "x" [T, B, I], the parameters and the initial states, and
// writes "h_all" [T, B, H]. A matrix is [rows H, I] or [rows H, H], a row of weights per gate and unit.
struct Cell {
  std::string name;
  std::vector<NetFile> nets;
  std::vector<ParameterInfo> parameters;
  std::vector<std::string> states;  // the initial ones, each [B, H]
  // Rows, in units of H, of all matrices with this fan: what the products' cost depends on.
  int rows(Fan fan) const;
};
const std::vector<Cell>& cells();
const Cell& cell(std::string_view name);  // throws Error if there is none

struct Array {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Arrays = std::map<std::string, Array>;
struct CellData {
  const Cell* cell;
  Size size;
  std::vector<float> x, dy;    // [T, B, I] and the gradient that the backward pass starts from, [T, B, H]
  std::vector<Arrays> layers;  // parameters and initial states
};
// Normally distributed inputs and states, weights within 1 / sqrt(H) of their mean; the same numbers on every call.
CellData random_data(const Cell& cell, const Size& size);

// Outputs and gradients by name: "h_all", and of training "dx", "dh0_0", "dW_x_1", ...
using Values = std::map<std::string, std::vector<float>>;
using ExactValues = std::map<std::string, std::vector<double>>;

// Throws Error unless every expected name is there (forward: "h_all" alone) and every difference is at most `tolerance`
// of the largest expected value.
void check_agreement(const Values& values, const ExactValues& expected, Mode mode, double tolerance,
                     const std::string& where);

class Contender {
 public:
  explicit Contender(std::string name) : name_(std::move(name)) {}
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  const std::string& name() const { return name_; }
  virtual void run() = 0;                        // what is timed
  virtual Values results() const { return {}; }  // of the last run; empty: this one computes no cell

 private:
  std::string name_;
};

inline constexpr const char* kProducts = "products";  // the name of the contender that has a cell's products alone

// They are made for the number of threads that is set, and refer to `data`.
std::unique_ptr<Contender> make_stepnet(const NetFile& net, const CellData& data, Mode mode);
std::unique_ptr<Contender> make_onednn_lstm(const CellData& data, Mode mode);
std::unique_ptr<Contender> make_onednn_stream(const CellData& data);  // an LSTM's step, which goes on where it stopped
std::unique_ptr<Contender> make_products(const CellData& data, Mode mode);
std::unique_ptr<Contender> make_fused_loop(const CellData& data, Mode mode);  // null: nobody wrote one for this cell

// Returns "h_all" and all gradients in float64 and from plain formulas: what every contender has to agree with.
ExactValues exact_results(const CellData& data);

}  // namespace stepnet::bench
