// LinearAttention: states that are matrices, S[t] = exp(g[t]) S[t - 1] + k[t] v[t]^T from the state `first`, or zero if
// there is none, of which y[t] = S[t]^T q[t] is read; last = S[T - 1]. With `reverse` the timesteps count from the end.
// With `leaving` a state is multiplied by the factor of its own timestep as it goes on to the next, and into last.
//
// Timesteps are taken in chunks. With D the factors between a timestep and a later one of its chunk, and d those
// between the state P before the chunk and a timestep, a chunk's Y = (Q K^T * D) V + d Q P, where D is 0 for what comes
// later, and the state after it is K'^T V + d' P, K' being the keys times what is left of them: matrix products, as in
// Yang et al., "Gated linear attention transformers with hardware-efficient training", 2024, or Dao and Gu's for
// Mamba-2. D's rows are products of one factor after the other, as the states' own: of differences of sums of g there
// would be less precision, and none if a g is minus infinity. What is infinite or NaN in a timestep's values may reach
// earlier ones of its chunk.
//
// The gradient of the states, G[t] = q[t] dy[t]^T + exp(g[t + 1]) G[t + 1], is such a state, from dlast on, in the
// other direction, and leaving if this is not, else not. So, with q, k and v in other roles,
//   dq[t] = S[t] dy[t]      LinearAttention(dy, v, k, g, first^T), as this one
//   dk[t] = G[t] v[t]       LinearAttention(v, dy, q, g, dlast^T), in the other direction
//   dv[t] = G[t]^T k[t]     LinearAttention(k, q, dy, g, dlast), in the other direction, whose last is dfirst
//   dg[t] = exp(g[t]) S[t - 1] * G[t], the sum of the products of elements: LinearAttentionDecay
// (operators/products/linear_attention_decay.cc). There are derivatives of any order. Backward reads queries, keys,
// values, g and first.
#include "operators/products/linear_attention.h"

#include <algorithm>

#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "core/tensor/dry_device.h"
#include "stepnet/matmul.h"

namespace stepnet::cpu_linear_attention {
namespace {

using Sizes = LinearAttentionSizes;

// Timesteps of a chunk. With twice as many, scores take longer than the passes over the state that are saved, at all
// sizes up to 256 by 256.
constexpr int64_t kChunk = 32;

// The products of `count` timesteps of one pair, whose rows follow each other.
template <class T>
void make_scores(const Sizes& s, int64_t count, const T* q, const T* k, T* scores) {
  matmul(false, true, count, count, s.keys, q, k, scores);
}
template <class T>
void read_state(const Sizes& s, int64_t count, const T* q, const T* state, T* y) {
  matmul(false, false, count, s.values, s.keys, q, state, y);
}
template <class T>
void read_chunk(const Sizes& s, int64_t count, const T* scores, const T* v, T* y, bool accumulate) {
  matmul(false, false, count, s.values, count, scores, v, y, accumulate);
}
template <class T>
void add_to_state(const Sizes& s, int64_t count, const T* k, const T* v, T* state, bool accumulate) {
  matmul(true, false, s.keys, s.values, count, k, v, state, accumulate);
}

// What a thread works on: rows of one pair without the others' between them, and what is made of them.
template <class T>
struct Room {
  // `alone`: there is one pair, whose values and y are used where they are.
  Room(const Sizes& s, int64_t count, bool alone, bool with_state) {
    const int64_t of_keys = count * s.keys, of_values = alone ? 0 : count * s.values;
    const int64_t size = count * count + 2 * of_keys + 2 * of_values + 2 * count + (with_state ? s.state() : 0);
    scores = thread_buffer<T>(ThreadBuffer::line, static_cast<size_t>(size)).data();
    queries = scores + count * count;
    keys = queries + of_keys;
    values = keys + of_keys;
    y = values + of_values;
    factors = y + of_values;
    left = factors + count;
    state = left + count;
  }
  T *scores, *queries, *keys, *values, *y;
  T* factors;  // exp(g)
  T* left;     // what the factors have left of each timestep's term so far
  T* state;
};

// Timesteps of a pair, by their rows.
template <class T>
struct Chunk {
  bool reverse, leaving;
  int64_t count;
  const T* factors;  // null: all are 1

