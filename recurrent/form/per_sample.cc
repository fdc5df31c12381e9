#include "recurrent/form/per_sample.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "core/net/dataflow.h"
#include "core/operator/extensions.h"
#include "core/operator/nets_inside.h"
#include "core/passes/defined_operators.h"
#include "core/passes/gradient_sums.h"
#include "core/passes/inner_gradients.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/layer_ops.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"

namespace stepnet {
namespace {

using Kind = SampleReader::Kind;

bool is_matmul(const OperatorDef& op) { return multiplies_rows(op) && int_arg(op, "axis_b", 1) == 1; }
bool is_product(const OperatorDef& op) { return op.type() == "FC" || op.type() == "FCTransposed" || is_matmul(op); }
// Their second operand is laid over the last dimensions of the first, and the other way round.
bool lays_over(const OperatorDef& op) {
  const bool known = op.type() == "Add" || op.type() == "Sub" || op.type() == "Mul" || op.type() == "Div";
  return known && !find_arg(op, "axis") && !find_arg(op, "axis_str");
}

OperatorDef simple_op(const std::string& type, const std::string& from, const std::string& to) {
  OperatorDef op;
  op.set_type(type);
  if (!from.empty()) op.add_input(from);
  op.add_output(to);
  return op;
}

// Operators with a factor and a summand for each element of a row, without these; then the factor and the summand.
std::vector<OperatorDef> parts_of(const OperatorDef& op, const std::function<std::string(const std::string&)>& fresh) {
  const bool is_norm = op.type() == "LayerNorm";
  if ((!is_norm && op.type() != "ElementwiseLinear") || op.input_size() < 3) return {op};
  std::vector<OperatorDef> parts;
  std::string from = op.input(0);
  if (is_norm) {
    parts.push_back(op);
    OperatorDef& norm = parts.back();
    norm.mutable_input()->DeleteSubrange(1, norm.input_size() - 1);
    auto& args = *norm.mutable_arg();
    args.erase(std::remove_if(args.begin(), args.end(), [](const auto& a) { return a.name() == "elementwise_affine"; }),
               args.end());
    norm.set_output(0, fresh(op.output(0) + "_plain"));
    from = norm.output(0);
  }
  const std::string product = fresh(op.output(0) + "_product");
  for (const auto& [type, a, b, c] :
       {std::tuple{"Mul", from, op.input(1), product}, std::tuple{"Add", product, op.input(2), op.output(0)}}) {
    OperatorDef& part = parts.emplace_back(simple_op(type, a, c));
    part.add_input(b);
    *part.add_arg() = make_arg("broadcast", true);
    if (op.has_device_option()) *part.mutable_device_option() = op.device_option();
    if (op.HasExtension(source)) *part.MutableExtension(source) = op.GetExtension(source);
  }
  return parts;
}

void list(google::protobuf::RepeatedPtrField<std::string>& names, const std::string& name) {
  if (!names.empty() && !contains(names, name)) *names.Add() = name;
}

void check_apart(const std::string& name, const SampleBlob& blob) {
  if (blob.type.known && blob.inner == 0) fail("\"{}\" does not depend on the samples", name);
  require(blob.holds_samples(), "in \"{}\" samples are not apart, as far as operators say", name);
}

// Of a product what the weights are multiplied by, of a table the indices.
const std::string& rows_read_by(const OperatorDef& op) { return op.input(is_product(op) ? 0 : 1); }

// MatMul as the FC that it is.
OperatorDef product_of_rows(OperatorDef op) {
  if (!is_matmul(op)) return op;
  op.set_type(int_arg(op, "trans_b", 0) != 0 ? "FC" : "FCTransposed");
  op.clear_arg();
  return op;
}

// A net while its parameters' readers are found.
class Tapping {
 public:
  Tapping(NetDef& net, const SampleRequest& request) : net_(net), request_(request) {
    known_.samples = taps_.samples = request.samples;
    require(request.samples > 0, "there must be at least one sample, but there are {}", request.samples);
    for (const auto& [name, type] : request.types) known_.blobs[name] = {.type = type, .inner = 0};
    for (const auto& [name, axis] : request.batch_axes) {
      require(known_.blobs.count(name) > 0, "nothing says what type \"{}\" has, which holds samples", name);
      known_.blobs[name] = fed_samples(name, known_.blobs[name].type, axis, request.samples);
    }
    for_each_net(net_, [&](const NetDef& inner) { take_names(inner); });
  }

