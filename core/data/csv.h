// Tables of numbers as CSV and TSV files: a row of names, then a row for each sample.
//
// Fields may be quoted as RFC 4180 says; space around them does not count. Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "stepnet/file_place.h"

namespace stepnet {

struct Table {
  std::vector<std::string> names;
  std::vector<std::vector<double>> columns;  // the values of all rows
};

// Fields of a path that ends in .tsv are parted by tabs, of others by commas. Throws Error that names the row, counted
// from 1 after the names, and the column: too few or too many fields, one that is no finite number, a name that is
// missing or there twice, no rows. A field that is empty is a value that is missing, nan.
Table read_table(const FilePlace& place);

}  // namespace stepnet
