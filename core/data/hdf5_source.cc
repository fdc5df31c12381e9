// Datasets of HDF5 files as columns. Their elements stay in the file.
//
// The library is optional: without it such files are refused.
#include "core/data/sources.h"
#include "stepnet/error.h"

#ifndef STEPNET_HDF5

namespace stepnet {

std::vector<NamedColumn> open_hdf5(const SourceName& source) {
  throw Error(fmt::format("this build reads no HDF5 files, such as {}", source.path),
              "install libhdf5-dev and build anew, or save the array as .npy");
}

}  // namespace stepnet

#else

#include <hdf5.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "core/io/files.h"

namespace stepnet {
namespace {

// Nothing of the library may run in two threads at once.
std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

// A handle of the library's, which has one function for each kind to close it.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  bool valid() const { return id_ >= 0; }
  hid_t id() const { return id_; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

struct Number {
  DType dtype = DType::undefined;
  hid_t native = -1;  // the library's own, never closed
};

Number number_of(hid_t type) {
  const size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) {
    if (bytes == 4) return {DType::float32, H5T_NATIVE_FLOAT};
    if (bytes == 8) return {DType::float64, H5T_NATIVE_DOUBLE};
  }
  if (H5Tget_class(type) == H5T_INTEGER) {
    const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
    if (bytes == 1) return is_signed ? Number{DType::int8, H5T_NATIVE_INT8} : Number{DType::uint8, H5T_NATIVE_UINT8};
    if (bytes == 2)
      return is_signed ? Number{DType::int16, H5T_NATIVE_INT16} : Number{DType::uint16, H5T_NATIVE_UINT16};
    if (bytes == 4 && is_signed) return {DType::int32, H5T_NATIVE_INT32};
    if (bytes == 8 && is_signed) return {DType::int64, H5T_NATIVE_INT64};
  }
  return {};
}

class Hdf5Column final : public Column {
 public:
  Hdf5Column(const std::string& path, const std::string& dataset) : name_(fmt::format("{}:{}", path, dataset)) {
    const FileReader is_file{FilePlace(path)};
    const std::lock_guard lock(hdf5_mutex());
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // errors are told here
    file_ = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    require(file_.valid(), "{} is no HDF5 file, or it is damaged", path);
    data_ = Handle(H5Dopen2(file_.id(), dataset.c_str(), H5P_DEFAULT), H5Dclose);
    require(data_.valid(), "{} has no dataset \"{}\"", path, dataset);
    const Handle type(H5Dget_type(data_.id()), H5Tclose);
    number_ = number_of(type.id());
    require(number_.native >= 0,
            "{} has elements of a type that is not read; floats of 32 and 64 bits and integers are", name_);
    const Handle space(H5Dget_space(data_.id()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.id());
    require(rank >= 1, "{} holds one value, but its first dimension must count samples", name_);
    std::vector<hsize_t> dims(static_cast<size_t>(rank));
    H5Sget_simple_extent_dims(space.id(), dims.data(), nullptr);
    samples_ = static_cast<int64_t>(dims[0]);
    shape_ = Shape(std::vector<int64_t>(dims.begin() + 1, dims.end()));
  }
  ~Hdf5Column() override {
    const std::lock_guard lock(hdf5_mutex());
    data_ = {};
    file_ = {};
  }

  DType dtype() const override { return number_.dtype; }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return samples_; }
  const std::string& file() const override { return name_; }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    if (count == 0 || shape_.size() == 0) return;
    std::vector<hsize_t> begin(static_cast<size_t>(shape_.rank()) + 1, 0), size = {static_cast<hsize_t>(count)};
    begin[0] = static_cast<hsize_t>(first);
    size.insert(size.end(), shape_.begin(), shape_.end());
    const std::lock_guard lock(hdf5_mutex());
    const Handle there(H5Dget_space(data_.id()), H5Sclose);
    const Handle here(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr), H5Sclose);
    const bool read =
        H5Sselect_hyperslab(there.id(), H5S_SELECT_SET, begin.data(), nullptr, size.data(), nullptr) >= 0 &&
        H5Dread(data_.id(), number_.native, here.id(), there.id(), H5P_DEFAULT, to) >= 0;
    require(read, "{} cannot be read from row {} on: it is cut off or damaged", name_, first);
  }

 private:
  std::string name_;
  Handle file_, data_;
  Number number_;
  int64_t samples_ = 0;
  Shape shape_;
};

}  // namespace

std::vector<NamedColumn> open_hdf5(const SourceName& source) {
  if (source.name.empty() || source.parts.empty() || !source.id.empty())
    throw Error(fmt::format("data are given as \"{}\"", source.text), "name a dataset as NAME=FILE.h5:DATASET");
  return {{source.name, std::make_shared<Hdf5Column>(source.path, source.parts)}};
}

}  // namespace stepnet

#endif
