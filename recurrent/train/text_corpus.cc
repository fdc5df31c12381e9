#include "recurrent/train/text_corpus.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "core/io/db.h"
#include "core/io/hash.h"
#include "core/io/tensor_proto.h"
#include "core/operator/nets_inside.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"
#include "stepnet/text.h"

namespace stepnet {
namespace {

constexpr std::string_view kSetting = "setting/";

// The hash, and the length.
std::string fingerprint_of(std::string_view text) {
  const uint64_t hash = hash_on(kEmptyHash, std::as_bytes(std::span(text)));
  return fmt::format("{} bytes, {:016x}", text.size(), hash);
}

void require_fills(const NetDef& init) {
  for (int i = 0; i < init.op_size(); ++i) {
    if (only_fills(op_spec(init.op(i).type()))) continue;
    std::vector<std::string> fills = op_types();
    std::erase_if(fills, [](const std::string& type) { return !only_fills(op_spec(type)); });
    Error error(
        fmt::format("the init net of a checkpoint may only fill tensors, but has the operator {}; it may have {}",
                    init.op(i).type(), fmt::join(fills, ", ")),
        "if you trust the net, name its file: stepnet sample FILE");
    add_op_context(error, {init.op(i), nullptr, nullptr, {}, init.name(), i});
    throw Error(std::move(error));
  }
}

}  // namespace

TrainingText load_training_text(const TrainOptions& options, const Checkpoint* resumed) {
  const std::string text = read_text_file(options.text);
  const std::string fingerprint = fingerprint_of(text);
  if (resumed && checkpoint_text(*resumed, "text") != fingerprint)
    throw Error(fmt::format("\"{}\" ({}) is not the text that the run was started with ({})", options.text, fingerprint,
                            checkpoint_text(*resumed, "text")),
                "give the same text with --text, or start another run");
  const auto held_out = static_cast<int64_t>(std::llround(options.holdout * static_cast<double>(text.size())));
  const auto split = static_cast<int64_t>(text.size()) - held_out;
  require(split > 0, "nothing of the {} bytes of \"{}\" is left to train on", text.size(), options.text);
  const std::string_view training = std::string_view(text).substr(0, split);
  const std::string_view validation = std::string_view(text).substr(split);
  TrainingText result{
      resumed ? saved_vocabulary(*resumed) : Vocabulary::of_text(training), "", "", "", "", fingerprint};
  result.training_name = fmt::format("the training part of \"{}\"", options.text);
  result.validation_name = fmt::format("the held-out part of \"{}\"", options.text);
  const std::string whole = fmt::format("\"{}\"", options.text);
  result.training = result.vocabulary.encode(training, whole);
  result.validation = result.vocabulary.encode(validation, whole, split);
  return result;
}

void add_facts(const Model& model, const TrainOptions& options, Checkpoint& checkpoint) {
  for (const auto& [name, value] : settings_of(options)) checkpoint.texts[std::string(kSetting) + name] = value;
  checkpoint.texts["net"] = to_text(model.source);
}

void add_text(const TrainingText& text, Checkpoint& checkpoint) {
  checkpoint.texts["vocabulary"] = text.vocabulary.bytes();
  checkpoint.texts["text"] = text.fingerprint;
}

std::map<std::string, std::string> saved_settings(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : checkpoint.texts)
    if (name.rfind(kSetting, 0) == 0) settings[name.substr(kSetting.size())] = value;
  return settings;
}

namespace {

// Which of a machine's GPUs a net runs on is no part of it: ranks have one each.
std::string text_on_any_gpu(NetDef net) {
  const auto forget = [](DeviceOption& option) { option.clear_device_id(); };
  for_each_net(net, [&](NetDef& inner) {
    if (inner.has_device_option()) forget(*inner.mutable_device_option());
    for (OperatorDef& op : *inner.mutable_op())
      if (op.has_device_option()) forget(*op.mutable_device_option());
  });
  return to_text(net);
}

}  // namespace

void check_same_model(const Model& model, const Checkpoint& checkpoint) {
  const NetDef saved = parse_net_text(checkpoint_text(checkpoint, "net"), "checkpoint");
  if (text_on_any_gpu(model.source) != text_on_any_gpu(saved))
    throw Error(fmt::format("the net \"{}\" is not the one that the run was started with", model.source.name()),
                "resume with the same net, or start another run");
}

bool only_fills(const OpSpec& spec) {
  const bool on_tensors = !spec.blob_kernel && !spec.side_effect && !spec.outputs.empty();
  return on_tensors && std::ranges::all_of(spec.inputs, [](const ParamSpec& p) { return p.optional && !p.variadic; });
}

Model saved_model(const Checkpoint& checkpoint) {
  Model model = read_model(parse_net_text(checkpoint_text(checkpoint, "net"), "checkpoint"));
  require_fills(model.init);
  return model;
}

Vocabulary saved_vocabulary(const Checkpoint& checkpoint) {
  require(checkpoint.texts.count("data") == 0, "the run was trained on samples, not on a text");
  return Vocabulary(checkpoint_text(checkpoint, "vocabulary"));
}

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
