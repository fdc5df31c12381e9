// References of operators that work element by element.
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

// For arguments: fn(call) makes the function of one or two elements.
template <class Make>
Reference each1_by(Make make) {
  return [make](CountedCall& c) { each1(make(c))(c); };
}
template <class Make>
Reference each2_by(Make make) {
  return [make](CountedCall& c) { each2(make(c))(c); };
}

// The element of B that is laid over element i of A's shape.
int64_t laid_over(const CountedCall& c, int64_t i) {
  const Shape &whole = c.out[0].shape, &b = c.x(1).shape;
  const int64_t axis = c.text("axis_str") == "C" ? 1 : c.whole("axis", -1);
  const int first = axis >= 0 ? static_cast<int>(axis) : whole.rank() - b.rank();
  int64_t at = 0;
  for (int d = 0; d < b.rank(); ++d) {
    const int64_t index = i / whole.size_between(first + d + 1, whole.rank()) % whole[first + d];
    at = at * b[d] + (b[d] == 1 ? 0 : index);
  }
  return at;
}

// C = fn(A, B), where A has C's shape and B is laid over it; other outputs are only counted.
template <class Fn>
Reference binary(Fn fn) {
  return [fn](CountedCall& c) {
    c.compares = c.x(0).shape == c.out[0].shape;
    for (int64_t i = 0; i < c.out[0].size(); ++i)
      c.y(0)[i] = c.compares ? fn(c.x(0).v[i], c.x(1).v[laid_over(c, i)]) : fn(1, 1);
  };
}

using Term = std::function<Counted(Counted dc, Counted a, Counted b, Counted c)>;

// dA and dB, each a term for each element of dC, summed where the operand repeats, which is only counted. `divides`: of
// three inputs, these are B, C and dC.
Reference arithmetic_gradient(Term of_a, Term of_b, bool divides = false) {
  return [of_a = std::move(of_a), of_b = std::move(of_b), divides](CountedCall& call) {
    const bool old = divides && call.in.size() == 3;
    const auto& dc = call.x(old ? 2 : 0);
    const auto &a = call.x(1), &b = call.x(old ? 0 : 2), &c = old || !divides ? a : call.x(3);
    call.compares = dc.shape == call.out[0].shape && dc.shape == call.out[1].shape;
    for (const int o : {0, 1}) {
      const bool adds = call.out[static_cast<size_t>(o)].size() != dc.shape.size();
      for (size_t i = 0; i < dc.v.size(); ++i) {
        const Counted one = 1;
        const Counted term = call.compares ? (o == 0 ? of_a : of_b)(dc.v[i], a.v[i], b.v[i], c.v[i])
                                           : (o == 0 ? of_a : of_b)(one, one, one, one);
        if (call.compares) call.y(o)[i] = term;
        if (adds) static_cast<void>(one + term);
      }
    }
  };
}

Counted distribution(Counted v) { return 0.5 * erfc(-v / std::numbers::sqrt2); }

Counted gelu_gradient(Counted d, Counted v) {
  constexpr double at_zero = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return d * (distribution(v) + v * (at_zero * exp(-0.5 * v * v)));
}

constexpr double kRootOfTwoByPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

Counted fast_gelu(Counted x) { return 0.5 * x * (1 + tanh(kRootOfTwoByPi * (x + 0.044715 * x * x * x))); }

Counted fast_gelu_gradient(Counted d, Counted x) {
  const Counted square = 0.044715 * x * x, t = tanh(kRootOfTwoByPi * x * (1 + square));
  return 0.5 * d * (1 + t + x * (1 - t * t) * kRootOfTwoByPi * (1 + 3 * square));
}

Counted swish_gradient(Counted v, Counted d) {
  const Counted s = sigmoid(v);
  return d * s * (1 + v * (1 - s));
}

Counted softsign_gradient(Counted v, Counted d) {
  const Counted size = 1 + abs(v);
  return d / (size * size);
}

