#include "tests/core/random_nets.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "stepnet/half.h"
#include "tests/core/random_nets_builder.h"

namespace stepnet::testing {
namespace {

constexpr int64_t kMostElements = 600, kMostOfLarge = 30000;  // of a blob

bool is_usable(const Tensor& t, int64_t most) {
  if (t.size() > most) return false;
  if (t.dtype() == DType::string || is_half(t.dtype())) return false;
  if (t.dtype() != DType::float64 && t.dtype() != DType::float32) return true;
  const Tensor values = to_double(t);
  return std::ranges::all_of(values.span<double>(), [](double v) { return std::abs(v) < 50; });
}

}  // namespace

Tensor feed_value(const NetFeed& feed, int64_t batch, uint64_t seed) {
  if (feed.fixed.defined()) return feed.fixed.clone();
  std::vector<int64_t> sizes = feed.sizes;
  std::ranges::replace(sizes, int64_t{-1}, batch);
  return normal<double>(Shape(sizes), seed * 1000 + random_key(1, "feed", feed.name, batch, 0) % 1000, 0, 0.7);
}

NetBuilder::NetBuilder(uint64_t seed, std::vector<int64_t> batches) : dice(seed) {
  made_.net.set_name("random");
  made_.batches = std::move(batches);
  probes_.resize(made_.batches.size());
}

void NetBuilder::enter(const NetFeed& feed) {
  for (size_t i = 0; i < probes_.size(); ++i) probes_[i].feed(feed.name, feed_value(feed, made_.batches[i], 1));
  blobs_.push_back(feed.name);
  made_.net.add_external_input(feed.name);
  made_.feeds.push_back(feed);
}

std::string NetBuilder::feed(const std::vector<int64_t>& sizes) {
  NetFeed made{.name = "x" + std::to_string(made_.feeds.size()), .sizes = sizes};
  made.grows = std::ranges::count(sizes, -1) > 0;
  enter(made);
  return made.name;
}

std::string NetBuilder::feed(const Tensor& fixed) {
  NetFeed made{.name = "c" + std::to_string(made_.feeds.size()), .fixed = fixed.clone()};
  enter(made);
  return made.name;
}

bool NetBuilder::add(const OperatorDef& op) {
  std::vector<ReferenceBlobs> tried = probes_;
  const bool large = std::ranges::max(made_.batches) > kMostElements;
  try {
    for (ReferenceBlobs& blobs : tried) {
      blobs.run(op, made_.net.name(), 0);
      for (const std::string& name : op.output())
        if (!name.empty() && !is_usable(blobs.at(name), large ? kMostOfLarge : kMostElements)) return false;
    }
  } catch (const Error&) {
    return false;
  }
  probes_ = std::move(tried);
  *made_.net.add_op() = op;
  for (const std::string& name : op.output())
    if (!name.empty() && std::ranges::find(blobs_, name) == blobs_.end()) blobs_.push_back(name);
  return true;
}

std::string NetBuilder::output_name(const std::vector<std::string>& inputs) {
  if (dice.chance(0.2)) return dice.pick(inputs);
  if (dice.chance(0.1)) return dice.pick(blobs_);
  if (!dice.chance(0.05)) return fresh_name();
  const std::vector<std::string> suffixes = {"_grad", "_again", "_autogen_grad", "_copy"};
  return dice.pick(blobs_) + dice.pick(suffixes);
}

std::string NetBuilder::pick(const std::function<bool(const std::string&)>& fits) {
  std::vector<std::string> found;
  for (const std::string& blob : blobs_)
    if (fits(blob)) found.push_back(blob);
  if (found.empty()) return "";
  // What was written last is read more often, so that nets are deep.
  const auto count = static_cast<int64_t>(found.size());
  return found[static_cast<size_t>(count - 1 - std::min(dice.below(count), dice.below(count)))];
}

std::string NetBuilder::pick_float() {
  return pick([&](const std::string& blob) { return is_float(blob); });
}

std::string NetBuilder::pick_like(const std::string& like) {
  return pick([&](const std::string& blob) {
    return std::ranges::all_of(probes_, [&](const ReferenceBlobs& p) {
      return p.at(blob).dtype() == p.at(like).dtype() && p.at(blob).shape() == p.at(like).shape();
    });
  });
}

bool NetBuilder::has_type(const std::string& blob, const Tensor& like) const {
  return std::ranges::all_of(probes_, [&](const ReferenceBlobs& p) {
    return p.at(blob).dtype() == like.dtype() && p.at(blob).shape() == like.shape();
  });
}

std::string NetBuilder::parameter(const std::vector<int64_t>& sizes) {
  if (dice.chance(0.4)) {
    const Tensor like = Tensor::empty(DType::float64, Shape(sizes));
    if (const std::string found = pick([&](const std::string& blob) { return has_type(blob, like); }); !found.empty())
      return found;
  }
  return feed(sizes);
}

int64_t NetBuilder::fixed_size(const std::string& blob, int dimension) const {
  const int64_t size = shape(blob)[dimension];
  for (const ReferenceBlobs& probe : probes_)
    if (probe.at(blob).dim(dimension) != size) return -1;
  return size;
}

namespace {

std::vector<std::string> written_floats(const NetBuilder& b) {
  std::set<std::string> found;
  for (const OperatorDef& op : b.net().op())
    for (const std::string& name : op.output())
      if (!name.empty() && b.is_float(name)) found.insert(name);
  return {found.begin(), found.end()};
}

// Those of operators that did not fit.
void drop_unread_feeds(RandomNet& r) {
  std::set<std::string> used;
  for (const OperatorDef& op : r.net.op()) {
    used.insert(op.input().begin(), op.input().end());
    used.insert(op.output().begin(), op.output().end());
  }
  std::erase_if(r.feeds, [&](const NetFeed& feed) { return used.count(feed.name) == 0; });
  r.net.clear_external_input();
  for (const NetFeed& feed : r.feeds) r.net.add_external_input(feed.name);
}

void draw_request(NetDice& dice, const std::vector<std::string>& written, RandomNet& r) {
  std::set<std::string> targets, wanted;
  for (int64_t i = 0, n = 1 + dice.below(2); i < n; ++i) targets.insert(dice.pick(written));
  for (const std::string& target : targets) {
    r.targets.push_back(target);
    // At times the name that the gradient pass itself would take.
    const std::string given = dice.chance(0.3) ? target + "_grad" : "given_" + target;
    const bool taken = std::ranges::any_of(r.net.op(), [&](const OperatorDef& op) {
      return std::ranges::count(op.output(), given) + std::ranges::count(op.input(), given) > 0;
    });
    r.given.push_back(taken || dice.chance(0.4) ? "" : given);
  }
  for (const NetFeed& feed : r.feeds)
    if ((!feed.fixed.defined() || feed.fixed.dtype() == DType::float64) && dice.chance(0.7)) wanted.insert(feed.name);
  if (dice.chance(0.2)) wanted.insert(dice.pick(written));
  r.wanted.assign(wanted.begin(), wanted.end());
}

}  // namespace

RandomNet random_net(uint64_t seed) {
  NetDice dice(seed);
  std::vector<int64_t> batches = {3, 7};
  if (dice.chance(0.5)) batches.push_back(1);
  if (dice.chance(0.4)) batches.push_back(0);
  if (dice.chance(0.03)) batches = {3, 1500};  // so that operators share out work among threads
  NetBuilder b(seed + (uint64_t{1} << 40), batches);
  const std::vector<std::vector<int64_t>> shapes = {{-1, 4}, {-1, 4}, {-1, 6},    {-1},
                                                    {4},     {4, 4},  {2, -1, 4}, {-1, 2, 3}};
  for (int64_t i = 0, n = 2 + dice.below(3); i < n; ++i) b.feed(dice.pick(shapes));
  const int64_t count = 2 + dice.below(14);
  for (int64_t tries = 0; tries < 20 * count && b.net().op_size() < count; ++tries) add_random_operator(b);
  std::vector<std::string> written = written_floats(b);
  RandomNet r = b.take();
  if (written.empty()) return random_net(seed + (uint64_t{1} << 50));
  drop_unread_feeds(r);
  draw_request(dice, written, r);
  std::set<std::string> outputs;
  for (int64_t i = 0, n = 1 + dice.below(3); i < n; ++i) outputs.insert(dice.pick(written));
  for (const std::string& name : outputs) r.net.add_external_output(name);
  return r;
}

}  // namespace stepnet::testing
