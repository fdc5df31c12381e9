// Linear attention in chunks: which networks are taken apart, and that outputs, last states and gradients are those of
// the network as it was, of random step nets too. STEPNET_RANDOM_ATTENTION="N FIRST" runs so many more.
#include "recurrent/form/attention_chunks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <sstream>

#include "recurrent/form/short_form.h"
#include "stepnet/arguments.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/recurrent/cell_files.h"
#include "tests/recurrent/random_step_nets_draft.h"
#include "tests/recurrent/unrolled.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::attention_chunks_test {
namespace {

using Dims = std::vector<int64_t>;
using Strings = std::vector<std::string>;

constexpr AttentionSize kAnySize{.timesteps = 0, .state = 0};

std::map<std::string, TensorType> types_of(const Feeds& feeds) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, value] : feeds) types[name] = TensorType::of(value.dtype(), value.shape());
  return types;
}

int attentions_in(const NetDef& net) {
  return static_cast<int>(
      std::ranges::count_if(net.op(), [](const OperatorDef& op) { return op.type() == "LinearAttention"; }));
}

// --- Random step nets --------------------------------------------------------------------------------------------

// Why a network must stay as it is.
enum class Alike {
  none,
  all_states_shown,
  state_shown,
  state_before_read,
  state_read_twice,
  not_linear,
  other_factor,
  factor_by_rows,
  factor_of_read,
  value_of_read,
  two_queries,
  added_twice,
  recomputed,
  lengths,
  disabled,
  samples_mixed,
  constant_key,
  more_samples_shown,
  factor_in_place,
  exponent_overwritten,
  between_overwritten,
  factor_read_outside,
  head_sizes_found,  // without a timestep
};
constexpr int kAlikes = static_cast<int>(Alike::head_sizes_found);

enum class Factor { none, sigmoid, exp, scale, of_all, of_heads, outside };

class RandomAttention {
 public:
  explicit RandomAttention(uint64_t seed) : dice_(seed), seed_(seed) {
    steps = dice_.pick(Dims{0, 1, 2, 31, 32, 33, 70});
    batch = dice_.pick(Dims{1, 2, 3});
    heads_ = dice_.chance(0.5) ? 0 : dice_.pick(Dims{1, 2, 3});
    keys_ = dice_.between(1, 4);
    values_ = dice_.between(1, 4);
    keys_first_ = dice_.chance(0.5);
    if (dice_.chance(0.4)) alike = static_cast<Alike>(dice_.below(kAlikes));
    if (is(Alike::factor_by_rows)) keys_ += 1, values_ += 1;  // one row has one factor
    if (is(Alike::samples_mixed)) batch += 1;
    cell.sequences = {{"X", "x"}};
    feeds.emplace_back("X", normal<double>({steps, batch, 3}, seed_));
    cell.reverse = dice_.chance(0.3);
    build();
  }

  Cell cell;
  Feeds feeds;
  Alike alike = Alike::none;
  int64_t steps = 0, batch = 0;
  std::vector<OperatorDef> before;  // the network
  bool other_state = false;

  std::string text() const {
    return fmt::format("seed {}, T = {}, B = {}, N = {}, K = {}, V = {}, alike {}:\n{}", seed_, steps, batch, heads_,
                       keys_, values_, static_cast<int>(alike), to_text(step_));
  }

 private:
  bool is(Alike a) const { return alike == a; }
  int64_t heads() const { return heads_ == 0 ? 1 : heads_; }
  int last_axis() const { return heads_ == 0 ? 3 : 4; }

  std::string op(const std::string& type, const Strings& inputs, const std::string& base,
                 const std::vector<Argument>& args = {}) {
    OperatorDef& op = *step_.add_op();
    op.set_type(type);
    op.mutable_input()->Add(inputs.begin(), inputs.end());
    op.add_output(fmt::format("{}{}", base, ++names_));
    op.mutable_arg()->Add(args.begin(), args.end());
    return op.output(0);
  }
  std::string feed(const std::string& base, const Dims& dims, double scale = 0.5) {
    const std::string name = fmt::format("{}{}", base, ++names_);
    feeds.emplace_back(name, normal<double>(Shape(dims), seed_ + feeds.size() + 1, 0, scale));
    return name;
  }
  std::string sequence(const Dims& dims) {
    Dims all = {steps, batch};
    all.insert(all.end(), dims.begin(), dims.end());
    const std::string name = feed("X", all);
    cell.sequences.push_back({name, name + "_t"});
    return name + "_t";
  }
  Dims with_heads(Dims dims) const {
    if (heads_ > 0) dims.insert(dims.begin(), heads_);
    return dims;
  }

  // [1, B, size] or [1, B, N, size].
  std::string vectors(int64_t size) {
    if (dice_.chance(0.4)) return sequence(with_heads({size}));
    std::string from = dice_.chance(0.7) ? "x" : op("Tanh", {"x"}, "n");
    if (!shifted_.empty() && dice_.chance(0.3)) from = shifted_;
    from = op("FC", {from, feed("W", {heads() * size, 3})}, "p", {make_arg("axis", 2)});
    if (heads_ == 0) return from;
    return op("Reshape", {from}, "h", {make_arg("shape", Dims{0, 0, heads_, dice_.chance(0.5) ? size : -1})});
  }
  // A column [..., size, 1] or a row of each matrix.
  std::string line(int64_t size, bool column) {
    if (dice_.chance(0.2)) return sequence(with_heads(column ? Dims{size, 1} : Dims{1, size}));
    return turned(vectors(size), column);
  }
  std::string turned(const std::string& vector, bool column) {
    return op("ExpandDims", {vector}, "l", {make_arg("dims", Dims{column ? last_axis() : last_axis() - 1})});
  }