  int64_t row(int64_t k) const { return reverse ? count - 1 - k : k; }  // of the k-th in time
  T before(int64_t k) const {                                           // what a state is multiplied by before the k-th
    if (!factors) return T(1);
    return leaving ? k > 0 ? factors[row(k - 1)] : T(1) : factors[row(k)];
  }
};

template <class T>
void multiply(T* x, T factor, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

// Multiplies the scores by the factors between two timesteps, and the queries by those since the state before the
// chunk, which no score of a later timestep survives. Leaves in `left` what a term has left at the end; returns what
// that state has.
template <class T>
T apply_factors(const Chunk<T>& c, const Room<T>& room, int64_t keys, bool reads) {
  T* const left = room.left;
  T of_state = 1;
  for (int64_t k = 0; k < c.count; ++k) {
    const int64_t i = c.row(k), begin = c.reverse ? i + 1 : 0, end = c.reverse ? c.count : i;
    T* const scores = room.scores + i * c.count;
    const T factor = c.before(k);
    of_state *= factor;
    if (c.factors) multiply(left + begin, factor, end - begin);
    left[i] = 1;
    if (!reads) continue;
    std::fill(scores + (c.reverse ? 0 : i + 1), scores + (c.reverse ? i : c.count), T(0));
    if (!c.factors) continue;
#pragma omp simd
    for (int64_t j = begin; j < end; ++j) scores[j] *= left[j];
    multiply(room.queries + i * keys, of_state, keys);
  }
  if (!c.leaving || !c.factors) return of_state;
  const T factor = c.factors[c.row(c.count - 1)];
  multiply(left, factor, c.count);
  return of_state * factor;
}

// Copies the rows of a chunk, of which each pair has one after the other, to where they follow each other, or back.
template <class T>
void gather(const T* from, int64_t pairs, int64_t count, int64_t width, T* to) {
  for (int64_t i = 0; i < count; ++i) std::copy_n(from + i * pairs * width, width, to + i * width);
}
template <class T>
void scatter(const T* from, int64_t pairs, int64_t count, int64_t width, T* to) {
  for (int64_t i = 0; i < count; ++i) std::copy_n(from + i * width, width, to + i * pairs * width);
}

// Timesteps [first, first + count) of a pair. If there is a state before them, `state` holds it, and then that after
// them, unless they are the last ones and it is not wanted.
template <class T>
void attend_chunk(const LinearAttentionArgs& args, const Sizes& s, const LinearAttentionPointers<T>& p,
                  const Room<T>& room, int64_t first, int64_t count, T* state, bool any_state, bool is_last) {
  const int64_t row = first * s.pairs;
  const bool alone = s.pairs == 1;
  const T* const v = alone ? p.v + row * s.values : room.values;
  T* const y = !p.y ? nullptr : alone ? p.y + row * s.values : room.y;
  gather(p.k + row * s.keys, s.pairs, count, s.keys, room.keys);
  if (!alone) gather(p.v + row * s.values, s.pairs, count, s.values, room.values);
  if (p.g) {
    gather(p.g + row, s.pairs, count, 1, room.factors);
    const std::span<T> factors(room.factors, static_cast<size_t>(count));
    vec_exp(factors, factors);
  }
  if (y) {
    gather(p.q + row * s.keys, s.pairs, count, s.keys, room.queries);
    make_scores(s, count, room.queries, room.keys, room.scores);
  }
  const Chunk<T> chunk{args.reverse, args.leaving, count, p.g ? room.factors : nullptr};
  const T of_state = apply_factors(chunk, room, s.keys, y != nullptr);
  if (y && any_state) read_state(s, count, room.queries, state, y);
  if (y) read_chunk(s, count, room.scores, v, y, any_state);
  if (y && !alone) scatter(room.y, s.pairs, count, s.values, p.y + row * s.values);
  if (is_last && !p.last) return;
  if (p.g) {
    for (int64_t i = 0; i < count; ++i) multiply(room.keys + i * s.keys, room.left[i], s.keys);
    if (any_state) multiply(state, of_state, s.state());
  }
  add_to_state(s, count, room.keys, v, state, any_state);
}

// All timesteps of one pair, whose first elements are pointed to.
template <class T>
void attend(const LinearAttentionArgs& args, const Sizes& s, const LinearAttentionPointers<T>& p) {
  const Room<T> room(s, std::min(s.steps, kChunk), s.pairs == 1, !p.last);
  T* const state = p.last ? p.last : room.state;
  if (p.first) std::copy_n(p.first, s.state(), state);
  if (!p.first && s.steps == 0 && p.last) std::fill_n(p.last, s.state(), T(0));
  for (int64_t k = 0; k < s.steps; k += kChunk) {
    const int64_t count = std::min(kChunk, s.steps - k), first = args.reverse ? s.steps - k - count : k;
    attend_chunk(args, s, p, room, first, count, state, k > 0 || p.first, k + count == s.steps);
  }
}

template <class T>
void forward(const LinearAttentionArgs& args, In<T> q, In<T> k, In<T> v, In<T> g, In<T> first, Out<T> y, Out<T> last,
             Call& call) {
  const Sizes s(call);
  auto range = [&](int64_t begin, int64_t end) {
    const auto at = [](auto* data, int64_t i) { return data ? data + i : nullptr; };
    for (int64_t i = begin; i < end; ++i)
      attend<T>(args, s,
                {q.data() + i * s.keys, k.data() + i * s.keys, v.data() + i * s.values, at(g.data(), i),
                 at(first.data(), i * s.state()), at(y.data(), i * s.values), at(last.data(), i * s.state())});
  };
  constexpr double kFlopsPerNanosecond = 50;
  const int64_t flops = 2 * kChunk * (s.keys + s.values) + 4 * s.state();  // of a timestep
  parallel_for(s.pairs, 50 + static_cast<double>(s.steps * flops) / kFlopsPerNanosecond, range);
}

// The products of the kernel.
template <class T>
void forward_workspace(const LinearAttentionArgs&, In<T> q, In<T>, In<T>, In<T>, In<T>, Out<T> y, Out<T>, Call& call) {
  const Sizes s(call);
  const T* const x = q.data();
  T* const to = y.data();
  const int64_t chunks = (s.steps + kChunk - 1) / kChunk;
  for (StepsAlike pair(s.pairs, 1); pair.more(); pair.next())
    for (StepsAlike chunk(chunks, 1); chunk.more(); chunk.next()) {
      const int64_t count = std::min(kChunk, s.steps - *chunk * kChunk);
      const bool any_state = *chunk > 0 || call.has(4);
      if (call.wants(0)) make_scores(s, count, x, x, to);
      if (call.wants(0) && any_state) read_state(s, count, x, x, to);
      if (call.wants(0)) read_chunk(s, count, x, x, to, any_state);
      if (call.wants(1) || *chunk + 1 < chunks) add_to_state(s, count, x, x, to, any_state);
    }
}

void require_rank(const ShapeCall& c, int input, const char* name, const char* dimensions, int rank) {
  if (!c.known(input)) return;
  require(c.shape(input).rank() == rank, "{} must be {}, but are {}", name, dimensions, c.shape(input));
}

void infer(const LinearAttentionArgs&, ShapeCall& c) {
  require_rank(c, 0, "queries", "[T, B, N, K]", 4);
  require_rank(c, 1, "keys", "[T, B, N, K]", 4);
  require_rank(c, 2, "values", "[T, B, N, V]", 4);
  if (c.known(0) && c.known(1))
    require(c.shape(0) == c.shape(1), "queries are {}, but keys {}; both must have one shape", c.shape(0), c.shape(1));
  const int like_keys = c.known(0) ? 0 : 1;
  if (!c.known(2)) return;
  c.set_like(0, 2);
  if (!c.known(like_keys)) return;
  const Shape& k = c.shape(like_keys);
  const Shape& v = c.shape(2);
  const Shape rows{k[0], k[1], k[2]}, state{k[1], k[2], k[3], v[3]};
  require(rows == Shape({v[0], v[1], v[2]}), "{} are {}, but values {}; T, B and N must be the same",
          like_keys == 0 ? "queries" : "keys", k, v);
  if (c.known(3)) require(c.shape(3) == rows, "log_decay must be [T, B, N], {}, but is {}", rows, c.shape(3));
  if (c.known(4)) require(c.shape(4) == state, "first must be [B, N, K, V], {}, but is {}", state, c.shape(4));
  c.set(1, c.dtype(2), state);
}

// As the definition says, timestep by timestep: chunks have fewer or more, as K and V are large or small beside them.
double flops(const LinearAttentionArgs& a, const ShapeCall& c) {
  if (!c.known(0) || !c.known(2) || c.shape(0)[0] == 0) return 0;
  const Shape& k = c.shape(0);
  const auto steps = static_cast<double>(k[0]), pairs = static_cast<double>(k[1] * k[2]),
             state = static_cast<double>(k[3]) * static_cast<double>(c.shape(2)[3]);
  const double sums = steps - (c.has(4) ? 0 : 1);  // a state's and a term's
  double of_state = steps + sums + (c.wants(0) ? 2 * steps : 0);
  if (c.has(3)) of_state += a.leaving ? steps - 1 + c.wants(1) : sums;
  return pairs * (of_state * state + (c.has(3) ? steps : 0));
}

std::vector<Gradient> derivatives(Formula& f) {
  const auto& a = f.args<LinearAttentionArgs>();
  LinearAttentionValues x{.reverse = a.reverse, .leaving = a.leaving};
  x.q = f.x("queries"), x.k = f.x("keys"), x.v = f.x("values");
  if (f.has_x("log_decay")) x.g = f.x("log_decay");
  if (f.has_x("first")) x.first = f.x("first");
  if (f.has_dy("y")) x.dy = f.dy("y");
  if (f.has_dy("last")) x.dlast = f.dy("last");
  const LinearAttentionWants wants{f.wants("queries"), f.wants("keys"), f.wants("values"),
                                   x.g.defined() && f.wants("log_decay"), x.first.defined() && f.wants("first")};
  const LinearAttentionGradients d = differentiate_attention(f, x, wants);
  const auto given = [](Value v) { return v.defined() ? Gradient(v) : Gradient(); };
  const Gradient of_queries = wants.q && !d.q.defined() ? Gradient::zero() : given(d.q);
  return {of_queries, given(d.k), given(d.v), given(d.g), given(d.first)};
}

REGISTER(linear_attention) {
  return op<LinearAttentionArgs>("LinearAttention")
      .own()
      .doc(
          "States that are matrices, S[t] = exp(log_decay[t]) S[t - 1] + keys[t] values[t]^T, and y[t] = S[t]^T "
          "queries[t], by products of matrices for many timesteps at once.")
      .arg("reverse", &LinearAttentionArgs::reverse, false, "from the last timestep to the first")
      .arg("leaving", &LinearAttentionArgs::leaving, false,
           "a state is multiplied by its own timestep's factor as it goes on to the next, as gradients are; the first "
           "one is only added to, and the last one is multiplied")
      .input("queries", "[T, B, N, K] of T timesteps, B samples and N heads")
      .input("keys", "[T, B, N, K]")
      .input("values", "[T, B, N, V]")
      .input("log_decay", "[T, B, N], the logarithms of what the states before are multiplied by; zeros if left out")
      .optional()
      .input("first", "[B, N, K, V], the states before the first timestep; zeros if left out")
      .optional()
      .output("y", "[T, B, N, V]", like("values"))
      .optional()
      .output("last", "[B, N, K, V], the states after the last timestep")
      .optional()
      .shape(infer)
      .example({"queries=3,1,2,2", "keys=3,1,2,2", "values=3,1,2,1", "log_decay=3,1,2", "first=1,2,2,1"})
      .example({"queries=3,1,1,2", "keys=3,1,1,2", "values=3,1,1,2", "log_decay=3,1,1"}, {"reverse=true"})
      .example({"queries=3,1,1,1", "keys=3,1,1,1", "values=3,1,1,2", "log_decay=3,1,1", "first=1,1,1,2"},
               {"leaving=true"})
      .example({"queries=2,2,1,1", "keys=2,2,1,1", "values=2,2,1,1"}, {"reverse=true", "leaving=true"})
      .example({"queries=0,1,1,2", "keys=0,1,1,2", "values=0,1,1,2", "log_decay=0,1,1", "first=1,1,2,2"})
      .flops(flops)
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .workspace(forward_workspace<float>, forward_workspace<double>)
      .gpu_workspace([](const LinearAttentionArgs&, const Call& call) {
        const Sizes s(call);
        const auto each = static_cast<int64_t>(dtype_size(call.in(0).dtype()));
        return call.wants(1) ? std::vector<int64_t>{} : std::vector<int64_t>{s.pairs * s.state() * each};
      })
      .whole_derivative(derivatives);
}

}  // namespace
}  // namespace stepnet::cpu_linear_attention
