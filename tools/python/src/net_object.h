// NetObject: a net with the workspace that it runs in.
//
// A call feeds, runs and takes the outputs; what it was given and what it returns stays in no blob. It is bound when it
// first runs. Threads: with the interpreter's lock held, which is released while operators run.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stepnet/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/run_context.h"
#include "tools/python/src/python_session.h"

namespace stepnet::python {

class NetObject {
 public:
  NetObject(NetDef source, std::shared_ptr<Session> session, std::vector<std::string> outputs, uint64_t seed);

  const NetDef& source() const { return source_; }  // as it was given, with short forms
  const NetDef& def() const { return def_; }        // as it runs
  std::vector<std::string> input_names() const;
  std::vector<std::string> output_names() const;
  const std::shared_ptr<Session>& session() const { return session_; }
  int64_t runs() const { return net_ ? net_->runs() : 0; }

  nanobind::dict call(const nanobind::args& feeds, const nanobind::kwargs& named);
  // Puts the feeds into the workspace, runs, and leaves everything there.
  void run(const nanobind::args& feeds, const nanobind::kwargs& named);
  // Runs the net that makes the model's parameters; throws Error if there is none.
  void make_parameters(uint64_t seed);

 private:
  struct Input {
    std::string name;
    nanobind::object key;  // interned
    Blob* blob = nullptr;
    bool overwritten = false;  // the net writes to its bytes
  };
  struct Output {
    std::string name;
    nanobind::object key;
    Blob* blob = nullptr;
    bool kept = false;  // its value goes into the next run
  };
  class Fed;

  void bind();
  void choose_outputs(const std::vector<std::string>& wanted);
  Input& input(nanobind::handle key);
  void feed(const nanobind::args& feeds, const nanobind::kwargs& named, Fed& fed);
  void require_inputs() const;
  void run_operators();
  nanobind::object take(Output& output) const;

  NetDef source_, def_;
  std::shared_ptr<Session> session_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::set<std::string> kept_;  // blobs whose values the net goes on with
  std::unique_ptr<Net> net_;
  std::function<void(const std::string&)> warn_;
  RunContext context_;
};

// From text, a path, or a NetObject.
NetDef net_of(nanobind::handle source);

void bind_net(nanobind::module_& module);

}  // namespace stepnet::python
