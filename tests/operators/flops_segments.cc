// References of operators on rows by index or by segment.
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

int64_t row_size(const Shape& s) { return s.size_between(1, s.rank()); }

// Calls fn(segment, place) for the places of all segments.
template <class Fn>
void each_place(const CountedTensor& lengths, Fn fn) {
  int64_t place = 0;
  for (int64_t s = 0; s < lengths.size(); ++s)
    for (double k = 0; k < lengths.v[s].value; ++k) fn(s, place++);
}

// Rows of DATA by place, weighted and by index where there are such inputs; -1: there is none.
struct Bag {
  int weights, indices, lengths;
};

void bag(CountedCall& c, const Bag& in, bool mean) {
  const CountedTensor& lengths = c.x(in.lengths);
  const int64_t row = row_size(c.x(0).shape);
  each_place(lengths, [&](int64_t s, int64_t k) {
    const int64_t from = in.indices < 0 ? k : static_cast<int64_t>(c.x(in.indices).v[k].value);
    for (int64_t i = 0; i < row; ++i) {
      const Counted x = c.x(0).v[from * row + i];
      c.y(0)[s * row + i] += in.weights < 0 ? x : c.x(in.weights).v[k] * x;
    }
  });
  for (int64_t i = 0; mean && i < c.out[0].size(); ++i) c.y(0)[i] = c.y(0)[i] / max(lengths.v[i / row], 1);
}

// Inputs are SEGMENT_GRADS and LENGTHS.
void mean_gradient(CountedCall& c) {
  const int64_t row = row_size(c.x(0).shape);
  Numbers share = c.x(0).v;
  for (int64_t i = 0; i < c.x(0).size(); ++i) share[i] = share[i] / max(c.x(1).v[i / row], 1);
  each_place(c.x(1), [&](int64_t s, int64_t k) {
    for (int64_t i = 0; i < row; ++i) c.y(0)[k * row + i] = share[s * row + i];
  });
}

// Inputs are WEIGHTS, SEGMENT_GRADS and LENGTHS.
void weighted_gradient(CountedCall& c) {
  const int64_t row = row_size(c.x(1).shape);
  each_place(c.x(2), [&](int64_t s, int64_t k) {
    for (int64_t i = 0; i < row; ++i) c.y(0)[k * row + i] = c.x(0).v[k] * c.x(1).v[s * row + i];
  });
}

// Inputs are DATA, SEGMENT_GRADS, [INDICES,] and LENGTHS.
Reference weights_gradient(int indices, int lengths) {
  return [=](CountedCall& c) {
    c.compares = false;
    const int64_t row = row_size(c.x(0).shape);
    each_place(c.x(lengths), [&](int64_t s, int64_t k) {
      const int64_t from = indices < 0 ? k : static_cast<int64_t>(c.x(indices).v[k].value);
      for (int64_t i = 0; i < row; ++i) c.y(0)[k] += c.x(0).v[from * row + i] * c.x(1).v[s * row + i];
    });
  };
}

// Inputs are WEIGHTS, SEGMENT_GRADS, LENGTHS, DATA and INDICES, if there are any.
void both_gradients(CountedCall& c) {
  c.compares = false;
  const int64_t row = row_size(c.x(1).shape);
  each_place(c.x(2), [&](int64_t s, int64_t k) {
    const int64_t from = c.x(4).there ? static_cast<int64_t>(c.x(4).v[k].value) : k;
    for (int64_t i = 0; i < row; ++i) {
      const Counted dy = c.x(1).v[s * row + i];
      if (c.wants(0)) c.y(0)[k * row + i] = c.x(0).v[k] * dy;
      if (c.wants(1)) c.y(1)[k] += c.x(3).v[from * row + i] * dy;
    }
  });
}

// Each element of input `i` is added where it belongs: only counted.
Reference adds_up(int i) {
  return [i](CountedCall& c) {
    c.compares = false;
    Counted sum;
    for (const Counted& x : c.x(i).v) sum += x;
  };
}

