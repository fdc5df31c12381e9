// References of optimizers. What is the same for all elements is counted once, but constants of arguments alone.
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

int64_t row_size(const Shape& s) { return s.size_between(1, s.rank()); }

// The places in the table of the gradient's elements; of a dense optimizer (indices -1) as they stand.
std::vector<size_t> places(const CountedCall& c, int param, int indices, int64_t count) {
  std::vector<size_t> at;
  const int64_t row = indices < 0 ? 1 : row_size(c.x(param).shape);
  for (int64_t i = 0; i < count; ++i)
    at.push_back(
        static_cast<size_t>(indices < 0 ? i : static_cast<int64_t>(c.x(indices).v[i / row].value) * row + i % row));
  return at;
}

Reference adam(bool sparse, bool decays) {
  return [=](CountedCall& c) {
    const int grad = sparse ? 4 : 3;
    const double beta1 = c.arg("beta1", 0.9F), beta2 = c.arg("beta2", 0.999F), t = c.x(grad + 2).v[0].value + 1;
    const Counted lr = c.x(grad + 1).v[0], corrected = sqrt(1 - pow(beta2, t));
    const Counted correction = corrected / (1 - pow(beta1, t));
    const Counted rate = lr * correction;
    const Counted epsilon =
        c.whole("corrected_epsilon", 0) != 0 ? c.arg("epsilon", 1e-5F) * corrected : Counted(c.arg("epsilon", 1e-5F));
    const Counted decay = decays ? lr * c.arg("weight_decay", 0.01F) : 0;
    for (int o = 0; o < 3; ++o) c.y(o) = c.x(o).v;
    const std::vector<size_t> at = places(c, 0, sparse ? 3 : -1, c.x(grad).size());
    for (size_t i = 0; i < at.size(); ++i) {
      Counted &p = c.y(0)[at[i]], &m1 = c.y(1)[at[i]], &m2 = c.y(2)[at[i]];
      const Counted g = c.x(grad).v[i];
      m1 = beta1 * m1 + (1 - beta1) * g;
      m2 = beta2 * m2 + (1 - beta2) * g * g;
      if (decays) p += decay * p;
      const Counted root = sqrt(m2) + epsilon;
      p += rate * m1 / root;
      if (c.wants(3)) c.y(3)[i] = correction * m1 / root;
    }
  };
}

// Inputs are param, moments, product, grad, lr, iter.
void nadam(CountedCall& c) {
  const double beta1 = c.arg("beta1", 0.9F), beta2 = c.arg("beta2", 0.999F), t = c.x(6).v[0].value + 1;
  const auto momentum = [&](double step) {
    return beta1 * (1 - 0.5 * pow(Counted(0.96), Counted(step * c.arg("momentum_decay", 4e-3F))));
  };
  const Counted now = momentum(t), next = momentum(t + 1), lr = c.x(5).v[0];
  const Counted product = c.x(3).v[0] * now, next_product = product * next;
  const Counted of_gradient = lr * (1 - now) / (1 - product), of_mean = lr * next / (1 - next_product);
  const Counted correction = 1 - pow(Counted(beta2), Counted(t));
  for (int o = 0; o < 3; ++o) c.y(o) = c.x(o).v;
  c.y(3)[0] = product;
  for (size_t i = 0; i < c.x(4).v.size(); ++i) {
    Counted &m1 = c.y(1)[i], &m2 = c.y(2)[i];
    const Counted g = c.x(4).v[i];
    m1 = beta1 * m1 + (1 - beta1) * g;
    m2 = beta2 * m2 + (1 - beta2) * g * g;
    c.y(0)[i] += (of_gradient * g + of_mean * m1) / (sqrt(m2 / correction) + c.arg("epsilon", 1e-8F));
  }
}

