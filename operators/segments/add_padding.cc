// AddPadding: s rows in front of and e rows behind each segment of DATA, [sum of lengths, ...]; s is padding_width, e
// is end_padding_width, or s if that is negative. Each row is start_padding or end_padding, or zeros. Without lengths
// all rows are one segment. RemovePadding takes the rows away again; GatherPadding adds them up.
//
// All three are linear, and each one's gradient is made of the others, as in the public format:
// AddPadding:    dDATA = RemovePadding(dY), dstart, dend = GatherPadding(dY), both by lengths_out; with start_padding
//                alone, which stands at both ends, dstart is the sum of both.
// RemovePadding: dDATA = AddPadding(dY) by lengths_out, without rows of padding: what was taken away has zeros.
// GatherPadding: dDATA = AddPadding(zeros, dstart, dend): each row of padding has its sum's gradient. The public format
//                has no gradient there. The zeros have the shape of what RemovePadding leaves of DATA.
// Backward reads lengths_out, or lengths, and shapes.
#include "operators/segments/add_padding.h"

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/segment_lengths.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_add_padding {
namespace {

Shape check_rows(const ShapeCall& call) {
  require_one_dimension(call, 1, "lengths");
  const Shape& x = call.shape(0);
  require(x.rank() >= 1, "the data are a single value, which has no rows");
  return x;
}

// The data with `sign` times the padding more rows.
Shape padded_shape(const PaddingArgs& args, const ShapeCall& call, int64_t sign) {
  const Shape x = check_rows(call);
  const int64_t segments = call.has(1) ? call.shape(1)[0] : 1;
  int64_t more = 0, rows = 0;
  const bool fits =
      !__builtin_mul_overflow(segments, padding_rows(args), &more) && !__builtin_add_overflow(x[0], sign * more, &rows);
  require(fits, "paddings of {} and {} rows for {} segments are too large", args.start(), args.end(), segments);
  require(rows >= 0, "the data have {} rows, fewer than the {} of the paddings of {} segments", x[0], more, segments);
  return x.with(0, rows);
}

void set_padded(const PaddingArgs& args, ShapeCall& call, int64_t sign) {
  if (!call.has(1)) call.set(1, DType::int32, Shape{1});
  if (call.known(1)) call.set(1, DType::int32, call.shape(1));
  if (call.known(0) && (!call.has(1) || call.known(1))) call.set(0, call.dtype(0), padded_shape(args, call, sign));
}

void infer_add(const PaddingArgs& args, ShapeCall& call) {
  for (int i = 2; i < call.inputs(); ++i) {
    if (!call.known(0) || !call.known(i)) continue;
    const Shape x = check_rows(call);
    require(call.shape(i).size() == x.size_between(1, x.rank()) && call.dtype(i) == call.dtype(0),
            "{} must be one row of the data {}, but is {}", i == 2 ? "start_padding" : "end_padding", call.in(0),
            call.in(i));
  }
  set_padded(args, call, 1);
}

void infer_remove(const PaddingArgs& args, ShapeCall& call) { set_padded(args, call, -1); }

void infer_gather(const PaddingArgs& args, ShapeCall& call) {
  require(call.outputs() <= 2, "there are two sums at most, but {} outputs", call.outputs());
  if (!call.known(0)) return;
  const Shape row = check_rows(call).from(1);
  if (!call.has(1) || call.known(1)) padded_shape(args, call, -1);
  for (int i = 0; i < call.outputs(); ++i) call.set(i, call.dtype(0), row);
}

double gather_flops(const PaddingArgs& args, const ShapeCall& call) {
  if (!call.known(0) || call.shape(0).rank() == 0) return 0;
  const double segments = call.has(1) ? input_size(call, 1) : 1;
  const auto row = static_cast<double>(call.shape(0).size_between(1, call.shape(0).rank()));
  return segments * static_cast<double>(padding_rows(args)) * row;
}

// Calls fn(segment, first row of the data, rows) for each segment, whose lengths, of `rows` in all, each hold `least`.
template <class Fn>
void for_segments(const Call& call, int64_t least, const Fn& fn) {
  const int64_t rows = call.in(0).dim(0);
  if (!call.has(1)) return fn(int64_t{0}, int64_t{0}, rows);
  check_segment_lengths(call.in(1), rows, "rows");
  const In<int32_t> lengths = call.in_span<int32_t>(1);
  for (size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] < least) fail("length {} is {}, less than the {} rows of its padding", i, lengths[i], least);
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); at += lengths[i++]) fn(static_cast<int64_t>(i), at, int64_t{lengths[i]});
}

