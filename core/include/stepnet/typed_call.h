// What the functions of stepnet/ops.h are made of: TypedCall, and arguments that may be left out.
//
// A call without arguments finds its operator by comparing two numbers: no message is built and no text is hashed.
// Threads: a TypedCall may be used by any number of threads at once; the rest are values.
#pragma once

#include <atomic>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/arguments.h"
#include "stepnet/record.h"

namespace stepnet::autograd {

// A list that may be left out; {} leaves it out, and an empty vector is an empty list.
template <class T>
class ListArg {
 public:
  ListArg() = default;
  ListArg(std::initializer_list<T> values) : values_(values) {}
  ListArg(std::vector<T> values) : values_(std::move(values)) {}  // NOLINT(google-explicit-constructor): `.axes = axes`
  const std::optional<std::vector<T>>& values() const { return values_; }

 private:
  std::optional<std::vector<T>> values_;
};

// A value whose type depends on other arguments, such as what a fill writes: a number, a text, a list.
class AnyArg {
 public:
  AnyArg() = default;
  template <class T>
  AnyArg(const T& value) : arg_(make_arg("", value)) {}  // NOLINT(google-explicit-constructor): `.value = 1.5f`
  const std::optional<Argument>& value() const { return arg_; }

 private:
  std::optional<Argument> arg_;
};

// The arguments that were given.
class ArgList {
 public:
  template <class T>
  ArgList& add(const char* name, const std::optional<T>& value) {
    if (value) args_.push_back(make_arg(name, *value));
    return *this;
  }
  template <class T>
  ArgList& add(const char* name, const ListArg<T>& list) {
    return add(name, list.values());
  }
  ArgList& add(const char* name, const AnyArg& any) {
    if (!any.value()) return *this;
    args_.push_back(*any.value());
    args_.back().set_name(name);
    return *this;
  }
  const std::vector<Argument>& args() const { return args_; }

 private:
  std::vector<Argument> args_;
};

// What a function keeps between its calls: its operators, bound, by which inputs are there.
class TypedCall {
 public:
  // `in_place`: per output, the input that it overwrites, or -1; empty: none.
  explicit TypedCall(const char* type, std::vector<int> in_place = {}) : type_(type), in_place_(std::move(in_place)) {}
  ~TypedCall();
  TypedCall(const TypedCall&) = delete;
  TypedCall& operator=(const TypedCall&) = delete;

  // Absent inputs at the end are left out. The result has as many variables as outputs were asked for.
  std::vector<Variable> run(std::span<const Variable> inputs, const ArgList& args, int outputs, Place place) const;
  // Into the first so many of `made`, which are as many as there can be.
  void run_into(std::span<Variable> made, std::span<const Variable> inputs, const ArgList& args, int outputs,
                Place place) const;
  Variable run1(std::span<const Variable> inputs, const ArgList& args, Place place) const;  // of one output

 private:
  struct Entry;
  // `kept` holds what is not kept here.
  const EagerOp& bound(std::span<const Variable> inputs, const ArgList& args, int outputs, Place place,
                       std::shared_ptr<const EagerOp>& kept) const;
  const EagerOp& without_arguments(std::span<const Variable> inputs, int outputs) const;
  EagerOp::Signature signature(std::span<const Variable> inputs, int outputs) const;

  const char* type_;
  std::vector<int> in_place_;
  mutable std::atomic<Entry*> entries_{nullptr};
};

// The inputs of a call in their order, where one of them is a list.
std::vector<Variable> joined(std::initializer_list<Variable> first, const std::vector<Variable>& list);

}  // namespace stepnet::autograd