// Inputs are param, moments, grad, lr, iter.
void lamb(CountedCall& c) {
  const double beta1 = c.arg("beta1", 0.9F), beta2 = c.arg("beta2", 0.999F), t = c.x(5).v[0].value + 1;
  const Counted first = 1 - pow(Counted(beta1), Counted(t)), second = 1 - pow(Counted(beta2), Counted(t));
  for (int o = 0; o < 3; ++o) c.y(o) = c.x(o).v;
  Counted of_param, of_direction;
  Numbers direction;
  for (size_t i = 0; i < c.x(3).v.size(); ++i) {
    Counted &p = c.y(0)[i], &m1 = c.y(1)[i], &m2 = c.y(2)[i];
    const Counted g = c.x(3).v[i];
    m1 = beta1 * m1 + (1 - beta1) * g;
    m2 = beta2 * m2 + (1 - beta2) * g * g;
    direction.push_back(m1 / first / (sqrt(m2 / second) + c.arg("epsilon", 1e-6F)) + c.arg("weight_decay", 0.01F) * p);
    of_param += p * p;
    of_direction += direction.back() * direction.back();
  }
  const Counted ratio = sqrt(of_param) / sqrt(of_direction), longer = c.x(4).v[0] * ratio;
  const bool both = of_param.value > 0 && of_direction.value > 0;
  for (size_t i = 0; i < direction.size(); ++i) c.y(0)[i] += (both ? longer : c.x(4).v[0]) * direction[i];
}

// Inputs are param, moment, [indices,] grad, lr.
Reference adagrad(bool sparse) {
  return [=](CountedCall& c) {
    const int grad = sparse ? 3 : 2;
    for (int o = 0; o < 2; ++o) c.y(o) = c.x(o).v;
    const std::vector<size_t> at = places(c, 0, sparse ? 2 : -1, c.x(grad).size());
    for (size_t i = 0; i < at.size(); ++i) {
      Counted &p = c.y(0)[at[i]], &h = c.y(1)[at[i]], g = c.x(grad).v[i];
      if (c.arg("weight_decay", 0) != 0) g += c.arg("weight_decay", 0) * p;
      h = sparse ? h + g * g : c.arg("decay", 1) * h + g * g;
      const Counted root = sqrt(h) + c.arg("epsilon", 1e-5F), lr = c.x(grad + 1).v[0];
      p += lr * g / root;
      if (c.wants(2)) c.y(2)[i] = lr / root;
      if (c.wants(3)) c.y(3)[i] = lr / root * g;
    }
  };
}

void row_wise_adagrad(CountedCall& c) {
  const int64_t row = row_size(c.x(0).shape);
  for (int o = 0; o < 2; ++o) c.y(o) = c.x(o).v;
  for (int64_t k = 0; k < c.x(2).size(); ++k) {
    const auto at = static_cast<int64_t>(c.x(2).v[k].value);
    const double halflife = c.arg("counter_halflife", -1);
    Counted squares, decay = c.arg("weight_decay", 0);
    if (decay > 0 && halflife > 0) {
      const Counted share = decay * (halflife / c.x(5).v[at]);
      if (c.x(5).v[at] > 0) decay = share;
    }
    Numbers g;
    for (int64_t i = 0; i < row; ++i) {
      g.push_back(c.x(3).v[k * row + i]);
      if (decay > 0) g.back() += decay * c.y(0)[at * row + i];
      squares += g.back() * g.back();
    }
    Counted& h = c.y(1)[at] += squares / std::max(1.0, static_cast<double>(row));
    const Counted step = c.x(4).v[0] / (sqrt(h) + c.arg("epsilon", 1e-5F));
    for (int64_t i = 0; i < row; ++i) c.y(0)[at * row + i] += step * g[static_cast<size_t>(i)];
  }
}

// Inputs are param, moment, moment_delta, [indices,] grad, lr.
Reference adadelta(bool sparse) {
  return [=](CountedCall& c) {
    const int grad = sparse ? 4 : 3;
    const double decay = c.arg("decay", 0.95F), epsilon = c.arg("epsilon", 1e-5F);
    for (int o = 0; o < 3; ++o) c.y(o) = c.x(o).v;
    const std::vector<size_t> at = places(c, 0, sparse ? 3 : -1, c.x(grad).size());
    for (size_t i = 0; i < at.size(); ++i) {
      Counted &p = c.y(0)[at[i]], &h = c.y(1)[at[i]], &d = c.y(2)[at[i]];
      const Counted g = c.x(grad).v[i];
      h = decay * h + (1 - decay) * (g * g);
      const Counted step = sqrt(d + epsilon) / sqrt(h + epsilon) * g;
      p += c.x(grad + 1).v[0] * step;
      d = decay * d + (1 - decay) * (step * step);
    }
  };
}

