// RowBatch: operators that run once for many values of what they depend on, in place of once for each: a backward pass
// for many given gradients at a time, whose results are the rows of a Jacobian.
//
// What depends on the given values gets a first dimension for the rows; everything else stays as it is and serves all
// rows. An operator that reads such a blob is rewritten by a rule (core/passes/batched_rules.h), which needs to know
// shapes. Where there is no rule, or a shape is not known, the operator is repeated for each row on its own, and what
// it makes is stacked when a rule asks for it. So every operator is right, and those with a rule are fast.
// Threads: one thread for each RowBatch; it borrows the net.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/bound_op.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

class RowBatch {
 public:
  using Dims = std::vector<int64_t>;
  using Strings = std::vector<std::string>;

  // Operators are appended to the net. `types`: of all blobs, as far as they are known, for one row; `prefix`: of
  // names that the net does not have.
  RowBatch(NetDef& net, int64_t rows, std::map<std::string, TensorType> types, std::string prefix);

  // The blob has the dimension for the rows.
  void give(const std::string& name) { made_[name].stacked = name; }
  // Appends the operator, or what it becomes. Its outputs are written by no other operator. Throws Error with the
  // operator's place if it is random, as its draws would not be those of runs one by one.
  void add(const OperatorDef& op);
  // The blob with the dimension for the rows, whether it depends on them or not.
  std::string with_rows(const std::string& name);
  // The types that blobs with rows must have, by their names in the net.
  std::map<std::string, TensorType> promised() const;

  // --- For rules -----------------------------------------------------------------------------------------------------
  int64_t rows() const { return rows_; }
  bool has_rows(const std::string& name) const { return made_.count(name) > 0; }
  const TensorType& type(const std::string& name) const;  // for one row; unknown if it is not known
  bool known(const std::string& name) const { return type(name).known; }
  const Shape& shape(const std::string& name) const { return type(name).shape; }
  // The type with the dimension for the rows, if it has it.
  TensorType full_type(const std::string& name) const;

  // Appends an operator like the one that is rewritten, with one output of a new name.
  std::string emit(const std::string& type, const Strings& inputs, const std::vector<Argument>& args = {});
  void emit_op(const OperatorDef& op);
  // The same elements in these sizes, of a blob that stands as it is named; itself if it has them.
  std::string reshape(const std::string& stands, const Dims& have, const Dims& want, DType dtype);
  // A blob with rows, or one without them, in these sizes, the rows' not among them.
  std::string row_view(const std::string& name, const Dims& want);
  std::string repeat(const std::string& name);  // one without rows, a copy for each
  // Says that `stands` is the output, with rows.
  void finish(const std::string& output, const std::string& stands) { made_[output].stacked = stands; }
  // Says of what type a new blob is for one row.
  void set_type(const std::string& name, const TensorType& type) { types_[name] = type; }
  std::string fresh(const std::string& base);
  const OperatorDef& like() const { return *like_; }

 private:
  struct Made {
    std::string stacked;  // "" if it is not stacked yet
    Strings each;         // a blob for each row; empty if it is not cut yet
  };

  OperatorDef with_row_of_shapes(const OperatorDef& op, const std::vector<bool>& reads);
  std::string first_row(const std::string& name);
  const Strings& row_by_row(const std::string& name);
  bool make_zeros(const OperatorDef& op);
  bool use_body(const BoundOp& op);
  void name_states(const OperatorDef& op, size_t row, std::map<std::string, std::string>& names);
  void repeat_op(const OperatorDef& op);

  NetDef& net_;
  const int64_t rows_;
  std::map<std::string, TensorType> types_;
  std::string prefix_;
  std::map<std::string, Made> made_;
  std::map<std::string, std::string> repeated_, first_rows_;
  std::map<std::string, Strings> states_;  // of networks that are repeated: by state, that of each row
  std::map<std::string, int> numbers_;
  const OperatorDef* like_ = nullptr;
};

}  // namespace stepnet
