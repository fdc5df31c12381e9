// Load: blobs from one or several databases, or from where database readers stand. No derivative: it reads data.

#include <set>

#include "core/io/blob_db.h"
#include "core/io/db.h"
#include "stepnet/file_place.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_load {
namespace {

struct LoadArgs {
  std::string db, db_type, add_prefix, strip_prefix;
  std::vector<std::string> dbs, source_blob_names;
  bool absolute_path = false, keep_device = false, load_all = false, allow_incomplete = false;
};

std::vector<FilePlace> places_of(const LoadArgs& a, const Workspace& workspace) {
  const std::vector<std::string> dbs = a.dbs.empty() ? std::vector<std::string>{a.db} : a.dbs;
  require(!dbs[0].empty(), "it needs a database reader as input, or the argument \"db\" or \"dbs\"");
  require(!a.db_type.empty(), "argument \"db_type\" is needed where there is no database reader as input");
  std::set<std::string> seen;
  std::vector<FilePlace> places;
  for (const std::string& db : dbs) {
    require(seen.insert(db).second, "argument \"dbs\" has {} twice", db);
    places.push_back(net_file(workspace, db, path_start(a.absolute_path)));
  }
  return places;
}

void check_names(const LoadArgs& a, const OperatorDef& def) {
  if (a.source_blob_names.empty()) {
    require(def.output_size() > 0 || a.load_all, "it has no outputs; set load_all to 1 to load every blob");
    return;
  }
  require(a.strip_prefix.empty() && !a.load_all,
          "argument \"source_blob_names\" cannot be set together with \"strip_prefix\" or \"load_all\"");
  require(static_cast<int>(a.source_blob_names.size()) == def.output_size(),
          "argument \"source_blob_names\" has {} names for {} outputs", a.source_blob_names.size(), def.output_size());
}

Device device_of_op(const OperatorDef& def) {
  if (def.device_option().device_type() != CUDA || !device_offered(DeviceKind::cuda)) return {};
  return {DeviceKind::cuda, static_cast<int8_t>(def.device_option().device_id())};
}

void load(const LoadArgs& a, BlobCall& c) {
  check_names(a, c.def);
  BlobLoader loader(c.workspace, {.strip_prefix = a.strip_prefix,
                                  .add_prefix = a.add_prefix,
                                  .all = a.load_all,
                                  .allow_incomplete = a.allow_incomplete,
                                  .keep_device = a.keep_device,
                                  .device = device_of_op(c.def)});
  for (int i = 0; i < c.def.output_size(); ++i) {
    require(c.out[i] != nullptr, "output {} has an empty name", i);
    loader.want(a.source_blob_names.empty() ? c.def.output(i) : a.source_blob_names[i], *c.out[i]);
  }
  for (Blob* in : c.in) {
    require(in != nullptr, "a reader has an empty name");
    DbReader& reader = in->get<DbReader>();
    reader.with_cursor([&](DbCursor& cursor) { loader.read(cursor, reader.bytes(), reader.path()); });
  }
  if (c.in.empty())
    for (const FilePlace& place : places_of(a, c.workspace)) loader.read_all(a.db_type, place);
  loader.finish();
}

// Two databases, and one of them again through a reader.
constexpr const char* kExample = R"(
  op { type: 'Save' input: 'X' arg { name: 'db' s: '$FOLDER/x' } arg { name: 'db_type' s: 'minidb' }
       arg { name: 'absolute_path' i: 1 } }
  op { type: 'Save' input: 'N' arg { name: 'db' s: '$FOLDER/n' } arg { name: 'db_type' s: 'minidb' }
       arg { name: 'absolute_path' i: 1 } }
  op { type: 'Load' output: 'X' output: 'N' arg { name: 'dbs' strings: '$FOLDER/x' strings: '$FOLDER/n' }
       arg { name: 'db_type' s: 'minidb' } arg { name: 'absolute_path' i: 1 } }
  op { type: 'CreateDB' output: 'reader' arg { name: 'db' s: '$FOLDER/x' } arg { name: 'db_type' s: 'minidb' } }
  op { type: 'Load' input: 'reader' output: 'in/X' arg { name: 'add_prefix' s: 'in/' } })";

constexpr const char* kAllExample = R"(
  op { type: 'Save' input: 'X' input: 'N' arg { name: 'db' s: '$FOLDER/all' } arg { name: 'db_type' s: 'lmdb' }
       arg { name: 'absolute_path' i: 1 } }
  op { type: 'Load' arg { name: 'db' s: '$FOLDER/all' } arg { name: 'db_type' s: 'lmdb' }
       arg { name: 'absolute_path' i: 1 } arg { name: 'load_all' i: 1 } })";

REGISTER(load) {
  return op<LoadArgs>("Load")
      .doc(
          "Loads the blobs that its outputs name. Readers are read from where they stand to the end of the database. A "
          "blob is changed only when all of its records have come.")
      .arg("db", &LoadArgs::db, std::string(), "path of the database")
      .arg("dbs", &LoadArgs::dbs, {}, "paths of several; wins over db")
      .arg("db_type", &LoadArgs::db_type, std::string(), "lmdb or minidb; needed without readers")
      .arg("absolute_path", &LoadArgs::absolute_path, false, "0: paths start at the workspace's root folder")
      .arg("strip_prefix", &LoadArgs::strip_prefix, std::string(),
           "stored names count from after this text; applied before add_prefix")
      .arg("add_prefix", &LoadArgs::add_prefix, std::string(), "put in front of every stored name")
      .arg("source_blob_names", &LoadArgs::source_blob_names, {}, "the stored names of the outputs, in their order")
      .arg("keep_device", &LoadArgs::keep_device, false, "1: tensors go to the device that they were saved from")
      .arg("load_all", &LoadArgs::load_all, false, "1: load every blob of the database, outputs or not")
      .arg("allow_incomplete", &LoadArgs::allow_incomplete, false, "1: outputs may be missing in the database")
      .accepts("shape", "a hint of the outputs' shape, for tools that only infer shapes")
      .accepts("db_options", "it is about databases of other types")
      .input("readers", "database readers, from CreateDB")
      .object()
      .variadic(0)
      .output("blobs", "the blobs to load")
      .object()
      .variadic(0)
      .blobs(load)
      .example_net(kExample, {"X=2,3", "N=int64,1:5"})
      .example_net(kAllExample, {"X=2,3", "N=int64,0"})
      .side_effect()
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_load
