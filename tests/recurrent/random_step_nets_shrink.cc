// The smallest net and trial that show what a random one has shown, and their text.
#include <algorithm>
#include <functional>

#include "recurrent/form/passes.h"
#include "recurrent/form/spec.h"
#include "stepnet/text.h"
#include "tests/recurrent/random_step_nets_run.h"

namespace stepnet::testing {
namespace {

// Removes what the step net does not read any more.
void drop_unused(StepNet& net) {
  std::set<std::string> read;
  const std::function<void(const NetDef&)> add_reads = [&](const NetDef& step) {
    for (const OperatorDef& op : step.op()) {
      read.insert(op.input().begin(), op.input().end());
      if (op.HasExtension(recurrent)) add_reads(op.GetExtension(recurrent).step_net());
    }
  };
  add_reads(net.cell.step_net);
  for (const CellState& s : net.cell.states) read.insert({s.initial, s.output});
  for (const CellOutput& o : net.cell.outputs) read.insert(o.inner);
  read.insert(net.cell.lengths);
  for (const CellSequence& s : net.cell.sequences) read.insert(s.outer);
  std::erase_if(net.feeds, [&](const StepFeed& feed) { return read.count(feed.name) == 0; });
}

bool is_made(const StepNet& net, const std::string& name) {
  for (const OperatorDef& op : net.cell.step_net.op())
    if (std::ranges::count(op.output(), name) > 0) return true;
  return false;
}

void replace_reads(StepNet& net, int from_op, const std::string& old, const std::string& by) {
  NetDef& step = net.cell.step_net;
  for (int i = from_op; i < step.op_size(); ++i) {
    OperatorDef& op = *step.mutable_op(i);
    for (std::string& name : *op.mutable_input())
      if (name == old) name = by;
    if (op.HasExtension(recurrent))
      for (StateLink& s : *op.MutableExtension(recurrent)->mutable_state())
        if (s.initial() == old) s.set_initial(by);
  }
  for (CellState& s : net.cell.states)
    if (s.output == old) s.output = by;
  for (CellOutput& o : net.cell.outputs)
    if (o.inner == old) o.inner = by;
}

void tidy(StepNet& net) {
  std::erase_if(net.cell.recompute, [&](const std::string& name) { return !is_made(net, name); });
  drop_unused(net);
}

// Candidates: the net without operator i, whose outputs' readers read `by`.
StepNet without_op(const StepNet& net, int i, const std::string& by) {
  StepNet smaller = net;
  const OperatorDef gone = net.cell.step_net.op(i);
  smaller.cell.step_net.mutable_op()->DeleteSubrange(i, 1);
  for (const std::string& output : gone.output()) {
    if (is_made(smaller, output)) continue;  // written in place
    if (!by.empty()) replace_reads(smaller, i, output, by);
  }
  tidy(smaller);
  return smaller;
}

std::vector<std::string> values_before(const StepNet& net, int op, int64_t width) {
  std::vector<std::string> names;
  for (const auto& [name, w] : net.widths) {
    if (w != width) continue;
    bool known = false;
    for (const CellState& s : net.cell.states) known |= s.input == name;
    for (const CellSequence& s : net.cell.sequences) known |= s.inner == name;
    for (int i = 0; i < op; ++i) known |= std::ranges::count(net.cell.step_net.op(i).output(), name) > 0;
    if (known) names.push_back(name);
  }
  return names;
}

using Nets = std::vector<StepNet>;

Nets without_operators(const StepNet& net) {
  Nets nets;
  for (int i = net.cell.step_net.op_size() - 1; i >= 0; --i) {
    nets.push_back(without_op(net, i, ""));
    const OperatorDef& op = net.cell.step_net.op(i);
    if (op.output_size() == 0) continue;
    const auto width = net.widths.find(op.output(0));
    if (width == net.widths.end()) continue;
    for (const std::string& by : values_before(net, i, width->second)) nets.push_back(without_op(net, i, by));
    StepNet outside = net;  // a tensor from outside
    const std::string k = fmt::format("k_{}", op.output(0));
    if (outside.widths.emplace(k, width->second).second) {
      outside.feeds.push_back({.name = k, .sizes = {1, kBatch, width->second}, .scale = 0.5});
      outside = without_op(outside, i, k);
      nets.push_back(outside);
    }
  }
  return nets;
}

// Operators that do less in the place of others.
Nets with_simpler_operators(const StepNet& net) {
  Nets nets;
  for (int i = 0; i < net.cell.step_net.op_size(); ++i) {
    const OperatorDef& op = net.cell.step_net.op(i);
    if (op.type() == "Copy" || op.type() == "RecurrentNetwork" || op.output_size() == 0) continue;
    for (const std::string& input : op.input()) {
      const auto in = net.widths.find(input), out = net.widths.find(op.output(0));
      if (in == net.widths.end() || out == net.widths.end() || in->second != out->second) continue;
      StepNet simpler = net;
      *simpler.cell.step_net.mutable_op(i) = make_op("Copy", {input}, {op.output(0)});
      tidy(simpler);
      nets.push_back(simpler);
    }
    if (op.input_size() > 2 && op.type() == "Sum") {
      StepNet simpler = net;
      simpler.cell.step_net.mutable_op(i)->mutable_input()->RemoveLast();
      tidy(simpler);
      nets.push_back(simpler);
    }
  }
  return nets;
}

Nets without_views(const StepNet& net) {
  Nets nets;
  const auto add = [&](const auto& change) {
    StepNet smaller = net;
    change(smaller);
    tidy(smaller);
    nets.push_back(smaller);
  };
  for (size_t i = 0; i < net.cell.states.size(); ++i) {
    if (net.cell.states.size() > 1) add([&](StepNet& n) { n.cell.states.erase(n.cell.states.begin() + i); });
    if (!net.cell.states[i].all.empty()) add([&](StepNet& n) { n.cell.states[i].all = ""; });
    if (!net.cell.states[i].last.empty()) add([&](StepNet& n) { n.cell.states[i].last = ""; });
  }
  for (size_t i = 0; i < net.cell.outputs.size(); ++i)
    add([&](StepNet& n) { n.cell.outputs.erase(n.cell.outputs.begin() + i); });
  for (size_t i = 0; i < net.cell.recompute.size(); ++i)
    add([&](StepNet& n) { n.cell.recompute.erase(n.cell.recompute.begin() + i); });
  for (size_t i = 1; i < net.cell.sequences.size(); ++i)
    add([&](StepNet& n) { n.cell.sequences.erase(n.cell.sequences.begin() + i); });
  if (net.cell.reverse) add([](StepNet& n) { n.cell.reverse = false; });
  if (!net.cell.lengths.empty()) add([](StepNet& n) { n.cell.lengths = ""; });
  return nets;
}

std::vector<Trial> simpler_trials(const Trial& trial) {
  std::vector<Trial> trials;
  const auto add = [&](const auto& change) {
    Trial simpler = trial;
    change(simpler);
    if (!(simpler.setting == trial.setting) || simpler.shapes != trial.shapes) trials.push_back(simpler);
  };
  add([](Trial& t) { t.setting = {}; });
  for (size_t i = 0; i < trial.shapes.size() && trial.shapes.size() > 1; ++i)
    add([&](Trial& t) { t.shapes.erase(t.shapes.begin() + i); });
  for (bool RunSetting::*flag :
       {&RunSetting::budget, &RunSetting::planned, &RunSetting::full_form, &RunSetting::two_rows,
        &RunSetting::forward_only, &RunSetting::float32, &RunSetting::twin, &RunSetting::carried,
        &RunSetting::poison_first, &RunSetting::bad_padding})
    add([&](Trial& t) { t.setting.*flag = false; });
  add([](Trial& t) { t.setting.segment_steps = 0, t.setting.segment_room = -1; });
  add([](Trial& t) { t.setting.segment_room = -1; });
  add([](Trial& t) { t.setting.rebuild = false; });
  add([](Trial& t) { t.setting.part = 0; });
  add([](Trial& t) { t.setting.threads = 1; });
  add([](Trial& t) { t.setting.disabled.clear(); });
  for (size_t i = 0; i < trial.setting.disabled.size(); ++i)
    add([&](Trial& t) { t.setting.disabled.erase(t.setting.disabled.begin() + i); });
  for (size_t i = 0; i < trial.shapes.size(); ++i)
    for (int64_t NetShape::*size : {&NetShape::batch, &NetShape::steps})
      for (const int64_t by :
           {int64_t{1}, int64_t{2}, int64_t{3}, trial.shapes[i].*size / 2, trial.shapes[i].*size - 1})
        if (by >= 1 && by < trial.shapes[i].*size) add([&](Trial& t) { t.shapes[i].*size = by; });
  return trials;
}

bool shows_nothing(const StepNet& net) {
  if (!net.cell.outputs.empty()) return false;
  return std::ranges::all_of(net.cell.states, [](const CellState& s) { return s.all.empty() && s.last.empty(); });
}

class Shrinker {
 public:
  Shrinker(const StepNet& net, const Trial& trial) : best_{net, trial, find(net, trial)} {}