void sparse_to_dense(CountedCall& c) {
  const int64_t row = row_size(c.out[0].shape);
  for (int64_t k = 0; k < c.x(0).size(); ++k)
    for (int64_t i = 0; i < row; ++i)
      c.y(0)[static_cast<int64_t>(c.x(0).v[k].value) * row + i] += c.x(1).v[k * row + i];
}

void scatter_weighted_sum(CountedCall& c) {
  const int64_t row = row_size(c.x(0).shape);
  c.y(0) = c.x(0).v;
  const auto each = [&](auto fn) {
    for (int64_t k = 0; k < c.x(2).size(); ++k)
      for (int64_t i = 0; i < row; ++i) {
        Counted& y = c.y(0)[static_cast<int64_t>(c.x(2).v[k].value) * row + i];
        y = fn(y, k * row + i);
      }
  };
  each([&](Counted y, int64_t) { return c.x(1).v[0] * y; });
  for (int j = 3; j < static_cast<int>(c.in.size()); j += 2)
    each([&](Counted y, int64_t i) { return y + c.x(j + 1).v[0] * c.x(j).v[i]; });
}

// Sums of the rows in front of segments and behind them.
void gather_padding(CountedCall& c) {
  const int64_t row = row_size(c.x(0).shape), start = c.whole("padding_width", 1);
  const int64_t end = c.whole("end_padding_width", -1) < 0 ? start : c.whole("end_padding_width", -1);
  const CountedTensor whole{true, Shape{1}, {static_cast<double>(c.x(0).shape[0])}};
  const CountedTensor& lengths = c.x(1).there ? c.x(1) : whole;
  int64_t first = 0;
  for (const Counted& length : lengths.v) {
    const auto rows = static_cast<int64_t>(length.value);
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t i = 0; i < row && (k < start || k >= rows - end); ++i)
        c.y(k < start || !c.wants(1) ? 0 : 1)[i] += c.x(0).v[(first + k) * row + i];
    first += rows;
  }
}

void viterbi_path(CountedCall& c) {
  const int64_t steps = c.x(0).shape[0], labels = c.x(0).shape[1];
  std::vector<Numbers> best(static_cast<size_t>(steps), Numbers(static_cast<size_t>(labels)));
  std::vector<std::vector<size_t>> from(static_cast<size_t>(steps), std::vector<size_t>(static_cast<size_t>(labels)));
  for (size_t n = 0; n < best.size(); ++n)
    for (size_t j = 0; j < best[n].size(); ++j) {
      const Counted own = c.x(0).v[n * best[n].size() + j];
      best[n][j] = own;
      for (size_t i = 0; n > 0 && i < best[n].size(); ++i) {
        const Counted way = best[n - 1][i] + c.x(1).v[i * best[n].size() + j];
        if (i == 0 || way > best[n][j]) best[n][j] = way, from[n][j] = i;
      }
      if (n > 0) best[n][j] += own;
    }
  if (steps == 0) return;
  size_t label = 0;
  for (size_t j = 1; j < best.back().size(); ++j)
    if (best.back()[j] > best.back()[label]) label = j;
  for (size_t n = best.size(); n-- > 0; label = from[n][label]) c.y(0)[n] = static_cast<double>(label);
}

// The places of each segment, whose ids are input `i`: fn(segment, places).
template <class Fn>
void each_sorted_segment(const CountedCall& c, int i, Fn fn) {
  const Numbers& ids = c.x(i).v;
  std::vector<int64_t> places;
  for (size_t k = 0; k < ids.size(); ++k) {
    places.push_back(static_cast<int64_t>(k));
    if (k + 1 < ids.size() && ids[k + 1].value == ids[k].value) continue;
    fn(static_cast<int64_t>(ids[k].value), places);
    places.clear();
  }
}

