// UniqueUniformFill: different integers from min to max, both included, without those in a second input; every choice
// in every order is as likely. No derivative: the results are whole numbers.
//
// Draw i swaps the i-th candidate with one of those from the i-th on (Fisher and Yates); only what was swapped is kept.

#include "operators/fill/unique_uniform_fill.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "stepnet/random.h"

namespace stepnet {
namespace {

DType element_type(const UniqueArgs& args) {
  const DType type = dtype_from_number(args.dtype);
  require(type == DType::int32 || type == DType::int64, "argument \"dtype\" must be int32 or int64, but is {}",
          dtype_name(type));
  return type;
}

void shape(const UniqueArgs& args, ShapeCall& call) {
  require(args.min <= args.max, "min must not be greater than max, but they are {} and {}", args.min, args.max);
  if (call.known(1)) require(call.shape(1).rank() == 1, "avoid must have one dimension, but is {}", call.shape(1));
  if (const auto shape = fill_shape(args, call)) call.set(0, element_type(args), *shape);
}

// The integers to avoid that are from min to max, sorted, each once.
std::vector<int64_t> avoided(const UniqueArgs& args, const Tensor* avoid) {
  if (!avoid) return {};
  std::vector<int64_t> values = read_integers(*avoid, "avoid");
  std::erase_if(values, [&](int64_t v) { return v < args.min || v > args.max; });
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// The integers that may be drawn, by their place among them.
class Candidates {
 public:
  Candidates(const UniqueArgs& args, std::vector<int64_t> avoid) : min_(args.min), avoid_(std::move(avoid)) {
    const uint64_t all = static_cast<uint64_t>(args.max) - static_cast<uint64_t>(args.min);  // less 1
    require(all < static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
            "from min {} to max {} there are more integers than can be counted", args.min, args.max);
    count_ = static_cast<int64_t>(all) + 1 - static_cast<int64_t>(avoid_.size());
  }

  int64_t count() const { return count_; }
  int64_t at(int64_t place) const {
    // Before avoid_[k] stand avoid_[k] - min_ - k candidates, which grows with k.
    int64_t low = 0, high = static_cast<int64_t>(avoid_.size());
    while (low < high) {
      const int64_t k = (low + high) / 2;
      if (avoid_[k] - min_ - k <= place)
        low = k + 1;
      else
        high = k;
    }
    return min_ + place + low;
  }

 private:
  int64_t min_ = 0, count_ = 0;
  std::vector<int64_t> avoid_;
};

template <class T>
void draw(uint64_t key, const Candidates& candidates, Tensor& y) {
  const Out<T> out = y.span<T>();
  std::unordered_map<int64_t, int64_t> moved;  // what stands at a place, if it is not that place's own
  auto standing_at = [&](int64_t place) {
    const auto found = moved.find(place);
    return found == moved.end() ? place : found->second;
  };
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t drawn = random_int(key, static_cast<uint64_t>(i), i, candidates.count() - 1);
    out[i] = to_element<T>(candidates.at(standing_at(drawn)));
    moved[drawn] = standing_at(i);
  }
}

void fill(const UniqueArgs& args, Call& call) {
  draw_unique(args, call.random_key, call.has(1) ? &call.in(1) : nullptr, call.out(0));
}

REGISTER(unique_uniform_fill) {
  auto spec = op<UniqueArgs>("UniqueUniformFill");
  declare_fill(spec);
  return spec.doc("Random integers from min to max, both included, no two of which are equal.")
      .arg("min", &UniqueArgs::min, int64_t{0}, "the least integer")
      .arg("max", &UniqueArgs::max, int64_t{1}, "the greatest integer")
      .arg("dtype", &UniqueArgs::dtype, int64_t{2}, "INT32 (2) or INT64 (10)")
      .input("avoid", "[K], integers that are not to be drawn")
      .types({DType::int32, DType::int64})
      .optional()
      .output("output", "the random tensor")
      .any_type()
      .in_place("input", "output")
      .shape(shape)
      .random()
      .example({}, {"shape=2,3", "min=-2", "max=3"})
      .example({"input=2,3", "avoid=int32,2:0,5"}, {"max=20", "dtype=10"})
      .cpu(fill)
      .stop_gradient();
}

}  // namespace

void draw_unique(const UniqueArgs& args, uint64_t key, const Tensor* avoid, Tensor& y) {
  const Candidates candidates(args, avoided(args, avoid));
  require(y.size() <= candidates.count(),
          "{} different integers are to be drawn, but from min {} to max {} there are {} that are not to be avoided",
          y.size(), args.min, args.max, candidates.count());
  if (y.dtype() == DType::int32) return draw<int32_t>(key, candidates, y);
  draw<int64_t>(key, candidates, y);
}

}  // namespace stepnet
