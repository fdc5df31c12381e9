// What is timed: the sizes of an LSTM, its numbers, and what every contender has to offer.
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

enum class Mode { forward, training };
std::string_view mode_name(Mode mode);

// A layer's parameters and initial states, in Stepnet's order: gates i, f, o, g; a row of weights per gate and unit.
struct LayerData {
  std::vector<float> w_x, b_x, w_h, b_h;  // [4H, I], [4H], [4H, H], [4H]
  std::vector<float> h0, c0;              // [B, H]
};
struct LstmData {
  Size size;
  std::vector<float> x, dy;  // [T, B, I] and the gradient that the backward pass starts from, [T, B, H]
  std::vector<LayerData> layers;
};
// Normally distributed inputs and states, weights within 1 / sqrt(H); the same numbers on every call.
LstmData random_data(const Size& size);

// Outputs and gradients by name, in Stepnet's order: "h_all", and of training "dx", "dh0_0", "dW_x_1", ...
using Values = std::map<std::string, std::vector<float>>;

// Throws Error unless both hold the same names and every difference is at most `tolerance` of the largest expected
// value.
void check_agreement(const Values& values, const Values& expected, double tolerance, const std::string& where);

class Contender {
 public:
  explicit Contender(std::string name) : name_(std::move(name)) {}
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  const std::string& name() const { return name_; }
  virtual void run() = 0;                        // what is timed
  virtual Values results() const { return {}; }  // of the last run; empty: this one computes no LSTM

 private:
  std::string name_;
};

// They are made for the number of threads that is set, and refer to `data`.
std::unique_ptr<Contender> make_stepnet(const std::string& net, const LstmData& data, Mode mode);
std::unique_ptr<Contender> make_onednn(const LstmData& data, Mode mode);
std::unique_ptr<Contender> make_products(const LstmData& data, Mode mode);
const std::vector<std::string>& net_names();  // what make_stepnet knows

}  // namespace stepnet::bench
