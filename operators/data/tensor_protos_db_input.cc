// TensorProtosDBInput: the next records of a database as tensors. A record is a TensorProtos with one tensor for each
// output. No derivative: it reads data.
//
// Records are read when the operator runs and not ahead of it, so the tensors depend on how often it has run and on
// nothing else.

#include <limits>

#include "core/io/db.h"
#include "core/io/tensor_proto.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_tensor_protos_db_input {
namespace {

struct InputArgs {
  int64_t batch_size = 0;
};

struct Record {
  std::string key;
  TensorProtos tensors;
};

Record read_record(DbReader& reader, int outputs) {
  Record record;
  std::string value;
  reader.read(record.key, value);
  // The partial form, because the other one prints what is missing.
  const bool parsed = value.size() <= static_cast<size_t>(std::numeric_limits<int>::max()) &&
                      record.tensors.ParsePartialFromArray(value.data(), static_cast<int>(value.size())) &&
                      record.tensors.IsInitialized();
  require(parsed, "record \"{}\" of {} is not a TensorProtos message", record.key, reader.path());
  require(record.tensors.protos_size() == outputs,
          "record \"{}\" of {} has {} tensors, but the operator has {} outputs", record.key, reader.path(),
          record.tensors.protos_size(), outputs);
  return record;
}

Tensor decode(const DbReader& reader, const Record& record, int i) {
  try {
    return tensor_from_proto(record.tensors.protos(i));
  } catch (Error& e) {
    e.prefix(fmt::format("tensor {} of record \"{}\" of {}", i, record.key, reader.path()));
    throw;
  }
}

void copy_item(const Tensor& from, int64_t index, Tensor& batch) {
  if (from.size() == 0) return;
  if (from.dtype() == DType::string) {
    std::copy_n(from.data<std::string>(), from.size(), batch.data<std::string>() + index * from.size());
    return;
  }
  std::copy_n(from.raw(), from.bytes(), batch.raw() + static_cast<size_t>(index) * from.bytes());
}

void run(const InputArgs& a, BlobCall& c) {
  require(c.in[0] != nullptr, "the reader has an empty name");
  DbReader& reader = c.in[0]->get<DbReader>();
  const int outputs = static_cast<int>(c.out.size());
  if (a.batch_size == 0) {
    const Record record = read_record(reader, outputs);
    for (int i = 0; i < outputs; ++i)
      if (c.out[i]) c.out[i]->tensor() = decode(reader, record, i);
    return;
  }
  std::vector<Tensor> batch(c.out.size());
  for (int64_t item = 0; item < a.batch_size; ++item) {
    const Record record = read_record(reader, outputs);
    for (int i = 0; i < outputs; ++i) {
      const Tensor t = decode(reader, record, i);
      if (item == 0) batch[i] = Tensor::empty(t.dtype(), t.shape().prepend(a.batch_size));
      require(t.dtype() == batch[i].dtype() && t.shape() == batch[i].shape().from(1),
              "tensor {} of record \"{}\" of {} is {}, but the batch before it has items of {}{}", i, record.key,
              reader.path(), t, dtype_name(batch[i].dtype()), batch[i].shape().from(1));
      copy_item(t, item, batch[i]);
    }
  }
  for (int i = 0; i < outputs; ++i)
    if (c.out[i]) c.out[i]->tensor() = std::move(batch[i]);
}

// No operator writes records of TensorProtos. But a blob is saved as a BlobProto, whose first field is its name, and
// that of TensorProtos is a TensorProto: a name that is the bytes of one, here of int32[2] 3, 4, makes a record of it.
std::string example(const std::string& type, const std::string& batch_size) {
  const std::string place = " arg { name: 'db' s: '$FOLDER/data' } arg { name: 'db_type' s: '" + type + "' } ";
  return "op { type: 'Save' input: 'X' arg { name: 'absolute_path' i: 1 } arg { name: 'blob_name_overrides' "
         "strings: '\\010\\002\\020\\002\\042\\002\\003\\004' }" +
         place + "} op { type: 'CreateDB' output: 'reader'" + place +
         "} op { type: 'TensorProtosDBInput' input: 'reader' output: 'Y' arg { name: 'batch_size' i: " + batch_size +
         " } }";
}

ArgCheck<int64_t> number_of_records() {
  constexpr int64_t most = 1'000'000;  // the database starts over, so a batch takes as long as it is large
  return [](const int64_t& v) { return v >= 0 && v <= most ? "" : "must be from 0 to 1000000"; };
}

REGISTER(tensor_protos_db_input) {
  return op<InputArgs>("TensorProtosDBInput")
      .accepts("no_prefetch", "nothing is read before it is asked for")
      .doc(
          "Reads the next record of a database, or a batch of them. Records come in the order of the database, over "
          "and over; nothing is read ahead.")
      .arg("batch_size", &InputArgs::batch_size, int64_t{0},
           "0: one record, with its own shapes; else so many records, stacked along a new first dimension; at most a "
           "million",
           number_of_records())
      .input("reader", "a database reader, from CreateDB")
      .object()
      .output("tensors", "one for each tensor of a record")
      .variadic()
      .blobs(run)
      .example_net(example("minidb", "0"), {"X=1"})
      .example_net(example("lmdb", "3"), {"X=1"})
      .side_effect()
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_tensor_protos_db_input