  // [1, B, 1, 1] or [1, B, N, 1, 1], or of all timesteps; "" if there is none.
  std::string factor() {
    kind_ = static_cast<Factor>(dice_.below(7));
    if (is(Alike::other_factor) || is(Alike::factor_by_rows) || is(Alike::factor_of_read) || is(Alike::samples_mixed))
      kind_ = Factor::sigmoid;
    if (is_of_outer_factor()) kind_ = Factor::outside;
    if (kind_ == Factor::of_all) return op("Exp", {feed("gamma", heads_ == 0 ? Dims{} : Dims{1}, 0.1)}, "f");
    if (kind_ == Factor::of_heads) {
      const std::string gamma = feed("gamma", {heads(), 1, 1}, 0.1);
      return op(dice_.chance(0.5) ? "Exp" : "Sigmoid", {gamma}, "f");
    }
    if (kind_ == Factor::outside) return outer_factor();
    std::string sum = factor_sum();
    if (kind_ == Factor::exp) sum = op("Negative", {op("Softplus", {sum}, "n")}, "n");
    const char* const made = is(Alike::other_factor) ? "Tanh" : kind_ == Factor::exp ? "Exp" : "Sigmoid";
    std::string f = op(made, {sum}, "f");
    factor_ = f;
    if (is(Alike::factor_by_rows)) return turned(f, by_column_);
    return op("ExpandDims", {f}, "f", {make_arg("dims", heads_ == 0 ? Dims{3} : Dims{3, 4})});
  }
  // [1, B, 1] or [1, B, N].
  std::string factor_sum() {
    by_column_ = dice_.chance(0.5);
    if (is(Alike::factor_by_rows)) return vectors(keys_first_ == by_column_ ? keys_ : values_);
    if (is(Alike::factor_of_read) || is(Alike::value_of_read)) {
      const std::string h = op("FC", {"h_prev", feed("W", {heads(), values_ * heads()})}, "p", {make_arg("axis", 2)});
      return h;
    }
    if (dice_.chance(0.3)) return sequence({heads()});
    return op("FC", {"x", feed("W", {heads(), 3}), feed("b", {heads()})}, "p", {make_arg("axis", 2)});
  }
  bool is_of_outer_factor() const {
    return is(Alike::factor_in_place) || is(Alike::exponent_overwritten) || is(Alike::between_overwritten) ||
           is(Alike::factor_read_outside);
  }
  // Made of a sequence by operators of the net outside.
  std::string outer_factor() {
    const bool in_place = is(Alike::factor_in_place), reshapes = is(Alike::between_overwritten) || dice_.chance(0.3);
    const std::string exponent = in_place ? "F_x" : "S_x", made = reshapes && !in_place ? "R_x" : "F_x";
    feeds.emplace_back(exponent, normal<double>(Shape(Dims{steps, batch, heads()}), seed_ + 77));
    before.push_back(make_op("Sigmoid", {exponent}, {made}));
    if (made != "F_x") {
      before.push_back(make_op("ExpandDims", {made}, {"E_x"}, {make_arg("dims", Dims{3})}));
      before.push_back(make_op("Squeeze", {"E_x"}, {"F_x"}, {make_arg("dims", Dims{3})}));
    }
    if (is(Alike::exponent_overwritten) || is(Alike::between_overwritten)) {
      const std::string other = is(Alike::exponent_overwritten) ? "S_x" : dice_.chance(0.5) ? "R_x" : "E_x";
      before.push_back(make_op("Scale", {"X"}, {other}, {make_arg("scale", -3.0F)}));
    }
    if (is(Alike::factor_read_outside))
      before.push_back(make_op("Tanh", {dice_.chance(0.5) ? made : "F_x"}, {"other_reader"}));
    cell.sequences.push_back({"F_x", "f_x"});
    factor_ = "f_x";
    return op("ExpandDims", {"f_x"}, "f", {make_arg("dims", heads_ == 0 ? Dims{3} : Dims{3, 4})});
  }

  std::string kept() {
    std::string f = factor();
    if (kind_ == Factor::none) return "S_prev";
    if (kind_ == Factor::scale) return op("Scale", {"S_prev"}, "k", {make_arg("scale", 0.75F)});
    if (is(Alike::samples_mixed)) {
      f = op("ReduceSum", {f}, "f", {make_arg("axes", Dims{1}), make_arg("keepdims", 1)});
      f = op("Sigmoid", {f}, "f");
    }
    const bool first = dice_.chance(0.5);
    return op("Mul", {first ? "S_prev" : f, first ? f : "S_prev"}, "k");
  }

