// Columns: the values of all samples under one name, in files.
//
// Threads: immutable; reading from several threads is safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/file_place.h"
#include "stepnet/tensor.h"

namespace stepnet {

class Column {
 public:
  virtual ~Column() = default;
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;  // of one sample
  virtual int64_t samples() const = 0;
  virtual const std::string& file() const = 0;  // for messages
  virtual void read(int64_t sample, std::byte* to) const = 0;
};

struct NamedColumn {
  std::string name;
  std::shared_ptr<const Column> column;
};

// The columns that a person names, anywhere:
//   NAME=FILE.npy           an array, whose first dimension counts samples; its elements stay in the file
//   FILE.csv, FILE.tsv      each column of a table, under the name that the table gives it, of float64
//   NAME=FILE.csv:A,B,...   columns A, B, ... of a table as one, of shape [2] and so on
// Throws Error: another form, a file that cannot be read, a column that is not there, an array without a first
// dimension.
std::vector<NamedColumn> open_columns(const std::string& text);

// The types, shapes and a good part of the values of all of them, so that data are known again. Of an array of more
// than some megabytes only rows here and there count.
std::string fingerprint_of(const std::vector<NamedColumn>& columns);

}  // namespace stepnet
