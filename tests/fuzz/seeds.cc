// See the header.
#include "tests/fuzz/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "core/gradcheck/examples.h"
#include "core/io/blob_db.h"
#include "core/io/db.h"
#include "core/io/npy.h"
#include "stepnet/checkpoint.h"
#include "stepnet/error.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/fuzz/run_net.h"
#include "tests/fuzz/support.h"
#include "tools/source_path.h"

namespace stepnet::testing {
namespace {

namespace fs = std::filesystem;
using Seeds = std::vector<Seed>;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Of the files below a folder of the source tree, in the order of their names; none if there is no such folder.
Seeds files_below(const std::string& folder, const std::string& ending) {
  Seeds seeds;
  const fs::path root = source_path(folder);
  if (!fs::exists(root)) return seeds;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.is_regular_file() && entry.path().string().ends_with(ending))
      seeds.push_back({entry.path().filename().string(), read_file(entry.path())});
  std::ranges::sort(seeds, {}, &Seed::name);
  return seeds;
}

// All texts of the tree that are read as what is asked for.
Seeds texts(bool plans) {
  Seeds seeds;
  for (const char* folder : {"tests/data", "tools/examples"})
    for (Seed& seed : files_below(folder, ".pbtxt"))
      if ((seed.bytes.find("execution_step") != std::string::npos) == plans) seeds.push_back(std::move(seed));
  return seeds;
}

// Those that can be read, as bytes.
template <class Def>
Seeds binaries(const Seeds& texts, Def (*parse)(std::string_view, const std::string&)) {
  Seeds seeds;
  for (const Seed& text : texts) {
    try {
      seeds.push_back({text.name + ".pb", to_binary(parse(text.bytes, "text"))});
    } catch (const Error&) {
      continue;  // some of tests/data are mistakes
    }
  }
  return seeds;
}
Seeds net_binaries() { return binaries(texts(false), parse_net_text); }
Seeds plan_binaries() { return binaries(texts(true), parse_plan_text); }

std::map<std::string, Tensor> some_tensors() {
  return {{"float", Tensor::of<float>({2, 2}, {1, -2, 3, 0.5F})},
          {"double", Tensor::of<double>({3}, {1, 2, 3})},
          {"int32", Tensor::of<int32_t>({2, 1}, {-1, 7})},
          {"int64", Tensor::scalar(int64_t{1} << 40)},
          {"bool", Tensor::of<bool>({2}, {true, false})},
          {"uint8", Tensor::of<uint8_t>({3}, {0, 128, 255})},
          {"int16", Tensor::of<int16_t>({1}, {-300})},
          {"float16", Tensor::zeros(DType::float16, {2, 3})},
          {"none", Tensor::zeros(DType::float32, {0, 4})},
          {"words", Tensor::of<std::string>({2}, {"", "word"})}};
}

TensorProtos record_of(int64_t first) {
  TensorProtos record;
  *record.add_protos() = tensor_to_proto(Tensor::of<float>({2}, {static_cast<float>(first), 2}));
  *record.add_protos() = tensor_to_proto(Tensor::scalar(static_cast<int32_t>(first)));
  return record;
}

Seeds tensors() {
  Seeds seeds;
  for (const auto& [name, tensor] : some_tensors()) {
    Blob blob;
    blob.tensor() = tensor;
    serialize_blob(
        blob, name,
        [&](const std::string& key, const std::string& value) {
          seeds.push_back({key, value});
        },
        3);
  }
  Blob text;
  text.emplace<std::string>("a text");
  serialize_blob(text, "text", [&](const std::string& key, const std::string& value) {
    seeds.push_back({key, value});
  });
  return seeds;
}

Seeds npys() {
  Seeds seeds;
  const std::string path = fuzz_folder() + "/seed.npy";
  for (const auto& [name, tensor] : some_tensors()) {
    if (tensor.dtype() == DType::string) continue;
    write_npy(path, tensor);
    seeds.push_back({name, read_file(path)});
  }
  return seeds;
}

Seeds records() {
  Seeds seeds = tensors();
  seeds.push_back({"record", record_of(1).SerializeAsString()});
  return seeds;
}

using FillDb = std::function<void(DbTransaction&)>;
void put_blobs(DbTransaction& to) {
  for (const Seed& seed : tensors()) to.put(seed.name, seed.bytes);
}
void put_records(DbTransaction& to) {
  for (int i = 0; i < 5; ++i) to.put(fmt::format("{:08}", i), record_of(i).SerializeAsString());
}
// Several levels of pages, values on pages of their own, and free pages.
void put_much(DbTransaction& to) {
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 40; ++i)
      to.put(fmt::format("{:0{}}", i * 7 % 40, 20 + 400 * (i % 2)), std::string(i % 9 == 0 ? 5000 : 20 + i, 'v'));
    to.commit();
  }
}

