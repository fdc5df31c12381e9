#include "core/passes/gradient_sums.h"

#include <algorithm>

#include "core/operator/extensions.h"
#include "stepnet/bound_op.h"

namespace stepnet {

OperatorDef& append_gradient_op(NetDef& net, const std::string& type, const OperatorDef& like) {
  OperatorDef* op = net.add_op();
  op->set_type(type);
  op->set_name("");
  op->set_is_gradient_op(true);
  if (like.has_device_option()) *op->mutable_device_option() = like.device_option();
  if (like.HasExtension(source)) *op->MutableExtension(source) = like.GetExtension(source);
  if (like.debug_info().starts_with(kOfDefinition)) op->set_debug_info(like.debug_info());
  return *op;
}

std::string append_dense_copy(NetDef& net, const GradientName& gradient, const std::string& like,
                              const std::string& name) {
  const Role role = gradient.is_sparse() ? Role::rows_to_dense : Role::copy;
  OperatorDef& op = append_gradient_op(net, op_with_role(role).type, net.op(0));
  if (gradient.is_sparse()) {
    for (const std::string& input : {gradient.indices, gradient.values, like}) op.add_input(input);
  } else {
    op.add_input(gradient.dense);
  }
  op.add_output(name);
  return name;
}

GradientName GradientSums::add_up(const std::string& blob, std::vector<GradientName> list, const OperatorDef& like) {
  if (std::all_of(list.begin(), list.end(), [](const GradientName& c) { return c.is_sparse(); }))
    return add_up_sparse(blob, list, like);
  for (GradientName& c : list)
    if (c.is_sparse()) c = make_dense(blob, c, like);
  return add_up_dense(blob, list, like);
}

GradientName GradientSums::add_up_dense(const std::string& blob, std::vector<GradientName>& list,
                                        const OperatorDef& like) {
  const std::string base = names_.gradient_of(blob);
  auto own = std::find_if(list.begin(), list.end(), [&](const GradientName& c) {
    return c.dense == base && !names_.is_higher_order() && names_.holders(base) == 1 && !names_.is_foreign(base) &&
           !names_.shows_given(base);
  });
  if (own != list.end()) std::rotate(list.begin(), own, own + 1);
  const GradientName total{.dense = own != list.end() ? base : names_.unused(base), .indices = "", .values = ""};
  OperatorDef& sum = append_gradient_op(net_, op_with_role(Role::sum).type, like);
  for (const GradientName& c : list) {
    sum.add_input(c.dense);
    names_.release(c);
  }
  sum.add_output(total.dense);
  names_.take(total.dense);
  names_.hold(total);
  return total;
}

GradientName GradientSums::add_up_sparse(const std::string& blob, const std::vector<GradientName>& list,
                                         const OperatorDef& like) {
  GradientName total;
  for (const bool values : {false, true}) {
    OperatorDef& concat = append_gradient_op(net_, op_with_role(Role::concat).type, like);
    for (const GradientName& c : list) concat.add_input(values ? c.values : c.indices);
    const std::string out = names_.fresh(names_.gradient_of(blob) + (values ? "_values_concat" : "_indices_concat"));
    concat.add_output(out);
    concat.add_output(out + "_split");
    *concat.add_arg() = make_arg("axis", 0);
    (values ? total.values : total.indices) = out;
    names_.take(out);
    names_.take(out + "_split");
  }
  for (const GradientName& c : list) names_.release(c);
  names_.hold(total);
  return total;
}

GradientName GradientSums::make_dense(const std::string& blob, const GradientName& sparse, const OperatorDef& like) {
  const GradientName dense{.dense = names_.unused(names_.gradient_of(blob)), .indices = "", .values = ""};
  OperatorDef& op = append_gradient_op(net_, op_with_role(Role::rows_to_dense).type, like);
  for (const std::string& name : {sparse.indices, sparse.values, blob}) op.add_input(name);
  op.add_output(dense.dense);
  names_.release(sparse);
  names_.take(dense.dense);
  names_.hold(dense);
  return dense;
}

}  // namespace stepnet
