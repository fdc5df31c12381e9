// Save: writes blobs to a database. Checkpoint (by its old name Snapshot) does so every so many iterations, to a path
// with the iteration in it. No derivative: they have no outputs.
//
// What can be said before training is said by the preflight: a target that exists, a folder that cannot be written to.

#include <algorithm>

#include "core/io/blob_db.h"
#include "core/io/db.h"
#include "stepnet/file_place.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_save {
namespace {

struct SaveArgs {
  std::string db, db_type, strip_prefix;
  bool absolute_path = false;
  std::vector<std::string> blob_name_overrides;
  int64_t every = 1;  // Checkpoint only
};

std::vector<std::string> stored_names(const SaveArgs& a, const OperatorDef& def) {
  if (a.blob_name_overrides.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : def.input()) names.push_back(strip_prefix(name, a.strip_prefix));
    return names;
  }
  require(a.strip_prefix.empty(), "only one of the arguments \"strip_prefix\" and \"blob_name_overrides\" can be set");
  require(static_cast<int>(a.blob_name_overrides.size()) == def.input_size(),
          "argument \"blob_name_overrides\" has {} names for {} blobs", a.blob_name_overrides.size(), def.input_size());
  return a.blob_name_overrides;
}

void check_save(const SaveArgs& a, const OperatorDef& def, const Workspace& workspace) {
  stored_names(a, def);
  check_db_target(a.db_type, net_file(workspace, a.db, path_start(a.absolute_path)));
}

void save_to(const SaveArgs& a, const std::string& db, BlobCall& c) {
  const std::vector<std::string> names = stored_names(a, c.def);
  std::vector<NamedBlob> blobs;
  for (size_t i = 0; i < c.in.size(); ++i) {
    require(c.in[i] != nullptr, "input {} has an empty name", i);
    blobs.push_back({names[i], c.in[i]});
  }
  save_blobs(a.db_type, net_file(c.workspace, db, path_start(a.absolute_path)), blobs);
}

void save(const SaveArgs& a, BlobCall& c) { save_to(a, a.db, c); }

// Puts the iteration where the pattern has %d; %08d pads it. "%%" is a percent sign.
std::string with_iteration(const std::string& pattern, int64_t iteration) {
  std::string text;
  int places = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      text += pattern[i];
      continue;
    }
    if (pattern.compare(i, 2, "%%") == 0) {
      text += pattern[i++];
      continue;
    }
    size_t end = pattern.find_first_not_of("0123456789", i + 1);
    const std::string width = pattern.substr(i + 1, end == std::string::npos ? end : end - i - 1);
    while (end < pattern.size() && pattern[end] == 'l') ++end;
    const bool fits = end < pattern.size() && (pattern[end] == 'd' || pattern[end] == 'i' || pattern[end] == 'u');
    require(fits && width.size() <= 2 && ++places == 1,
            "argument \"db\" must have one %d, or %08d, for the iteration, but is {}", pattern);
    const char fill = width.starts_with('0') ? '0' : ' ';
    std::string number = std::to_string(iteration);
    const size_t wanted = width.empty() ? 0 : static_cast<size_t>(std::stoi(width));
    text += std::string(std::max(wanted, number.size()) - number.size(), fill) + number;
    i = end;
  }
  require(places == 1, "argument \"db\" must have one %d, or %08d, for the iteration, but is {}", pattern);
  return text;
}

void check_checkpoint(const SaveArgs& a, const OperatorDef&, const Workspace&) {
  with_iteration(a.db, 0);
  check_db_type(a.db_type);
}

void checkpoint(const SaveArgs& a, BlobCall& c) {
  require(c.in[0] != nullptr, "input 0 has an empty name");
  const Tensor& iteration = std::as_const(*c.in[0]).tensor();
  require(iteration.dtype() == DType::int64 && iteration.size() == 1, "the iteration must be one int64, but is {}",
          iteration);
  const auto count = iteration.item<int64_t>();
  if (count % a.every == 0) save_to(a, with_iteration(a.db, count), c);
}

