// What the tests of operators on databases share. Threads: not for concurrent use.
#pragma once

#include <string>
#include <vector>

#include "core/io/db.h"
#include "stepnet/net.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

inline void run_in(Workspace& workspace, const OperatorDef& def) {
  NetDef net;
  net.set_name("test");
  *net.add_op() = def;
  RunContext run;
  run_net_once(net, workspace, run);
}

inline std::string error_in(Workspace& workspace, const OperatorDef& def) {
  return error_text([&] { run_in(workspace, def); });
}

// What the operator says before anything runs.
inline std::string preflight_error(const Workspace& workspace, const OperatorDef& def) {
  const BoundOp op = bind_op(def, "test", 0);
  return error_text([&] { op.spec->preflight(op.args.get(), def, workspace); });
}

inline std::vector<float> floats_of(const Tensor& t) { return {t.span<float>().begin(), t.span<float>().end()}; }

using Records = std::vector<std::pair<std::string, std::string>>;
inline void fill_db(const std::string& type, const std::string& path, const Records& records) {
  const auto db = open_db(type, path, DbMode::create);
  const auto transaction = db->transaction();
  for (const auto& [key, value] : records) transaction->put(key, value);
  transaction->commit();
}

}  // namespace stepnet::testing