void add_activations(References& r) {
  r["Acos"] = each1([](Counted x) { return acos(x); });
  r["Asin"] = each1([](Counted x) { return asin(x); });
  r["Atan"] = each1([](Counted x) { return atan(x); });
  r["Cbrt"] = each1([](Counted x) { return cbrt(x); });
  r["Cosh"] = each1([](Counted x) { return cosh(x); });
  r["Cube"] = each1([](Counted x) { return x * x * x; });
  r["Sinh"] = each1([](Counted x) { return sinh(x); });
  r["Tan"] = each1([](Counted x) { return tan(x); });
  r["Cos"] = each1([](Counted x) { return cos(x); });
  r["Erf"] = each1([](Counted x) { return erf(x); });
  r["Exp"] = each1([](Counted x) { return exp(x); });
  r["Expm1"] = each1([](Counted x) { return expm1(x); });
  r["Log1p"] = each1([](Counted x) { return log1p(x); });
  r["Reciprocal"] = each1([](Counted x) { return 1 / x; });
  r["Rsqrt"] = each1([](Counted x) { return 1 / sqrt(x); });
  r["Sin"] = each1([](Counted x) { return sin(x); });
  r["Log"] = each1([](Counted x) { return log(x); });
  r["Sqr"] = each1([](Counted x) { return x * x; });
  r["Sqrt"] = each1([](Counted x) { return sqrt(x); });
  r["Tanh"] = each1([](Counted x) { return tanh(x); });
  r["TanhGradient"] = each2([](Counted y, Counted d) { return d * (1 - y * y); });
  r["Sigmoid"] = each1([](Counted x) { return sigmoid(x); });
  r["SigmoidGradient"] = each2([](Counted y, Counted d) { return d * y * (1 - y); });
  r["Softplus"] = each1([](Counted x) { return max(x, 0) + log1p(exp(-abs(x))); });
  r["SoftplusGradient"] = each2([](Counted y, Counted d) { return d * (1 - exp(-y)); });
  r["Softsign"] = each1([](Counted x) { return x / (1 + abs(x)); });
  r["SoftsignGradient"] = each2(softsign_gradient);
  r["Silu"] = each1([](Counted x) { return x / (1 + exp(-x)); });
  r["Swish"] = each1([](Counted x) { return x / (1 + exp(-x)); });
  r["SwishGradient"] = [](CountedCall& c) {
    for (size_t i = 0; i < c.y(0).size(); ++i) c.y(0)[i] = swish_gradient(c.x(0).v[i], c.x(2).v[i]);
  };
  r["Gelu"] = [](CountedCall& c) {
    const bool fast = c.whole("fast_gelu", 0) != 0;
    each1([fast](Counted x) { return fast ? fast_gelu(x) : x * distribution(x); })(c);
  };
  r["GeluGradient"] = [](CountedCall& c) {
    each2(c.whole("fast_gelu", 0) != 0 ? fast_gelu_gradient : gelu_gradient)(c);
  };
}

void add_piecewise(References& r) {
  r["Elu"] = each1_by([](const CountedCall& c) {
    return [alpha = c.arg("alpha", 1)](Counted x) {
      const Counted below = alpha * (exp(x) - 1);
      return x > 0 ? x : below;
    };
  });
  r["EluGradient"] = each2_by([](const CountedCall& c) {
    return [alpha = c.arg("alpha", 1)](Counted y, Counted d) {
      const Counted below = d * (y + alpha);
      return y > 0 ? d : below;
    };
  });
  r["LeakyRelu"] = each1_by([](const CountedCall& c) {
    return [alpha = c.arg("alpha", 0.01F)](Counted x) {
      const Counted below = alpha * x;
      return x > 0 ? x : below;
    };
  });
  r["LeakyReluGradient"] = each2_by([](const CountedCall& c) {
    return [alpha = c.arg("alpha", 0.01F)](Counted y, Counted d) {
      const Counted below = alpha * d;
      return y > 0 ? d : below;
    };
  });
  r["HardSigmoid"] = each1_by([](const CountedCall& c) {
    return [alpha = c.arg("alpha", 0.2F), beta = c.arg("beta", 0.5)](Counted x) {
      return max(0, min(1, alpha * x + beta));
    };
  });
  r["HardSigmoidGradient"] = each2_by([](const CountedCall& c) {
    return [alpha = c.arg("alpha", 0.2F)](Counted y, Counted d) {
      const Counted inside = alpha * d;
      return y > 0 && y < 1 ? inside : Counted();
    };
  });
}