// Inputs are param, seq_b, [indices,] grad, lr.
Reference wngrad(bool sparse) {
  return [=](CountedCall& c) {
    const int grad = sparse ? 3 : 2;
    for (int o = 0; o < 2; ++o) c.y(o) = c.x(o).v;
    Counted& b = c.y(1)[0];
    const Counted root = b + c.arg("epsilon", 1e-5F), rate = c.x(grad + 1).v[0] / root;
    const std::vector<size_t> at = places(c, 0, sparse ? 2 : -1, c.x(grad).size());
    Counted squares;
    for (size_t i = 0; i < at.size(); ++i) {
      const Counted g = c.x(grad).v[i], step = rate * g;
      squares += g * g;
      c.y(0)[at[i]] += step;
      if (c.wants(3)) c.y(3)[i] = step;
    }
    b += squares / (sparse ? b : root);
    if (c.wants(2)) c.y(2)[0] = rate;
  };
}

// Inputs are var, n_z, [indices,] grad, [alpha].
Reference ftrl(bool sparse) {
  return [=](CountedCall& c) {
    const int grad = sparse ? 3 : 2;
    const Counted alpha = c.x(grad + 1).there ? c.x(grad + 1).v[0] : Counted(c.arg("alpha", 0.005F));
    const double inverse = 1 / alpha.value, beta = c.arg("beta", 1), lambda1 = c.arg("lambda1", 0.001F);
    for (int o = 0; o < 2; ++o) c.y(o) = c.x(o).v;
    const std::vector<size_t> at = places(c, 0, sparse ? 2 : -1, c.x(grad).size());
    for (size_t i = 0; i < at.size(); ++i) {
      Counted &p = c.y(0)[at[i]], &n = c.y(1)[2 * at[i]], &z = c.y(1)[2 * at[i] + 1];
      const Counted g = c.x(grad).v[i], before = sqrt(n);
      n += g * g;
      const Counted root = sqrt(n);
      z = z + g - (root - before) * inverse * p;
      const Counted made =
          ((z.value < 0 ? -lambda1 : lambda1) - z) / ((beta + root) * inverse + c.arg("lambda2", 0.001F));
      p = std::abs(z.value) > lambda1 ? made : 0;
    }
  };
}

void group_ftrl(CountedCall& c) {
  const int64_t rows = c.x(0).shape[0], columns = row_size(c.x(0).shape);
  const double alpha = c.x(3).there ? c.x(3).v[0].value : c.arg("alpha", 0.005F), inverse = 1 / alpha;
  const double least = c.arg("lambda1", 0.001F) * std::sqrt(static_cast<double>(rows));
  for (int o = 0; o < 2; ++o) c.y(o) = c.x(o).v;
  for (int64_t j = 0; j < columns && rows > 0; ++j) {
    Counted squares;
    Numbers roots;
    for (int64_t e = j; e < rows * columns; e += columns) {
      Counted &n = c.y(1)[static_cast<size_t>(2 * e)], &z = c.y(1)[static_cast<size_t>(2 * e) + 1];
      const Counted g = c.x(2).v[static_cast<size_t>(e)], before = sqrt(n);
      n += g * g;
      roots.push_back(sqrt(n));
      z = z + g - (roots.back() - before) * inverse * c.y(0)[static_cast<size_t>(e)];
      squares += z * z;
    }
    const Counted norm = sqrt(squares), factor = least / norm - 1;
    for (int64_t e = j, i = 0; e < rows * columns; e += columns, ++i) {
      const Counted made = c.y(1)[static_cast<size_t>(2 * e) + 1] * factor /
                           ((c.arg("beta", 1) + roots[static_cast<size_t>(i)]) * inverse + c.arg("lambda2", 0.001F));
      c.y(0)[static_cast<size_t>(e)] = norm.value > least ? made : 0;
    }
  }
}

// Inputs are param, moment, grad_sq_sum, grad, [indices,] lr.
Reference storm(bool sparse) {
  return [=](CountedCall& c) {
    for (int o = 0; o < 3; ++o) c.y(o) = c.x(o).v;
    Counted& sum = c.y(2)[0];
    for (const Counted& g : c.x(3).v) sum += g * g;
    const Counted rate = c.x(sparse ? 5 : 4).v[0] * pow(c.arg("beta", 0.1F) + sum, -1.0 / 3);
    const Counted alpha = c.arg("momentum", 10) * rate * rate, keeps = 1 - alpha;
    const std::vector<size_t> at = places(c, 0, sparse ? 4 : -1, c.x(3).size());
    for (size_t i = 0; i < at.size(); ++i) {
      Counted& m = c.y(1)[at[i]];
      const Counted g = c.x(3).v[i];
      m = g + keeps * (m - g);
      c.y(0)[at[i]] += rate * m;
    }
  };
}

