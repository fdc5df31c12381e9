#include "tests/core/recompute_testing.h"

#include <cstring>

#include "stepnet/matmul.h"
#include "stepnet/random.h"

namespace stepnet::testing {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t between(int64_t low, int64_t high) { return random_int(seed_, next_++, low, high); }
  bool chance(double p) { return random_uniform(seed_, next_++) < p; }
  const std::string& pick(const std::vector<std::string>& from) {
    return from[static_cast<size_t>(between(0, static_cast<int64_t>(from.size()) - 1))];
  }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

// A net while it is written.
struct Sketch {
  Lines lines;
  Feeds feeds;
  std::vector<std::string> trained;
  uint64_t seed;

  void feed(const std::string& name, const Shape& shape) {
    feeds.emplace_back(name, normal<float>(shape, seed + feeds.size(), 0, 0.3));
  }
  void parameter(const std::string& name, const Shape& shape) {
    feed(name, shape);
    trained.push_back(name);
  }
  void fc(const std::string& x, const std::string& y, int64_t in, int64_t out) {
    parameter("W_" + y, {out, in});
    parameter("b_" + y, {out});
    lines.push_back(fmt::format("{1} = FC({0}, W_{1}, b_{1})", x, y));
  }
  TrainingCase done(const std::string& name, const std::string& last) {
    lines.push_back(fmt::format("squared = Mul({0}, {0})", last));
    lines.emplace_back("loss = AveragedLoss(squared)");
    return training_case(name, lines, feeds, trained);
  }
};

TrainingCase deep_chain(Dice& dice, uint64_t seed) {
  Sketch s{{}, {}, {}, seed};
  const int64_t batch = dice.between(8, 40);
  const std::vector<std::string> kinds = {"Tanh", "Sigmoid", "Relu"};
  s.feed("x", {batch, 16});
  std::string at = "x";
  int64_t width = 16;
  for (int layer = 0; layer < 8; ++layer) {
    const int64_t next = dice.between(8, 48);
    const std::string y = fmt::format("y{}", layer);
    s.fc(at, y, width, next);
    s.lines.push_back(fmt::format("a{0} = {1}(y{0})", layer, dice.pick(kinds)));
    at = fmt::format("a{}", layer);
    if (layer % 3 == 1) {
      s.lines.push_back(fmt::format("d{0}, mask{0} = Dropout(a{0})", layer));
      at = fmt::format("d{}", layer);
    }
    width = next;
  }
  return s.done("deep chain", at);
}

TrainingCase residual_blocks(Dice& dice, uint64_t seed) {
  Sketch s{{}, {}, {}, seed};
  const int64_t batch = dice.between(8, 32), width = dice.between(8, 32);
  s.feed("x", {batch, width});
  std::string at = "x";
  for (int block = 0; block < 5; ++block) {
    s.fc(at, fmt::format("u{}", block), width, width * 2);
    s.lines.push_back(fmt::format("t{0} = Tanh(u{0})", block));
    s.fc(fmt::format("t{}", block), fmt::format("v{}", block), width * 2, width);
    s.lines.push_back(fmt::format("x{0} = Add({1}, v{0})", block, at));
    at = fmt::format("x{}", block);
  }
  return s.done("residual blocks", at);
}

// Three times the same input, with LayerNorm before and dropped scores.
TrainingCase attention(Dice& dice, uint64_t seed) {
  Sketch s{{}, {}, {}, seed};
  const int64_t rows = dice.between(12, 40), width = dice.between(8, 24);
  s.feed("x", {rows, width});
  std::string at = "x";
  for (int layer = 0; layer < 3; ++layer) {
    for (const char* part : {"q", "k", "v"}) s.fc(at, fmt::format("{}{}", part, layer), width, width);
    s.lines.push_back(fmt::format("s{0} = MatMul(q{0}, k{0}) trans_b=1", layer));
    s.lines.push_back(fmt::format("p{0} = Softmax(s{0})", layer));
    s.lines.push_back(fmt::format("r{0}, rm{0} = Dropout(p{0})", layer));
    s.lines.push_back(fmt::format("o{0} = MatMul(r{0}, v{0})", layer));
    s.fc(fmt::format("o{}", layer), fmt::format("w{}", layer), width, width);
    s.lines.push_back(fmt::format("x{0} = Sum(w{0}, {1})", layer, at));
    at = fmt::format("x{}", layer);
  }
  return s.done("attention", at);
}

TrainingCase norm_and_gelu(Dice& dice, uint64_t seed) {
  Sketch s{{}, {}, {}, seed};
  const int64_t batch = dice.between(8, 32), width = dice.between(8, 24);
  s.feed("x", {batch, width});
  std::string at = "x";
  for (int layer = 0; layer < 4; ++layer) {
    s.parameter(fmt::format("gamma{}", layer), {width});
    s.parameter(fmt::format("beta{}", layer), {width});
    s.lines.push_back(
        fmt::format("n{0}, mean{0}, std{0} = LayerNorm({1}, gamma{0}, beta{0}) elementwise_affine=1", layer, at));
    s.fc(fmt::format("n{}", layer), fmt::format("h{}", layer), width, 4 * width);
    s.lines.push_back(fmt::format("g{0} = Gelu(h{0})", layer));
    s.fc(fmt::format("g{}", layer), fmt::format("o{}", layer), 4 * width, width);
    s.lines.push_back(fmt::format("x{0} = Add(o{0}, {1})", layer, at));
    at = fmt::format("x{}", layer);
  }
  return s.done("norm and gelu", at);
}

TrainingCase diamond(Dice& dice, uint64_t seed) {
  Sketch s{{}, {}, {}, seed};
  const int64_t batch = dice.between(4, 32), width = dice.between(4, 32);
  s.feed("x", {batch, width});
  s.fc("x", "top", width, width);
  for (const char* side : {"left", "right"}) {
    s.lines.push_back(fmt::format("{0}1 = {1}(top)", side, side[0] == 'l' ? "Tanh" : "Sigmoid"));
    s.fc(fmt::format("{}1", side), fmt::format("{}2", side), width, width);
    s.lines.push_back(fmt::format("{0}3 = Swish({0}2)", side));
  }
  s.lines.emplace_back("product = Mul(left3, right3)");
  s.lines.emplace_back("again = Mul(product, top)");
  return s.done("diamond", "again");
}

TrainingCase in_place(Dice& dice, uint64_t seed) {
  Sketch s{{}, {}, {}, seed};
  const int64_t batch = dice.between(4, 32), width = dice.between(4, 32);
  s.feed("x", {batch, width});
  std::string at = "x";
  for (int layer = 0; layer < 5; ++layer) {
    const std::string y = fmt::format("y{}", layer);
    s.fc(at, y, width, width);
    if (layer % 2 == 0) s.lines.push_back(fmt::format("{0} = Relu({0})", y));
    if (layer % 2 == 1) s.lines.push_back(fmt::format("{0}, m{0} = Dropout({0})", y));
    s.lines.push_back(fmt::format("other{0} = Alias({0})", y));
    at = layer % 2 == 0 ? y : "other" + y;
  }
  return s.done("in place", at);
}

// One more line of a random net; false if there is no such operator in place.
bool add_random_line(Dice& dice, Sketch& s, std::vector<std::string>& blobs, int i) {
  const std::string out = fmt::format("h{}", i), a = dice.pick(blobs), b = dice.pick(blobs);
  const std::vector<std::string> unary = {"Tanh", "Sigmoid", "Relu", "Gelu", "Swish", "Copy", "Alias", "Softmax"};
  const std::vector<std::string> binary = {"Add", "Mul", "Sub", "MatMul", "Sum"};
  const int64_t kind = dice.between(0, 9);
  if (kind < 4) {
    s.lines.push_back(fmt::format("{} = {}({})", out, dice.pick(unary), a));
  } else if (kind < 7) {
    s.lines.push_back(fmt::format("{} = {}({}, {})", out, dice.pick(binary), a, b));
  } else if (kind == 7) {
    s.lines.push_back(fmt::format("{0}, {0}_mask = Dropout({1})", out, a));
  } else if (kind == 8) {
    s.lines.push_back(fmt::format("{0}, {0}_mean, {0}_std = LayerNorm({1})", out, a));
  } else {
    if (a[0] != 'h') return false;
    s.lines.push_back(fmt::format("{0} = {1}({0})", a, dice.chance(0.5) ? "Relu" : "Tanh"));
    return true;
  }
  blobs.push_back(out);
  return true;
}

}  // namespace

