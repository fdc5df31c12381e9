#include "core/operator/in_place.h"

#include <algorithm>

#include "stepnet/arguments.h"

namespace stepnet {

const InPlaceRule* in_place_rule(const OpSpec& spec, int in, int out) {
  const ParamSpec* input = spec.input_spec(in);
  const ParamSpec* output = spec.output_spec(out);
  if (!input || !output) return nullptr;
  const auto found = std::ranges::find_if(spec.in_place, [&](const InPlaceRule& rule) {
    if (input->name != rule.in || output->name != rule.out) return false;
    return rule.anywhere || in - spec.input_index(rule.in) == out - spec.output_index(rule.out);
  });
  return found == spec.in_place.end() ? nullptr : &*found;
}

bool broadcasts(const OpSpec& spec) {
  return std::ranges::find(spec.args, "broadcast", &ArgSpec::name) != spec.args.end();
}

bool lays_operands_over(const OpSpec& spec) {
  return std::ranges::find(spec.args, "equal_shapes", &ArgSpec::name) != spec.args.end();
}

bool keeps_shape(const OpSpec& spec, const OperatorDef& def, int in, int out) {
  if (!may_write_over(spec, in, out)) return false;
  const std::string& like = spec.output_spec(out)->rule.like;
  if (spec.elementwise || like == spec.input_spec(in)->name) return true;
  // An operand that repeats is not written over; but with `broadcast` a B of one element may have a shape of its own.
  return broadcasts(spec) ? in == 0 || !find_arg(def, "broadcast") : !like.empty();
}

bool keeps_value(const OpSpec& spec, int inputs, int out) {
  return std::ranges::any_of(spec.in_place, [&](const InPlaceRule& rule) {
    return rule.enforced && spec.output_index(rule.out) == out && spec.input_index(rule.in) >= inputs;
  });
}

int aliased_input(const OpSpec& spec, int output) {
  const ParamSpec* p = spec.output_spec(output);
  for (const AliasRule& rule : spec.aliases)
    if (p && rule.out == p->name) return spec.input_index(rule.in);
  return -1;
}

int shaped_like(const OpSpec& spec, int output) {
  const ParamSpec* p = spec.output_spec(output);
  return !p || p->rule.like.empty() ? -1 : spec.input_index(p->rule.like);
}

bool may_be_alias(const OpSpec& spec, int output) {
  const int source = aliased_input(spec, output);
  return source >= 0 && shaped_like(spec, output) != source;
}

}  // namespace stepnet
