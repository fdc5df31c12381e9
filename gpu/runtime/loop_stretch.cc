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
    } else if (const auto* r = std::get_if<LoopRows>(&op.what)) {
      stretch_.rows.push_back(index);
      for (int64_t part = 0; part < r->parts; ++part) add_rows(*r, index, part);
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
    int64_t head_stride = 0, stride = 0, step = 1;
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

  // Of a single row or head the distance to the next one is nobody's: 0, so that a tensor has one name.
  Name name_of(const LoopElement& e) const {
    Name name{plan_.places[static_cast<size_t>(e.place)], plan_.heads == 1 ? 0 : e.head_stride,
              plan_.rows == 1 ? 0 : e.stride, e.step};
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
      const LoopElement column{.constant = p.bias, .shift = group * p.group_stride, .head_stride = p.bias_stride};
      stretch_.early.push_back({.kind = Kind::load, .variable = bias, .element = column});
      sum.added.push_back(bias);
    }
    const LoopElement c{
        .place = p.c, .shift = group * p.group_stride, .head_stride = p.sizes.stride_c, .stride = p.sizes.ldc};
    if (p.sizes.accumulate) sum.added.push_back(read(c, p.c_is_late));
    const int variable = sum.variable = fresh();
    stretch_.values.push_back(std::move(sum));
    write(c, variable, p.c_is_shared);
  }

  void add_chain(const LoopChain& chain, int64_t group) {
    std::vector<int> variables(kMostFusedTensors + kMostFusedValues, -1);
    const auto operand = [&](int k) -> const LoopOperand& { return chain.operands[static_cast<size_t>(k)]; };
    const auto element_of = [&](const LoopOperand& o) {
      return LoopElement{.place = o.place,
                         .shift = group * o.group_stride,
                         .head_stride = o.head_stride,
                         .stride = o.stride,
                         .step = o.step,
                         .is_int32 = o.is_int32};
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

  int compute(FusedCode code, int a, int b = -1, double number = 0) {
    LoopStatement statement{.kind = Kind::compute, .variable = fresh()};
    statement.instruction = {code, a, b < 0 ? a : b, number};
    stretch_.values.push_back(std::move(statement));
    return stretch_.values.back().variable;
  }
  int column(int constant, int64_t shift) {
    const int variable = fresh();
    stretch_.early.push_back(
        {.kind = Kind::load, .variable = variable, .element = {.constant = constant, .shift = shift}});
    return variable;
  }
  int number_of(int op, int64_t part, int which) {
    const int variable = fresh();
    stretch_.values.push_back(
        {.kind = Kind::number, .variable = variable, .op = op, .number = part * kRowNumbers + which});
    return variable;
  }

  // Operators on rows, for one of their rows that the plan's row has.
  void add_rows(const LoopRows& r, int op, int64_t part) {
    const auto number_at = [&](RowTensor t) {
      return LoopElement{.place = r.places[t],
                         .shift = part,
                         .head_stride = r.head_lines * r.parts,
                         .stride = r.row_lines * r.parts,
                         .step = 0};
    };
    const auto read_number = [&](RowTensor t) { return read(number_at(t), r.is_late[t]); };
    const auto write_number = [&](RowTensor t, int variable) {
      if (r.places[t] >= 0) write(number_at(t), variable, r.is_shared[t]);
    };
    const int64_t groups = r.groups / r.parts;
    const auto element_of = [&](RowTensor t, int64_t group) {
      const int64_t columns = r.parts * r.size;
      return LoopElement{.place = r.places[t],
                         .shift = group * plan_.units,
                         .head_stride = r.head_lines * columns,
                         .stride = r.row_lines * columns};
    };
    // value(group) becomes y.
    const auto write_y = [&](const auto& value) {
      for (int64_t group = part * groups; group < (part + 1) * groups; ++group)
        write(element_of(RowTensor::y, group), value(group), r.is_shared[RowTensor::y]);
    };
    const auto read_row = [&](RowTensor t, int64_t group) { return read(element_of(t, group), r.is_late[t]); };
    const auto of_columns = [&](int constant, int64_t group) {
      return column(constant, (group - part * groups) * plan_.units);
    };
    const auto x_at = [&](int64_t group) { return read_row(RowTensor::x, group); };
    const auto dy_at = [&](int64_t group) { return read_row(RowTensor::dy, group); };
    switch (r.kind) {
      case RowKind::layer_norm: {
        const int mean = number_of(op, part, 0), deviation = number_of(op, part, 1);
        const int inverse = compute(FusedCode::reciprocal, deviation);
        write_y([&](int64_t group) {
          int y = compute(FusedCode::mul, compute(FusedCode::sub, x_at(group), mean), inverse);
          if (r.scale >= 0) y = compute(FusedCode::mul, y, of_columns(r.scale, group));
          return r.bias >= 0 ? compute(FusedCode::add, y, of_columns(r.bias, group)) : y;
        });
        write_number(RowTensor::first_number, mean);
        write_number(RowTensor::second_number, deviation);
        return;
      }
      case RowKind::layer_norm_gradient: {
        const double each = 1 / static_cast<double>(r.size);
        const int mean = read_number(RowTensor::mean);
        const int inverse = compute(FusedCode::reciprocal, read_number(RowTensor::deviation));
        // A sum over the row, with the gradient of the number that it is of.
        const auto share = [&](int sum, RowTensor slope) {
          int all = compute(FusedCode::negative, compute(FusedCode::mul, sum, inverse));
          if (r.places[slope] >= 0) all = compute(FusedCode::add, all, read_number(slope));
          return compute(FusedCode::scale, all, -1, each);
        };
        const int constant = share(number_of(op, part, 0), RowTensor::dmean);
        const int slope = share(number_of(op, part, 1), RowTensor::ddeviation);
        write_y([&](int64_t group) {
          const int u = compute(FusedCode::mul, compute(FusedCode::sub, x_at(group), mean), inverse);
          int e = dy_at(group);
          if (r.scale >= 0) e = compute(FusedCode::mul, e, of_columns(r.scale, group));
          const int along = compute(FusedCode::add, constant, compute(FusedCode::mul, slope, u));
          return compute(FusedCode::add, compute(FusedCode::mul, e, inverse), along);
        });
        return;
      }
      case RowKind::softmax: {
        const int most = number_of(op, part, 0), sum = number_of(op, part, 1);
        write_y([&](int64_t group) {
          const int power = compute(FusedCode::exp, compute(FusedCode::sub, x_at(group), most));
          return compute(FusedCode::div, power, sum);
        });
        return;
      }
      case RowKind::softmax_gradient: {
        const int dot = number_of(op, part, 0);
        write_y([&](int64_t group) {
          return compute(FusedCode::mul, x_at(group), compute(FusedCode::sub, dy_at(group), dot));
        });
        return;
      }
      case RowKind::sum:
        write_number(RowTensor::first_number, number_of(op, part, 0));
        return;
    }
    fail("there is no row operator {}", static_cast<int>(r.kind));
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