  std::string added() {
    const int64_t rows = keys_first_ ? keys_ : values_, columns = keys_first_ ? values_ : keys_;
    std::string column, row;
    if (is(Alike::value_of_read)) {
      std::string h = "h_prev";
      if (heads_ > 0) h = op("Reshape", {h}, "h", {make_arg("shape", Dims{0, 0, heads_, values_})});
      const std::string v = turned(h, !keys_first_);
      column = keys_first_ ? line(rows, true) : v;
      row = keys_first_ ? v : line(columns, false);
    } else {
      column = line(rows, true);
      row = line(columns, false);
    }
    if (is(Alike::constant_key)) {
      Dims all = with_heads({rows, 1});
      all.insert(all.begin(), {1, batch});
      return op("BatchMatMul", {feed("k", all), row}, "a");
    }
    if (dice_.chance(0.2)) {
      const bool first = dice_.chance(0.5);
      return op("Mul", {first ? column : row, first ? row : column}, "a");
    }
    if (dice_.chance(0.2) && !is(Alike::value_of_read))
      return op("BatchMatMul", {column, line(columns, true)}, "a", {make_arg("trans_b", true)});
    return op("BatchMatMul", {column, row}, "a");
  }

  void add_update() {
    const std::string kept_part = kept(), added_part = added();
    const bool first = dice_.chance(0.5);
    Strings parts = {first ? kept_part : added_part, first ? added_part : kept_part};
    if (is(Alike::added_twice)) parts.push_back(added());
    const char* const type = parts.size() == 2 && dice_.chance(0.5) ? "Add" : "Sum";
    std::string s = op(type, parts, "S");
    if (is(Alike::not_linear)) s = op("Tanh", {s}, "S");
    state_ = s;
  }

  // [1, B, V, 1] and the like; then [1, B, V] or [1, B, N, V].
  void add_reading() {
    const bool column = dice_.chance(0.5);
    if (is(Alike::two_queries)) {
      const std::string two = sequence(with_heads({keys_, 2}));
      read_ = op("BatchMatMul", {state_, two}, "r", {make_arg("trans_a", keys_first_)});
      return;
    }
    const std::string q = line(keys_, column);
    // S q; where q^T S has one column, that says nothing of which operand has the matrices.
    if (values_ == 1 || dice_.chance(0.5)) {
      read_ = op("BatchMatMul", {state_, q}, "r", {make_arg("trans_a", keys_first_), make_arg("trans_b", !column)});
      squeezed_ = op("Squeeze", {read_}, "r", {make_arg("dims", Dims{last_axis()})});
    } else {  // q^T S
      read_ = op("BatchMatMul", {q, state_}, "r", {make_arg("trans_a", column), make_arg("trans_b", !keys_first_)});
      squeezed_ = op("Squeeze", {read_}, "r", {make_arg("dims", Dims{last_axis() - 1})});
    }
  }

  void show(const std::string& inner) { cell.outputs.push_back({inner, fmt::format("Y{}", cell.outputs.size())}); }

  // States that no operator writes: the sequence of the timestep before, and of the one before that.
  void add_token_shift() {
    other_state = true;
    const auto add = [&](const std::string& name, const std::string& next) {
      const bool starts = dice_.chance(0.5);
      cell.states.push_back({name, next, starts ? feed("x0", {batch, 3}) : "", "",
                             dice_.chance(0.3) ? name + "_last" : "", starts ? Dims{} : Dims{3}});
    };
    add("x_prev", "x");
    shifted_ = "x_prev";
    if (!dice_.chance(0.3)) return;
    add("x_before", "x_prev");
    shifted_ = "x_before";
  }
  // A state that decays with the matrix, or by itself, and does not depend on what is read.
  void add_other_state() {
    other_state = true;
    const std::string gate = op("Sigmoid", {op("FC", {"x", feed("W", {2, 3})}, "p", {make_arg("axis", 2)})}, "g");
    const std::string kept = op("Mul", {"n_prev", gate}, "n");
    std::string n = op("FC", {"n_prev", feed("W", {2, 2})}, "p", {make_arg("axis", 2)});
    n = op("Tanh", {op("Sum", {kept, n}, "n")}, "n");
    cell.states.push_back({"n_prev", n, feed("n0", {batch, 2}), "", dice_.chance(0.5) ? "n_last" : "", {}});
    if (dice_.chance(0.5)) show(n);
    other_ = op("FC", {n, feed("W", {values_ * heads(), 2})}, "p", {make_arg("axis", 2)});
  }

