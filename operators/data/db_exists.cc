// DBExists: whether a database can be opened for reading. No derivative: the result is a truth value.

#include "core/io/db.h"
#include "stepnet/file_place.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_db_exists {
namespace {

struct DbExistsArgs {
  std::string db_name, db_type;
  bool absolute_path = false;
};

void run(const DbExistsArgs& a, BlobCall& c) {
  check_db_type(a.db_type);
  bool exists = true;
  const FilePlace place =
      a.db_name.empty() ? FilePlace() : net_file(c.workspace, a.db_name, path_start(a.absolute_path));
  try {
    open_db(a.db_type, place, DbMode::read);
  } catch (const Error&) {
    exists = false;
  }
  if (c.out[0]) c.out[0]->tensor() = Tensor::scalar(exists);
}

std::string example(const std::string& type) {
  const std::string common = " arg { name: 'db_type' s: '" + type + "' } arg { name: 'absolute_path' i: 1 } ";
  return "op { type: 'Save' input: 'X' arg { name: 'db' s: '$FOLDER/data' }" + common +
         "} op { type: 'DBExists' output: 'is' arg { name: 'db_name' s: '$FOLDER/data' }" + common +
         "} op { type: 'DBExists' output: 'is_not' arg { name: 'db_name' s: '$FOLDER/none' }" + common + "}";
}

REGISTER(db_exists) {
  return op<DbExistsArgs>("DBExists")
      .doc("Whether a database can be opened. An unknown type of database is an error.")
      .required_arg("db_name", &DbExistsArgs::db_name, "path of the database")
      .required_arg("db_type", &DbExistsArgs::db_type, "lmdb or minidb")
      .arg("absolute_path", &DbExistsArgs::absolute_path, false, "0: the path starts at the workspace's root folder")
      .output("exists", "one truth value")
      .types({DType::boolean})
      .shape([](const DbExistsArgs&, ShapeCall& c) { c.set(0, DType::boolean, Shape{}); })
      .blobs(run)
      .example_net(example("minidb"), {"X=2,3"})
      .example_net(example("lmdb"), {"X=1,0"})
      .side_effect()
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_db_exists
