// Random nets of which operators are moved into definitions, and some of these into further ones, against the nets as
// they were: all values bit for bit, and gradients, which may be added up in another order where blobs are copied.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "core/net/dataflow.h"
#include "core/net/expansions.h"
#include "core/operator/in_place.h"
#include "core/passes/defined_operators.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/defined_groups.h"
#include "tests/core/random_nets.h"

namespace stepnet::testing::defined_random_test {
namespace {

using Blobs = std::map<std::string, Tensor>;

// Where names share bytes, a copy in front of a definition that overwrites one of them tells them apart.
bool has_aliases(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) {
    for (int o = 0; o < op.output_size(); ++o)
      if (aliased_input(op_spec(op.type()), o) >= 0) return true;
    return false;
  });
}

Blobs run(const NetDef& net, const RandomNet& r, uint64_t seed) {
  Workspace workspace;
  for (const NetFeed& feed : r.feeds) workspace.tensor(feed.name) = feed_value(feed, r.batches.at(0), seed);
  RunContext context;
  run_net_once(net, workspace, context);
  Blobs blobs;
  for (const std::string& name : workspace.names())
    if (const Blob* blob = workspace.find(name); blob && blob->is_tensor() && !blob->empty())
      blobs[name] = blob->tensor().clone();
  return blobs;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

std::string differences(const Blobs& made, const Blobs& right, const std::set<std::string>& names, double tolerance) {
  std::string text;
  for (const std::string& name : names) {
    const auto found = made.find(name), expected = right.find(name);
    if (expected == right.end() || expected->second.dtype() != DType::float64) continue;
    if (found == made.end()) return fmt::format("there is no \"{}\"", name);
    if (same_bits(found->second, expected->second)) continue;  // nan, too
    text += compare(found->second, expected->second, tolerance, ErrorScale::tensor);
  }
  return text;
}

// Gradients by name of the blob; none if they are refused.
std::optional<Blobs> gradients(NetDef net, const RandomNet& r, uint64_t seed) {
  GradientRequest request;
  for (const std::string& target : r.targets) request.targets.emplace_back(target, "");
  for (const NetFeed& feed : r.feeds)
    if (feed_value(feed, r.batches.at(0), seed).dtype() == DType::float64) request.wanted.insert(feed.name);
  GradientResult result;
  Blobs values, made;
  try {
    result = add_gradient_operators(net, request);
    values = run(net, r, seed);  // where shapes turn out not to be what the gradients need, it is refused there
  } catch (const Error&) {
    return std::nullopt;
  }
  for (const auto& [blob, gradient] : result.gradients)
    if (request.wanted.count(blob) > 0 && !gradient.dense.empty()) made[blob] = values.at(gradient.dense);
  return made;
}

std::set<std::string> copied_names(const NetDef& net) {
  std::set<std::string> names;
  for (const OperatorDef& op : net.op())
    if (op.type() == "Copy") names.insert(op.output(0));
  return names;
}

struct Counts {
  int nets = 0, nested = 0, differentiated = 0, bits = 0, refused = 0;
};

std::string check(uint64_t seed, Counts& counts) {
  const RandomNet r = random_net(seed);
  if (has_aliases(r.net) || r.net.op_size() == 0) return "";
  NetDice dice(seed + 5);
  NetDef moved = r.net;
  const auto move = [&](NetDef& inner, const std::string& type, const std::set<std::string>& needed) {
    const int begin = static_cast<int>(dice.below(inner.op_size()));
    const int end = begin + 1 + static_cast<int>(dice.below(inner.op_size() - begin));
    return move_into_definition(moved, inner, begin, end, type, needed);
  };
  std::set<std::string> needed(r.targets.begin(), r.targets.end());
  needed.insert(r.net.external_output().begin(), r.net.external_output().end());
  if (!move(moved, "First", needed)) return "";
  if (dice.chance(0.5)) move(moved, "Second", needed);
  NetDef definition = last_definition(moved);
  const std::set<std::string> outputs(definition.external_output().begin(), definition.external_output().end());
  if (dice.chance(0.6) && move(definition, "Third", outputs)) {
    last_definition(moved) = definition;
    ++counts.nested;
  }
  const std::string text = to_text(moved);
  expand_net(moved);
  Blobs right;
  try {
    right = run(r.net, r, seed);
  } catch (const Error&) {
    return "";
  }
  ++counts.nets;
  std::string wrong = differences(run(moved, r, seed), right, needed, 0);
  const auto plain = gradients(r.net, r, seed);
  if (plain) {
    const auto made = gradients(moved, r, seed);
    const bool is_same = moved.op_size() == r.net.op_size();
    // A copy, which an output in the place of an input takes, may be said to give a blob another shape.
    if (!made) return is_same ? "the net that was moved has no gradients\n" + text : (++counts.refused, "");
    ++counts.differentiated;
    counts.bits += is_same ? 1 : 0;
    std::set<std::string> blobs;
    // One that is fed and written over has another name inside a definition, and may get its value by a copy at the
    // end, so there are two gradients to tell.
    const std::set<std::string> before = written_names(r.net), after = written_names(moved);
    const std::set<std::string> copied_before = copied_names(r.net), copied = copied_names(moved);
    for (const auto& [blob, gradient] : *plain)
      if (before.contains(blob) == after.contains(blob) && copied_before.contains(blob) == copied.contains(blob))
        blobs.insert(blob);
    wrong += differences(*made, *plain, blobs, is_same ? 0 : 1e-12);
  }
  return wrong.empty() ? "" : wrong + "\n" + text + "\n" + to_text(moved);
}

TEST(DefinedOperators, EqualRandomNets) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    std::string wrong;
    try {
      wrong = check(seed, counts);
    } catch (const Error& e) {
      wrong = e.what();
    }
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
  EXPECT_GT(counts.nets, 100);
  EXPECT_GT(counts.nested, 30);
  EXPECT_GT(counts.differentiated, 50);
  EXPECT_GT(counts.bits, 10);
  EXPECT_LT(counts.refused, 10);
}

}  // namespace
}  // namespace stepnet::testing::defined_random_test