  void add_behind() {
    if (squeezed_.empty()) return show(read_);
    if (dice_.chance(0.3)) show(read_);
    if (dice_.chance(0.5)) show(squeezed_);
    if (dice_.chance(0.2)) show(op("Mul", {op("ResizeLike", {vectors(values_), read_}, "g"), read_}, "m"));
    if (!shifted_.empty()) show(dice_.chance(0.5) ? op("Tanh", {shifted_}, "t") : shifted_);
    if (is(Alike::more_samples_shown)) show(op("Tile", {squeezed_}, "t", {make_arg("axis", 1), make_arg("tiles", 2)}));
    std::string y = squeezed_;
    if (heads_ > 0 && dice_.chance(0.3)) {
      // Each head by itself.
      y = op("Reshape", {y}, "y", {make_arg("shape", Dims{0, -1, values_})});
      y = op("Softmax", {y}, "y", {make_arg("axis", 2)});
      y = op("Reshape", {y}, "y", {make_arg("shape", Dims{0, -1, heads_ * values_})});
      if (steps == 0 && heads_ > 1 && is(Alike::none)) alike = Alike::head_sizes_found;
    } else if (heads_ > 0)
      y = op("Reshape", {y}, "y", {make_arg("shape", Dims{0, 0, dice_.chance(0.5) ? -1 : heads_ * values_})});
    if (dice_.chance(0.5)) {
      std::string gate = op("FC", {"x", feed("W", {values_ * heads(), 3})}, "p", {make_arg("axis", 2)});
      gate = op("Sigmoid", {gate}, "o");
      if (dice_.chance(0.3)) show(gate);
      y = op("Mul", {gate, y}, "y");
    }
    if (!other_.empty()) y = op("Add", {y, other_}, "y");
    if (dice_.chance(0.5)) y = op("Mul", {op("Softplus", {y}, "y"), feed("w", {values_ * heads()})}, "y");
    if (dice_.chance(0.2)) {
      const std::string bias = feed("b", {values_ * heads()});
      y = op("Add", {y, op("Reshape", {bias}, "b", {make_arg("shape", Dims{1, 1, values_ * heads()})})}, "y",
             {make_arg("broadcast", true)});
    }
    if (dice_.chance(0.4))
      y = op("FC", {y, feed("W", {2, values_ * heads()}), feed("b", {2})}, "y", {make_arg("axis", 2)});
    show(y);
  }

  void build() {
    if (dice_.chance(0.3)) add_token_shift();
    if (dice_.chance(0.4) && !is(Alike::factor_of_read) && !is(Alike::value_of_read)) add_other_state();
    add_update();
    const std::string shown_state = state_;
    if (is(Alike::state_before_read)) state_ = "S_prev";
    add_reading();
    add_behind();
    CellState matrix{"S_prev", shown_state, "", "", dice_.chance(0.5) ? "S_last" : "", {}};
    const Dims sizes = with_heads(keys_first_ ? Dims{keys_, values_} : Dims{values_, keys_});
    Dims first = {1, batch};
    first.insert(first.end(), sizes.begin(), sizes.end());
    if (dice_.chance(0.5))
      matrix.initial = feed("S0", first);
    else
      matrix.size = sizes;
    if (is(Alike::all_states_shown)) matrix.all = "S_all";
    if (is(Alike::state_shown)) show(shown_state);
    if (is(Alike::state_read_twice)) show(op("Tanh", {dice_.chance(0.5) ? shown_state : "S_prev"}, "z"));
    cell.states.insert(cell.states.begin() + dice_.below(static_cast<int64_t>(cell.states.size()) + 1), matrix);
    if (is(Alike::factor_of_read) || is(Alike::value_of_read)) add_fed_back();
    if (dice_.chance(0.2)) show("x");
    if (dice_.chance(0.2) && !factor_.empty()) show(factor_);
    if (is(Alike::recomputed)) cell.recompute = {read_};
    if (is(Alike::disabled)) cell.disabled_passes = {"attention"};
    if (is(Alike::lengths)) {
      cell.lengths = "lengths";
      feeds.emplace_back("lengths", integers<int32_t>({batch}, 0, static_cast<int32_t>(steps), seed_ + 5));
    }
    cell.step_net = step_;
  }
  // A state that has what was read.
  void add_fed_back() {
    std::string h = squeezed_;
    if (heads_ > 0) h = op("Reshape", {h}, "h", {make_arg("shape", Dims{0, 0, heads_ * values_})});
    h = op("Tanh", {h}, "h");
    cell.states.push_back({"h_prev", h, feed("h0", {batch, heads() * values_}), "", "h_last", {}});
  }

  Dice dice_;
  uint64_t seed_;
  int64_t heads_ = 0, keys_ = 0, values_ = 0;
  bool keys_first_ = false, by_column_ = false;
  Factor kind_ = Factor::none;
  NetDef step_;
  int names_ = 0;
  std::string factor_, state_, read_, squeezed_, other_, shifted_;
};

NetDef whole_net(const RandomAttention& random) {
  const NetDef network = recurrent_net(random.cell, random.feeds);
  NetDef net = network;
  net.clear_op();
  for (const OperatorDef& op : random.before) *net.add_op() = op;
  net.mutable_op()->MergeFrom(network.op());
  return net;
}

Strings outputs_of(const Cell& cell) {
  Strings names;
  for (const CellOutput& o : cell.outputs) names.push_back(o.outer);
  for (const CellState& s : cell.states)
    for (const std::string& name : {s.all, s.last})
      if (!name.empty()) names.push_back(name);
  return names;
}

// Gradients for the outputs, of their shapes in a run.
Feeds given_gradients(const NetDef& net, const Feeds& feeds, const Strings& outputs) {
  const CellResults results = run_in_turn(net, {{feeds, {}}}).back();
  Feeds outside;
  for (const std::string& name : outputs)
    outside.emplace_back(name, normal<double>(results.outputs.at(name).shape(), 40 + outside.size()));
  return outside;
}

CellResults shown(CellResults results, const Strings& outputs) {
  std::erase_if(results.outputs, [&](const auto& o) { return std::ranges::count(outputs, o.first) == 0; });
  return results;
}