void row_wise_adam(CountedCall& c) {
  const double beta1 = c.arg("beta1", 0.9F), beta2 = c.arg("beta2", 0.999F), t = c.x(6).v[0].value + 1;
  const Counted correction = sqrt(1 - pow(beta2, t)) / (1 - pow(beta1, t)), rate = c.x(5).v[0] * correction;
  const int64_t row = row_size(c.x(0).shape);
  for (int o = 0; o < 3; ++o) c.y(o) = c.x(o).v;
  for (int64_t k = 0; k < c.x(3).size(); ++k) {
    const auto at = static_cast<int64_t>(c.x(3).v[static_cast<size_t>(k)].value);
    const auto grad = [&](int64_t i) { return c.x(4).v[static_cast<size_t>(k * row + i)]; };
    Counted squares;
    for (int64_t i = 0; i < row; ++i) squares += grad(i) * grad(i);
    Counted& m2 = c.y(2)[static_cast<size_t>(at)];
    m2 = beta2 * m2 + (1 - beta2) * (squares / static_cast<double>(row));
    const Counted root = sqrt(m2) + c.arg("epsilon", 1e-5F);
    for (int64_t i = 0; i < row; ++i) {
      Counted& m1 = c.y(1)[static_cast<size_t>(at * row + i)];
      m1 = beta1 * m1 + (1 - beta1) * grad(i);
      c.y(0)[static_cast<size_t>(at * row + i)] += rate * m1 / root;
      if (c.wants(3)) c.y(3)[static_cast<size_t>(k * row + i)] = correction * m1 / root;
    }
  }
}

// What follows from the sums of the squares, in the order of scalars_memory and then of the rates.
void tune_yellow_fin(CountedCall& c, const Counted& square, const Counted& mean_squares) {
  const double beta = c.arg("beta", 0.999F), iter = c.x(9).v[0].value, epsilon = c.arg("epsilon", 1e-6F);
  const double correction = c.arg("zero_debias", 1) != 0 ? 1 / (1 - std::pow(beta, iter)) : 1;
  const auto width = static_cast<size_t>(c.arg("curv_win_width", 20));
  Numbers& means = c.y(7);
  const auto grow = [&](size_t i, const Counted& now) { means[i] = beta * means[i] + (1 - beta) * now; };
  const auto corrected = [&](size_t i) { return correction * means[i]; };
  grow(1, square);
  grow(0, sqrt(square));
  Numbers& window = c.y(4);
  window[(static_cast<size_t>(iter) - 1) % width] = log(square);
  Counted least = window[0], most = window[0];
  for (size_t i = 1; i < std::min(width, static_cast<size_t>(iter)); ++i) {
    least = min(least, window[i]);
    most = max(most, window[i]);
  }
  grow(2, least);
  grow(3, most);
  grow(4, means[0] / means[1]);
  const Counted variance = max(corrected(1) - mean_squares, epsilon);
  const Counted low = max(exp(corrected(2)), epsilon), high = max(exp(corrected(3)), epsilon);
  const Counted range = sqrt(high / low), limit = (range - 1) / (range + 1);
  const Counted scaled = corrected(4) * low, p = scaled * scaled / (2 * variance), square_p = p * p;
  const Counted w = -cbrt((sqrt(square_p + 4.0 / 27 * square_p * p) + p) / 2);
  const Counted root = w - p / 3 / w + 1, mu = max(root * root, limit * limit), rest = 1 - sqrt(mu);
  const Counted lr = beta * c.x(2).v[0] + (1 - beta) * (rest * rest / low), next = beta * c.x(3).v[0] + (1 - beta) * mu;
  c.y(2)[0] = iter > 1 ? lr : c.x(2).v[0];
  c.y(3)[0] = iter > 1 ? next : c.x(3).v[0];
}