  Shrunk run() {
    if (best_.finding.kind == Finding::Kind::none) return best_;
    for (bool smaller = true; smaller && tries_ < kMostTries;) {
      smaller = false;
      for (const auto& of : {without_views, without_operators, with_simpler_operators})
        while (tries_ < kMostTries && take_net(of(best_.net))) smaller = true;
      while (tries_ < kMostTries && take_trial(simpler_trials(best_.trial))) smaller = true;
    }
    return best_;
  }

 private:
  static constexpr int kMostTries = 1500;

  static Finding find(const StepNet& net, const Trial& trial) {
    References known;
    return check_trial(net, trial, known);
  }

  bool take(const StepNet& net, const Trial& trial) {
    ++tries_;
    if (shows_nothing(net) || net.cell.states.empty()) return false;
    try {
      const Finding finding = find(net, trial);
      if (!is_alike(finding, best_.finding)) return false;
      best_ = {net, trial, finding};
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  bool take_net(const Nets& nets) {
    return std::ranges::any_of(nets, [&](const StepNet& net) { return take(net, best_.trial); });
  }
  bool take_trial(const std::vector<Trial>& trials) {
    return std::ranges::any_of(trials, [&](const Trial& trial) { return take(best_.net, trial); });
  }

  // Refusals for another reason are other findings.
  static bool is_alike(const Finding& a, const Finding& b) {
    if (a.kind != b.kind) return false;
    const auto reason = [](const std::string& text) { return text.substr(0, text.find_first_of("\"0123456789[")); };
    if (a.kind == Finding::Kind::refused) return reason(a.text) == reason(b.text);
    return (a.text.find("input") != a.text.npos) == (b.text.find("input") != b.text.npos) &&
           (a.text.find("bits") != a.text.npos) == (b.text.find("bits") != b.text.npos);
  }

  Shrunk best_;
  int tries_ = 0;
};

std::string joined(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, " ")); }

}  // namespace

Shrunk shrink(const StepNet& net, const Trial& trial) { return Shrinker(net, trial).run(); }

std::string cures_of(const Shrunk& shrunk) {
  std::vector<std::string> cures;
  for (const std::string& pass : pass_names()) {
    Trial without = shrunk.trial;
    without.setting.disabled.push_back(pass);
    References known;
    if (check_trial(shrunk.net, without, known).kind == Finding::Kind::none) cures.push_back(pass);
  }
  return fmt::format("{}: cured without [{}]", shrunk.finding.kind == Finding::Kind::refused ? "refused" : "wrong",
                     joined(cures));
}

std::string cause_of(const Shrunk& shrunk) {
  std::set<std::string> types;
  for (const OperatorDef& op : shrunk.net.cell.step_net.op()) types.insert(op.type());
  return fmt::format("{}; operators {}", cures_of(shrunk), fmt::join(types, " "));
}

std::string text_of(const Trial& trial) {
  std::vector<std::string> parts;
  const RunSetting& s = trial.setting;
  for (const NetShape& shape : trial.shapes) parts.push_back(fmt::format("T {} B {},", shape.steps, shape.batch));
  parts.push_back(fmt::format("threads {}", s.threads));
  if (!s.disabled.empty()) parts.push_back(fmt::format("without {}", joined(s.disabled)));
  if (s.segment_steps > 0) parts.push_back(fmt::format("segment_steps {} room {}", s.segment_steps, s.segment_room));
  for (const auto& [flag, name] : {std::pair{s.budget, "least budget"},
                                   {s.rebuild, "states made again"},
                                   {s.planned, "planned memory"},
                                   {s.full_form, "full form as text"},
                                   {s.two_rows, "a state and its value of the timestep before as one of two rows"},
                                   {s.forward_only, "forward_only"},
                                   {s.float32, "float32"},
                                   {s.twin, "two networks"},
                                   {s.carried, "states carried over runs crosswise"},
                                   {s.poison_first, "a run on NaN before"},
                                   {s.bad_padding, "NaN as padding"}})
    if (flag) parts.emplace_back(name);
  if (s.part != 0) parts.push_back(fmt::format("some gradients alone, chosen by {}", s.part));
  return joined(parts);
}

std::string text_of(const Shrunk& shrunk) {
  const NetShape& shape = shrunk.trial.shapes.back();
  std::string inputs;
  const Feeds feeds = feeds_of(shrunk.net, shape, shrunk.trial.data);
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Tensor& value = feeds[i].second;
    std::vector<int64_t> sizes(value.shape().begin(), value.shape().end());
    inputs += fmt::format(" --input {}={}", feeds[i].first, fmt::join(sizes, ","));
    const StepFeed& feed = shrunk.net.feeds[i];
    if (feed.kind == StepFeed::Kind::integers) inputs += fmt::format(" (int64: {})", fmt::join(feed.values, ","));
    if (feed.kind == StepFeed::Kind::lengths) inputs += " (int32, lengths)";
  }
  std::string text = fmt::format("# {}; {}\n", shrunk.finding.kind == Finding::Kind::refused ? "refused" : "wrong",
                                 text_of(shrunk.trial));
  std::string line;
  for (const char c : shrunk.finding.text + "\n") {
    if (c != '\n') line += c;
    if (c != '\n' || line.empty()) continue;
    text += "#   " + line + "\n";
    line.clear();
  }
  text += fmt::format("# {}\n# stepnet gradcheck FILE --loss OUTPUT{}\n", cause_of(shrunk), inputs);
  return text + to_text(net_of(shrunk.net, shrunk.trial.setting, feeds));
}

}  // namespace stepnet::testing