// "" or what differs between the network and what stands in its place.
std::string check_random(uint64_t seed, int& changed) {
  const RandomAttention random(seed);
  const NetDef net = whole_net(random);
  NetDef chunks = net, loop = net;
  changed = attend_in_chunks(chunks, types_of(random.feeds), kAnySize);
  std::string wrong;
  const int expected = random.alike == Alike::none ? 1 : 0;
  if (changed != expected) wrong += fmt::format("{} states were found in place of {}\n", changed, expected);
  if (attentions_in(chunks) != changed) wrong += fmt::format("there are {} operators\n", attentions_in(chunks));
  if (changed == 0) return wrong.empty() ? wrong : wrong + random.text();
  expand_recurrent(chunks);
  expand_recurrent(loop);
  const Strings outputs = outputs_of(random.cell);
  const Feeds outside = given_gradients(loop, random.feeds, outputs);
  const CellResults a = run_with_gradients(chunks, random.feeds, outside);
  const CellResults b = run_with_gradients(loop, random.feeds, outside);
  wrong += compare_results(a, shown(b, outputs), 1e-10);
  return wrong.empty() ? wrong : wrong + random.text();
}

void check_seeds(uint64_t first, uint64_t count) {
  int taken = 0, failed = 0;
  for (uint64_t seed = first; seed < first + count && failed < 3; ++seed) {
    int changed = 0;
    std::string wrong;
    try {
      wrong = check_random(seed, changed);
    } catch (const std::exception& e) {
      wrong = e.what() + ("\n" + RandomAttention(seed).text());
    }
    EXPECT_TRUE(wrong.empty()) << wrong;
    failed += wrong.empty() ? 0 : 1;
    taken += changed;
  }
  EXPECT_GT(taken, static_cast<int>(count / 4));
}

TEST(AttentionChunks, EqualTheNetworkInRandomNets) { check_seeds(1, 200); }

TEST(AttentionChunks, Campaign) {
  const char* const range = std::getenv("STEPNET_RANDOM_ATTENTION");
  if (!range) GTEST_SKIP() << "STEPNET_RANDOM_ATTENTION says how many, and from which seed on";
  uint64_t count = 0, first = 1;
  std::istringstream(range) >> count >> first;
  check_seeds(first, count);
}

// --- Cells ---------------------------------------------------------------------------------------------------------

Sizes sizes(int64_t steps, int64_t batch) {
  return {{'T', steps}, {'B', batch}, {'I', 2}, {'H', 3}, {'P', 2}, {'D', 2}, {'S', 4}, {'A', 3}};
}

TEST(AttentionChunks, AreFoundInTheCellsThatAreLinearAttention) {
  std::set<std::string> found;
  for (const CellFile& c : cell_files()) {
    NetDef net = cell_net(c.name, c.random);
    if (attend_in_chunks(net, types_of(cell_feeds(c.name, DType::float64, sizes(5, 2))), kAnySize) > 0)
      found.insert(c.name);
  }
  EXPECT_EQ(found, (std::set<std::string>{"gated_retention", "m_lstm"}));
}

NetDef chunks_of(const std::string& cell, const Feeds& feeds) {
  NetDef net = cell_net(cell);
  EXPECT_EQ(attend_in_chunks(net, types_of(feeds), kAnySize), 1);
  expand_recurrent(net);
  return net;
}

NetDef loop_of(const std::string& cell) {
  NetDef net = cell_net(cell);
  expand_recurrent(net);
  return net;
}

Strings outputs_of(const NetDef& net) { return {net.external_output().begin(), net.external_output().end()}; }

// The net may be run with other numbers of timesteps and samples than it was made for.
TEST(AttentionChunks, EqualTheLoopsOfCells) {
  for (const char* cell : {"gated_retention", "m_lstm"}) {
    const NetDef chunks = chunks_of(cell, cell_feeds(cell, DType::float64, sizes(5, 2))), loop = loop_of(cell);
    for (const auto& [steps, batch] : {std::pair{0, 2}, {1, 1}, {5, 2}, {33, 3}, {70, 1}, {4, 0}}) {
      SCOPED_TRACE(fmt::format("{}, T = {}, B = {}", cell, steps, batch));
      const Feeds feeds = cell_feeds(cell, DType::float64, sizes(steps, batch));
      const Strings outputs = outputs_of(loop);
      const Feeds outside = given_gradients(loop, feeds, outputs);
      EXPECT_EQ(compare_results(run_with_gradients(chunks, feeds, outside),
                                shown(run_with_gradients(loop, feeds, outside), outputs), 1e-10),
                "");
    }
  }
}

TEST(AttentionChunks, HaveTheSecondDerivativesOfTheLoop) {
  const Feeds feeds = cell_feeds("gated_retention", DType::float64, sizes(5, 2));
  const NetDef chunks = chunks_of("gated_retention", feeds), loop = loop_of("gated_retention");
  const Feeds outside = given_gradients(loop, feeds, outputs_of(loop)), directions = directions_of(feeds, 9);
  CellResults a = run_hessian(chunks, feeds, outside, directions), b = run_hessian(loop, feeds, outside, directions);
  EXPECT_EQ(compare_results(a, shown(b, {}), 1e-9), "");
  a = run_mixed_hessian(chunks, feeds, outside, directions, MixedMode::forward_over_reverse);
  EXPECT_EQ(compare_results(a, shown(b, {}), 1e-9), "");
}

