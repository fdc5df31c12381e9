// TapeCapture: writes down as a net what runs on the tape.
//
// A value is known by its bytes: a storage, a place in it, a shape, and the storage's version. Every write gives the
// bytes a new name, so no blob of the net is written twice, whatever ran in place. Bytes that were there before the
// capture and that no operator wrote are constants. Bytes that were made or written during the capture by anything but
// a captured operator are an Error when they are read, as they may depend on the inputs.
// The tape's files call the hooks below where TapeState::capture is set. Threads: as the tape's thread that captures; a
// pass that goes on in another thread takes it along.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/tensor/storage_watch.h"
#include "stepnet/bound_op.h"
#include "stepnet/node.h"
#include "stepnet/variable.h"

namespace stepnet::autograd {

class TapeCapture {
 public:
  using Names = std::map<std::string, std::string>;  // by blob of a net, the captured value

  explicit TapeCapture(std::string title);

  // --- Before the capture --------------------------------------------------------------------------------------------
  // Throws Error if the name is taken, or the bytes are another input's.
  void add_input(const std::string& name, const Tensor& value);
  void wish_name(const std::string& name, const Tensor& constant);  // should it be one

  // --- Hooks ---------------------------------------------------------------------------------------------------------
  // Runs the operator and adds it to the net. Throws Error if that would not run in a net as here.
  void run(const BoundOp& op, std::span<const Tensor* const> in, std::span<Tensor* const> out, RunContext& context);
  // The value's name; of a tensor without bytes, that of a value of its type. Throws Error if the bytes are neither a
  // captured operator's nor a constant.
  std::string name_of(const Tensor& value);
  const std::string* known(const Tensor& value) const;  // the same of a value that has a name; null if it has none
  // The value may be a constant although it was made during the capture.
  void allow_constant(const Tensor& value);
  // What these bytes hold is about to be overwritten: a constant or an input there is kept.
  void before_write(const Tensor& target);
  // The same for a copy of `source` to it, whose name is returned.
  std::string name_to_copy(const Tensor& source, const Tensor& target);
  // The bytes hold the value of that name now.
  void wrote(const std::string& name, const Tensor& target);
  // The same, unless they are another name's already.
  void shows(const std::string& name, const Tensor& value);
  // Throws Error if `by`, which is no operator, has made a value by other means than captured operators.
  void check_made(const Tensor& value, std::string_view by) const;
  // These types, which the node owns, are those of the values of these names; "" where that is not known.
  void note_types(const std::shared_ptr<const Node>& owner, std::span<const TensorType> types,
                  const std::vector<std::string>& names);
  // `like`, without bytes, stands for what has that very type.
  void note_like(const Variable& like, const TensorType& type);
  void accumulated(const Variable& variable) { accumulated_.push_back(variable); }
  // Adds the operators of a net that runs as one operation. `names`: of its inputs; returned with all that it writes.
  Names add_net(const NetDef& net, Names names);

  // --- After the capture ---------------------------------------------------------------------------------------------
  // A value by a name that is that of no input, no constant and no output before.
  std::string add_output(const Tensor& value);
  // Bytes that were there before the capture and that operators have written: what they hold now.
  struct Written {
    std::string name;  // of an output
    std::string over;  // the input or constant that was read there; "": none was
    Tensor bytes;
  };
  std::vector<Written> add_written();
  const std::vector<Variable>& accumulated() const { return accumulated_; }
  NetDef take_net();  // without the operators that no output needs
  // As they were when they were first read; of the net that was taken.
  std::map<std::string, Tensor> constants() const;
  const Tensor& input(const std::string& name) const { return given_.at(name); }

 private:
  struct Range {
    size_t begin, end;
    bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  };
  struct Named {
    Range range;
    DType dtype;
    Shape shape;
    std::string name;
  };
  struct Bytes {
    uint64_t version = 0;
    bool may_be_constant = false;  // where no operator has written
    std::vector<Named> values = {};
    std::vector<Named> first = {};  // inputs and constants, as they were first read
    std::vector<Range> written = {};
    std::string stale = {};  // the name of what overwrote others last
  };
  using Storages = std::map<std::weak_ptr<Storage>, Bytes, std::owner_less<>>;

  static Range range_of(const Tensor& value) { return {value.offset(), value.offset() + value.bytes()}; }
  static const Named* find(const Bytes& bytes, const Tensor& value);
  std::string fresh(const std::string& wanted);
  std::string numbered(const std::string& base);
  std::string constant_name(const Tensor& value);
  std::string add_constant(Bytes& bytes, const Tensor& value);
  std::string like_name(const Tensor& value);
  std::string reshaped(Bytes& bytes, const Tensor& value);
  static void list_written(const std::shared_ptr<Storage>& storage, const Bytes& bytes, std::vector<Written>& written);
  void add_first(Bytes& bytes, const Tensor& value, const std::string& name);
  void add_value(Bytes& bytes, const Tensor& value, const std::string& name);
  void check_operator(const BoundOp& op) const;
  OperatorDef& add_operator(const OperatorDef& op, Device device);
  void add_copy(const std::string& from, const std::string& to, Device device);
  std::string output_name(const OpSpec& spec, int o, const std::string& first);
  void write_apart(OperatorDef& op, const OpSpec& spec, Device device);
  [[noreturn]] static void fail_unknown(const Tensor& value);
  [[noreturn]] static void fail_written(const Tensor& value);

  StorageWatch watch_;
  NetDef net_;
  std::set<std::string> taken_, outputs_;
  std::map<std::string, int> counts_;
  // A weak pointer keeps the address of its storage from being used again, so that none is taken for another one.
  Storages storages_;
  std::map<std::string, Tensor> given_;      // inputs
  std::map<std::string, Tensor> constants_;  // or copies, once they are overwritten
  std::vector<std::pair<std::string, Tensor>> wishes_;
  std::map<std::string, std::string> by_type_;  // the first value of each
  std::unordered_map<const TensorType*, std::pair<std::weak_ptr<const Node>, std::string>> types_;
  std::map<const Tensor*, std::pair<Variable, std::string>> likes_;
  std::vector<Variable> accumulated_;
};

// --- For the tape's files: what they would do without a capture, written down if there is one
// --------------------------

// run_op.
void run_captured(const BoundOp& op, std::span<const Tensor* const> in, std::span<Tensor* const> out,
                  RunContext& context);
// A copy that has the value's name.
Tensor clone_captured(const Tensor& value);
// A variable of which only the type is read.
Variable type_only(const TensorType& type);
// Refuses what a capture cannot write down.
void refuse_captured(std::string_view what, std::string_view hint);

}  // namespace stepnet::autograd
