#include "recurrent/train/sample_data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/data/sequences.h"

#include "stepnet/error.h"

namespace stepnet {
namespace {

WindowChoice choice_of(const DataLink& link) {
  return {.window = link.window(), .stride = link.stride(), .shift = link.shift()};
}

// As many samples as each column has windows.
void take_windows(const Model& model, std::vector<FedColumn>& fed) {
  const auto each = [&](const auto& fn) {
    for (const DataLink& link : model.data)
      if (link.has_window())
        for (FedColumn& column : fed)
          if (column.blob == link.blob()) fn(column, choice_of(link));
  };
  std::optional<int64_t> samples;
  const DataLink* first = nullptr;
  for (const DataLink& link : model.data) {
    if (!link.has_window()) continue;
    if (!first) first = &link;
    require(link.stride() == first->stride(), "windows of \"{}\" go on by {} rows, but of \"{}\" by {}", first->blob(),
            first->stride(), link.blob(), link.stride());
  }
  each([&](const FedColumn& column, const WindowChoice& choice) {
    const int64_t count = count_windows(choice, column.column->samples());
    samples = std::min(samples.value_or(count), count);
  });
  each(
      [&](FedColumn& column, const WindowChoice& choice) { column.column = windows(column.column, choice, *samples); });
}

// How many windows of rows before the one that begins at a row have rows from there on.
int64_t windows_across(const Model& model) {
  int64_t most = 0;
  for (const DataLink& link : model.data)
    if (link.has_window()) {
      const WindowChoice choice = choice_of(link);
      most = std::max(most, (choice.reach() + choice.stride - 1) / choice.stride - 1);
    }
  return most;
}

}  // namespace

SampleOrder order_of(const Model& model) { return model.carry.empty() ? SampleOrder::given : SampleOrder::streams; }

std::vector<FedColumn> linked_columns(const Model& model, const std::vector<std::string>& data,
                                      const std::map<std::string, Tensor>& arrays) {
  std::vector<NamedColumn> all;
  for (const auto& [name, values] : arrays) all.push_back(array_column(name, values));
  for (const std::string& text : data)
    for (NamedColumn& named : open_columns(text)) {
      require(std::ranges::count(all, named.name, &NamedColumn::name) == 0, "the data have two columns \"{}\"",
              named.name);
      all.push_back(std::move(named));
    }
  std::vector<FedColumn> fed;
  for (const DataLink& link : model.data) {
    const auto found = std::ranges::find(all, link.column(), &NamedColumn::name);
    if (found == all.end()) {
      std::vector<std::string> names;
      for (const NamedColumn& named : all) names.push_back(named.name);
      throw Error(fmt::format("the data have no column \"{}\", which is fed to \"{}\"; they have {}", link.column(),
                              link.blob(), names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))),
                  fmt::format("give it as --data {}=FILE.npy, or as a column of a table", link.column()));
    }
    FedColumn& column = fed.emplace_back();
    column.blob = link.blob();
    column.name = link.column();
    column.column = found->column;
    column.axis = link.axis();
    column.dtype = link.has_type() ? dtype_from_name(link.type()) : fed_type(found->column->dtype());
    column.pad = link.pad();
    column.lengths = link.lengths();
    column.mask = link.mask();
    if (!link.lengths().empty() && !found->column->varies())
      throw Error(fmt::format("\"{}\" is to be fed the lengths of \"{}\", whose samples are all {}", link.lengths(),
                              link.column(), found->column->shape()),
                  "give the column as NAME=ROWS.npy:LENGTHS.npy or as a table with @ID, or remove \"lengths\"");
  }
  take_windows(model, fed);
  fed_types(fed, 1);
  count_samples(fed);
  return fed;
}