TEST(AttentionChunks, AreForSizesAndTypesThatAreKnown) {
  const Feeds feeds = cell_feeds("gated_retention", DType::float64, sizes(5, 2));  // a matrix of 3 by 2
  const auto count = [](NetDef net, const Feeds& given, AttentionSize least) {
    return attend_in_chunks(net, types_of(given), least);
  };
  const NetDef net = cell_net("gated_retention");
  EXPECT_EQ(count(net, feeds, {.timesteps = 5, .state = 6}), 1);
  EXPECT_EQ(count(net, feeds, {.timesteps = 6, .state = 6}), 0);
  EXPECT_EQ(count(net, feeds, {.timesteps = 5, .state = 7}), 0);
  EXPECT_EQ(count(net, feeds, {}), 0);
  for (const char* name : {"x", "S0", "W_a", "W_v"}) {
    Feeds fewer = feeds;
    std::erase_if(fewer, [&](const auto& feed) { return feed.first == name; });
    EXPECT_EQ(count(net, fewer, kAnySize), 0) << name;
  }
  std::map<std::string, TensorType> halves = types_of(feeds);
  for (auto& [name, type] : halves) type.dtype = DType::bfloat16;
  NetDef half = net;
  EXPECT_EQ(attend_in_chunks(half, halves, kAnySize), 0);
}

TEST(AttentionChunks, LeaveNetworksAloneThatOthersLookInto) {
  const Feeds feeds = cell_feeds("gated_retention", DType::float64, sizes(5, 2));
  const auto count = [&](const std::function<void(NetDef&)>& change) {
    NetDef net = cell_net("gated_retention");
    change(net);
    return attend_in_chunks(net, types_of(feeds), kAnySize);
  };
  const auto add = [](NetDef& net, const char* type, const char* input, const char* output) {
    OperatorDef& op = *net.add_op();
    op.set_type(type);
    op.add_input(input);
    op.add_output(output);
  };
  EXPECT_EQ(count([](NetDef&) {}), 1);
  EXPECT_EQ(count([&](NetDef& net) { add(net, "Copy", "y_all", "z"); }), 1);
  EXPECT_EQ(count([&](NetDef& net) { add(net, "Copy", "S_last_rnn/S_prev_states", "z"); }), 0);
  EXPECT_EQ(count([&](NetDef& net) { net.add_external_output("S_last_rnn/step_workspaces"); }), 0);
  EXPECT_EQ(count([&](NetDef& net) { add(net, "Tanh", "y_all", "y_all"); }), 0);
  EXPECT_EQ(count([&](NetDef& net) { add(net, "Tanh", "W_k", "W_k"); }), 0);
  EXPECT_EQ(count([&](NetDef& net) { net.mutable_device_option()->set_device_type(CUDA); }), 0);
  EXPECT_EQ(count([&](NetDef& net) { *net.mutable_op(0)->add_arg() = make_arg("segment_steps", 2); }), 0);
  EXPECT_EQ(count([&](NetDef& net) { net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true); }), 1);
}

// --- Nets around one network ---------------------------------------------------------------------------------------

// A state [3, 3] of x's elements, with the factor `decay` [1, B, 1, 1] if it has a name, of which "answer" [1, B, 3, 1]
// is read.
std::string matrix_state(const std::string& decay) {
  const std::string kept =
      decay.empty() ? R"(op { type: "Scale" arg { name: "scale" f: 0.5 } input: "S_prev" output: "kept" })"
                    : fmt::format(R"(op {{ type: "Mul" input: "S_prev" input: "{}" output: "kept" }})", decay);
  return kept + R"(
    op { type: "ExpandDims" arg { name: "dims" ints: 3 } input: "x" output: "column" }
    op { type: "ExpandDims" arg { name: "dims" ints: 2 } input: "x" output: "row" }
    op { type: "BatchMatMul" input: "column" input: "row" output: "added" }
    op { type: "Sum" input: "kept" input: "added" output: "S" }
    op { type: "BatchMatMul" input: "S" input: "column" output: "answer" })";
}
constexpr const char* kSqueezed = R"(op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "answer" output: "y" })";

// A cell with that state, and a net of operators before its network and behind it.
struct Around {
  std::string decay = "", step = kSqueezed, before = "", behind = "";
  Cell cell = {.step = {}, .states = {{"S_prev", "S", "", "", "", {3, 3}}}, .outputs = {{"y", "Y"}}};
  Feeds feeds = {{"X", normal<double>({4, 2, 3})}};

  NetDef net() const {
    Cell whole = cell;
    whole.step_net = parse_net_text(matrix_state(decay) + step);
    const NetDef network = recurrent_net(whole, feeds);
    NetDef all = network;
    all.clear_op();
    for (const NetDef& part : {parse_net_text(before), network, parse_net_text(behind)})
      all.mutable_op()->MergeFrom(part.op());
    return all;
  }
  int count() const {
    NetDef all = net();
    return attend_in_chunks(all, types_of(feeds), kAnySize);
  }
};

// With as many states in chunks.
void expect_the_loop(const Around& around, int count) {
  NetDef chunks = around.net(), loop = chunks;
  EXPECT_EQ(attend_in_chunks(chunks, types_of(around.feeds), kAnySize), count);
  expand_recurrent(chunks);
  expand_recurrent(loop);
  const CellResults a = run_in_turn(chunks, {{around.feeds, {}}}).back(),
                    b = run_in_turn(loop, {{around.feeds, {}}}).back();
  EXPECT_EQ(compare_results(a, shown(b, outputs_of(around.cell)), 1e-12), "");
}

