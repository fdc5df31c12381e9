// Dataflow: what the values of a net are. Who writes each, who reads it, which blobs share a storage, and when each
// ends.
//
// Every write of a blob makes a new value, a version of the blob; version 0 is what it holds before the net runs. A
// value is in a storage. Names that an Alias makes share one; an operator in place writes it, and every name of it then
// shows the new value. An operator that does not work in place gives the name that it writes a storage of its own if
// others share the one that it had (core/net/net_sharing.h), unless the options say that storages are fixed.
//
// Building takes n log n, whatever shares storages. Owns what it says; the operators may go.
// Threads: immutable once built. Errors: none.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "stepnet/bound_op.h"

namespace stepnet {

// An operator of a net with its blobs; null where a name is empty.
struct NetStep {
  const BoundOp* op;
  std::span<Blob*const> in, out;
};

// Blobs, values and storages are told by number, operators by position; -1 is none.
struct NetValue {
  static constexpr int kNever = std::numeric_limits<int>::max();
  int blob = 0, version = 0;
  int writer = -1;  // operator; -1: it is there before the net runs
  int storage = 0;
  int alias_of = -1;  // the value that its writer made another name of
  // Of what a blob holds after an operator has written its storage under another name, where it is not known to have
  // that one's shape, or to have that storage at all (MatchShape): the value that was written, and what the blob held
  // before.
  int shows = -1, replaces = -1;
  int overwritten = kNever;       // the first operator that writes its storage, or its blob, next
  int last_overwritten = -1;      // and the last that does, where several names held it
  bool by_name = false;           // a net inside an operator finds it by its name
  std::vector<int> readers = {};  // operators that read its elements, each once, rising
  std::vector<int> uses = {};     // operators, once for each input that is given the value, rising
};

struct ValueStorage {
  int64_t bytes = 0;                        // the most that a value in it takes; 0 if nothing said sizes
  int first = NetValue::kNever, last = -1;  // the operators that read or write elements in it: the first and the last
  bool lasting = false;                     // a visible blob has it, or one that comes from outside
};

// The allocated bytes of what an operator reads and writes; 0 if absent.
struct OpBytes {
  std::vector<int64_t> in, out;
};

struct DataflowOptions {
  // Blobs that others may see, beside those that the net reads before it writes them.
  std::set<std::string> visible = {};
  // Names of one storage go on sharing it when one of them is written, in place or not, as in step nets. What the
  // others then hold is the new value or one of their own, and reading them is for the caller to refuse.
  bool fixed_storages = false;
  // Operators on blobs are taken to write into the storage that a blob has, which some do, and some do not.
  bool blob_ops_write_over = false;
  std::span<const OpBytes> bytes = {};  // by operator; or empty
};

class Dataflow {
 public:
  explicit Dataflow(std::span<const BoundOp* const> ops, const DataflowOptions& options = {});
  explicit Dataflow(std::span<const BoundOp> ops, const DataflowOptions& options = {});

  std::span<const NetValue> values() const { return values_; }
  const NetValue& value(int value) const { return values_[value]; }
  std::span<const ValueStorage> storages() const { return storages_; }

  // By operator and input or output: the value that the blob holds, which may be one that was written under another
  // name; and the value whose elements are read, -1 if only the shape is.
  std::span<const int> inputs(int op) const { return ops_[op].inputs; }
  std::span<const int> reads(int op) const { return ops_[op].reads; }
  std::span<const int> outputs(int op) const { return ops_[op].outputs; }
  std::span<const int> input_blobs(int op) const { return ops_[op].in_blobs; }
  std::span<const int> output_blobs(int op) const { return ops_[op].out_blobs; }
  int read(int op, int input) const { return ops_[op].reads[input]; }
  int made(int op, int output) const { return ops_[op].outputs[output]; }