void yellow_fin(CountedCall& c) {
  const double beta = c.arg("beta", 0.999F), iter = c.x(9).v[0].value;
  const double correction = c.arg("zero_debias", 1) != 0 ? 1 / (1 - std::pow(beta, iter)) : 1;
  for (int o = 0; o < 8; ++o) c.y(o) = c.x(o).v;
  const bool nesterov = c.arg("nesterov", 0) != 0;
  const Counted lr = c.x(2).v[0], mu = c.x(3).v[0], more = nesterov ? 1 + mu : mu;
  Counted squares, mean_squares;
  for (size_t i = 0; i < c.x(0).v.size(); ++i) {
    const Counted g = c.x(8).v[i], kept = mu * c.x(1).v[i], square = g * g;
    Counted &p = c.y(0)[i], &m = c.y(1)[i], &mean = c.y(5)[i];
    m = kept + lr * g;
    p = nesterov ? p - more * m + kept : p - m;
    mean = beta * mean + (1 - beta) * g;
    c.y(6)[i] = beta * c.y(6)[i] + (1 - beta) * square;
    squares += square;
    const Counted corrected = correction * mean;
    mean_squares += corrected * corrected;
  }
  tune_yellow_fin(c, max(squares, c.arg("epsilon", 1e-6F)), mean_squares);
}

void lars(CountedCall& c) {
  Counted x, dx;
  for (const Counted& v : c.x(0).v) x += v * v;
  for (const Counted& v : c.x(1).v) dx += v * v;
  x = sqrt(x), dx = sqrt(dx);
  const Counted own = c.x(3).v[0] / (dx / x + c.x(2).v[0] + c.arg("offset", 0.5F));
  c.y(0)[0] = max(min(x > 0 ? own : 1, c.x(4).v[0]), c.arg("lr_min", 0.02F));
}

void decay_adagrad(CountedCall& c) {
  const double beta1 = c.arg("beta1", 0.9F), decay = c.arg("weight_decay", 0);
  Counted correction = 1;
  if (c.whole("bias_correction_first", 1) != 0) correction = 1 - pow(beta1, c.x(5).v[0].value + 1);
  for (int o = 0; o < 3; ++o) c.y(o) = c.x(o).v;
  for (size_t i = 0; i < c.x(3).v.size(); ++i) {
    Counted &p = c.y(0)[i], &m1 = c.y(1)[i], &m2 = c.y(2)[i];
    const Counted g = c.x(3).v[i];
    m1 = beta1 * m1 + (1 - beta1) * g;
    m2 += g * g;
    Counted direction = m1 / correction / (sqrt(m2) + c.arg("epsilon", 1e-5F));
    if (decay != 0) direction += decay * p;
    p += c.x(4).v[0] * direction;
  }
}

// Inputs are grad, momentum, lr, and where there are ones param and indices.
void momentum(CountedCall& c) {
  const double mu = c.arg("momentum", 0);
  const bool nesterov = c.whole("nesterov", 0) != 0;
  c.y(1) = c.x(1).v;
  if (c.wants(2)) c.y(2) = c.x(3).v;
  const std::vector<size_t> at = places(c, 3, c.x(4).there ? 4 : -1, c.x(0).size());
  for (size_t i = 0; i < at.size(); ++i) {
    Counted& m = c.y(1)[at[i]];
    const Counted before = m;
    const Counted g = c.x(0).v[i], rate = c.x(2).v[0];
    const bool rate_last = c.whole("rate_last", 0) != 0;
    m = mu * before + (rate_last ? g : rate * g);
    Counted step = m;
    if (rate_last)
      step = rate * (nesterov ? g + mu * m : m);
    else if (nesterov)
      step = (1 + mu) * m - mu * before;
    c.y(0)[i] = step;
    if (c.wants(2)) c.y(2)[at[i]] -= step;
  }
}

void rms_prop(CountedCall& c) {
  const double decay = c.arg("decay", 0.9F);
  for (size_t i = 0; i < c.x(0).v.size(); ++i) {
    const Counted g = c.x(0).v[i], ms = c.x(1).v[i];
    c.y(1)[i] = ms + (1 - decay) * (g * g - ms);
    const double epsilon = c.arg("epsilon", 1e-5F), momentum = c.arg("momentum", 0);
    if (c.whole("rate_last", 0) != 0) {
      c.y(2)[i] = momentum * c.x(2).v[i] + g / (sqrt(c.y(1)[i]) + epsilon);
      c.y(0)[i] = c.x(3).v[0] * c.y(2)[i];
    } else {
      c.y(0)[i] = c.y(2)[i] = momentum * c.x(2).v[i] + c.x(3).v[0] * g / sqrt(epsilon + c.y(1)[i]);
    }
  }
}

Counted inverse(const CountedCall& c, Counted iter) { return pow(1 + c.arg("gamma", 0) * iter, -c.arg("power", 0)); }