// The slope of element i, where `channels` of them stand in dimension 1 or the last.
int64_t channel(const CountedCall& c, const Shape& x, int64_t slopes, int64_t i) {
  if (slopes == 1) return 0;
  const bool last = c.text("order") == "NHWC";
  return last ? i % slopes : i / x.size_between(2, x.rank()) % slopes;
}

void prelu(CountedCall& c) {
  for (int64_t i = 0; i < c.x(0).size(); ++i) {
    const Counted below = c.x(1).v[channel(c, c.x(0).shape, c.x(1).size(), i)] * c.x(0).v[i];
    c.y(0)[i] = c.x(0).v[i] > 0 ? c.x(0).v[i] : below;
  }
}

void prelu_gradient(CountedCall& c) {
  for (int64_t i = 0; i < c.x(2).size(); ++i) {
    const int64_t k = channel(c, c.x(2).shape, c.x(3).size(), i);
    const Counted x = c.x(2).v[i], d = c.x(1).v[i];
    if (c.wants(0)) {
      const Counted below = c.x(3).v[k] * d;
      c.y(0)[i] = x > 0 ? d : below;
    }
    if (c.wants(1)) {
      const Counted share = d * x;
      c.y(1)[k] += x > 0 ? Counted() : share;
    }
  }
}

void power(CountedCall& c) {
  if (c.x(1).there) return binary([](Counted x, Counted e) { return pow(x, e); })(c);
  each1([e = c.arg("exponent", 1)](Counted x) { return pow(x, e); })(c);
}

void add_binary(References& r) {
  r["Add"] = binary([](Counted a, Counted b) { return a + b; });
  r["Sub"] = binary([](Counted a, Counted b) { return a - b; });
  r["Mul"] = binary([](Counted a, Counted b) { return a * b; });
  const Term same = [](Counted dc, Counted, Counted, Counted) { return dc; };
  r["AddGradient"] = arithmetic_gradient(same, same);
  r["SubGradient"] = arithmetic_gradient(same, [](Counted dc, Counted, Counted, Counted) { return -dc; });
  r["MulGradient"] = arithmetic_gradient([](Counted dc, Counted, Counted b, Counted) { return dc * b; },
                                         [](Counted dc, Counted a, Counted, Counted) { return dc * a; });
  r["DivGradient"] = arithmetic_gradient([](Counted dc, Counted, Counted b, Counted) { return dc / b; },
                                         [](Counted dc, Counted, Counted b, Counted c) { return -dc * c / b; }, true);
  r["Div"] = binary([](Counted a, Counted b) { return a / b; });
  r["FMod"] = binary([](Counted a, Counted b) { return fmod(a, b); });
  r["TruncDiv"] = binary([](Counted a, Counted b) { return trunc(a / b); });
  r["Pow"] = power;
  r["PRelu"] = prelu;
  r["PReluGradient"] = prelu_gradient;
}

// T + value fn(A, B)
template <class Fn>
Reference add_c(Fn fn) {
  return [fn](CountedCall& c) {
    for (int64_t i = 0; i < c.out[0].size(); ++i)
      c.y(0)[i] = c.x(0).v[i] + c.arg("value", 1) * fn(c.x(1).v[i], c.x(2).v[i]);
  };
}

// Which elements stay is drawn; the mask is an output.
void dropout(CountedCall& c) {
  c.compares = false;
  const double factor = 1 / (1 - c.arg("ratio", 0.5));
  for (int64_t i = 0; i < c.out[0].size() && c.whole("is_test", 0) == 0; ++i) c.y(0)[i] = c.x(0).v[i] * factor;
}