void write_length(Call& call, int64_t segment, int64_t length) {
  if (call.wants(1)) call.out_span<int32_t>(1)[segment] = to_int32(length, "the length of a segment with its padding,");
}

int64_t row_size(const Tensor& data) { return data.shape().size_between(1, data.rank()); }

void repeat_row(const Tensor& row, Tensor& to, int64_t at, int64_t rows) {
  if (row.size() == 0) return;  // there may be any number of empty rows
  for (int64_t r = 0; r < rows; ++r) copy_elements(row, 0, to, at + r * row.size(), row.size());
}

void add_padding(const PaddingArgs& args, Call& call) {
  const int64_t row = row_size(call.in(0)), padding = padding_rows(args);
  const int end_input = call.has(3) ? 3 : 2;
  if (call.wants(0) && !call.has(2)) call.out(0).fill_zero();
  for_segments(call, 0, [&](int64_t segment, int64_t at, int64_t rows) {
    write_length(call, segment, rows + padding);
    if (!call.wants(0)) return;
    const int64_t start = (at + segment * padding) * row, body = start + args.start() * row;
    copy_elements(call.in(0), at * row, call.out(0), body, rows * row);
    if (call.has(2)) repeat_row(call.in(2), call.out(0), start, args.start());
    if (call.has(end_input)) repeat_row(call.in(end_input), call.out(0), body + rows * row, args.end());
  });
}

void remove_padding(const PaddingArgs& args, Call& call) {
  const int64_t row = row_size(call.in(0)), padding = padding_rows(args);
  for_segments(call, padding, [&](int64_t segment, int64_t at, int64_t rows) {
    write_length(call, segment, rows - padding);
    if (call.wants(0))
      copy_elements(call.in(0), (at + args.start()) * row, call.out(0), (at - segment * padding) * row,
                    (rows - padding) * row);
  });
}

template <class T>
void add_rows(const T* from, int64_t rows, Out<T> sum) {
  if (sum.empty()) return;  // there may be any number of empty rows
  for (int64_t r = 0; r < rows; ++r, from += sum.size())
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += from[j];
}

// A single output takes both sums: how many there are means something, wanted or not.
template <class T>
void gather_padding(const PaddingArgs& args, Call& call) {
  const int64_t row = row_size(call.in(0));
  const T* data = call.in(0).data<T>();
  const Out<T> start = call.out_span<T>(0), end = call.outputs() > 1 ? call.out_span<T>(1) : start;
  std::ranges::fill(start, T(0));
  std::ranges::fill(end, T(0));
  for_segments(call, padding_rows(args), [&](int64_t, int64_t at, int64_t rows) {
    add_rows(data + at * row, args.start(), start);
    add_rows(data + (at + rows - args.end()) * row, args.end(), end);
  });
}

// The lengths by which gradients go: those of the output, computed again if the net has no name for them.
Value lengths_out(Formula& f, const char* type) {
  if (!f.has_x("lengths")) return {};
  const Value lengths = f.y("lengths_out");
  if (lengths.defined()) return lengths;
  return f.ops(type, {f.x("data_in"), f.x("lengths")}, f.forward_args(), {false, true})[1];
}

std::vector<Gradient> padding_gradients(Formula& f) {
  if (!f.has_dy("data_out")) return {Gradient::none(), Gradient::none()};
  const bool both = f.has_x("end_padding");
  std::vector<Value> sums = f.ops("GatherPadding", {f.dy("data_out"), lengths_out(f, "AddPadding")}, f.forward_args(),
                                  both ? std::vector<bool>{true, true} : std::vector<bool>{true});
  auto wanted = [&](const char* name, size_t i) {
    return f.wants(name) && i < sums.size() ? Gradient(f.op("ResizeLike", {sums[i], f.x(name)})) : Gradient::none();
  };
  return {wanted("start_padding", 0), wanted("end_padding", 1)};
}