// Inputs are DATA and SEGMENT_IDS.
Reference sorted_segments(const std::string& kind) {
  return [kind](CountedCall& c) {
    const int64_t row = row_size(c.x(0).shape);
    each_sorted_segment(c, 1, [&](int64_t s, const std::vector<int64_t>& places) {
      const auto n = static_cast<double>(places.size());
      for (int64_t j = 0; j < row; ++j) {
        Counted most = -HUGE_VAL, sum;
        const auto x = [&](int64_t k) { return c.x(0).v[k * row + j]; };
        if (kind == "Sum" || kind == "Mean")
          for (const int64_t k : places) sum += x(k);
        else
          for (const int64_t k : places) most = max(most, x(k));
        if (kind.starts_with("Log"))
          for (const int64_t k : places) sum += exp(x(k) - most);
        if (kind.find("Mean") != kind.npos) sum = sum / n;
        c.y(0)[s * row + j] = kind == "Max" ? most : kind.starts_with("Log") ? most + log(sum) : sum;
      }
    });
  };
}

// Inputs are DATA, OUTPUT, its gradient and SEGMENT_IDS.
Reference sorted_segments_gradient(const std::string& kind) {
  return [kind](CountedCall& c) {
    const int64_t row = row_size(c.x(0).shape);
    each_sorted_segment(c, 3, [&](int64_t s, const std::vector<int64_t>& places) {
      for (const int64_t k : places)
        for (int64_t j = 0; j < row; ++j) {
          const Counted x = c.x(0).v[k * row + j], y = c.x(1).v[s * row + j];
          Counted& dx = c.y(0)[k * row + j] = c.x(2).v[s * row + j];
          if (kind == "Max" && x.value != y.value) dx = 0;
          if (kind.starts_with("Log")) dx = dx * exp(x - y);
          if (kind.find("Mean") != kind.npos) dx = dx / static_cast<double>(places.size());
        }
    });
  };
}

}  // namespace

void add_segment_references(References& r) {
  for (const bool mean : {false, true}) {
    const std::string name = mean ? "Mean" : "Sum";
    r["Lengths" + name] = [=](CountedCall& c) { bag(c, {-1, -1, 1}, mean); };
    r["SparseLengths" + name] = [=](CountedCall& c) { bag(c, {-1, 1, 2}, mean); };
  }
  r["LengthsMeanGradient"] = r["SparseLengthsMeanGradient"] = mean_gradient;
  r["LengthsIndicesInGradientMeanGradient"] = r["SparseLengthsIndicesInGradientMeanGradient"] = mean_gradient;
  r["LengthsWeightedSum"] = [](CountedCall& c) { bag(c, {1, -1, 2}, false); };
  r["SparseLengthsWeightedSum"] = [](CountedCall& c) { bag(c, {1, 2, 3}, false); };
  r["LengthsWeightedSumGradient"] = r["SparseLengthsWeightedSumGradient"] = weighted_gradient;
  r["SparseLengthsIndicesInGradientWeightedSumGradient"] = weighted_gradient;
  for (const char* type : {"LengthsWeightedSumWithMainInputGradient", "SparseLengthsWeightedSumWithMainInputGradient",
                           "SparseLengthsIndicesInGradientWeightedSumWithMainInputGradient"})
    r[type] = both_gradients;
  r["LengthsWeightedSumWeightsGradient"] = weights_gradient(-1, 2);
  r["SparseLengthsWeightedSumWeightsGradient"] = weights_gradient(2, 3);
  for (const char* kind : {"Sum", "Mean", "Max", "LogSumExp", "LogMeanExp"}) {
    const std::string name = std::string("SortedSegmentRange") + kind;
    r[name] = sorted_segments(kind);
    r[name + "Gradient"] = sorted_segments_gradient(kind);
  }
  r["ScatterAdd"] = r["IndexAdd"] = adds_up(2);
  r["BatchGatherGradient"] = r["GatherRangesGradient"] = adds_up(2);
  r["PadGradient"] = [](CountedCall& c) {
    c.compares = false;
    if (c.text("mode") == "edge" || c.text("mode") == "reflect") adds_up(0)(c);
  };
  r["SparseToDense"] = sparse_to_dense;
  r["ViterbiPath"] = viterbi_path;
  r["ScatterWeightedSum"] = scatter_weighted_sum;
  r["GatherPadding"] = gather_padding;
}

}  // namespace stepnet::testing
