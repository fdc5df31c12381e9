// Serialized tensors: what a record of a database holds, read as each of the messages that it may be.
#include "core/io/blob_db.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {
namespace {

// Chunks are made small, so that several come even of a small tensor.
constexpr int64_t kChunk = 3;

void must_come_back(const Blob& blob) {
  BlobAssembler assembler;
  must_work([&] {
    int64_t budget = blob.tensor().size();
    serialize_blob(
        blob, "blob",
        [&](const std::string&, const std::string& value) { assembler.add(parse_blob_proto(value), budget); }, kChunk);
    Blob again;
    must(assembler.complete(), "all chunks of a tensor make it whole");
    assembler.move_into(again, {});
    must(same(again.tensor(), blob.tensor()), "a tensor is saved as it is");
  });
}

void read_blob(std::string_view bytes) {
  BlobAssembler assembler;
  auto budget = static_cast<int64_t>(bytes.size());
  assembler.add(parse_blob_proto(bytes), budget, fuzz_root());
  if (!assembler.complete()) return;
  Blob blob;
  assembler.move_into(blob, {});
  if (blob.is_tensor() && !blob.empty()) must_come_back(blob);
}

void read_tensors(std::string_view bytes) {
  TensorProtos protos;
  if (!protos.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())) || !protos.IsInitialized()) return;
  for (const TensorProto& proto : protos.protos())
    may_refuse([&] {
      const Tensor tensor = tensor_from_proto(proto);
      must_work(
          [&] { must(same(tensor, tensor_from_proto(tensor_to_proto(tensor))), "a tensor is written as it is"); });
    });
}

}  // namespace

int fuzz_tensor(const uint8_t* data, size_t size) {
  may_refuse([&] { read_blob(text_of(data, size)); });
  return may_refuse([&] { read_tensors(text_of(data, size)); });
}

}  // namespace stepnet::testing
