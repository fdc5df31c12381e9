// LSTM decoders with the attention of the public builders: regular (additive), recurrent, dot products with and without
// a projection, and soft coverage. The encoder's outputs are seen three times: transposed as "columns" [B, D, S], and
// projected as "keys" and "coverage_weights" [S, B, A].
#include <cmath>
#include <regex>

#include "tests/recurrent/caffe2_rows.h"

namespace stepnet::testing {
namespace {

constexpr int64_t kWidth = 3, kEncoder = 2, kPlaces = 4, kAttention = 3;

enum class Kind { regular, recurrent, dot, dot_projected, coverage };

struct Attention {
  const char* name;
  Kind kind;
  bool in_place = false;  // Squeeze, ExpandDims and Reshape, as the builders have them
  bool drop = false;
  int layers = 1;  // below the decoder LSTM there are others
  bool residual = false;
};

const CellState kContext = {"context_prev", "context", "context0", "context_all", "context_last"};
const CellState kCoverage = {"coverage_prev", "coverage", "coverage0", "coverage_all", "coverage_last"};

int64_t encoder_width(Kind kind) { return kind == Kind::dot ? kWidth : kEncoder; }

// Scores [B, S, 1] of the places from the decoder's state.
Lines score_lines(Kind kind) {
  if (kind == Kind::dot || kind == Kind::dot_projected) {
    const bool projected = kind == Kind::dot_projected;
    Lines lines;
    if (projected) lines.emplace_back("q = FC(h, W_q, b_q) axis=2");
    lines.push_back(fmt::format("q_2d = Squeeze({}) dims=0", projected ? "q" : "h"));
    lines.insert(lines.end(),
                 {"q_column = ExpandDims(q_2d) dims=2", "scores = BatchMatMul(columns, q_column) trans_a=1"});
    return lines;
  }
  Lines lines = {"q = FC(h, W_q, b_q) axis=2"};
  std::string query = "q";
  if (kind == Kind::recurrent) {
    lines.insert(lines.end(), {"qc = FC(context_prev, W_c, b_c) axis=2", "qs = Sum(q, qc)"});
    query = "qs";
  }
  lines.push_back(fmt::format("{0} = Squeeze({0}) dims=0", query));
  lines.push_back(fmt::format("sums = Add(keys, {}) broadcast=1 use_grad_hack=1", query));
  std::string sums = "sums";
  if (kind == Kind::coverage) {
    lines.insert(lines.end(),
                 {"seen = Squeeze(coverage_prev) dims=0", "seen_t = Transpose(seen) axes=1/0",
                  "seen_w = Mul(coverage_weights, seen_t) broadcast=1 axis=0", "sums_c = Add(sums, seen_w)"});
    sums = "sums_c";
  }
  lines.push_back(fmt::format("{0} = Tanh({0})", sums));
  lines.push_back(fmt::format("by_place = FC({}, w_v, b_v) axis=2", sums));
  lines.emplace_back("scores = Transpose(by_place) axes=1/0/2");
  return lines;
}

Lines attention_lines(Kind kind) {
  Lines lines = score_lines(kind);
  lines.emplace_back("weights = Softmax(scores) axis=1");
  if (kind == Kind::coverage)
    lines.insert(lines.end(),
                 {"weights_2d = Squeeze(weights) dims=2", "coverage = Add(coverage_prev, weights_2d) broadcast=1"});
  lines.emplace_back("mixed = BatchMatMul(columns, weights)");
  lines.push_back(fmt::format("context, mixed_shape = Reshape(mixed) shape=1/-1/{}", encoder_width(kind)));
  return lines;
}

Lines decoder_lines(const std::string& gates_of_input) {
  return {"seen_before, seen_sizes = Concat(h_prev, context_prev) axis=2", "p = FC(seen_before, W, b) axis=2",
          fmt::format("gates = Sum(p, {})", gates_of_input),
          "h, c = LSTMUnit(h_prev, c_prev, gates, lengths, timestep)"};
}

// Layers that read no attention, of which the lowest gets the sequence.
Lines lower_lines(const Attention& a, std::string& below) {
  Lines lines;
  for (int i = 1; i < a.layers; ++i) {
    if (i > 1) lines.push_back(fmt::format("i_{0} = FC({1}, V_{0}, a_{0}) axis=2", i, below));
    lines.push_back(fmt::format("p_{0} = FC(h_prev_{0}, W_{0}, b_{0}) axis=2", i));
    lines.push_back(fmt::format("gates_{0} = Sum(p_{0}, {1})", i, i > 1 ? fmt::format("i_{}", i) : "x"));
    lines.push_back(fmt::format("h_{0}, c_{0} = LSTMUnit(h_prev_{0}, c_prev_{0}, gates_{0}, lengths, timestep)", i));
    const bool adds = a.residual && i > 1;
    if (adds) lines.push_back(fmt::format("r_{0} = Sum(h_{0}, {1})", i, below));
    below = fmt::format("{}_{}", adds ? "r" : "h", i);
  }
  if (a.layers > 1) lines.push_back(fmt::format("i = FC({}, V, a) axis=2", below));
  return lines;
}

// The context of one stream from its scores by place.
Vec context_of(const Weights& w, int64_t stream, const Vec& scores, Vec* weights) {
  *weights = std::exp(Vec(scores - scores.max()));
  *weights /= weights->sum();
  const int64_t width = w.tensor("columns").dim(1);
  Vec context(0.0, static_cast<size_t>(width));
  for (int64_t d = 0; d < width; ++d) context[static_cast<size_t>(d)] = dot(w.row("columns", stream, d), *weights);
  return context;
}

Vec scores_of(const Weights& w, Kind kind, int64_t stream, const States& s) {
  const Vec& h = s.at("h");
  Vec scores(0.0, kPlaces);
  for (int64_t place = 0; place < kPlaces; ++place) {
    const auto at = static_cast<size_t>(place);
    if (kind == Kind::dot || kind == Kind::dot_projected) {
      const Vec q = kind == Kind::dot ? h : w.affine("W_q", "b_q", h);
      for (size_t d = 0; d < q.size(); ++d) scores[at] += w.row("columns", stream, static_cast<int64_t>(d))[at] * q[d];
      continue;
    }
    Vec sums = w.row("keys", place, stream) + w.affine("W_q", "b_q", h);
    if (kind == Kind::recurrent) sums += w.affine("W_c", "b_c", s.at("context"));
    if (kind == Kind::coverage) sums += w.row("coverage_weights", place, stream) * s.at("coverage")[at];
    scores[at] = dot(w["w_v"], std::tanh(sums)) + w["b_v"][0];
  }
  return scores;
}

Reference reference_of(const Attention& a) {
  return [a](const Weights& w, const StepOfStream& now, States& s) {
    const Vec gates = w.affine("W", "b", joined(s["h"], s["context"])) + now.x;
    lstm_unit(w, now, {a.drop}, gates, s);
    Vec weights;
    s["context"] = context_of(w, now.stream, scores_of(w, a.kind, now.stream, s), &weights);
    if (a.kind == Kind::coverage) s["coverage"] += weights;
  };
}

void add_feeds(Caffe2Row& row, const Attention& a) {
  const int64_t encoder = encoder_width(a.kind), gates = 4 * kWidth;
  row.feeds = {{"h0", {1, -1, kWidth}},          {"c0", {1, -1, kWidth}}, {"context0", {1, -1, encoder}},
               {"W", {gates, kWidth + encoder}}, {"b", {gates}},          {"columns", {-1, encoder, kPlaces}}};
  const bool additive = a.kind != Kind::dot && a.kind != Kind::dot_projected;
  const int64_t query = additive ? kAttention : encoder;
  if (a.kind != Kind::dot) row.feeds["W_q"] = {query, kWidth}, row.feeds["b_q"] = {query};
  if (additive) {
    row.feeds["keys"] = {kPlaces, -1, kAttention};
    row.feeds["w_v"] = {1, kAttention}, row.feeds["b_v"] = {1};
  }
  if (a.kind == Kind::recurrent) row.feeds["W_c"] = {kAttention, encoder}, row.feeds["b_c"] = {kAttention};
  if (a.kind == Kind::coverage)
    row.feeds["coverage_weights"] = {kPlaces, -1, kAttention}, row.feeds["coverage0"] = {1, -1, kPlaces};
  for (int i = 1; i < a.layers; ++i) {
    for (const char* s : {"h0", "c0"}) row.feeds[fmt::format("{}_{}", s, i)] = {1, -1, kWidth};
    row.feeds[fmt::format("W_{}", i)] = {gates, kWidth}, row.feeds[fmt::format("b_{}", i)] = {gates};
    if (i > 1) row.feeds[fmt::format("V_{}", i)] = {gates, kWidth}, row.feeds[fmt::format("a_{}", i)] = {gates};
  }
  if (a.layers > 1) row.feeds["V"] = {gates, kWidth}, row.feeds["a"] = {gates};
}

// What is reshaped has the name of what becomes of it.
Lines reshaped_in_place(Lines lines) {
  static const std::regex query("\\bq_(2d|column)\\b"), mixed("\\bmixed\\b");
  for (std::string& line : lines) line = std::regex_replace(std::regex_replace(line, query, "q"), mixed, "context");
  return lines;
}

Caffe2Row attention_row(const Attention& a) {
  Caffe2Row row = {.name = a.name, .width = 4 * kWidth};
  std::string below = "x";
  Lines lines = lower_lines(a, below);
  for (const Lines& more : {decoder_lines(a.layers > 1 ? "i" : "x"), attention_lines(a.kind)})
    lines.insert(lines.end(), more.begin(), more.end());
  if (a.in_place) lines = reshaped_in_place(lines);
  row.cell.states = {kHidden, kMemory, kContext};
  if (a.kind == Kind::coverage) row.cell.states.push_back(kCoverage);
  for (int i = 1; i < a.layers; ++i)
    for (const char* s : {"h", "c"})
      row.cell.states.push_back({fmt::format("{}_prev_{}", s, i), fmt::format("{}_{}", s, i),
                                 fmt::format("{}0_{}", s, i), "", fmt::format("{}_last_{}", s, i)});
  if (a.layers > 1) {
    // The builders end a stack of cells with a Dropout, here of nothing.
    lines.emplace_back(a.residual ? fmt::format("top = Sum(h, {})", below) : "top = Copy(h)");
    lines.emplace_back("dropped, mask = Dropout(top)");
    row.cell.outputs = {{"dropped", "dropped_all"}};
  } else {
    row.reference = reference_of(a);
  }
  row.cell.step_net = caffe2_step(lines, {a.drop});
  row.choices = {{"h_all", "context_all"}, {"h_all"}, {"context_last"}, {}};
  add_feeds(row, a);
  return row;
}

}  // namespace

std::vector<Caffe2Row> attention_rows() {
  const std::vector<Attention> all = {{"RegularAttention", Kind::regular},
                                      {"RegularAttentionInPlace", Kind::regular, true},
                                      {"RecurrentAttention", Kind::recurrent, true},
                                      {"DotAttention", Kind::dot},
                                      {"DotAttentionInPlace", Kind::dot, true},
                                      {"DotAttentionProjected", Kind::dot_projected, true},
                                      {"CoverageAttention", Kind::coverage, true},
                                      {"RegularAttentionOfTwoLayers", Kind::regular, true, false, 2},
                                      {"RecurrentAttentionOfThreeLayers", Kind::recurrent, true, true, 3, true},
                                      {"DotAttentionOfThreeLayers", Kind::dot, true, false, 3, true}};
  std::vector<Caffe2Row> rows;
  for (const Attention& a : all) rows.push_back(attention_row(a));
  return rows;
}

}  // namespace stepnet::testing
