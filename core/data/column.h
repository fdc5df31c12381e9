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
  virtual const Shape& shape() const = 0;  // of one sample, of the longest if their first dimensions differ
  virtual int64_t samples() const = 0;
  virtual const std::string& file() const = 0;  // for messages
  // Whether samples are sequences with first dimensions of their own, and what the one of a sample is.
  virtual bool varies() const { return false; }
  // Whether the first dimension of a sample is time: of sequences and windows.
  virtual bool has_time() const { return varies(); }
  virtual int64_t length(int64_t /*sample*/) const { return shape().rank() > 0 ? shape()[0] : 1; }
  // The elements of samples [first, first + count), one after another.
  virtual void read(int64_t first, int64_t count, std::byte* to) const = 0;
};

Shape shape_of(const Column& column, int64_t sample);
size_t sample_bytes(const Column& column);  // of the longest one

// The size of the last dimension that is not time, 1 if there is none.
int64_t features_of(const Column& column);

struct NamedColumn {
  std::string name;
  std::shared_ptr<const Column> column;
};

// The columns that a person names, anywhere:
//   NAME=FILE.npy           an array, whose first dimension counts samples; its elements stay in the file
//   FILE.npz, NAME=FILE.npz:ARRAY
//                           all arrays of an archive under their own names, or one
//   FILE.csv, FILE.tsv      each column of a table, under the name that the table gives it, of float64
//   NAME=FILE.csv:A,B,...   columns A, B, ... of a table as one, of shape [2] and so on
//   NAME=ROWS.npy:LENGTHS.npy, NAME=FILE.npz:ROWS:LENGTHS
//                           sequences of different lengths: their rows one after another, and how many each has
//   FILE.csv@ID, NAME=FILE.csv:A,B@ID
//                           sequences, too: rows that follow one another and agree in the table's column ID are one
//   NAME=FILE.wav, .flac    a recording: a row for each frame, float [channels]
//   NAME=FOLDER/*.wav, NAME=FILES.list
//                           sequences: each of these files is one, of the rows that it would have alone; .npy, too
//   NAME=lmdb:FOLDER:I, NAME=minidb:FILE:I
//                           tensor I of each record, a TensorProtos; sequences if their first dimensions differ
//   NAME=FILE.h5:DATASET    a dataset of an HDF5 file, whose elements stay there; where the library is
//   NAME=FILE.txt@VOCABULARY
//                           sequences: a line is one, of int32 tokens (core/data/tokenizer.h)
//   NAME=FILE.txt@VOCABULARY:stream
//                           all of the text as one series of tokens
// Throws Error: another form, a file that cannot be read, a column that is not there, an array without a first
// dimension, lengths that do not add up to the rows.
std::vector<NamedColumn> open_columns(const std::string& text);

// An array in memory, whose first dimension counts samples; it is not to change while the column is read. Throws Error
// if it has no such dimension, or elements that are no numbers.
NamedColumn array_column(const std::string& name, const Tensor& values);

// The types, shapes and a good part of the values of all of them, so that data are known again. Of an array of more
// than some megabytes only rows here and there count.
std::string fingerprint_of(const std::vector<NamedColumn>& columns);

}  // namespace stepnet
