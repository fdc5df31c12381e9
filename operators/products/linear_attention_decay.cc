// LinearAttentionDecay: the gradient with respect to log_decay of LinearAttention, from those of y and of last. With
// its states S and their gradients G[t] = q[t] dy[t]^T + exp(g[t + 1]) G[t + 1], from dlast on,
//   dg[t] = <exp(g[t]) S[t - 1], G[t]>
// the sum of the products of elements. (With `leaving`, <exp(g[t]) S[t], G[t + 1]>.) Every term has the factor of t, so
// that a gate that has closed has a gradient as small as it should be. The running sum of q[t] . dq[t] - k[t] . dk[t]
// is the same number, but has terms without the factor, which take each other away: in float32 what is left of a factor
// of e^-16 is rounding.
//
// In a chunk with the state P before it, the gradient Q of that behind it, and D the factors between two timesteps, dg
// is the sum over timesteps j < t <= i of D[j, i] (q[i] . k[j]) (dy[i] . v[j]), of what i reads of P, of what j adds to
// Q, and <P, Q>. The states before chunks are kept while a pair of sample and head is at work.
//
// Derivatives: with w the gradient of dg, and W its running sums over time, the other way round than above,
//   <w, dg> = <W dy, y> - <W k, dk> + <sum of w, <last, dlast>>
// whose derivatives are those of LinearAttention, by W dy and dlast times the sum, and of that which makes dk, by -W k.
// These, which need gradients of a gradient, take away what is large.
#include <algorithm>
#include <utility>

#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "core/tensor/dry_device.h"
#include "operators/products/linear_attention.h"
#include "stepnet/matmul.h"

