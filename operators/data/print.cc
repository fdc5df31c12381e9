// Print: shows a tensor's type, shape and values in one line:
//
//   loss float[2, 3]: 0.5 1 -2 3 4 5
//
// No derivative: it has no outputs.

#include <iostream>

#include "core/io/files.h"
#include "core/visible_text.h"
#include "stepnet/file_place.h"
#include "stepnet/half.h"
#include "stepnet/operator.h"
#include "stepnet/shape.h"
#include "stepnet/tensor.h"

namespace stepnet::cpu_print {
namespace {

constexpr int64_t kDefaultLimit = 1000;

struct PrintArgs {
  bool to_file = false;
  int64_t limit = 0, every_n = 1;
};

template <class T>
void append_values(const Tensor& t, int64_t count, std::string& line) {
  // Of a half type the float that it is.
  using Shown = std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float, const T&>;
  for (const T& v : t.span<T>().first(static_cast<size_t>(count)))
    fmt::format_to(std::back_inserter(line), " {}", static_cast<Shown>(v));
}

void append_any(const Tensor& t, int64_t count, std::string& line) {
  if (with_type(t.dtype(), [&](auto zero) { append_values<decltype(zero)>(t, count, line); })) return;
  if (t.dtype() == DType::string) append_values<std::string>(t, count, line);
  with_half(t.dtype(), [&](auto zero) { append_values<decltype(zero)>(t, count, line); });
}

std::string line_of(const std::string& name, const Blob& blob, int64_t limit) {
  std::string line = fmt::format("{} {}", name, blob.type_str());
  if (!blob.is_tensor() || blob.empty()) return visible_text(line) + "\n";
  const Tensor host = on_device(blob.tensor(), {});
  const int64_t count = std::min(host.size(), limit == 0 ? kDefaultLimit : limit);
  line += ":";
  append_any(host, count, line);
  if (count < host.size()) fmt::format_to(std::back_inserter(line), " ... ({} more)", host.size() - count);
  return visible_text(line) + "\n";
}

void print(const PrintArgs& a, BlobCall& c) {
  require(c.in[0] != nullptr, "its input has an empty name");
  if (c.run.iteration % a.every_n != 0) return;
  const std::string& name = c.def.input(0);
  const std::string line = line_of(name, *c.in[0], a.limit);
  if (a.to_file) {
    const FilePlace file = net_file(c.workspace, name + ".log", PathStart::root_folder);
    make_folders_of(file);
    append_line(file, line, c.run.iteration == 0 && c.run.timestep == 0);
  } else {
    (c.run.out ? *c.run.out : std::cout) << line << std::flush;
  }
}

REGISTER(print) {
  return op<PrintArgs>("Print")
      .doc("Prints the type, the shape and the values of a tensor.")
      .arg("to_file", &PrintArgs::to_file, false, "1: to the file <name>.log in the workspace's root folder")
      .arg("limit", &PrintArgs::limit, int64_t{0}, "at most so many values; 0: a thousand", at_least(0))
      .arg("every_n", &PrintArgs::every_n, int64_t{1}, "prints in the first run and every so many runs", at_least(1))
      .input("X", "a tensor of any type, or another object, of which the type is printed")
      .object()
      .blobs(print)
      .example({"X=2,3"}, {"limit=4"})
      .example({"X=int32,0"}, {"every_n=2"})
      .side_effect()
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_print
