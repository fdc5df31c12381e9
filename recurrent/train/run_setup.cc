#include "recurrent/train/run_setup.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/io/text.h"
#include "core/operator/bound_op.h"

namespace stepnet {
namespace {

constexpr std::string_view kSetting = "setting/";

// FNV-1a, 64 bits, and the length.
std::string fingerprint_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
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

void add_facts(const Model& model, const TrainOptions& options, const TrainingText& text, Checkpoint& checkpoint) {
  for (const auto& [name, value] : settings_of(options)) checkpoint.texts[std::string(kSetting) + name] = value;
  checkpoint.texts["net"] = to_text(model.source);
  checkpoint.texts["vocabulary"] = text.vocabulary.bytes();
  checkpoint.texts["text"] = text.fingerprint;
}

std::map<std::string, std::string> saved_settings(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : checkpoint.texts)
    if (name.rfind(kSetting, 0) == 0) settings[name.substr(kSetting.size())] = value;
  return settings;
}

void check_same_model(const Model& model, const Checkpoint& checkpoint) {
  if (to_text(model.source) != checkpoint_text(checkpoint, "net"))
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
  return Vocabulary(checkpoint_text(checkpoint, "vocabulary"));
}

}  // namespace stepnet
