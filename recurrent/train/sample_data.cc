#include "recurrent/train/sample_data.h"

#include <algorithm>
#include <cmath>

#include "stepnet/error.h"

namespace stepnet {

std::vector<FedColumn> linked_columns(const Model& model, const std::vector<std::string>& data) {
  std::vector<NamedColumn> all;
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
  }
  fed_types(fed, 1);
  count_samples(fed);
  return fed;
}

std::map<std::string, TensorType> fed_types(const std::vector<FedColumn>& columns, int64_t samples) {
  std::map<std::string, TensorType> types;
  for (const FedColumn& fed : columns) types[fed.blob] = fed_type(fed, samples);
  return types;
}

namespace {

std::string fingerprint_of(const std::vector<FedColumn>& columns) {
  std::vector<NamedColumn> named;
  for (const FedColumn& fed : columns) named.push_back({fed.name, fed.column});
  return stepnet::fingerprint_of(named);
}

void require_same_types(const std::vector<FedColumn>& training, const std::vector<FedColumn>& held_out) {
  for (size_t i = 0; i < training.size(); ++i)
    require(training[i].column->shape() == held_out[i].column->shape(),
            "samples of \"{}\" are {} to train on, but {} where they are held out", training[i].name,
            training[i].column->shape(), held_out[i].column->shape());
}

}  // namespace

SampleData load_samples(const Model& model, const std::vector<std::string>& data,
                        const std::vector<std::string>& held_out_data, double holdout) {
  SampleData result;
  result.training = linked_columns(model, data);
  result.fingerprint = fingerprint_of(result.training);
  const int64_t samples = count_samples(result.training);
  if (held_out_data.empty()) {
    result.held_out = result.training;
    const auto held_out = static_cast<int64_t>(std::llround(holdout * static_cast<double>(samples)));
    result.trained = {0, samples - held_out};
    result.predicted = {samples - held_out, samples};
    require(result.trained.size() > 0, "nothing of the {} samples is left to train on", samples);
    return result;
  }
  result.held_out = linked_columns(model, held_out_data);
  require_same_types(result.training, result.held_out);
  result.fingerprint += " | " + fingerprint_of(result.held_out);
  result.trained = {0, samples};
  result.predicted = {0, count_samples(result.held_out)};
  return result;
}

}  // namespace stepnet