Counted warmup(const CountedCall& c, Counted iter) {
  const double start = c.arg("start_multiplier", 0), length = c.arg("num_iter", 0);
  const Counted rising = start + (1 - start) * iter / length;
  return iter < length ? rising : 1;
}

Counted delayed_warmup(const CountedCall& c, double iter) {
  const double before = c.arg("constant_warmup_num_iter", 1e7), length = c.arg("linear_warmup_num_iter", 1e7);
  const double start = c.arg("start_warmup_multiplier", 0.1F);
  const Counted rising = start + (1 - start) * Counted(iter - before) / length;
  return iter < before ? start : iter - before < length ? rising : 1;
}

Counted cycle(const CountedCall& c, double iter, double highest, double half, double decay) {
  const double cycles = std::floor(iter / (2 * half)), rise = std::abs(highest / c.arg("base_lr", 0)) - 1;
  return 1 + rise * pow(decay, cycles) * (1 - abs(Counted(iter) / half - (2 * cycles + 1)));
}

struct Waves {
  double most, least, period, stretch, shrink;
};

// In which cycle an iteration is, and where in it, is arithmetic of indices.
Counted cosine(const CountedCall&, double iter, const Waves& w) {
  double begin = 0, length = w.period, cycles = 0;
  for (; iter >= begin + length; length *= w.stretch, ++cycles) begin += length;
  const Counted shrink = pow(w.shrink, cycles), low = w.least * shrink, high = w.most * shrink;
  const Counted wave = 1 + cos(M_PI * (Counted(iter - begin) / length));
  return low + 0.5 * (high - low) * wave;
}

Counted later_multiplier(const CountedCall& c, double iter) {
  const std::string policy = c.text("policy");
  const double absent = c.text("policy") == "slope" ? 0 : 1;
  const double first = c.arg("multiplier_1", absent), last = c.arg("multiplier_2", absent);
  if (policy == "gate") return iter < c.arg("num_iter", 0) ? first : last;
  if (policy == "slope") {
    const double before = c.arg("num_iter_1", 0), steepness = (last - first) / (c.arg("num_iter_2", 0) - before);
    const Counted along = first + steepness * Counted(iter - before);
    return iter < before ? first : max(along, last);
  }
  if (policy == "constantThenLinearWarmup") return delayed_warmup(c, iter);
  if (policy == "cyclical") return cycle(c, iter, c.arg("max_lr", 0.005F), c.arg("stepsize", 1), c.arg("decay", 1));
  if (policy == "cosine")
    return cosine(c, iter,
                  {c.arg("max_lr", 0.5F), c.arg("min_lr", 0.1F), c.arg("period", 50), c.arg("t_mult", 1),
                   c.arg("lr_shrink", 0.99F)});
  if (policy == "pieceWarmup") return iter < c.arg("n1", 0) ? c.arg("m1", 0.5) : c.arg("m2", 0.5);
  if (policy == "composite") return c.arg("sub_policy_1_lr_scale", 1) * pow(c.arg("sub_policy_1_gamma", 0), iter);
  if (policy != "compositeCyclical" && policy != "compositeCosine") return 1;
  const double warm_up = c.arg("constant_warmup_num_iter", 1e7) + c.arg("linear_warmup_num_iter", 1e7);
  const Counted warm = delayed_warmup(c, iter);
  if (policy == "compositeCosine") {
    const Counted falls =
        cosine(c, iter - warm_up,
               {c.arg("cosine_max_lr", 0.5F), c.arg("cosine_min_lr", 0.1F), c.arg("cosine_period", 50),
                c.arg("cosine_t_mult", 1), c.arg("cosine_lr_shrink", 0.99F)});
    return iter < warm_up ? warm : falls;
  }
  const Counted later = cycle(c, std::max(0.0, iter - warm_up), c.arg("cyclical_max_lr", 0.05F),
                              c.arg("cyclical_step_size", 1e6), c.arg("cyclical_decay", 1));
  return iter < warm_up ? warm : later;
}

