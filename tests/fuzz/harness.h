// Fuzzing: one function for each kind of file that may come from anybody. It takes any bytes as such a file.
//
// The library may refuse them with its Error, and that is all: another exception leaves the harness, and what must hold
// of what was read (it can be written, and read back as it was) ends the process where it does not. CPU memory is
// limited, so that an honest request for too much is refused too. With clang each harness is a libFuzzer program
// (docs/fuzzing.md); the suite gives each its corpus and some hundred mutations of it.
// Threads: one harness at a time in a process, for they share a folder of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stepnet::testing {

// Always 0, as libFuzzer wants it.
int fuzz_net_text(const uint8_t* data, size_t size);
int fuzz_net_binary(const uint8_t* data, size_t size);
int fuzz_plan_text(const uint8_t* data, size_t size);
int fuzz_plan_binary(const uint8_t* data, size_t size);
int fuzz_tensor(const uint8_t* data, size_t size);  // a record of a database: BlobProto, TensorProto, TensorProtos
int fuzz_npy(const uint8_t* data, size_t size);
int fuzz_minidb(const uint8_t* data, size_t size);
int fuzz_lmdb(const uint8_t* data, size_t size);        // data.mdb
int fuzz_checkpoint(const uint8_t* data, size_t size);  // as it is, and with its checksums made right
int fuzz_run_folder(const uint8_t* data, size_t size);  // several files, see the harness
int fuzz_vocabulary(const uint8_t* data, size_t size);  // a vocabulary and a text
int fuzz_check(const uint8_t* data, size_t size);       // `stepnet check` of a net or plan

struct Harness {
  const char* name;  // of its corpus and its program
  int (*run)(const uint8_t* data, size_t size);
};
std::span<const Harness> harnesses();

}  // namespace stepnet::testing
