// SendTensor and ReceiveTensor: a tensor from one rank to another. Unless raw_buffer is set, a message with type and
// shape goes in front of the values, and the receiver needs to know neither.
//
// There is no derivative: the gradient of what was received belongs to another rank, whose net would have to receive it
// at a place that this net does not know of. Where it is needed, a net sends it by these operators, too.

#include <array>

#include "operators/collective/collective_call.h"

namespace stepnet::cpu_send_receive {
namespace {

using collective::check_values;
using collective::declare;
using collective::finish_declaring;
using collective::is_dry;
using collective::sent_input;
using collective::wait_for;
using collective::world_of;

struct SendArgs {
  std::optional<int64_t> dst;
  int64_t tag = 0;
  bool raw_buffer = false;
};
struct ReceiveArgs {
  int64_t src = World::kAny, tag = World::kAny;
  bool raw_buffer = false;
};

// What is sent in front of a tensor: a mark, its type, its number of dimensions, and these.
using Type = std::array<int64_t, 3 + Shape::kMaxRank>;
constexpr int64_t kMark = 0x7374657074656e73;

Type type_of(const Tensor& t) {
  Type type{kMark, static_cast<int64_t>(t.dtype()), t.rank()};
  std::copy(t.shape().begin(), t.shape().end(), type.begin() + 3);
  return type;
}

// An input that overrides an argument: one number.
std::optional<int64_t> number_of(const BlobCall& c, int i) {
  if (i >= static_cast<int>(c.in.size()) || !c.in[i]) return {};
  const Tensor& t = std::as_const(*c.in[i]).tensor();
  require((t.dtype() == DType::int32 || t.dtype() == DType::int64) && t.size() == 1,
          "\"{}\" must be one int32 or int64, but is {}", c.def.input(i), t);
  return t.item<int64_t>();
}

int rank_of(int64_t rank, const World& world, const char* what) {
  require(rank >= 0 && rank < world.size(), "{} is {}, but the common world has ranks 0 to {}", what, rank,
          world.size() - 1);
  return static_cast<int>(rank);
}

int tag_of(int64_t tag) {
  constexpr int64_t most = 32767;
  require(tag >= 0 && tag <= most, "the tag must be from 0 to {}, but is {}", most, tag);
  return static_cast<int>(tag);
}

void check_on_cpu(const BlobCall& c, const std::string& name, const Tensor& t) {
  require(c.def.engine() != "NCCL", "the engine \"NCCL\" does not send tensors from rank to rank; leave it out");
  require(is_dry() || t.device().kind == DeviceKind::cpu,
          "\"{}\" is on {}, but tensors of the CPU are sent from rank to rank; bring it there with CopyGPUToCPU", name,
          t.device());
}

void send(const SendArgs& a, BlobCall& c) {
  World& world = world_of(c);
  const Tensor x = sent_input(c, 1);
  check_on_cpu(c, c.def.input(1), x);
  if (is_dry()) return;
  const std::optional<int64_t> given = number_of(c, 2);
  require(given || a.dst, "the rank to send to is given neither by argument \"dst\" nor by an input");
  const int to = rank_of(given.value_or(a.dst.value_or(0)), world, "the rank to send to");
  const int tag = tag_of(number_of(c, 3).value_or(a.tag));
  const bool is_own = to == world.rank();
  const std::byte* bytes = x.raw();
  std::shared_ptr<void> owner = x.storage();
  if (is_own) {  // it is received later, by another operator, and is no value of the net meanwhile
    const auto copy = std::make_shared<std::vector<std::byte>>(bytes, bytes + x.bytes());
    bytes = copy->data();
    owner = copy;
  }
  PendingPtr header;
  const auto type = std::make_shared<Type>(type_of(x));
  if (!a.raw_buffer) {
    header = world.start_send(type->data(), static_cast<int64_t>(type->size()), DType::int64, to, tag);
    header->hold(type);
  }
  const PendingPtr values = world.start_send(bytes, x.size(), x.dtype(), to, tag);
  values->hold(std::move(owner));
  if (is_own) return;
  if (header) header->wait();
  values->wait();
}

// Receives a type and gives the output that one; returns from where it came.
std::pair<int, int> receive_type(World& world, int from, int tag, Tensor& y) {
  const auto type = std::make_shared<Type>();
  const PendingPtr header =
      world.start_receive(type->data(), static_cast<int64_t>(type->size()), DType::int64, from, tag);
  header->hold(type);
  header->wait();
  require((*type)[0] == kMark && (*type)[2] >= 0 && (*type)[2] <= Shape::kMaxRank,
          "rank {} has sent values without their type and shape; set raw_buffer on both sides or on neither",
          header->source());
  y.resize(dtype_from_number((*type)[1]),
           Shape(std::span<const int64_t>(type->data() + 3, static_cast<size_t>((*type)[2]))));
  return {header->source(), header->tag()};
}

void put_number(Blob* blob, int64_t value) {
  if (!blob) return;
  blob->tensor() = Tensor::of<int32_t>({1}, {static_cast<int32_t>(value)});
}

void receive(const ReceiveArgs& a, BlobCall& c) {
  World& world = world_of(c);
  Tensor& y = c.out[0]->tensor();
  const int64_t src = number_of(c, 2).value_or(a.src), given = number_of(c, 3).value_or(a.tag);
  int from = src == World::kAny ? World::kAny : rank_of(src, world, "the rank to receive from");
  int tag = given == World::kAny ? World::kAny : tag_of(given);
  if (a.raw_buffer)
    require(y.defined(), "with raw_buffer \"{}\" must have its type and shape before, but holds nothing",
            c.def.output(0));
  else
    std::tie(from, tag) = receive_type(world, from, tag, y);
  check_values(c.def.output(0), y);
  check_on_cpu(c, c.def.output(0), y);
  const PendingPtr values = world.start_receive(y.raw(), y.size(), y.dtype(), from, tag);
  wait_for(values, {&y});
  y.mark_written();
  if (c.out.size() > 1) put_number(c.out[1], values->source());
  if (c.out.size() > 2) put_number(c.out[2], values->tag());
}

void infer_receive(const ReceiveArgs& a, ShapeCall& c) {
  if (a.raw_buffer) c.set_like(0, 1);
  for (int o = 1; o < c.outputs(); ++o) c.set(o, DType::int32, {1});
}

const char* const kRawDoc = "only the values are sent; the receiver's Y has their type and shape already";
const char* const kNotDifferentiated = "the gradient of what ranks send to each other is for their nets to send back";

constexpr const char* kToItself = R"(
  op { type: 'CreateCommonWorld' output: 'world' }
  op { type: 'SendTensor' input: 'world' input: 'X' arg { name: 'dst' i: 0 } arg { name: 'tag' i: 3 } }
  op { type: 'ReceiveTensor' input: 'world' output: 'Y' output: 'src' output: 'tag' })";

REGISTER(send_tensor) {
  auto builder = op<SendArgs>("SendTensor");
  builder.doc("Sends a tensor to another rank, which receives it with ReceiveTensor.")
      .arg("dst", &SendArgs::dst, std::optional<int64_t>{}, "the rank to send to")
      .arg("tag", &SendArgs::tag, int64_t{0}, "a number from 0 to 32767 by which the receiver may choose")
      .arg("raw_buffer", &SendArgs::raw_buffer, false, kRawDoc);
  declare(builder)
      .input("X", "a tensor of any type but strings")
      .any_type()
      .input("dst", "one number, in place of the argument")
      .types({DType::int32, DType::int64})
      .optional()
      .input("tag", "one number, in place of the argument")
      .types({DType::int32, DType::int64})
      .optional()
      .blobs(send)
      .runs_dry()
      .example_net(kToItself, {"X=2,3"});
  return finish_declaring(builder).no_gradient(kNotDifferentiated);
}

REGISTER(receive_tensor) {
  auto builder = op<ReceiveArgs>("ReceiveTensor");
  builder.doc("Receives a tensor that another rank sends with SendTensor.")
      .arg("src", &ReceiveArgs::src, int64_t{World::kAny}, "the rank to receive from; -1: from any", at_least(-1))
      .arg("tag", &ReceiveArgs::tag, int64_t{World::kAny}, "the tag of what is received; -1: any", at_least(-1))
      .arg("raw_buffer", &ReceiveArgs::raw_buffer, false, kRawDoc);
  declare(builder)
      .input("Y", "what is overwritten; with raw_buffer it has the type and shape of what is received")
      .any_type()
      .optional()
      .input("src", "one number, in place of the argument")
      .types({DType::int32, DType::int64})
      .optional()
      .input("tag", "one number, in place of the argument")
      .types({DType::int32, DType::int64})
      .optional()
      .output("Y", "what was received")
      .output("src", "the rank that it came from, int32")
      .optional()
      .output("tag", "the tag that it came with, int32")
      .optional()
      .must_be_in_place("Y", "Y")
      .in_place("src", "src")
      .in_place("tag", "tag")
      .shape(infer_receive)
      .blobs(receive)
      .example_net(kToItself, {"X=2,3"});
  return finish_declaring(builder).no_gradient(kNotDifferentiated);
}

}  // namespace
}  // namespace stepnet::cpu_send_receive