namespace stepnet {
namespace {

using Sizes = LinearAttentionSizes;
using Order = LinearAttentionOrder;
template <class T>
using Pointers = LinearAttentionDecayPointers<T>;

constexpr int64_t kChunk = 32;  // as LinearAttention's

int64_t chunks_in(const Order& order) { return (order.count() + kChunk - 1) / kChunk; }

// What a thread works on: the rows of a pair's chunk, in the order of time, and the states.
template <class T>
struct Room {
  Room(const Sizes& s, const Order& order) {
    const int64_t of_keys = kChunk * s.keys, of_values = kChunk * s.values;
    const int64_t size =
        2 * of_keys + 4 * of_values + 2 * kChunk * kChunk + 5 * kChunk + (chunks_in(order) + 2) * s.state();
    T* next = thread_buffer<T>(ThreadBuffer::line, static_cast<size_t>(size)).data();
    const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
    queries = take(of_keys), keys = take(of_keys);
    values = take(of_values), dy = take(of_values), of_before = take(of_values), of_behind = take(of_values);
    scores = take(kChunk * kChunk), weights = take(kChunk * kChunk);
    factors = take(kChunk), left = take(kChunk), since = take(kChunk), read = take(kChunk), added = take(kChunk);
    state = take(s.state()), behind = take(s.state()), before = take(chunks_in(order) * s.state());
  }
  T *queries, *keys, *values, *dy;
  T *of_before, *of_behind;  // what is read of the state before the chunk, and of the gradient behind it
  T *scores, *weights;
  T* factors;  // that the state is multiplied by before each timestep
  T* left;     // what the factors have left of each timestep's term
  T* since;    // and of the state before the chunk
  T *read, *added;
  T *state, *behind;
  T* before;  // each chunk
};

template <class T>
void multiply(T* x, T factor, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

template <class T>
T dot(const T* a, const T* b, int64_t count) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// The rows of a pair, of which each has `width` elements; zeros where there is none.
template <class T>
void gather(const T* from, const Sizes& s, const Order& order, int64_t begin, int64_t count, int64_t width, T* to) {
  for (int64_t n = 0; n < count; ++n)
    if (const int64_t row = order.row(begin + n); row < 0)
      std::fill_n(to + n * width, width, T(0));
    else
      std::copy_n(from + row * s.pairs * width, width, to + n * width);
}

template <class T>
void gather_factors(const T* g, const Sizes& s, const Order& order, int64_t begin, int64_t count, T* to) {
  for (int64_t n = 0; n < count; ++n) {
    const int64_t row = order.factor(begin + n);
    to[n] = row < 0 ? T(0) : g[row * s.pairs];
  }
  const std::span<T> factors(to, static_cast<size_t>(count));
  vec_exp(factors, factors);
}

// Products of factors, since the chunk's begin and to its end. Multiplies the scores by those between two timesteps,
// where these are there.
template <class T>
void apply_factors(const Room<T>& room, int64_t count, T* scores) {
  T since = 1;
  for (int64_t i = 0; i < count; ++i) {
    const T factor = room.factors[i];
    since *= factor;
    room.since[i] = since;
    multiply(room.left, factor, i);
    room.left[i] = 1;
    if (!scores) continue;
#pragma omp simd
    for (int64_t j = 0; j < i; ++j) scores[i * count + j] *= room.left[j];
  }
}

// The state behind a chunk from that before it.
template <class T>
void pass_chunk(const Sizes& s, const Order& order, const Pointers<T>& p, const Room<T>& room, int64_t begin,
                int64_t count) {
  gather(p.k, s, order, begin, count, s.keys, room.keys);
  gather(p.v, s, order, begin, count, s.values, room.values);
  gather_factors(p.g, s, order, begin, count, room.factors);
  apply_factors<T>(room, count, nullptr);
  for (int64_t i = 0; i < count; ++i) multiply(room.keys + i * s.keys, room.left[i], s.keys);
  multiply(room.state, room.since[count - 1], s.state());
  matmul(true, false, s.keys, s.values, count, room.keys, room.values, room.state, true);
}

// dg of a chunk, and the gradient of the state before it from that behind it.
template <class T>
void differentiate_chunk(const Sizes& s, const Order& order, const Pointers<T>& p, const Room<T>& room, int64_t begin,
                         int64_t count, const T* before) {
  gather(p.q, s, order, begin, count, s.keys, room.queries);
  gather(p.k, s, order, begin, count, s.keys, room.keys);
  gather(p.v, s, order, begin, count, s.values, room.values);
  gather(p.dy, s, order, begin, count, s.values, room.dy);
  gather_factors(p.g, s, order, begin, count, room.factors);
  matmul(false, true, count, count, s.keys, room.queries, room.keys, room.scores);
  matmul(false, true, count, count, s.values, room.dy, room.values, room.weights);
  matmul(false, false, count, s.values, s.keys, room.queries, before, room.of_before);
  matmul(false, false, count, s.values, s.keys, room.keys, room.behind, room.of_behind);
  apply_factors(room, count, room.scores);
  for (int64_t i = 0; i < count; ++i) {
    room.read[i] = room.since[i] * dot(room.dy + i * s.values, room.of_before + i * s.values, s.values);
    room.added[i] = room.left[i] * dot(room.values + i * s.values, room.of_behind + i * s.values, s.values);
  }
  const T all = room.since[count - 1], through = all * dot(before, room.behind, s.state());
  T* const pairs = room.left;  // the sums over the timesteps from t on, of each one before t
  std::fill_n(pairs, count, T(0));
  T read = 0;
  for (int64_t t = count - 1; t >= 0; --t) {
    T sum = 0;
    read += room.read[t];
    for (int64_t j = 0; j < t; ++j) {
      pairs[j] += room.scores[t * count + j] * room.weights[t * count + j];
      sum += pairs[j] + room.added[j];
    }
    if (const int64_t row = order.factor(begin + t); row >= 0) p.out[row * s.pairs] = sum + read + through;
  }
  for (int64_t i = 0; i < count; ++i) multiply(room.queries + i * s.keys, room.since[i], s.keys);
  multiply(room.behind, all, s.state());
  matmul(true, false, s.keys, s.values, count, room.queries, room.dy, room.behind, true);
}

template <class T>
void begin_with(const T* given, int64_t count, T* state) {
  if (given)
    std::copy_n(given, count, state);
  else
    std::fill_n(state, count, T(0));
}

// All timesteps of one pair, whose first elements are pointed to.
template <class T>
void differentiate(const Sizes& s, const Order& order, const Pointers<T>& p) {
  const Room<T> room(s, order);
  const int64_t chunks = chunks_in(order);
  const auto count = [&](int64_t chunk) { return std::min(kChunk, order.count() - chunk * kChunk); };
  begin_with(p.first, s.state(), room.state);
  for (int64_t c = 0; c < chunks; ++c) {
    std::copy_n(room.state, s.state(), room.before + c * s.state());
    if (c + 1 < chunks) pass_chunk(s, order, p, room, c * kChunk, count(c));
  }
  begin_with(p.dlast, s.state(), room.behind);
  for (int64_t c = chunks - 1; c >= 0; --c)
    differentiate_chunk(s, order, p, room, c * kChunk, count(c), room.before + c * s.state());
}

template <class T>
void forward(const LinearAttentionArgs& args, In<T> q, In<T> k, In<T> v, In<T> g, In<T> dy, In<T> first, In<T> dlast,
             Out<T> out, Call& call) {
  const Sizes s(call);
  if (s.steps == 0) return;
  const Order order(args, s);
  auto range = [&](int64_t begin, int64_t end) {
    const auto at = [](auto* data, int64_t i) { return data ? data + i : nullptr; };
    for (int64_t i = begin; i < end; ++i)
      differentiate<T>(
          s, order,
          {q.data() + i * s.keys, k.data() + i * s.keys, v.data() + i * s.values, g.data() + i,
           dy.data() + i * s.values, at(first.data(), i * s.state()), at(dlast.data(), i * s.state()), out.data() + i});
  };
  constexpr double kFlopsPerNanosecond = 50;
  const int64_t flops = 2 * kChunk * (s.keys + s.values) + 8 * s.state();  // of a timestep
  parallel_for(s.pairs, 50 + static_cast<double>(s.steps * flops) / kFlopsPerNanosecond, range);
}

// The products of the kernel.
template <class T>
void forward_workspace(const LinearAttentionArgs& args, In<T> q, In<T>, In<T>, In<T>, In<T>, In<T>, In<T>, Out<T> out,
                       Call& call) {
  const Sizes s(call);
  if (s.steps == 0) return;
  const Order order(args, s);
  const T* const x = q.data();
  T* const to = out.data();
  const int64_t chunks = chunks_in(order);
  const auto count = [&](int64_t chunk) { return std::min(kChunk, order.count() - chunk * kChunk); };
  for (StepsAlike pair(s.pairs, 1); pair.more(); pair.next()) {
    for (StepsAlike c(chunks - 1, 1); c.more(); c.next())
      matmul(true, false, s.keys, s.values, count(*c), x, x, to, true);
    for (StepsAlike c(chunks, 1); c.more(); c.next()) {
      matmul(false, true, count(*c), count(*c), s.keys, x, x, to);
      matmul(false, true, count(*c), count(*c), s.values, x, x, to);
      matmul(false, false, count(*c), s.values, s.keys, x, x, to);
      matmul(false, false, count(*c), s.values, s.keys, x, x, to);
      matmul(true, false, s.keys, s.values, count(*c), x, x, to, true);
    }
  }
}

void require_like(const ShapeCall& c, int input, const char* name, int other, const char* like) {
  if (!c.known(input) || !c.known(other)) return;
  require(c.shape(input) == c.shape(other), "{} must be like {}, {}, but are {}", name, like, c.shape(other),
          c.shape(input));
}

void require_states(const ShapeCall& c, int input, const char* name) {
  if (!c.known(input) || !c.known(0) || !c.known(2)) return;
  const Shape state{c.shape(0)[1], c.shape(0)[2], c.shape(0)[3], c.shape(2)[3]};
  require(c.shape(input) == state, "{} must be [B, N, K, V], {}, but is {}", name, state, c.shape(input));
}

void infer(const LinearAttentionArgs&, ShapeCall& c) {
  for (const int input : {0, 2})
    if (c.known(input))
      require(c.shape(input).rank() == 4, "{} must have 4 dimensions, but are {}", input == 0 ? "queries" : "values",
              c.shape(input));
  require_like(c, 1, "keys", 0, "queries");
  require_like(c, 4, "dy", 2, "values");
  if (c.known(0) && c.known(2))
    for (const int d : {0, 1, 2})
      require(c.shape(0)[d] == c.shape(2)[d], "queries are {}, but values {}; T, B and N must be the same", c.shape(0),
              c.shape(2));
  if (c.known(0) && c.known(3)) {
    const Shape rows{c.shape(0)[0], c.shape(0)[1], c.shape(0)[2]};
    require(c.shape(3) == rows, "log_decay must be [T, B, N], {}, but is {}", rows, c.shape(3));
  }
  require_states(c, 5, "first");
  require_states(c, 6, "dlast");
  c.set_like(0, 3);
}

// As the definition says, timestep by timestep.
double flops(const LinearAttentionArgs&, const ShapeCall& c) {
  if (!c.known(0) || !c.known(2)) return 0;
  const Shape& k = c.shape(0);
  const double state = static_cast<double>(k[3]) * static_cast<double>(c.shape(2)[3]);
  return static_cast<double>(k[0] * k[1] * k[2]) * (8 * state + 1);
}

Value sum_of(Formula& f, Value a, Value b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return f.op("Add", {a, b});
}

std::vector<Gradient> derivatives(Formula& f) {
  const auto& a = f.args<LinearAttentionArgs>();
  LinearAttentionValues states{.reverse = a.reverse, .leaving = a.leaving};
  const Value q = f.x("queries"), k = f.x("keys"), v = f.x("values"), g = f.x("log_decay"), dy = f.x("dy"),
              w = f.dy("decay");
  const Value first = f.has_x("first") ? f.x("first") : Value(), dlast = f.has_x("dlast") ? f.x("dlast") : Value();
  std::vector<Argument> order = {make_arg("axis", 0), make_arg("reverse", a.reverse)};
  if (a.leaving) order.push_back(make_arg("exclusive", true));
  const auto expand = [&](Value x, const std::vector<int64_t>& dims) {
    return f.op("ExpandDims", {x}, {make_arg("dims", dims)});
  };
  const Value sums = expand(f.op("Cumsum", {w}, order), {3});
  Value all;  // of all timesteps
  if (dlast.defined())
    all = expand(f.op("ReduceSum", {w}, {make_arg("axes", std::vector<int64_t>{0}), make_arg("keepdims", 0)}), {2, 3});
  states.q = q, states.k = k, states.v = v, states.g = g, states.first = first;
  states.dy = f.same_shape(f.op("Mul", {dy, sums}), dy);
  if (dlast.defined()) states.dlast = f.same_shape(f.op("Mul", {dlast, all}), dlast);
  // dk is what these read of the states in the other direction.
  LinearAttentionValues other{.reverse = !a.reverse, .leaving = !a.leaving};
  other.q = v, other.k = dy, other.v = q, other.g = g, other.first = transposed_states(f, dlast);
  other.dy = f.op("Negative", {f.same_shape(f.op("Mul", {k, sums}), k)});
  const bool of_first = first.defined() && f.wants("first"), of_last = dlast.defined() && f.wants("dlast");
  const LinearAttentionGradients d = differentiate_attention(
      f, states, {f.wants("queries"), f.wants("keys"), f.wants("values"), f.wants("log_decay"), of_first});
  const LinearAttentionGradients e = differentiate_attention(
      f, other, {f.wants("values"), f.wants("dy"), f.wants("queries"), f.wants("log_decay"), of_last});
  Value of_keys, of_dy, of_dlast;
  if (f.wants("keys")) {
    const Value dk = attend_by_formula(f, states, true, {v, dy, q, g, other.first}, {true, false})[0];
    of_keys = f.op("Sub", {d.k, f.same_shape(f.op("Mul", {dk, sums}), k)});
  }
  if (f.wants("dy") || of_last) {
    const std::vector<Value> made = attend_by_formula(f, states, false, {q, k, v, g, first}, {f.wants("dy"), of_last});
    if (f.wants("dy")) of_dy = f.op("Add", {f.same_shape(f.op("Mul", {made[0], sums}), dy), e.k});
    if (of_last)
      of_dlast = f.op("Add", {f.same_shape(f.op("Mul", {made[1], all}), dlast), transposed_states(f, e.first)});
  }
  const auto given = [](Value x) { return x.defined() ? Gradient(x) : Gradient(); };
  return {given(sum_of(f, d.q, e.v)),
          given(of_keys),
          given(sum_of(f, d.v, e.q)),
          given(sum_of(f, d.g, e.g)),
          given(of_dy),
          given(d.first),
          given(of_dlast)};
}

REGISTER(linear_attention_decay) {
  return op<LinearAttentionArgs>("LinearAttentionDecay")
      .own()
      .doc(
          "The gradient of LinearAttention with respect to log_decay, from those with respect to its outputs: a sum of "
          "products that all have the timestep's factor, and so as precise where that is almost 0.")
      .arg("reverse", &LinearAttentionArgs::reverse, false, "LinearAttention's")
      .arg("leaving", &LinearAttentionArgs::leaving, false, "LinearAttention's")
      .input("queries", "[T, B, N, K], LinearAttention's")
      .input("keys", "[T, B, N, K], LinearAttention's")
      .input("values", "[T, B, N, V], LinearAttention's")
      .input("log_decay", "[T, B, N], LinearAttention's")
      .input("dy", "[T, B, N, V], the gradient of its y")
      .input("first", "[B, N, K, V], LinearAttention's; zeros if left out")
      .optional()
      .input("dlast", "[B, N, K, V], the gradient of its last; zeros if left out")
      .optional()
      .output("decay", "[T, B, N], the gradient of log_decay", like("log_decay"))
      .shape(infer)
      .example({"queries=3,1,2,2", "keys=3,1,2,2", "values=3,1,2,1", "log_decay=3,1,2", "dy=3,1,2,1", "first=1,2,2,1",
                "dlast=1,2,2,1"})
      .example({"queries=3,1,1,2", "keys=3,1,1,2", "values=3,1,1,2", "log_decay=3,1,1", "dy=3,1,1,2"}, {"reverse=true"})
      .example({"queries=3,1,1,1", "keys=3,1,1,1", "values=3,1,1,2", "log_decay=3,1,1", "dy=3,1,1,2", "first=1,1,1,2",
                "dlast=1,1,1,2"},
               {"leaving=true"})
      .example({"queries=0,1,1,2", "keys=0,1,1,2", "values=0,1,1,2", "log_decay=0,1,1", "dy=0,1,1,2"})
      .flops(flops)
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .workspace(forward_workspace<float>, forward_workspace<double>)
      .gpu_workspace([](const LinearAttentionArgs& args, const Call& call) {
        const Sizes s(call);
        const auto each = static_cast<int64_t>(dtype_size(call.in(0).dtype()));
        return std::vector<int64_t>{decay_elements_on_gpu(args, s) * each};
      })
      .whole_derivative(derivatives);
}

}  // namespace
}  // namespace stepnet
