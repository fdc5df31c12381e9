// TensorProtosDBInput.
#include "core/io/tensor_proto.h"
#include "tests/operators/db_test.h"

namespace stepnet::testing::tensor_protos_db_input_test {
namespace {

std::string record_of(std::initializer_list<Tensor> tensors) {
  TensorProtos protos;
  for (const Tensor& t : tensors) *protos.add_protos() = tensor_to_proto(t);
  return protos.SerializeAsString();
}

class TensorProtosDbInput : public ::testing::Test {
 protected:
  void open(const Records& records) {
    fill_db("minidb", folder_.file("db"), records);
    run_in(w_, make_op("CreateDB", {}, {"r"}, {make_arg("db", folder_.file("db")), make_arg("db_type", "minidb")}));
  }
  static OperatorDef read(int batch_size, const std::vector<std::string>& outputs = {"x", "label"}) {
    return make_op("TensorProtosDBInput", {"r"}, outputs, {make_arg("batch_size", batch_size)});
  }
  static Records counting(int count) {
    Records records;
    for (int i = 0; i < count; ++i)
      records.emplace_back(std::to_string(i), record_of({Tensor::of<float>({2}, {1.0f * i, 0.5f}), Tensor::scalar(i)}));
    return records;
  }
  TempFolder folder_;
  Workspace w_;
};

TEST_F(TensorProtosDbInput, OneRecordAtATime) {
  open({{"a", record_of({Tensor::of<float>({2}, {1, 2}), Tensor::scalar<int64_t>(7)})},
        {"b", record_of({Tensor::of<float>({1, 1}, {3}), Tensor::of<std::string>({1}, {"text"})})}});
  run_in(w_, read(0));
  EXPECT_EQ(floats_of(w_.fetch("x")), (std::vector<float>{1, 2}));
  EXPECT_EQ(w_.fetch("label").item<int64_t>(), 7);
  run_in(w_, read(0));
  EXPECT_EQ(w_.fetch("x").str(), "float[1, 1]");
  EXPECT_EQ(w_.fetch("label").data<std::string>()[0], "text");
  run_in(w_, read(0));
  EXPECT_EQ(w_.fetch("x").str(), "float[2]");
}

TEST_F(TensorProtosDbInput, BatchesGoRoundTheDatabase) {
  open(counting(3));
  const std::vector<std::vector<float>> firsts = {{0, 0.5, 1, 0.5}, {2, 0.5, 0, 0.5}, {1, 0.5, 2, 0.5}};
  for (const auto& first : firsts) {
    run_in(w_, read(2));
    EXPECT_EQ(w_.fetch("x").str(), "float[2, 2]");
    EXPECT_EQ(floats_of(w_.fetch("x")), first);
    EXPECT_EQ(w_.fetch("label").str(), "int32[2]");
    EXPECT_EQ(w_.fetch("label").data<int32_t>()[1], static_cast<int32_t>(first[2]));
  }
  run_in(w_, read(1));
  EXPECT_EQ(w_.fetch("x").str(), "float[1, 2]");
}

TEST_F(TensorProtosDbInput, StringsAndEmptyTensorsInBatches) {
  const std::string record = record_of({Tensor::of<std::string>({2}, {"a", "b"}), Tensor::zeros(DType::float32, {0})});
  open({{"k", record}});
  run_in(w_, read(2));
  EXPECT_EQ(w_.fetch("x").data<std::string>()[3], "b");
  EXPECT_EQ(w_.fetch("label").str(), "float[2, 0]");
}

TEST_F(TensorProtosDbInput, Mistakes) {
  open(counting(2));
  const std::string path = folder_.file("db");
  expect_contains(error_in(w_, read(0, {"x"})),
                  "record \"0\" of " + path + " has 2 tensors, but the operator has 1 out");
  expect_contains(error_in(w_, read(-1)), "\"batch_size\" must be from 0 to 1000000, but is -1");
  open({{"a", record_of({Tensor::scalar(1.0f), Tensor::scalar(2)})},
        {"b", record_of({Tensor::of<float>({1}, {1}), Tensor::scalar(2)})}});
  expect_contains(error_in(w_, read(2)),
                  "tensor 0 of record \"b\" of " + path + " is float[1], but the batch before it has items of float[]");
  open({{"a", "nonsense"}});
  expect_contains(error_in(w_, read(0)), "record \"a\" of " + path + " is not a TensorProtos message");
  TensorProtos wrong;
  wrong.add_protos()->add_dims(3);
  open({{"a", wrong.SerializeAsString()}});
  expect_contains(error_in(w_, read(0, {"x"})), "tensor 0 of record \"a\" of " + path +
                                                    ": elements 0 to 3 of float[3] are due, but the record holds 0");
  w_.tensor("r") = Tensor::scalar(1.0f);
  expect_contains(error_in(w_, read(0)), "the blob holds float[], not what is needed here");
}

TEST_F(TensorProtosDbInput, HugeBatchIsAnErrorAndNoCrash) {
  open({{"a", record_of({Tensor::of<double>({4}, {1, 2, 3, 4})})}});
  const OperatorDef def = make_op("TensorProtosDBInput", {"r"}, {"x"}, {make_arg("batch_size", int64_t{1} << 62)});
  expect_contains(error_in(w_, def), "must be from 0 to 1000000");
}

}  // namespace
}  // namespace stepnet::testing::tensor_protos_db_input_test