  SampleTaps run() {
    for (const std::string& p : request_.parameters) {
      const SampleBlob& blob = known_.at(p);
      require(blob.type.known, "nothing says what type the parameter \"{}\" has", p);
      require(taps_.dtype == DType::undefined || taps_.dtype == blob.type.dtype,
              "the parameters have several types, {} and {}", dtype_name(taps_.dtype), dtype_name(blob.type.dtype));
      taps_.dtype = blob.type.dtype;
      taps_.shapes[p] = blob.type.shape;
    }
    for (OperatorDef& op : *net_.mutable_op()) {
      try {
        check_writes(op);
        note_loss(op);
        if (has_short_form(op)) {
          tap_network(op);
        } else {
          for (OperatorDef& part : parts(op)) tap_op(part);
        }
      } catch (Error& e) {
        if (!has_short_form(op)) add_op_context(e, bind_op(op, net_.name(), 0));
        throw;
      }
    }
    net_.mutable_op()->Swap(&done_);
    require(has_loss_, "no operator of net \"{}\" writes the loss \"{}\"", net_.name(), request_.loss);
    return std::move(taps_);
  }

 private:
  void take_names(const NetDef& net) {
    for (const OperatorDef& op : net.op()) {
      names_.insert(op.input().begin(), op.input().end());
      names_.insert(op.output().begin(), op.output().end());
      for (const std::string& name : op.output()) ++writes_[name];
    }
  }
  std::string fresh(const std::string& base) {
    std::string name = "per_sample/" + base;
    for (int n = 1; !names_.insert(name).second; ++n) name = fmt::format("per_sample/{}_{}", base, n);
    return name;
  }
  bool is_parameter(const std::string& name) const { return request_.parameters.count(name) > 0; }
  bool reads_parameters(const OperatorDef& op) const {
    return std::ranges::any_of(op.input(), [&](const std::string& name) { return is_parameter(name); });
  }
  // The operator, as several if its parameters are then read in a way that can be told by samples.
  std::vector<OperatorDef> parts(const OperatorDef& op) {
    if (!reads_parameters(op)) return {op};
    return parts_of(op, [&](const std::string& base) { return fresh(base); });
  }
  void emit(const OperatorDef& op) {
    trace_samples(op, known_);
    *done_.Add() = op;
  }

  void check_writes(const OperatorDef& op) const {
    for (const std::string& name : op.output())
      require(!is_parameter(name), "it writes \"{}\", a parameter whose gradients are to be told by samples", name);
  }
  void check_own_name(const std::string& inside) const {
    require(!is_parameter(inside), "\"{}\" is a parameter, and the step net has an input of that name", inside);
  }
  void note_loss(const OperatorDef& op);
  SampleReader sizes_of(const OperatorDef& op, const SampleBlob& x, const SampleBlob& y) const;
  SampleReader::Kind kind_of(const OperatorDef& op) const;
  std::string copies_of(const std::string& parameter);
  void tap_copies(OperatorDef& op, const SampleBlobs& before, const SampleBlob& y, NetDef* step);
  void tap_row_copies(OperatorDef& op, const SampleBlob& y);
  void tap_op(OperatorDef& op);
  void tap_network(OperatorDef& op);
  void tap_step(OperatorDef& network, OperatorDef op, NetDef& step, SampleBlobs& inside, int64_t steps);

