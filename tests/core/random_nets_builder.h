// A random net while it is written.
//
// Threads: not for concurrent use.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/core/random_nets.h"
#include "tests/core/random_nets_reference.h"

namespace stepnet::testing {

class NetBuilder {
 public:
  NetBuilder(uint64_t seed, std::vector<int64_t> batches);

  NetDice dice;

  // False if the operator does not fit, at any of the batch sizes; the net is as before then.
  bool add(const OperatorDef& op);
  // A name for an output: a fresh one, that of an input, or another that is there.
  std::string output_name(const std::vector<std::string>& inputs);
  std::string fresh_name() { return "h" + std::to_string(fresh_++); }

  std::string feed(const std::vector<int64_t>& sizes);  // a new one, float64
  std::string feed(const Tensor& fixed);
  // Blobs of float64, all or those for which `fits` says so; "" if there is none.
  std::string pick_float();
  std::string pick(const std::function<bool(const std::string&)>& fits);
  std::string pick_like(const std::string& blob);            // of the same shape at each batch size
  std::string parameter(const std::vector<int64_t>& sizes);  // of that shape, or a new feed
  bool has_type(const std::string& blob, const Tensor& like) const;

  Tensor value(const std::string& blob) const { return probes_.front().at(blob); }
  Shape shape(const std::string& blob) const { return value(blob).shape(); }
  bool is_float(const std::string& blob) const { return value(blob).dtype() == DType::float64; }
  // The size of a dimension, -1 if the batch changes it.
  int64_t fixed_size(const std::string& blob, int dimension) const;
  const std::vector<std::string>& blobs() const { return blobs_; }

  RandomNet take() { return std::move(made_); }
  const NetDef& net() const { return made_.net; }

 private:
  void enter(const NetFeed& feed);

  RandomNet made_;
  std::vector<ReferenceBlobs> probes_;  // by batch size
  std::vector<std::string> blobs_;
  int fresh_ = 0;
};

// Adds one operator of a kind that is drawn; false if it does not fit.
bool add_random_operator(NetBuilder& b);

}  // namespace stepnet::testing