  int blobs() const { return static_cast<int>(blobs_.size()); }
  const std::string& name(int blob) const { return blobs_[blob].name; }
  int find(const std::string& name) const;  // the blob; -1 if no operator names it
  std::vector<std::string> names() const;   // sorted
  // What the blob holds before the net runs, -1 if the net writes it before it reads it; and after.
  int first(int blob) const { return blobs_[blob].first; }
  int last(int blob) const { return blobs_[blob].last; }
  // What a caller means who says no version: what comes from outside, or else what the net leaves behind.
  int meant(int blob) const { return first(blob) >= 0 ? first(blob) : last(blob); }
  int versions(int blob) const { return blobs_[blob].versions; }        // how often it was overwritten, by any name
  int last_writer(int blob) const { return blobs_[blob].last_writer; }  // the last operator that overwrote it
  int reshaper(int blob, int from) const;  // the first operator from `from` on that may give it another shape; or -1
  // Blobs whose values from before the net goes on with: it reads them before it writes them, or keeps what is in them.
  // In the order in which they are met.
  std::span<const int> from_outside() const { return from_outside_; }
  bool is_visible(int blob) const { return blobs_[blob].visible || blobs_[blob].from_outside; }

  // Blobs of the net that nobody needs after the operator: neither visible nor read or written later. By name.
  std::span<const int> ending(int op) const { return ops_[op].ending; }

  // Blobs of one group may share bytes at some time, by the operators' rules.
  int group(int blob) const { return groups_[blob]; }
  bool has_alias(int blob) const { return blobs_[blob].has_alias; }

  // The value whose bytes `value` shows: itself, unless another was written to its storage.
  int stored(int value) const { return values_[value].shows >= 0 ? values_[value].shows : value; }

 private:
  class Walk;
  struct Op {
    std::vector<int> in_blobs, out_blobs, inputs, reads, outputs, ending;
  };
  struct NamedBlob {
    std::string name = {};
    int first = -1, last = -1, versions = 0, last_writer = -1;
    int last_use = -1;  // the last operator that reads or writes its elements under this name
    bool visible = false, from_outside = false, has_alias = false;
    std::vector<int> reshapers = {};  // operators that may give the name another shape, rising
  };

  std::vector<Op> ops_;
  std::vector<NetValue> values_;
  std::vector<ValueStorage> storages_;
  std::vector<NamedBlob> blobs_;
  std::vector<int> groups_, from_outside_;
  std::map<std::string, int> numbers_;
};

// By number of the dataflow.
std::vector<Blob*> blobs_of(std::span<const NetStep> steps, const Dataflow& flow);

// A net's operators, bound, and their dataflow.
struct BoundNet {
  std::vector<BoundOp> ops;
  Dataflow flow;
  explicit BoundNet(const NetDef& net, const DataflowOptions& options = {});
};

// Groups of numbers that are joined two by two.
class JoinedGroups {
 public:
  explicit JoinedGroups(int size);
  void join(int a, int b);
  int of(int number);  // the same for all of a group
 private:
  std::vector<int> first_;
};

// What one blob holds from an operator that writes it to the last that needs it, where a later write may be of the same
// bytes: in place, by an operator on blobs, which may leave an output as it is, or by any operator if the blob may
// share bytes with another.
struct Holding {
  int blob = 0;
  int first = 0, last = 0;  // operators: the one that makes it, and the last that reads or writes it
  bool is_visible = false;  // others may see it, so that it stays as it is
};

struct Holdings {
  std::vector<Holding> all;
  std::vector<std::vector<int>> made;  // by operator and output; -1 for none
};

// An operator on blobs also reads what its arguments name: a step net may read blobs of the net around by name.
Holdings find_holdings(std::span<const BoundOp* const> ops, const Dataflow& flow);

// Per input: the operator computes what is wanted of it from the input's elements, not from its shape alone.
std::vector<bool> element_reads(const OpSpec& spec, const OperatorDef& op);

// By names alone, of operators that may not be registered: what the net reads before it writes it, each once, in
// order; and what it writes, "" among them if an output is absent.
std::vector<std::string> read_from_outside(const NetDef& net);
std::set<std::string> written_names(const NetDef& net);

}  // namespace stepnet
