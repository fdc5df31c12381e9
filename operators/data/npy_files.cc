// LoadNpy and SaveNpy: one tensor from and to a .npy file, NumPy's format. No derivatives: they read and write files.

#include "core/io/files.h"
#include "core/io/npy.h"
#include "stepnet/file_place.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_npy_files {
namespace {

struct NpyArgs {
  std::string path;
  bool absolute_path = false;
};

FilePlace place_of(const NpyArgs& a, const Workspace& workspace) {
  require(!a.path.empty(), "argument \"path\" must be the path of a .npy file, but is empty");
  return net_file(workspace, a.path, path_start(a.absolute_path));
}

void check_save(const NpyArgs& a, const OperatorDef&, const Workspace& workspace) {
  const FilePlace place = place_of(a, workspace);
  struct stat found {};
  require(PlaceFolder(place).look(found) != 0 || S_ISREG(found.st_mode),
          "{} exists and is not a file, so no .npy file can replace it", place);
  require_writable_folder_of(place);
}

void save(const NpyArgs& a, BlobCall& c) {
  require(c.in[0] != nullptr, "its input has an empty name");
  const Tensor& x = std::as_const(*c.in[0]).tensor();
  require(x.defined(), "the input \"{}\" holds nothing yet", c.def.input(0));
  check_save(a, c.def, c.workspace);
  write_npy(place_of(a, c.workspace), x);
}

void check_load(const NpyArgs& a, const OperatorDef&, const Workspace& workspace) { place_of(a, workspace); }

void load(const NpyArgs& a, BlobCall& c) {
  Tensor value = read_npy(place_of(a, c.workspace));
  if (c.out[0]) c.out[0]->tensor() = std::move(value);
}

OpBuilder<NpyArgs> npy_op(const char* type) {
  return op<NpyArgs>(type)
      .own()
      .required_arg("path", &NpyArgs::path, "path of the file")
      .arg("absolute_path", &NpyArgs::absolute_path, false, "0: the path starts at the workspace's root folder");
}

constexpr const char* kExample = R"(
  op { type: 'SaveNpy' input: 'X' arg { name: 'path' s: '$FOLDER/x.npy' } arg { name: 'absolute_path' i: 1 } }
  op { type: 'LoadNpy' output: 'Y' arg { name: 'path' s: '$FOLDER/x.npy' } arg { name: 'absolute_path' i: 1 } })";

REGISTER(save_npy) {
  return npy_op("SaveNpy")
      .doc("Writes a tensor to a .npy file, which replaces one that is there. The file is there whole or not at all.")
      .input("X", "a tensor of numbers or truth values")
      .object()
      .blobs(save)
      .preflight(check_save)
      .side_effect()
      .example_net(kExample, {"X=2,3"})
      .example_net(kExample, {"X=int32,2,0"})
      .no_gradient("it has no outputs");
}

REGISTER(load_npy) {
  return npy_op("LoadNpy")
      .doc(
          "Reads a tensor from a .npy file: little-endian, of floating or whole numbers or truth values, in C or "
          "Fortran order. The tensor is on the CPU, and unchanged if the file cannot be read.")
      .output("X", "of the file's type and shape")
      .object()
      .blobs(load)
      .preflight(check_load)
      .side_effect()
      .example_net(kExample, {"X=1,2"})
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_npy_files
