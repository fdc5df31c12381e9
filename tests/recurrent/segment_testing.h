// An LSTM in training, for tests of segments: its cell and feeds, and a step of which the memory is measured.
// Threads: not for concurrent use.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "recurrent/form/short_form.h"
#include "recurrent/network/kept.h"
#include "recurrent/network/segment_budget.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing {

// In full form, every network by these segments.
inline NetDef in_segments(NetDef net, int64_t steps, int64_t room) {
  expand_recurrent(net);
  apply_segments(net, {steps, room});
  return net;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || !std::memcmp(a.raw(), b.raw(), a.bytes()));
}

inline const CellState kLstmH = {"h_prev", "h", "h0", "h_all", "h_last"};
inline const CellState kLstmC = {"c_prev", "c", "c0", "", "c_last"};

inline Cell lstm() {
  return {{"a = FC(x, Wx, bx) axis=2", "r = FC(h_prev, Wh, bh) axis=2", "gates = Sum(a, r)",
           "h, c = LSTMUnit(h_prev, c_prev, gates, timestep) sequence_lengths=0"},
          {kLstmH, kLstmC}};
}

inline Feeds lstm_feeds(int64_t t, int64_t b, int64_t h) {
  return {{"X", normal<float>({t, b, h}, 1)},  {"h0", normal<float>({1, b, h}, 2)},
          {"c0", normal<float>({1, b, h}, 3)}, {"Wx", normal<float>({4 * h, h}, 4, 0, 0.1)},
          {"bx", normal<float>({4 * h}, 5)},   {"Wh", normal<float>({4 * h, h}, 6, 0, 0.1)},
          {"bh", normal<float>({4 * h}, 7)},   {"dh_all", normal<float>({t, b, h}, 8)}};
}

// A training step in a workspace; where its memory goes is looked at from outside.
class Training {
 public:
  Training(const NetDef& forward, const Feeds& feeds) : net_(forward) {
    for (const auto& [name, value] : feeds) workspace_.tensor(name) = value.clone();
    add_gradient_operators(net_,
                           {.targets = {{"h_all", "dh_all"}}, .wanted = {"X", "Wx", "bx", "Wh", "bh"}, .stop = {}});
    bound_.emplace(net_, workspace_);
  }
  // The largest number of bytes at once, beyond what was there before; the first run also makes what stays.
  int64_t run(TensorPacker* packer = nullptr) {
    const int64_t before = allocator({}).counters().live;
    allocator({}).reset_peak();
    RunContext run;
    run.packer = packer;
    bound_->run(run);
    return allocator({}).counters().peak - before;
  }
  const Tensor& operator[](const std::string& name) const { return workspace_.fetch(name); }
  Workspace& workspace() { return workspace_; }
  const Segments& segments() const {
    for (const std::string& name : workspace_.names())
      if (workspace_.at(name).holds<RecurrentScratch>()) return workspace_.at(name).get<RecurrentScratch>().segments;
    throw Error("the workspace has no RecurrentNetwork");
  }

 private:
  NetDef net_;
  Workspace workspace_;
  std::optional<Net> bound_;
};

}  // namespace stepnet::testing