Seeds databases(const std::string& type, const std::string& file) {
  Seeds seeds;
  const std::string path = fuzz_folder() + "/seed." + type;
  for (const auto& [name, fill] : std::map<std::string, FillDb>{
           {"blobs", put_blobs}, {"records", put_records}, {"much", put_much}, {"empty", [](DbTransaction&) {}}}) {
    fs::remove_all(path);
    {
      const auto db = open_db(type, path, DbMode::create);
      const auto transaction = db->transaction();
      fill(*transaction);
      transaction->commit();
    }
    seeds.push_back({name, read_file(path + file)});
  }
  return seeds;
}
Seeds minidbs() { return databases("minidb", ""); }
Seeds lmdbs() { return databases("lmdb", "/data.mdb"); }

// The last checkpoint of a run of two iterations, the same each time.
const Checkpoint& trained() {
  static const Checkpoint checkpoint = [] {
    TrainOptions options;
    options.text = fuzz_file("text", kRunText);
    options.out = fuzz_folder() + "/trained";
    options.holdout = 0.2;
    options.iterations = 2;
    Trainer(parse_net_text(kRunNet), options).run();
    Checkpoint saved = load_checkpoint(options.out + "/iteration-2.ckpt");
    saved.texts["seconds"] = "0.5";
    saved.texts["threads"] = "1";
    return saved;
  }();
  return checkpoint;
}

std::string checkpoint_bytes(uint64_t number, const Checkpoint& contents) {
  const std::string path = fuzz_folder() + "/seed.ckpt";
  write_checkpoint_file(path, number, contents);
  return read_file(path);
}

Seeds checkpoints() {
  return {{"tensors", checkpoint_bytes(3, {{{"iteration", "3"}, {"", "text"}}, some_tensors()})},
          {"run", checkpoint_bytes(2, trained())}};
}

std::string entry(int which, const std::string& content) {
  const auto bytes = static_cast<uint16_t>(content.size());
  return std::string{static_cast<char>(which), static_cast<char>(bytes & 0xff), static_cast<char>(bytes >> 8)} +
         content;
}

// The numbers of entries are those of tests/fuzz/run_folder.cc.
Seeds run_folders() {
  const std::string older = entry(0, checkpoint_bytes(1, trained()));
  const std::string newer = entry(1, checkpoint_bytes(2, trained()));
  const std::string latest = entry(2, "iteration-2.ckpt\n");
  const std::string best = entry(3, checkpoint_bytes(1, trained()));
  const std::string metrics = entry(6, "{\"iteration\":1,\"loss\":1.5}\n{\"iteration\":2,\"validation_bpc\":2}\n");
  return {{"whole", older + newer + latest + best + metrics},
          {"older", older + metrics + entry(8, "x")},
          {"best", best + entry(7, "1\n")},
          {"links", older + entry(64 + 2, "") + entry(64 + 6, "x")},
          {"folders", newer + entry(32 + 4, "") + entry(32 + 7, "")}};
}

Seeds vocabularies() {
  return {{"abc", std::string("\x02\x03\x03"
                              "abc"
                              "abcabcbacbabcbabacbcbabcbcab")},
          {"bytes", std::string("\x01\x01\x02\0\xff\0\xff\xff\0\0", 10)},
          {"other",
           "\x02\x02\x01"
           "aabcabc\n"}};
}

std::string shapes_of(const GradientSubject& subject) {
  std::string options;
  for (const auto& [name, value] : subject.feeds) {
    std::string sizes;
    for (const int64_t d : value.shape()) sizes += fmt::format(",{}", d);
    options += fmt::format(" --shape {}={}{}", name, dtype_name(value.dtype()), sizes);
  }
  return options;
}

Seeds operator_examples() {
  Seeds seeds;
  for (const std::string& type : op_types()) {
    int number = 0;
    for (const OpExample& example : op_spec(type).examples) {
      const GradientSubject subject = example_subject(op_spec(type), example, 1, fuzz_folder());
      std::string options = "#" + shapes_of(subject);
      if (!subject.outputs.empty()) options += " --loss " + subject.outputs[0];
      seeds.push_back({fmt::format("{}_{}", type, number++), options + "\n" + to_text(subject.net)});
    }
  }
  return seeds;
}

Seeds checked() {
  Seeds seeds;
  for (const bool plans : {false, true}) std::ranges::move(texts(plans), std::back_inserter(seeds));
  for (Seeds& more : std::vector<Seeds>{net_binaries(), plan_binaries(), operator_examples()})
    std::ranges::move(more, std::back_inserter(seeds));
  return seeds;
}

}  // namespace

std::vector<Seed> seeds_of(const std::string& kind) {
  static const std::map<std::string, std::function<Seeds()>> made = {
      {"net_text", [] { return texts(false); }},
      {"net_binary", net_binaries},
      {"plan_text", [] { return texts(true); }},
      {"plan_binary", plan_binaries},
      {"tensor", records},
      {"npy", npys},
      {"minidb", minidbs},
      {"lmdb", lmdbs},
      {"checkpoint", checkpoints},
      {"run_folder", run_folders},
      {"vocabulary", vocabularies},
      {"check", checked},
  };
  Seeds seeds = made.at(kind)();
  for (Seed& seed : files_below("tests/fuzz/corpus/" + kind, "")) seeds.push_back(std::move(seed));
  return seeds;
}

}  // namespace stepnet::testing
