#include "stepnet/sampler.h"

#include <algorithm>
#include <cmath>

#include "core/io/text_stream.h"
#include "core/operator/nets_inside.h"
#include "recurrent/train/beam_search.h"
#include "recurrent/train/carried_states.h"
#include "recurrent/train/model.h"
#include "recurrent/train/run_folder.h"
#include "recurrent/train/text_corpus.h"
#include "recurrent/train/trained_model.h"
#include "stepnet/net.h"
#include "stepnet/random.h"

namespace stepnet {
namespace {

// What the net has seen before the first byte of the text: the end of a line, where the vocabulary has one.
int token_before_text(const Vocabulary& vocabulary) { return std::max(0, vocabulary.index('\n')); }

}  // namespace

void check_options(const SampleOptions& o) {
  require(o.length >= 0, "the length must be at least 0, but is {}", o.length);
  require(std::isfinite(o.temperature) && o.temperature >= 0, "the temperature must be at least 0, but is {}",
          o.temperature);
}

int draw(std::span<const double> scores, double temperature, double uniform) {
  for (const double s : scores) require(std::isfinite(s), "the net gave the score {}", s);
  const auto highest = std::max_element(scores.begin(), scores.end());
  const int best = static_cast<int>(highest - scores.begin());
  if (temperature == 0) return best;
  double sum = 0;
  for (const double s : scores) sum += std::exp((s - *highest) / temperature);
  double left = uniform * sum;
  for (size_t i = 0; i < scores.size(); ++i) {
    left -= std::exp((scores[i] - *highest) / temperature);
    if (left < 0) return static_cast<int>(i);
  }
  return best;  // rounding left a little over
}

struct Sampler::Scorer {
  Model model;
  Vocabulary vocabulary;
  Workspace workspace;
  std::unique_ptr<CarriedStates> states;
  std::unique_ptr<Net> net;
  std::vector<double> scores;

  Scorer(Model given, const Checkpoint& checkpoint, FileRootPtr files);
  // Scores of the next byte after one more token in each row of the batch: [rows, bytes of the vocabulary].
  std::span<double> scores_after(std::span<const int> tokens);
  std::span<double> scores_after(int token) { return scores_after({&token, 1}); }
  std::span<double> start(const std::string& prompt);  // with fresh states; scores of the first byte after the prompt
};

Sampler::Scorer::Scorer(Model given, const Checkpoint& checkpoint, FileRootPtr files)
    : model(std::move(given)), vocabulary(saved_vocabulary(checkpoint)) {
  workspace.confine(files ? std::move(files) : std::make_shared<const FileRoot>());
  model.timesteps = model.batch = 1;
  model.device = {};  // it may have been trained on another one
  use_cpu(model.init);
  use_cpu(model.forward);
  load_parameters(model, checkpoint, workspace);
  const DType dtype = workspace.fetch(stepnet::parameter_names(model, workspace).front()).dtype();
  check_by_running(model, workspace, dtype, vocabulary.size());
  states = std::make_unique<CarriedStates>(model, dtype, workspace);
  workspace.create_local(model.input).tensor() = Tensor::zeros(DType::int32, {1, 1});
  NetDef def = needed_for(expanded_forward(model, Mode::evaluate), model.logits, states->written());
  def.set_name(model.forward.name() + "_sample");
  net = std::make_unique<Net>(def, workspace);
}

std::span<double> Sampler::Scorer::scores_after(std::span<const int> tokens) {
  const auto rows = static_cast<int64_t>(tokens.size());
  Tensor& input = workspace.tensor(model.input);
  input.resize(DType::int32, {1, rows});
  std::ranges::copy(tokens, input.data<int32_t>());
  input.mark_written();
  RunContext run;
  net->run(run);
  states->advance();
  const Tensor& logits = workspace.fetch(model.logits);
  const int64_t classes = logits.dim(logits.rank() - 1), bytes = vocabulary.size();
  require(logits.size() == rows * classes && classes >= bytes,
          "the net gives the scores {} for a batch of {} and {} different bytes", logits, rows, bytes);
  scores.resize(static_cast<size_t>(rows * bytes));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < bytes; ++i) {
      const int64_t from = row * classes + i;
      const double score = logits.dtype() == DType::float64 ? logits.data<double>()[from] : logits.data<float>()[from];
      if (!std::isfinite(score)) fail("the net gave the score {}", score);
      scores[row * bytes + i] = score;
    }
  return scores;
}

std::span<double> Sampler::Scorer::start(const std::string& prompt) {
  states->reset(1);
  std::span<double> scores = scores_after(token_before_text(vocabulary));
  for (const char token : vocabulary.encode(prompt, "the prompt"))
    scores = scores_after(static_cast<unsigned char>(token));
  return scores;
}

Sampler::Sampler(const Checkpoint& checkpoint, FileRootPtr files)
    : scorer_(std::make_unique<Scorer>(saved_model(checkpoint), checkpoint, std::move(files))) {}

Sampler::Sampler(const NetDef& net, const Checkpoint& checkpoint, FileRootPtr files)
    : scorer_(std::make_unique<Scorer>(read_model(net), checkpoint, std::move(files))) {}

Sampler::~Sampler() = default;

void Sampler::check_texts(const std::string& prompt, const std::string& stop) const {
  scorer_->vocabulary.encode(prompt, "the prompt");
  scorer_->vocabulary.encode(stop, "the stop text");
}

void Sampler::sample(const SampleOptions& options, const std::function<bool(char)>& emit) {
  check_options(options);
  check_texts(options.prompt, options.stop);
  const uint64_t key = random_key(options.seed, "sample", scorer_->model.logits, 0, 0);
  std::span<const double> scores = scorer_->start(options.prompt);
  std::string end;  // of the drawn text, as long as the stop text
  for (int64_t i = 0; i < options.length; ++i) {
    const int token = draw(scores, options.temperature, random_uniform(key, static_cast<uint64_t>(i)));
    const char byte = scorer_->vocabulary.byte(token);
    end.push_back(byte);
    if (end.size() > options.stop.size()) end.erase(0, 1);
    const bool stopped = !options.stop.empty() && end == options.stop;
    if (!emit(byte) || stopped || i + 1 == options.length) return;
    scores = scorer_->scores_after(token);
  }
}

std::vector<FoundText> Sampler::search(const SearchOptions& options, const std::function<bool()>& go_on) {
  check_texts(options.prompt, options.stop);
  const auto bytes = static_cast<size_t>(scorer_->vocabulary.size());
  BeamOptions beams{options.beams, options.length, {}, options.length_penalty, go_on};
  for (const char token : scorer_->vocabulary.encode(options.stop, "the stop text"))
    beams.stop.push_back(static_cast<unsigned char>(token));
  const BeamStep step = [&](std::span<const int> parents, std::span<const int> tokens) {
    scorer_->states->gather(parents);
    const std::span<double> scores = scorer_->scores_after(tokens);
    log_softmax(scores, bytes);
    return std::span<const double>(scores);
  };
  const std::span<double> scores = scorer_->start(options.prompt);
  log_softmax(scores, bytes);
  std::vector<FoundText> found;
  for (const Hypothesis& h : beam_search(scores, step, beams)) {
    found.push_back({"", h.log_probability, h.score, h.stopped});
    for (const int token : h.tokens) found.back().text.push_back(scorer_->vocabulary.byte(token));
  }
  return found;
}

}  // namespace stepnet