Gradient gather_gradient(Formula& f) {
  const std::vector<Value> inner = f.ops("RemovePadding", {f.op("ZerosLike", {f.x("data_in")}), f.x("lengths")},
                                         f.forward_args(), {true, f.has_x("lengths")});
  std::vector<Value> inputs = inner;
  // All rows of padding have one shape; an output may be absent.
  const Value like = f.has_dy_at(0) ? f.dy_at(0) : f.dy_at(1);
  for (int i = 0; i < f.outputs(); ++i) inputs.push_back(f.has_dy_at(i) ? f.dy_at(i) : f.op("ZerosLike", {like}));
  return f.ops("AddPadding", inputs, f.forward_args(), {true})[0];
}

OpBuilder<PaddingArgs>& declare(OpBuilder<PaddingArgs>& spec, const char* rows) {
  return spec
      .arg("padding_width", &PaddingArgs::padding_width, int64_t{1}, "rows in front of each segment", at_least(0))
      .arg("end_padding_width", &PaddingArgs::end_padding_width, int64_t{-1},
           "rows behind each segment; negative: as many as in front")
      .input("data_in", rows)
      .any_type()
      .input("lengths", "[N], the number of rows of each segment; without it all rows are one")
      .types({DType::int32})
      .optional();
}

OpBuilder<PaddingArgs>& declare_outputs(OpBuilder<PaddingArgs>& spec) {
  return spec.output("data_out", "[sum of lengths_out, ...]")
      .optional()
      .any_type()
      .output("lengths_out", "[N], or [1] without lengths: how many rows each segment has now")
      .types({DType::int32})
      .uses({"lengths"})
      .optional();
}

REGISTER(add_padding) {
  auto spec = op<PaddingArgs>("AddPadding");
  declare(spec, "[sum of lengths, ...] of any type")
      .doc("Rows in front of and behind each segment.")
      .input("start_padding", "the row in front; zeros without it")
      .any_type()
      .optional()
      .input("end_padding", "the row behind; without it the one in front")
      .any_type()
      .optional();
  return declare_outputs(spec)
      .shape(infer_add)
      .cpu(add_padding)
      .example({"data_in=4,2", "lengths=int32,2:3,1"})
      .example({"data_in=3,2", "lengths=int32,2:3,0", "start_padding=2"}, {"padding_width=2"})
      .example({"data_in=3,2", "lengths=int32,2:2,1", "start_padding=2", "end_padding=2"},
               {"padding_width=1", "end_padding_width=2"})
      .example({"data_in=2,2"}, {"padding_width=0", "end_padding_width=1"})
      .example({"data_in=0,2", "lengths=int32,0", "start_padding=2"})
      .derivative("data_in",
                  [](Formula& f) -> Gradient {
                    if (!f.has_dy("data_out")) return Gradient::none();
                    return f.ops("RemovePadding", {f.dy("data_out"), lengths_out(f, "AddPadding")}, f.forward_args(),
                                 {true})[0];
                  })
      .derivatives({"start_padding", "end_padding"}, padding_gradients);
}

REGISTER(remove_padding) {
  auto spec = op<PaddingArgs>("RemovePadding");
  declare(spec, "[sum of lengths, ...] of any type, padding included").doc("Takes the rows of padding away.");
  return declare_outputs(spec)
      .shape(infer_remove)
      .cpu(remove_padding)
      .example({"data_in=6,2", "lengths=int32,2:4,2"})
      .example({"data_in=5"}, {"padding_width=1", "end_padding_width=2"})
      .example({"data_in=2,2", "lengths=int32,1:2"})
      .derivative("data_in", [](Formula& f) -> Gradient {
        if (!f.has_dy("data_out")) return Gradient::none();
        return f.ops("AddPadding", {f.dy("data_out"), lengths_out(f, "RemovePadding")}, f.forward_args(), {true})[0];
      });
}

REGISTER(gather_padding) {
  auto spec = op<PaddingArgs>("GatherPadding");
  return declare(spec, "[sum of lengths, ...], float or double, padding included")
      .doc("The sum of all rows of padding in front of segments, and of those behind; or, with one output, of all.")
      .output("padding_sums", "one row or two")
      .optional()
      .any_type()
      .variadic()
      .shape(infer_gather)
      .flops(gather_flops)
      .cpu_for<float>(gather_padding<float>)
      .cpu_for<double>(gather_padding<double>)
      .example({"data_in=6,2", "lengths=int32,2:4,2"})
      .example({"data_in=7,2", "lengths=int32,2:3,4"}, {"padding_width=1", "end_padding_width=2"}, 2)
      .example({"data_in=3"}, {}, 2)
      .derivative("data_in", gather_gradient);
}

}  // namespace
}  // namespace stepnet::cpu_add_padding