TrainingCase training_case(const std::string& name, const NetDef& forward, const Feeds& feeds,
                           const std::vector<std::string>& trained) {
  TrainingCase c{.name = name, .net = {}, .feeds = feeds, .trained = trained, .question = {}};
  const Backward backward = differentiate(forward, {{"loss", ""}}, {trained.begin(), trained.end()});
  c.net = backward.net;
  c.first_gradient_op = backward.result.first_gradient_op;
  c.feeds.emplace_back("one", Tensor::of<float>({1}, {1.0F}));
  c.feeds.emplace_back("rate", Tensor::of<float>({1}, {-0.01F}));
  c.question.keep.insert("loss");
  for (const std::string& p : trained) {
    const auto found = backward.map.find(p);
    if (found == backward.map.end()) continue;
    c.question.keep.insert(found->second);
    *c.net.add_op() = make_op("WeightedSum", {p, "one", found->second, "rate"}, {p});
  }
  for (const auto& [blob, value] : c.feeds) c.question.feeds[blob] = TensorType::of(value.dtype(), value.shape());
  return c;
}

TrainingCase training_case(const std::string& name, const Lines& lines, const Feeds& feeds,
                           const std::vector<std::string>& trained) {
  return training_case(name, net_of_lines(lines), feeds, trained);
}