  NetDef& net_;
  const SampleRequest& request_;
  SampleBlobs known_;
  Names names_;
  std::map<std::string, int> writes_;  // by name: how many operators write it
  google::protobuf::RepeatedPtrField<OperatorDef> done_;
  SampleTaps taps_;
  bool has_loss_ = false;
};

// The loss may add samples up, but nothing may go on with such a sum, in which samples would meet.
void Tapping::note_loss(const OperatorDef& op) {
  if (!contains(op.output(), request_.loss)) return;
  has_loss_ = true;
  for (const std::string& name : op.input())
    if (!name.empty() && known_.at(name).inner == SampleBlob::kMixed)
      throw Error(
          fmt::format("the loss \"{}\" is computed from \"{}\", in which samples are not apart", request_.loss, name),
          "let the operator that adds up or averages what the samples have write the loss itself");
}

Kind Tapping::kind_of(const OperatorDef& op) const {
  const auto only = [&](std::initializer_list<int> places) {
    for (int i = 0; i < op.input_size(); ++i)
      if (is_parameter(op.input(i)) && std::ranges::count(places, i) == 0) return false;
    return true;
  };
  if (is_matmul(op) && only({1})) return Kind::product;
  if (is_product(op) && !is_matmul(op) && only({1, 2})) return Kind::product;
  if (looks_rows_up(op) && only({0})) return Kind::table;
  if (lays_over(op) && std::ranges::count_if(op.input(), [&](const auto& n) { return is_parameter(n); }) == 1)
    return Kind::copies;
  const auto parameter = std::ranges::find_if(op.input(), [&](const auto& name) { return is_parameter(name); });
  throw Error(
      fmt::format("it reads the parameter \"{}\" in a way in which gradients cannot be told by samples", *parameter),
      "FC, FCTransposed and MatMul by the parameter can, Gather along axis 0, and Add, Sub, Mul and Div with a "
      "parameter that is laid over the last dimensions");
}

// Of a product or a table.
SampleReader Tapping::sizes_of(const OperatorDef& op, const SampleBlob& x, const SampleBlob& y) const {
  SampleReader r{
      .kind = kind_of(op), .op = op, .weights = "", .bias = "", .x = rows_read_by(op), .shown = op.output(0)};
  const int weights = is_product(op) ? 1 : 0;
  if (is_parameter(op.input(weights))) r.weights = op.input(weights);
  if (is_product(op) && !is_matmul(op) && op.input_size() > 2 && is_parameter(op.input(2))) r.bias = op.input(2);
  check_apart(r.x, x);
  check_apart(op.output(0), y);
  const int rank = x.type.shape.rank();
  if (is_product(op)) {
    const int64_t axis = int_arg(op, is_matmul(op) ? "axis_a" : "axis", 1);
    r.in = x.type.shape.size_between(canonical_axis(axis, rank), rank);
  }
  require(r.in > 0 && x.inner % r.in == 0 && x.type.shape.size() > 0,
          "\"{}\", which is {}, has rows of several samples", r.x, x.type.str());
  r.rows = x.inner / r.in;
  const int64_t all = x.type.shape.size() / r.in;
  r.out = y.type.shape.size() / all;
  r.groups = all / (r.rows * request_.samples);
  require(r.groups * r.rows * request_.samples == all && y.inner == r.rows * r.out,
          "the rows of \"{}\", which is {}, are not those of {} samples", r.x, x.type.str(), request_.samples);
  return r;
}

// [samples, ...], in front of the operator or its network.
std::string Tapping::copies_of(const std::string& parameter) {
  const Shape& shape = taps_.shapes.at(parameter);
  std::vector<int64_t> row = {1};
  row.insert(row.end(), shape.begin(), shape.end());
  OperatorDef reshape = simple_op("Reshape", parameter, fresh(parameter + "_row"));
  *reshape.add_arg() = make_arg("shape", row);
  reshape.add_output(fresh(parameter + "_shape"));
  OperatorDef tile = simple_op("Tile", reshape.output(0), fresh(parameter + "_copies"));
  *tile.add_arg() = make_arg("tiles", request_.samples);
  *tile.add_arg() = make_arg("axis", 0);
  emit(reshape);
  emit(tile);
  return tile.output(0);
}

// Lets the operator read copies; `y`: what it writes.
void Tapping::tap_copies(OperatorDef& op, const SampleBlobs& before, const SampleBlob& y, NetDef* step) {
  const auto place = std::ranges::find_if(*op.mutable_input(), [&](const auto& name) { return is_parameter(name); });
  const std::string parameter = *place;
  const Shape& shape = taps_.shapes.at(parameter);
  bool fits = y.holds_samples() && y.inner == shape.size() && y.type.shape.rank() > shape.rank() &&
              y.type.shape[y.type.shape.rank() - shape.rank() - 1] == request_.samples;
  for (int i = 0; fits && i < shape.rank(); ++i)
    fits = y.type.shape[y.type.shape.rank() - shape.rank() + i] == shape[i];
  for (const std::string& name : op.input())
    fits = fits && (name == parameter || before.at(name).type.shape == y.type.shape);
  require(fits,
          "the parameter \"{}\" must be laid over the dimensions behind that of {} samples, but the result is {}, and "
          "the parameter {}",
          parameter, request_.samples, y.type.str(), shape);
  *place = copies_of(parameter);
  if (step) list(*step->mutable_external_input(), *place);
  taps_.readers.push_back({.kind = Kind::copies, .op = op, .weights = parameter, .bias = "", .x = "", .shown = *place});
  taps_.readers.back().out = shape.size();
}

// Where timesteps and samples are one dimension, it is made two for the operator.
void Tapping::tap_row_copies(OperatorDef& op, const SampleBlob& y) {
  const Shape& shape = y.type.shape;
  std::vector<int64_t> two = {-1, request_.samples}, one(shape.begin(), shape.end());
  if (y.holds_samples() && shape.rank() > 0) two.insert(two.end(), shape.begin() + 1, shape.end());
  const bool merged = y.holds_samples() && shape.rank() > 0 && y.inner == shape.size_between(1, shape.rank()) &&
                      shape[0] > request_.samples;
  if (!merged) {
    tap_copies(op, known_, y, nullptr);
    return emit(op);
  }
  const auto reshape = [&](const std::string& from, const std::string& to, const std::vector<int64_t>& dims) {
    OperatorDef made = simple_op("Reshape", from, to);
    made.add_output(fresh(to + "_old_shape"));
    *made.add_arg() = make_arg("shape", dims);
    emit(made);
  };
  for (std::string& name : *op.mutable_input()) {
    if (is_parameter(name)) continue;
    const std::string parts = fresh(name + "_by_time");
    reshape(name, parts, two);
    name = parts;
  }
  const std::string y_name = op.output(0), made = fresh(y_name + "_by_time");
  op.set_output(0, made);
  tap_copies(op, known_, traced_outputs(op, known_)[0], nullptr);
  emit(op);
  reshape(made, y_name, one);
}

void Tapping::tap_op(OperatorDef& op) {
  if (!reads_parameters(op)) return emit(op);
  const SampleBlob made = traced_outputs(op, known_)[0];
  if (kind_of(op) == Kind::copies) return tap_row_copies(op, made);
  SampleReader reader = sizes_of(op, known_.at(rows_read_by(op)), made);
  if (writes_[reader.x] > 1) {
    emit(simple_op("Copy", reader.x, fresh(reader.x)));
    reader.x = done_[done_.size() - 1].output(0);
  }
  const std::string y = op.output(0);
  if (writes_[y] > 1 || contains(op.input(), y)) {
    reader.shown = fresh(y);
    op.set_output(0, reader.shown);
    emit(op);
    emit(simple_op("Copy", reader.shown, y));
  } else {
    emit(op);
  }
  reader.op = product_of_rows(op);
  taps_.readers.push_back(std::move(reader));
}

void Tapping::tap_network(OperatorDef& op) {
  RecurrentDef& def = *op.MutableExtension(recurrent);
  for (const StateLink& s : def.state())
    require(!is_parameter(s.initial()), "the initial value of state \"{}\" is the parameter \"{}\"", s.input(),
            s.initial());
  for (const SequenceLink& s : def.sequence())
    require(!is_parameter(s.outer()), "the sequence \"{}\" is a parameter", s.outer());
  for (const SequenceLink& s : def.sequence()) check_own_name(s.inner());
  for (const StateLink& s : def.state()) check_own_name(s.input());
  const std::vector<std::string> read = read_from_outside(def.step_net());
  if (std::ranges::any_of(read, [&](const auto& name) { return is_parameter(name); })) {
    const SampleBlob& first = known_.at(def.sequence_size() > 0 ? def.sequence(0).outer() : "");
    require(first.type.known && first.type.shape.rank() >= 2, "the types of its sequences are not known");
    SampleBlobs inside = enter_step_net(def, known_);
    NetDef step = def.step_net();
    step.clear_op();
    for (const OperatorDef& inner : def.step_net().op()) {
      try {
        check_writes(inner);
        for (const OperatorDef& part : parts(inner)) tap_step(op, part, step, inside, first.type.shape[0]);
      } catch (Error& e) {
        if (!has_short_form(inner)) add_op_context(e, bind_op(inner, step.name(), 0));
        throw;
      }
    }
    def.mutable_step_net()->Swap(&step);
  }
  emit(op);
}

void Tapping::tap_step(OperatorDef& network, OperatorDef op, NetDef& step, SampleBlobs& inside, int64_t steps) {
  const auto add = [&](const OperatorDef& added) {
    trace_samples(added, inside);
    *step.add_op() = added;
  };
  if (has_short_form(op)) {
    for (const std::string& name : read_from_outside(op.GetExtension(recurrent).step_net()))
      require(!is_parameter(name), "a network in the step net of another reads the parameter \"{}\"", name);
    require(!reads_parameters(op), "a network in the step net of another reads a parameter");
  }
  if (!reads_parameters(op)) return add(op);
  RecurrentDef& def = *network.MutableExtension(recurrent);
  const SampleBlob y = traced_outputs(op, inside)[0];
  if (kind_of(op) == Kind::copies) {
    tap_copies(op, inside, y, &step);
    inside.blobs[taps_.readers.back().shown] = known_.at(taps_.readers.back().shown);
    network.add_input(taps_.readers.back().shown);
    return add(op);
  }
  SampleReader reader = sizes_of(op, inside.at(rows_read_by(op)), y);
  require(y.type.shape.rank() >= 2 && y.type.shape[0] == 1 && y.type.shape[1] == request_.samples,
          "\"{}\", which is {}, is no row of a sequence", op.output(0), y.type.str());
  reader.groups = steps;
  const auto sequence = std::ranges::find(def.sequence(), reader.x, &SequenceLink::inner);
  if (sequence != def.sequence().end() && writes_[reader.x] == 0) {
    reader.x = sequence->outer();
  } else {
    add(simple_op("Copy", reader.x, fresh(reader.x)));
    OutputLink& shown = *def.add_output();
    shown.set_inner(step.op(step.op_size() - 1).output(0));
    list(*step.mutable_external_output(), shown.inner());
    shown.set_outer(fresh(reader.x + "_all"));
    network.add_output(shown.outer());
    reader.x = shown.outer();
  }
  OperatorDef zeros = simple_op("ConstantFill", "", fresh(op.output(0) + "_zeros"));
  std::vector<int64_t> shape(y.type.shape.begin(), y.type.shape.end());
  shape[0] = steps;
  *zeros.add_arg() = make_arg("shape", shape);
  *zeros.add_arg() = make_arg("dtype", static_cast<int>(taps_.dtype));
  emit(zeros);
  reader.shown = zeros.output(0);
  SequenceLink& added = *def.add_sequence();
  added.set_outer(reader.shown);
  added.set_inner(fresh(op.output(0) + "_zeros_row"));
  list(*step.mutable_external_input(), added.inner());
  network.add_input(reader.shown);
  inside.blobs[added.inner()] = {.type = y.type, .inner = y.inner};
  OperatorDef sum = simple_op("Add", fresh(op.output(0)), op.output(0));
  sum.add_input(added.inner());
  *sum.add_arg() = make_arg("equal_shapes", true);
  op.set_output(0, sum.input(0));
  add(op);
  add(sum);
  reader.op = product_of_rows(op);
  taps_.readers.push_back(std::move(reader));
}

// What readers read must be there when the net has run.
void check_still_there(const NetDef& net, const SampleTaps& taps) {
  const BoundNet bound(net);
  for (const SampleReader& r : taps.readers)
    for (const std::string& name : {r.x, r.weights}) {
      const int blob = name.empty() ? -1 : bound.flow.find(name);
      if (blob < 0 || bound.flow.versions(blob) <= (bound.flow.first(blob) >= 0 ? 0 : 1)) continue;
      throw Error(fmt::format("\"{}\", which {} reads, is overwritten later", name, r.op.type()),
                  "let what writes it write to another blob");
    }
}

}  // namespace

SampleTaps tap_parameters(NetDef& net, const SampleRequest& request) {
  take_all_extensions(net);
  expand_defined_operators(net);
  expand_cell_operators(net);
  for (OperatorDef& op : *net.mutable_op()) {
    if (!has_short_form(op)) continue;
    NetDef& step = *op.MutableExtension(recurrent)->mutable_step_net();
    if (has_inner_gradients(step)) expand_inner_gradients(step, true);
  }
  return Tapping(net, request).run();
}

GradientResult differentiate_taps(NetDef& net, SampleTaps& taps, const std::string& loss, const std::string& given,
                                  const std::set<std::string>& stop) {
  const auto check_any = [&] {
    if (taps.readers.empty())
      throw NoDependence(
          fmt::format("\"{}\" depends on none of the parameters whose gradients are to be told by samples", loss));
  };
  check_any();
  check_still_there(net, taps);
  GradientRequest request;
  request.targets = {{loss, given}};
  request.stop = stop;
  for (const SampleReader& r : taps.readers) request.wanted.insert(r.shown);
  GradientResult result = add_gradient_operators(net, request);
  for (SampleReader& r : taps.readers) {
    const auto found = result.gradients.find(r.shown);
    if (found == result.gradients.end() || !found->second.defined()) continue;
    r.gradient = found->second.is_sparse()
                     ? append_dense_copy(net, found->second, r.shown, "per_sample/" + r.shown + "_dense")
                     : found->second.dense;
  }
  std::erase_if(taps.readers, [](const SampleReader& r) { return r.gradient.empty(); });
  check_any();
  return result;
}

}  // namespace stepnet