// Save and Load of a database of one type, whose inputs and arguments of its own are named.
std::string save_example(const std::string& type, const std::string& save, const std::string& load) {
  const std::string place = " arg { name: 'db' s: '$FOLDER/data' } arg { name: 'db_type' s: '" + type +
                            "' } arg { name: 'absolute_path' i: 1 } ";
  return "op { type: 'Save' " + save + place + "} op { type: 'Load' " + load + place + "}";
}

std::string checkpoint_example(const std::string& type, const std::string& db_type) {
  const std::string common = " arg { name: 'db_type' s: '" + db_type + "' } arg { name: 'absolute_path' i: 1 } ";
  return "op { type: '" + type + "' input: 'iteration' input: 'X' arg { name: 'db' s: '$FOLDER/at_%04d' } " +
         "arg { name: 'every' i: 2 }" + common + "} op { type: 'Load' output: 'X' " +
         "arg { name: 'db' s: '$FOLDER/at_0006' }" + common + "}";
}

OpBuilder<SaveArgs> save_op(const char* type) {
  return op<SaveArgs>(type)
      .required_arg("db_type", &SaveArgs::db_type, "lmdb or minidb")
      .arg("absolute_path", &SaveArgs::absolute_path, false, "0: the path starts at the workspace's root folder")
      .arg("strip_prefix", &SaveArgs::strip_prefix, std::string(),
           "blobs are stored under what follows this text in their names")
      .arg("blob_name_overrides", &SaveArgs::blob_name_overrides, {}, "the names to store blobs under, one for each")
      .accepts("chunk_size", "readers put tensors together, whatever pieces they are stored in")
      .accepts("db_options", "it is about databases of other types")
      .refuses("options", "", "would choose how each blob is stored, such as floats in bfloat16");
}

Registration checkpoint_op(const char* type) {
  return save_op(type)
      .doc("Saves all its inputs when the iteration is a multiple of `every`, to a path with the iteration in it.")
      .required_arg("db", &SaveArgs::db, "path of the database, with %d or %08d for the iteration")
      .arg("every", &SaveArgs::every, int64_t{1}, "iterations from one save to the next", at_least(1))
      .input("iteration", "the iteration, one int64; it is saved too")
      .types({DType::int64})
      .input("blobs", "what to save")
      .object()
      .variadic(0)
      .blobs(checkpoint)
      .example_net(checkpoint_example(type, "minidb"), {"iteration=int64,1:6", "X=2,3"})
      .example_net(checkpoint_example(type, "lmdb"), {"iteration=int64,1:6", "X=1,0"})
      .preflight(check_checkpoint)
      .side_effect()
      .no_gradient("it has no outputs");
}

REGISTER(save) {
  return save_op("Save")
      .doc(
          "Writes blobs to a new database. An lmdb database must not exist yet; a minidb file is replaced. If "
          "something goes wrong, nothing is left half-written.")
      .required_arg("db", &SaveArgs::db, "path of the database")
      .input("blobs", "tensors, strings, database readers or mutexes")
      .object()
      .variadic()
      .blobs(save)
      .example_net(save_example("minidb", "input: 'X' input: 'N'", "output: 'X' output: 'N'"), {"X=2,3", "N=int32,1,2"})
      .example_net(save_example("lmdb", "input: 'a/X' arg { name: 'strip_prefix' s: 'a/' }",
                                "output: 'Y' arg { name: 'source_blob_names' strings: 'X' }"),
                   {"a/X=2,0"})
      .preflight(check_save)
      .side_effect()
      .no_gradient("it has no outputs");
}

REGISTER(checkpoint) { return checkpoint_op("Checkpoint"); }
REGISTER(snapshot) { return checkpoint_op("Snapshot"); }

}  // namespace
}  // namespace stepnet::cpu_save