TEST(AttentionChunks, KnowWhatOnlyLendsItsShape) {
  expect_the_loop({.step = R"(op { type: "ResizeLike" input: "x" input: "answer" output: "g" }
                              op { type: "Mul" input: "g" input: "answer" output: "m" }
                              op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "m" output: "y" })"},
                  1);
}

Around with_outer_factor(const std::string& before) {
  Around around{.decay = "decay", .before = before};
  around.cell.sequences.push_back({"F", "decay"});
  return around;
}

TEST(AttentionChunks, LeaveFactorsAloneWhoseExponentIsOverwritten) {
  const Tensor a = normal<double>({4, 2, 1, 1}, 3);
  Around around = with_outer_factor(R"(op { type: "Sigmoid" input: "A" output: "F" })");
  around.feeds.emplace_back("A", a);
  expect_the_loop(around, 1);
  around.before += R"(op { type: "Scale" arg { name: "scale" f: -3 } input: "A" output: "B" }
                      op { type: "Copy" input: "B" output: "A" })";
  expect_the_loop(around, 0);
  around = with_outer_factor(R"(op { type: "Sigmoid" input: "A" output: "R" }
                                op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "R" output: "E" }
                                op { type: "ExpandDims" arg { name: "dims" ints: 3 } input: "E" output: "F" })");
  around.feeds.emplace_back("A", a);
  expect_the_loop(around, 1);
  around.before += R"(op { type: "Scale" arg { name: "scale" f: -3 } input: "E" output: "E" })";
  expect_the_loop(around, 0);
  around = with_outer_factor(R"(op { type: "Sigmoid" input: "F" output: "F" })");
  around.feeds.emplace_back("F", a);
  expect_the_loop(around, 0);
}

TEST(AttentionChunks, LeaveFactorsAloneThatOthersRead) {
  Around around = with_outer_factor(R"(op { type: "Sigmoid" input: "A" output: "F" })");
  around.feeds.emplace_back("A", normal<double>({4, 2, 1, 1}, 3));
  around.behind = R"(op { type: "SumElements" input: "Y" output: "l" }
                     op { type: "Gradients" input: "l" input: "A" output: "dA" })";
  expect_the_loop(around, 1);
  around.behind = R"(op { type: "SumElements" input: "Y" output: "l" }
                     op { type: "Gradients" input: "l" input: "F" output: "dF" })";
  expect_the_loop(around, 0);
}

// As a norm of each head has it, a fully connected layer of [1, 3 B], and a parameter where B is 1.
TEST(AttentionChunks, KeepShapesThatHaveNoSampleInFront) {
  const std::string heads =
      R"(op { type: "Reshape" arg { name: "shape" ints: 0 ints: -1 ints: 1 } input: "answer" output: "r" }
                               op { type: "Softplus" input: "r" output: "n" }
                               op { type: "Reshape" arg { name: "shape" ints: 0 ints: -1 ints: 3 } input: "n" output: "y" })";
  expect_the_loop({.step = heads}, 1);
  Around fully{.step = R"(op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "answer" output: "r" }
                          op { type: "FC" input: "r" input: "W" input: "b" output: "p" }
                          op { type: "Reshape" arg { name: "shape" ints: 0 ints: 2 ints: -1 } input: "p" output: "y" })"};
  fully.feeds.emplace_back("W", normal<double>({4, 6}, 5));
  fully.feeds.emplace_back("b", normal<double>({4}, 6));
  expect_the_loop(fully, 1);
  Around bias{.step = R"(op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "answer" output: "r" }
                         op { type: "Reshape" arg { name: "shape" ints: 1 ints: 1 ints: 3 } input: "b" output: "bias_row" }
                         op { type: "Add" arg { name: "broadcast" i: 1 } input: "r" input: "bias_row" output: "y" })"};
  bias.feeds = {{"X", normal<double>({4, 1, 3})}, {"b", normal<double>({3}, 6)}};
  expect_the_loop(bias, 1);
  // Of no elements Reshape finds no size.
  Around none{.step = heads};
  none.feeds = {{"X", normal<double>({0, 2, 3})}};
  expect_the_loop(none, 0);
}

// x of the timestep before, and of the one before that.
TEST(AttentionChunks, KeepStatesThatNoOperatorWrites) {
  Around around{.step = R"(op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "answer" output: "r" }
                           op { type: "Mul" input: "r" input: "x_prev" output: "y" })"};
  around.cell.states.push_back({"x_prev", "x", "", "", "", {3}});
  expect_the_loop(around, 1);
  around.cell.states.push_back({"x_before", "x_prev", "", "", "x_last", {3}});
  expect_the_loop(around, 1);
  around.step = kSqueezed;  // so that one of them is only shown at the end, or not at all
  expect_the_loop(around, 1);
  around.cell.states.pop_back();
  expect_the_loop(around, 0);
}