std::vector<TrainingCase> example_cases(uint64_t seed) {
  Dice dice(seed);
  return {deep_chain(dice, seed),    residual_blocks(dice, seed), attention(dice, seed),
          norm_and_gelu(dice, seed), diamond(dice, seed),         in_place(dice, seed)};
}

TrainingCase long_case(int layers, int64_t batch, int64_t width) {
  Sketch s{{}, {}, {}, 7};
  s.feed("x", {batch, width});
  std::string at = "x";
  for (int layer = 0; layer < layers; ++layer) {
    s.lines.push_back(fmt::format("n{0}, mean{0}, std{0} = LayerNorm({1})", layer, at));
    s.fc(fmt::format("n{}", layer), fmt::format("h{}", layer), width, 4 * width);
    s.lines.push_back(fmt::format("g{0} = Gelu(h{0})", layer));
    s.fc(fmt::format("g{}", layer), fmt::format("o{}", layer), 4 * width, width);
    s.lines.push_back(fmt::format("d{0}, m{0} = Dropout(o{0})", layer));
    s.lines.push_back(fmt::format("x{0} = Add(d{0}, {1})", layer, at));
    at = fmt::format("x{}", layer);
  }
  return s.done("long", at);
}

TrainingCase uneven_case(int layers) {
  Sketch s{{}, {}, {}, 9};
  Dice dice(9);
  int64_t width = 16;
  s.feed("x", {64, width});
  std::string at = "x";
  for (int layer = 0; layer < layers; ++layer) {
    const int64_t next = dice.between(8, 200);
    s.fc(at, fmt::format("y{}", layer), width, next);
    s.lines.push_back(fmt::format("a{0} = {1}(y{0})", layer, layer % 2 == 0 ? "Gelu" : "Swish"));
    at = fmt::format("a{}", layer);
    width = next;
  }
  return s.done("uneven", at);
}

TrainingCase random_case(uint64_t seed, int operators) {
  // What is overwritten but read by a gradient is an error of the gradient pass; then the dice are thrown again.
  for (uint64_t attempt = 0;; ++attempt) {
    Dice dice(seed * 1000 + attempt);
    Sketch s{{}, {}, {}, seed};
    const int64_t width = dice.between(3, 12);
    std::vector<std::string> blobs = {"x", "w"};
    s.parameter("x", {width, width});
    s.parameter("w", {width, width});
    for (int i = 0; i < operators;)
      if (add_random_line(dice, s, blobs, i)) ++i;
    s.lines.push_back(fmt::format("total = Sum({}, {}, w, x)", blobs.back(), dice.pick(blobs)));
    try {
      return s.done(fmt::format("random {}", seed), "total");
    } catch (const Error&) {
      continue;
    }
  }
}

TrainingRun run_training(const TrainingCase& c, const NetDef& net) {
  TrainingRun result;
  // What products keep for themselves is the process's, and no blob's.
  const int64_t before = allocator(Device{}).counters().live - product_bytes();
  Workspace workspace;
  for (const auto& [name, value] : c.feeds) workspace.tensor(name) = value.clone();
  Net bound(net, workspace, {.release_intermediates = true, .keep = c.question.keep});
  std::vector<Tensor> results;
  for (int i = 0; i < 2 || (result.peak == 0 && i < 6); ++i) {
    RunContext run;
    int64_t others = product_bytes();
    for (const Tensor& t : results) others += allocated_bytes(TensorType::of(t.dtype(), t.shape()));
    allocator(Device{}).reset_peak();
    const int64_t products = product_bytes();
    bound.run(run);
    // A run that makes products, or drops some, says nothing.
    if (i > 0 && products == product_bytes())
      result.peak = std::max(result.peak, allocator(Device{}).counters().peak - before - others);
    if (i >= 2) continue;
    for (const std::string& name : c.question.keep) results.push_back(workspace.fetch(name).clone());
    for (const std::string& name : c.trained) results.push_back(workspace.fetch(name).clone());
  }
  result.results = std::move(results);
  return result;
}

std::string first_difference(const TrainingCase& c, const TrainingRun& a, const TrainingRun& b) {
  if (a.results.size() != b.results.size()) return "another number of results";
  std::vector<std::string> names(c.question.keep.begin(), c.question.keep.end());
  names.insert(names.end(), c.trained.begin(), c.trained.end());
  for (size_t i = 0; i < a.results.size(); ++i) {
    const Tensor &x = a.results[i], &y = b.results[i];
    const bool same = x.dtype() == y.dtype() && x.shape() == y.shape() &&
                      (x.bytes() == 0 || std::memcmp(x.raw(), y.raw(), x.bytes()) == 0);
    if (!same) return fmt::format("{} in run {}", names[i % names.size()], i / names.size());
  }
  return "";
}

}  // namespace stepnet::testing