void dropout_gradient(CountedCall& c) {
  const double factor = 1 / (1 - c.arg("ratio", 0.5));
  for (int64_t i = 0; i < c.out[0].size(); ++i) {
    const Counted d = c.x(0).v[i];
    if (c.whole("is_test", 0) != 0) {
      c.y(0)[i] = d;
    } else {
      const Counted kept = d * factor;
      c.y(0)[i] = c.x(1).v[i] > 0 ? kept : Counted();
    }
  }
}

void clip_with_bits(CountedCall& c) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double least = c.arg("min", -infinity), most = c.arg("max", infinity), alpha = c.arg("alpha", 0);
  std::vector<int> bytes((c.out[0].size() + 7) / 8);
  for (int64_t i = 0; i < c.out[0].size(); ++i) {
    const Counted x = c.x(0).v[i];
    if (x.value > least && x.value < most) bytes[i / 8] |= 1 << (i % 8);
    if (alpha != 0) {
      const Counted below = alpha * x;
      c.y(0)[i] = x.value > 0 ? x : below;
    } else {
      c.y(0)[i] = x.value < least ? Counted(least) : x.value > most ? Counted(most) : x;
    }
  }
  for (size_t at = 0; at < c.y(1).size(); ++at) c.y(1)[at] = Counted(bytes[at]);
}

void select_by_bits(CountedCall& c) {
  c.compares = !c.x(1).v.empty();  // of bytes there are no numbers here
  const double alpha = c.arg("alpha", 0), factor = 1 / (1 - c.arg("ratio", 0));
  for (int64_t i = 0; i < c.out[0].size(); ++i) {
    const Counted x = c.x(0).v[i];
    const bool is_set = c.compares && (static_cast<int>(c.x(1).v[i / 8].value) >> (i % 8) & 1) != 0;
    if (alpha == 0 && factor == 1)
      c.y(0)[i] = is_set ? x : Counted();
    else
      c.y(0)[i] = (is_set ? factor : alpha) * x;
  }
}

void cross(CountedCall& c) {
  const Shape& s = c.out[0].shape;
  const int axis = canonical_axis(c.whole("axis", -1), s.rank());
  const int64_t inner = s.size_between(axis + 1, s.rank());
  for (int64_t i = 0; i < c.out[0].size(); ++i) {
    const int64_t k = i / inner % 3, first = i - k * inner, p = first + (k + 1) % 3 * inner,
                  q = first + (k + 2) % 3 * inner;
    c.y(0)[i] = c.x(0).v[p] * c.x(1).v[q] - c.x(0).v[q] * c.x(1).v[p];
  }
}

}  // namespace

void add_elementwise_references(References& r) {
  add_activations(r);
  add_piecewise(r);
  add_binary(r);
  r["Scale"] =
      each1_by([](const CountedCall& c) { return [scale = c.arg("scale", 1)](Counted x) { return scale * x; }; });
  r["AddCMul"] = add_c([](Counted a, Counted b) { return a * b; });
  r["AddCDiv"] = add_c([](Counted a, Counted b) { return a / b; });
  r["Dropout"] = dropout;
  r["DropoutGrad"] = dropout_gradient;
  r["ClipWithBits"] = clip_with_bits;
  r["SelectByBits"] = select_by_bits;
  r["Cross"] = cross;
  r["LengthsToWeights"] = [](CountedCall& c) {
    size_t at = 0;
    for (const Counted& length : c.x(0).v)
      for (double k = 0; k < length.value; ++k) c.y(0)[at++] = 1 / pow(length, c.arg("power", 0.5));
  };
  r["Range"] = [](CountedCall& c) {
    c.compares = false;
    for (size_t i = 0; i < c.y(0).size(); ++i) c.y(0)[i] = Counted(1) + Counted(static_cast<double>(i)) * Counted(2);
  };
}

}  // namespace stepnet::testing