Counted multiplier(const CountedCall& c, Counted iter) {
  const std::string policy = c.text("policy");
  if (policy == "step") return pow(c.arg("gamma", 0), std::floor(iter.value / c.arg("stepsize", 1)));
  if (policy == "exp") return pow(c.arg("gamma", 0), iter);
  if (policy == "inv") return inverse(c, iter);
  if (policy == "poly") return pow(max(0, 1 - iter / c.arg("max_iter", 1)), c.arg("power", 0));
  if (policy == "linearWarmup") return warmup(c, iter);
  if (policy == "constantWarmup") return iter < c.arg("num_iter", 0) ? c.arg("multiplier", 0.5) : 1;
  if (policy == "alter")
    return std::fmod(iter.value, c.arg("active_period", 1) + c.arg("inactive_period", 1)) < c.arg("active_period", 1);
  if (policy != "hill") return later_multiplier(c, iter.value);
  const Counted decayed = inverse(c, max(iter.value - c.arg("num_iter", 0), 0)), warm = warmup(c, iter);
  return iter < c.arg("num_iter", 0) ? warm : max(decayed, c.arg("end_multiplier", 0));
}

// The last output is the norm.
void global_norm_clip(CountedCall& c) {
  Counted squares;
  for (const CountedTensor& gradient : c.in)
    for (const Counted& g : gradient.v) squares += g * g;
  const Counted norm = sqrt(squares), limit = c.arg("max_norm", 0);
  const Counted ratio = limit / norm, factor = norm > limit ? ratio : 1;
  for (int i = 0; i < static_cast<int>(c.in.size()); ++i)
    for (size_t k = 0; k < c.y(i).size(); ++k) c.y(i)[k] = factor * c.x(i).v[k];
  c.y(static_cast<int>(c.in.size())) = {norm};
}

void clip_by_scaling(CountedCall& c) {
  const double threshold = c.arg("threshold", 0);
  const Counted limit = c.x(2).there ? threshold * c.x(2).v[0] : threshold, ratio = limit / c.x(1).v[0];
  const Counted factor = c.x(1).v[0] > limit ? ratio : 1;
  for (size_t i = 0; i < c.y(0).size(); ++i) c.y(0)[i] = factor * c.x(0).v[i];
}

// By which factor the gradients are multiplied is known once; the first output is whether they are finite.
void unscale_gradients(CountedCall& c) {
  const Counted factor = 1 / c.x(0).v[0];
  for (int i = 1; i < static_cast<int>(c.in.size()); ++i)
    for (size_t k = 0; k < c.y(i).size(); ++k) c.y(i)[k] = factor * c.x(i).v[k];
}

void update_loss_scale(CountedCall& c) {
  const bool finite = c.x(2).v[0].value != 0;
  const double good = finite ? c.x(1).v[0].value + 1 : 0;
  const bool grows = good >= c.arg("growth_interval", 2000);
  const double factor = !finite ? c.arg("backoff_factor", 0.5) : grows ? c.arg("growth_factor", 2) : 1;
  c.put(0, 0, c.x(0).v[0] * factor);
  c.put(1, 0, grows ? 0 : good);
}

}  // namespace

void add_optimizer_references(References& r) {
  r["Adam"] = adam(false, false);
  r["NAdam"] = nadam;
  r["Lamb"] = lamb;
  r["AdamW"] = adam(false, true);
  r["SparseAdam"] = adam(true, false);
  r["Adagrad"] = adagrad(false);
  r["SparseAdagrad"] = adagrad(true);
  r["RowWiseSparseAdagrad"] = row_wise_adagrad;
  r["Adadelta"] = adadelta(false);
  r["SparseAdadelta"] = adadelta(true);
  r["Wngrad"] = wngrad(false);
  r["SparseWngrad"] = wngrad(true);
  r["Lars"] = lars;
  r["Ftrl"] = ftrl(false);
  r["SparseFtrl"] = ftrl(true);
  r["GFtrl"] = group_ftrl;
  r["Storm"] = storm(false);
  r["SparseStorm"] = storm(true);
  r["RowWiseSparseAdam"] = row_wise_adam;
  r["YellowFin"] = yellow_fin;
  r["DecayAdagrad"] = decay_adagrad;
  r["MomentumSGD"] = r["MomentumSGDUpdate"] = r["SparseMomentumSGDUpdate"] = momentum;
  r["RmsProp"] = rms_prop;
  r["LearningRate"] = [](CountedCall& c) { c.y(0)[0] = c.arg("base_lr", 0) * multiplier(c, c.x(0).v[0]); };
  r["GlobalNormClip"] = global_norm_clip;
  r["ClipTensorByScaling"] = clip_by_scaling;
  r["UnscaleGradients"] = unscale_gradients;
  r["UpdateLossScale"] = update_loss_scale;
}

}  // namespace stepnet::testing