TEST(AttentionChunks, LeaveRowsOfOtherSamplesToTheNetwork) {
  const Around around{.step = R"(op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "answer" output: "r" }
                                 op { type: "Tile" arg { name: "axis" i: 1 } arg { name: "tiles" i: 2 } input: "r" output: "y" })"};
  EXPECT_EQ(around.count(), 0);
}

TEST(AttentionChunks, StayOnTheDeviceOfTheNetwork) {
  NetDef net = Around{}.net();
  net.mutable_device_option()->set_device_type(CUDA);
  for (OperatorDef& op : *net.mutable_op()) op.mutable_device_option()->set_device_type(CPU);
  EXPECT_EQ(attend_in_chunks(net, types_of(Around{}.feeds), kAnySize), 1);
  for (const OperatorDef& op : net.op()) {
    EXPECT_TRUE(op.has_device_option()) << op.type();
    EXPECT_EQ(op.device_option().device_type(), CPU);
  }
  net = Around{}.net();
  network_in(net).MutableExtension(recurrent)->mutable_step_net()->mutable_device_option()->set_device_type(CUDA);
  EXPECT_EQ(attend_in_chunks(net, types_of(Around{}.feeds), kAnySize), 0);
}

// What an If, in a net of another, writes or reads without saying so.
TEST(AttentionChunks, SeeWhatNetsInsideUse) {
  const auto conditional = [](const char* input, const char* output) {
    return fmt::format(R"(op {{ type: "If" input: "C" arg {{ name: "then_net" n {{ op {{ type: "If" input: "C"
                            arg {{ name: "then_net" n {{ op {{ type: "Copy" input: "{}" output: "{}" }} }} }} }} }} }} }})",
                       input, output);
  };
  Around around;
  around.feeds.emplace_back("C", Tensor::zeros(DType::boolean, {1}));
  for (const auto& [input, output, count] :
       {std::tuple{"X", "Z", 1}, {"Y", "Z", 1}, {"Z", "X", 0}, {"Z", "Y", 0}, {"rnn/S_prev_states", "Z", 0}}) {
    around.behind = conditional(input, output);
    EXPECT_EQ(around.count(), count) << input << " to " << output;
  }
}

// Two matrices in one step, of which the second network has one.
TEST(AttentionChunks, TakeOneMatrixAfterTheOther) {
  const NetDef step = parse_net_text(R"(
    op { type: "ExpandDims" arg { name: "dims" ints: 3 } input: "x" output: "column" }
    op { type: "ExpandDims" arg { name: "dims" ints: 2 } input: "x" output: "row" }
    op { type: "BatchMatMul" input: "column" input: "row" output: "added" }
    op { type: "Sum" input: "S_prev" input: "added" output: "S" }
    op { type: "BatchMatMul" input: "S" input: "column" output: "read" }
    op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "read" output: "r" }
    op { type: "BatchMatMul" input: "column" input: "row" output: "more" }
    op { type: "Scale" arg { name: "scale" f: 0.5 } input: "P_prev" output: "kept" }
    op { type: "Sum" input: "kept" input: "more" output: "P" }
    op { type: "BatchMatMul" input: "P" input: "column" output: "read_of_P" }
    op { type: "Squeeze" arg { name: "dims" ints: 3 } input: "read_of_P" output: "r_of_P" }
    op { type: "Mul" input: "r" input: "r_of_P" output: "y" })");
  const Cell cell = {.step = {},
                     .states = {{"S_prev", "S", "", "", "S_last", {3, 3}}, {"P_prev", "P", "", "", "P_last", {3, 3}}},
                     .outputs = {{"y", "Y"}},
                     .step_net = step};
  const Feeds feeds = {{"X", normal<double>({40, 2, 3})}};
  NetDef chunks = recurrent_net(cell, feeds), loop = chunks;
  EXPECT_EQ(attend_in_chunks(chunks, types_of(feeds), kAnySize), 2);
  for (const OperatorDef& op : chunks.op()) EXPECT_NE(op.type(), "RecurrentNetwork");
  expand_recurrent(loop);
  const Strings outputs = outputs_of(cell);
  const Feeds outside = given_gradients(loop, feeds, outputs);
  EXPECT_EQ(compare_results(run_with_gradients(chunks, feeds, outside),
                            shown(run_with_gradients(loop, feeds, outside), outputs), 1e-10),
            "");
}

// --- Where they are used -------------------------------------------------------------------------------------------

TEST(AttentionChunks, AreExplained) {
  const auto explain = [](int64_t steps, int64_t width) {
    return stepnet({"explain", source_path("tools/examples/cells/gated_retention.pbtxt"),
                    fmt::format("--feed=x=float[{},2,3]", steps), fmt::format("--feed=S0=float[1,2,{0},{0}]", width),
                    fmt::format("--feed=W_k=float[{},3]", width), fmt::format("--feed=W_q=float[{},3]", width),
                    fmt::format("--feed=W_v=float[{},3]", width), "--feed=W_a=float[1,3]", "--feed=b_a=float[1]",
                    fmt::format("--feed=W_o=float[{},3]", width)})
        .text();
  };
  expect_contains(explain(16, 16),
                  "attention: S_last_rnn_attention/read, S_last_rnn_attention/last = LinearAttention(");
  expect_contains(explain(15, 16), "step net ");
  expect_contains(explain(16, 15), "step net ");
}

}  // namespace
}  // namespace stepnet::testing::attention_chunks_test
