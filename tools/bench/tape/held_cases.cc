#include "tools/bench/tape/held.h"

namespace stepnet::bench {
namespace {

using autograd::Variable;
using Inputs = std::vector<HeldInput>;
using Args = std::vector<Argument>;

Variable apply(const std::string& type, const Variables& inputs, const Args& args = {}) {
  return autograd::run(type, inputs, args)[0];
}
Variable add(const Variable& a, const Variable& b) { return apply("Add", {a, b}); }
Variable broadcast(const std::string& type, const Variable& a, const Variable& b) {
  return apply(type, {a, b}, {make_arg("broadcast", 1)});
}
Variable scaled(const Variable& a) { return apply("Scale", {a}, {make_arg("scale", 0.5F)}); }

// One operator.
HeldCase one(const std::string& type, Inputs inputs, const Args& args = {}, const Shape& output = {}) {
  return {type, std::move(inputs), [=](const Variables& in) { return apply(type, in, args); }, output};
}
HeldCase composed(std::string name, Inputs inputs, std::function<Variable(const Variables&)> run,
                  const Shape& step = {}) {
  return {std::move(name), std::move(inputs), std::move(run), {}, step};
}

const Shape kMatrix = {32, 16};

void add_elementwise(std::vector<HeldCase>& cases) {
  const Shape& s = kMatrix;
  cases.push_back(one("Add", {{'a', s}, {'b', s}}));
  cases.push_back(one("Sub", {{'a', s}, {'b', s}}));
  cases.push_back(one("Mul", {{'a', s, "b"}, {'b', s, "a"}}));
  cases.push_back(one("Div", {{'a', s, "b"}, {'b', s, "bo"}}, {}, s));
  cases.push_back(one("FMod", {{'a', s}, {'b', s, "ab"}}));
  cases.push_back(one("Pow", {{'a', s, "ae"}, {'e', s, "ao"}}, {}, s));
  cases.push_back(one("AddCMul", {{'t', s}, {'a', s, "b"}, {'b', s, "a"}}));
  cases.push_back(one("AddCDiv", {{'t', s}, {'a', s, "b"}, {'b', s, "ab"}}));
  cases.push_back(one("Cross", {{'a', {64, 3}, "b"}, {'b', {64, 3}, "a"}}));
  cases.push_back(one("Where", {{'c', s, "", DType::boolean}, {'a', s, "c"}, {'b', s, "c"}}));
  cases.push_back(one("PRelu", {{'a', s, "ak"}, {'k', {16}, "a"}}));
  cases.push_back(one("MSELoss", {{'a', s, "ab"}, {'b', s, "ab"}}));
  cases.push_back(composed("Mul of a row", {{'a', s, "b"}, {'b', {16}, "a"}},
                           [](const Variables& in) { return broadcast("Mul", in[0], in[1]); }));
  cases.push_back(composed("Add of a row", {{'a', s}, {'b', {16}}},
                           [](const Variables& in) { return broadcast("Add", in[0], in[1]); }));
}

void add_products(std::vector<HeldCase>& cases) {
  const Shape a3 = {4, 32, 16}, b3 = {4, 16, 64};
  cases.push_back(one("MatMul", {{'a', {32, 16}, "b"}, {'b', {16, 64}, "a"}}));
  cases.push_back(one("FC", {{'x', {32, 16}, "w"}, {'w', {64, 16}, "x"}, {'b', {64}}}));
  cases.push_back(one("BatchMatMul", {{'a', a3, "b"}, {'b', b3, "a"}}));
  cases.push_back(one("AddBMM", {{'m', {32, 64}}, {'a', a3, "b"}, {'b', b3, "a"}}));
  cases.push_back(one("BAddBMM", {{'m', {4, 32, 64}}, {'a', a3, "b"}, {'b', b3, "a"}}));
  cases.push_back(one("AddMV", {{'v', {32}}, {'a', kMatrix, "x"}, {'x', {16}, "a"}}));
  cases.push_back(one("MV", {{'a', kMatrix, "x"}, {'x', {16}, "a"}}));
  cases.push_back(one("AddR", {{'m', kMatrix}, {'x', {32}, "y"}, {'y', {16}, "x"}}));
  cases.push_back(one("Ger", {{'x', {32}, "y"}, {'y', {16}, "x"}}));
  cases.push_back(one("DotProduct", {{'x', {1, 512}, "y"}, {'y', {1, 512}, "x"}}));
}

void add_indexed(std::vector<HeldCase>& cases) {
  const HeldInput rows{'i', {64}, "", DType::int64};
  cases.push_back(one("IndexAdd", {{'a', kMatrix}, rows, {'b', {64, 16}, "i"}}));
  cases.push_back(one("ScatterAdd", {{'a', kMatrix}, {'i', {64, 16}, "", DType::int64}, {'b', {64, 16}, "i"}}));
  cases.push_back(one("Gather", {{'a', kMatrix, "i"}, rows}));
}

// (x + 2) m, and what the operators of three inputs are made of.
void add_compositions(std::vector<HeldCase>& cases) {
  const Shape& s = kMatrix;
  cases.push_back(composed(
      "dropout-like", {{'x', s, "m"}, {'m', s, "s"}},
      [](const Variables& in) {
        const Variable two(Tensor::of<float>({1}, {2.0F}));
        return apply("Mul", {broadcast("Add", in[0], two), in[1]});
      },
      s));
  cases.push_back(composed(
      "AddCDiv of Div, Scale, Add", {{'t', s}, {'a', s, "b"}, {'b', s, "bs"}},
      [](const Variables& in) {
        return add(in[0], scaled(apply("Div", {in[1], in[2]})));
      },
      s));
  cases.push_back(composed(
      "AddCDiv of Div, Mul, Add", {{'t', s}, {'v', {16}, "s"}, {'a', s, "vb"}, {'b', s, "vbs"}},
      [](const Variables& in) {
        return add(in[0], broadcast("Mul", apply("Div", {in[2], in[3]}), in[1]));
      },
      s));
  cases.push_back(
      composed("AddCMul of Mul, Scale, Add", {{'t', s}, {'a', s, "b"}, {'b', s, "a"}}, [](const Variables& in) {
        return add(in[0], scaled(apply("Mul", {in[1], in[2]})));
      }));
  cases.push_back(composed("AddMV of MV, Add", {{'v', {32}}, {'a', s, "x"}, {'x', {16}, "a"}}, [](const Variables& in) {
    return add(in[0], apply("MV", {in[1], in[2]}));
  }));
  cases.push_back(composed("AddR of Ger, Add", {{'m', s}, {'x', {32}, "y"}, {'y', {16}, "x"}}, [](const Variables& in) {
    return add(in[0], apply("Ger", {in[1], in[2]}));
  }));
  cases.push_back(composed("BAddBMM of BatchMatMul, Add",
                           {{'m', {4, 32, 64}}, {'a', {4, 32, 16}, "b"}, {'b', {4, 16, 64}, "a"}},
                           [](const Variables& in) {
                             return add(in[0], apply("BatchMatMul", {in[1], in[2]}));
                           }));
  cases.push_back(composed(
      "lerp of Sub, Mul, Add", {{'a', s, "w"}, {'b', s, "w"}, {'w', s, "s"}},
      [](const Variables& in) {
        return add(in[0], apply("Mul", {in[2], apply("Sub", {in[1], in[0]})}));
      },
      s));
}

}  // namespace

const std::vector<HeldCase>& held_cases() {
  static const std::vector<HeldCase> cases = [] {
    std::vector<HeldCase> list;
    add_elementwise(list);
    add_products(list);
    add_indexed(list);
    add_compositions(list);
    return list;
  }();
  return cases;
}

}  // namespace stepnet::bench