namespace {

constexpr std::string_view kNormalization = "normalization/";

bool is_normalized(const Model& model, const FedColumn& fed) {
  const auto link = std::ranges::find(model.data, fed.blob, &DataLink::blob);
  return link != model.data.end() && link->normalize();
}

// By what the samples to train on are.
void normalize_both(const Model& model, SampleData& data) {
  for (size_t i = 0; i < data.training.size(); ++i) {
    FedColumn& trained = data.training[i];
    if (!is_normalized(model, trained)) continue;
    normalize(trained, data.trained);
    data.held_out[i].mean = trained.mean;
    data.held_out[i].deviation = trained.deviation;
  }
}

std::string fingerprint_of(const std::vector<FedColumn>& columns) {
  std::vector<NamedColumn> named;
  for (const FedColumn& fed : columns) named.push_back({fed.name, fed.column});
  return stepnet::fingerprint_of(named);
}

// Without the dimension in which samples differ, if they do.
Shape row_shape(const Column& column) {
  const Shape& shape = column.shape();
  return column.varies() ? Shape(std::vector<int64_t>(shape.begin() + 1, shape.end())) : shape;
}

void require_same_types(const std::vector<FedColumn>& training, const std::vector<FedColumn>& held_out) {
  for (size_t i = 0; i < training.size(); ++i)
    require(row_shape(*training[i].column) == row_shape(*held_out[i].column),
            "samples of \"{}\" are {} to train on, but {} where they are held out", training[i].name,
            training[i].column->shape(), held_out[i].column->shape());
}

struct Fold {
  int64_t number = 0, count = 0;  // the first one is number 1
};

Fold read_fold(const std::string& text) {
  Fold fold;
  const char* end = text.data() + text.size();
  const auto [slash, no_number] = std::from_chars(text.data(), end, fold.number);
  bool is_fold = no_number == std::errc() && slash != end && *slash == '/';
  if (is_fold) {
    const auto [rest, no_count] = std::from_chars(slash + 1, end, fold.count);
    is_fold = no_count == std::errc() && rest == end;
  }
  if (!is_fold)
    throw Error(fmt::format("a fold is given as \"{}\"", text), "give it as I/N, such as 1/5 for the first of five");
  require(fold.count >= 2, "there must be at least 2 folds, but there are {}", fold.count);
  require(fold.number >= 1 && fold.number <= fold.count, "folds are numbered from 1 to {}, so there is no fold {}",
          fold.count, fold.number);
  return fold;
}

// All samples but those that are held out and `across` at each of their borders.
SampleRange rest_of(int64_t samples, const SampleRange& held_out, int64_t across) {
  if (held_out.size() == 0) return {0, samples};
  const int64_t end = held_out.begin - across, begin = held_out.end + across;
  if (begin >= samples) return {0, end};
  if (end <= 0) return {begin, samples};
  return {0, samples, end, begin};
}

}  // namespace

int64_t held_out_samples(int64_t samples, double share) { return std::llround(share * static_cast<double>(samples)); }

void check_fold(const std::string& fold) { read_fold(fold); }

SampleRange fold_range(const std::string& text, int64_t samples) {
  const Fold fold = read_fold(text);
  require(fold.count <= samples, "{} samples cannot be parted into {} folds", samples, fold.count);
  const auto begin_of = [&](int64_t part) {  // the least k with k * count / samples >= part
    __extension__ using Wide = __int128;
    return static_cast<int64_t>((static_cast<Wide>(part) * samples + fold.count - 1) / fold.count);
  };
  return {begin_of(fold.number - 1), begin_of(fold.number)};
}

SampleData load_samples(const Model& model, const TrainOptions& options) {
  SampleData result;
  result.training = linked_columns(model, options.data, options.arrays);
  result.fingerprint = fingerprint_of(result.training);
  const int64_t samples = count_samples(result.training);
  if (options.held_out_data.empty()) {
    result.held_out = result.training;
    const int64_t last = held_out_samples(samples, options.holdout);
    result.predicted = options.fold.empty() ? SampleRange{samples - last, samples} : fold_range(options.fold, samples);
    result.trained = rest_of(samples, result.predicted, windows_across(model));  // so that no row is in both parts
    require(result.trained.size() > 0, "nothing of the {} samples is left to train on", samples);
    normalize_both(model, result);
    return result;
  }
  result.held_out = linked_columns(model, options.held_out_data);
  require_same_types(result.training, result.held_out);
  result.fingerprint += " | " + fingerprint_of(result.held_out);
  result.trained = {0, samples};
  result.predicted = {0, count_samples(result.held_out)};
  normalize_both(model, result);
  return result;
}

void save_normalization(const std::vector<FedColumn>& columns, std::map<std::string, Tensor>& saved) {
  for (const FedColumn& fed : columns) {
    if (fed.mean.empty()) continue;
    const auto features = static_cast<int64_t>(fed.mean.size());
    Tensor both = Tensor::empty(DType::float64, {2, features});
    std::ranges::copy(fed.mean, both.data<double>());
    std::ranges::copy(fed.deviation, both.data<double>() + features);
    saved[std::string(kNormalization) + fed.blob] = std::move(both);
  }
}

void load_normalization(const Model& model, const std::map<std::string, Tensor>& saved,
                        std::vector<FedColumn>& columns) {
  for (FedColumn& fed : columns) {
    if (!is_normalized(model, fed)) continue;
    const auto found = saved.find(std::string(kNormalization) + fed.blob);
    require(found != saved.end(), "the checkpoint does not say how \"{}\" is normalised", fed.name);
    const int64_t features = features_of(*fed.column);
    const Tensor& both = found->second;
    require(both.dtype() == DType::float64 && both.shape() == Shape({2, features}),
            "\"{}\" has samples of {}, but the checkpoint normalises it by {}", fed.name, fed.column->shape(), both);
    const auto values = both.span<double>();
    fed.mean.assign(values.begin(), values.begin() + features);
    fed.deviation.assign(values.begin() + features, values.end());
    for (size_t f = 0; f < fed.mean.size(); ++f)
      require(std::isfinite(fed.mean[f]) && std::isfinite(fed.deviation[f]) && fed.deviation[f] > 0,
              "the checkpoint normalises \"{}\" by the mean {} and the deviation {}", fed.name, fed.mean[f],
              fed.deviation[f]);
  }
}

}  // namespace stepnet
