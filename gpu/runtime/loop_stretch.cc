#include "gpu/runtime/loop_stretch.h"

#include <algorithm>
#include <utility>

#include "stepnet/error.h"
#include "stepnet/half.h"

namespace stepnet::gpu {
namespace {

using Kind = LoopStatement::Kind;

class Builder {
 public:
  Builder(const LoopPlan& plan, int first_variable) : plan_(plan) {
    stretch_.first_variable = stretch_.end_variable = first_variable;
  }

  void add(int index) {
    const LoopOp& op = plan_.ops[static_cast<size_t>(index)];
    if (const auto* p = std::get_if<LoopProduct>(&op.what)) {
      stretch_.products.push_back(index);
      for (int64_t group = 0; group < p->groups; ++group) add_product(*p, index, group);
    } else {
      const auto& chain = std::get<LoopChain>(op.what);
      for (int64_t group = 0; group < chain.groups; ++group) add_chain(chain, group);
    }
  }

  LoopStretch finish() && {
    for (Write& w : writes_) (w.is_shared ? stretch_.shared : stretch_.rest).push_back(std::move(w.statement));
    return std::move(stretch_);
  }

 private:
  // An element by its addresses: a tensor may be an operand of several operators.
  struct Name {
    LoopPlace place;
    int64_t stride = 0, step = 1;
    bool operator==(const Name&) const = default;
  };
  struct Known {
    Name name;
    int variable;
    bool is_rounded;
  };
  struct Write {
    Name name;
    LoopStatement statement;
    bool is_shared;
  };

  int fresh() { return stretch_.end_variable++; }

  LoopElement element(int place, int64_t stride, int64_t step, int64_t group) const {
    return {.place = place, .shift = step * group * plan_.units, .stride = stride, .step = step};
  }

  // Of a single row the distance to the next one is nobody's: 0, so that a tensor has one name.
  Name name_of(const LoopElement& e) const {
    Name name{plan_.places[static_cast<size_t>(e.place)], plan_.rows == 1 ? 0 : e.stride, e.step};
    const int64_t bytes = e.shift * static_cast<int64_t>(dtype_size(plan_.dtype));
    name.place.first += bytes;
    name.place.odd += bytes;
    name.place.even += bytes;
    return name;
  }

  int read(const LoopElement& e, bool is_late) {
    const Name name = name_of(e);
    const auto known = std::ranges::find(known_, name, &Known::name);
    if (known == known_.end()) {
      const int variable = fresh();
      (is_late ? stretch_.values : stretch_.early).push_back({.kind = Kind::load, .variable = variable, .element = e});
      known_.push_back({name, variable, true});
      return variable;
    }
    if (!known->is_rounded && is_half(plan_.dtype)) {
      const int rounded = fresh();
      LoopStatement round{.kind = Kind::round, .variable = rounded};
      round.instruction.a = known->variable;
      stretch_.values.push_back(std::move(round));
      known->variable = rounded;
    }
    known->is_rounded = true;
    return known->variable;
  }

  void write(const LoopElement& e, int variable, bool is_shared) {
    const Name name = name_of(e);
    std::erase_if(known_, [&](const Known& k) { return k.name == name; });
    std::erase_if(writes_, [&](const Write& w) { return w.name == name; });
    known_.push_back({name, variable, false});
    LoopStatement statement{.kind = Kind::write, .element = e};
    statement.instruction.a = variable;
    writes_.push_back({name, std::move(statement), is_shared});
  }

  void add_product(const LoopProduct& p, int index, int64_t group) {
    LoopStatement sum{.kind = Kind::sum, .op = index, .group = group};
    if (p.bias >= 0) {
      const int bias = fresh();
      const LoopElement column{.constant = p.bias, .shift = group * plan_.units};
      stretch_.early.push_back({.kind = Kind::load, .variable = bias, .element = column});
      sum.added.push_back(bias);
    }
    const LoopElement c = element(p.c, p.sizes.ldc, 1, group);
    if (p.sizes.accumulate) sum.added.push_back(read(c, p.c_is_late));
    const int variable = sum.variable = fresh();
    stretch_.values.push_back(std::move(sum));
    write(c, variable, p.c_is_shared);
  }

  void add_chain(const LoopChain& chain, int64_t group) {
    std::vector<int> variables(kMostFusedTensors + kMostFusedValues, -1);
    const auto operand = [&](int k) -> const LoopOperand& { return chain.operands[static_cast<size_t>(k)]; };
    const auto element_of = [&](const LoopOperand& o) {
      LoopElement e = element(o.place, o.stride, o.step, group);
      e.is_int32 = o.is_int32;
      return e;
    };
    const auto variable_of = [&](int k) {
      int& variable = variables.at(static_cast<size_t>(k));
      if (variable >= 0) return variable;
      require(k < chain.tensors, "a chain reads value {} before it is there", k);
      return variable = read(element_of(operand(k)), operand(k).is_late);
    };
    for (const FusedInstruction& i : *chain.code) {
      LoopStatement statement{.kind = Kind::compute};
      statement.instruction = i;
      statement.instruction.a = variable_of(i.a);
      statement.instruction.b = fused_code(i.code).reads_b ? variable_of(i.b) : statement.instruction.a;
      const int variable = statement.variable = fresh();
      stretch_.values.push_back(std::move(statement));
      variables.at(static_cast<size_t>(i.to)) = variable;
      if (i.to < chain.tensors) write(element_of(operand(i.to)), variable, operand(i.to).is_shared);
    }
  }

  const LoopPlan& plan_;
  LoopStretch stretch_;
  std::vector<Known> known_;
  std::vector<Write> writes_;
};

}  // namespace

std::vector<LoopStretch> loop_stretches(const LoopPlan& plan) {
  std::vector<LoopStretch> all;
  const size_t count = plan.ops.size();
  for (size_t i = 0; i < count;) {
    Builder builder(plan, all.empty() ? 0 : all.back().end_variable);
    const size_t first = i;
    do builder.add(static_cast<int>(i++));
    while (i < count && !plan.ops[i].waits);
    all.push_back(std::move(builder).finish());
    all.back().waits = plan.ops[first].waits;
    all.back().next_waits = plan.ops[i % count].waits;
  }
  return all;
}

}  // namespace stepnet::gpu
