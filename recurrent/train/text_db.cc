#include "recurrent/train/text_db.h"

#include <array>
#include <vector>

#include "core/error.h"
#include "core/io/db.h"
#include "core/io/tensor_proto.h"

namespace stepnet {
namespace {

// Numbers for the bytes that occur, in the order of their values; -1 for the others.
std::array<int32_t, 256> number_bytes(const std::string& text, int64_t* count) {
  std::array<bool, 256> occurs{};
  for (const unsigned char c : text) occurs[c] = true;
  std::array<int32_t, 256> numbers{};
  int32_t next = 0;
  for (size_t c = 0; c < 256; ++c) numbers[c] = occurs[c] ? next++ : -1;
  *count = next;
  return numbers;
}

std::string record(const std::vector<int32_t>& text, int64_t first, int64_t stream_length, int64_t width,
                   const TextDbOptions& o) {
  Tensor data = Tensor::zeros(DType::float32, {o.timesteps, o.batch, width});
  Tensor target = Tensor::empty(DType::int32, {o.timesteps * o.batch});
  for (int64_t t = 0; t < o.timesteps; ++t)
    for (int64_t b = 0; b < o.batch; ++b) {
      const int64_t at = b * stream_length + first + t;
      const int64_t row = t * o.batch + b;
      data.data<float>()[row * width + text[at]] = 1;
      target.data<int32_t>()[row] = text[at + 1];
    }
  TensorProtos protos;
  *protos.add_protos() = tensor_to_proto(data);
  *protos.add_protos() = tensor_to_proto(target);
  return protos.SerializeAsString();
}

}  // namespace

int64_t write_text_db(const std::string& text, const std::string& path, const TextDbOptions& o) {
  require(o.timesteps > 0 && o.batch > 0, "{} timesteps of {} sequences make no batch", o.timesteps, o.batch);
  int64_t different = 0;
  const std::array<int32_t, 256> numbers = number_bytes(text, &different);
  const int64_t width = o.width > 0 ? o.width : different;
  require(different <= width, "the text has {} different bytes, but the width is {}", different, width);
  const int64_t length = (static_cast<int64_t>(text.size()) - 1) / o.batch;
  require(length >= o.timesteps, "a text of {} bytes is too short for one batch of {} sequences of {} timesteps",
          text.size(), o.batch, o.timesteps);
  int64_t records = length / o.timesteps;
  if (o.max_records > 0) records = std::min(records, o.max_records);
  std::vector<int32_t> indices;
  for (const unsigned char c : text) indices.push_back(numbers[c]);
  const auto db = open_db(o.db_type, path, DbMode::create);
  const auto transaction = db->transaction();
  for (int64_t k = 0; k < records; ++k)
    transaction->put(fmt::format("{:08}", k), record(indices, k * o.timesteps, length, width, o));
  transaction->commit();
  return records;
}

}  // namespace stepnet
