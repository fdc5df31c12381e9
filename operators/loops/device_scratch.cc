// What the kernels of gpu/ take beside their outputs, where it grows with their tensors: for estimates. Partial results
// of large sums, of which there is one for hundreds of elements, are left out.
#include "core/operator/device_scratch.h"

#include "operators/loops/axis_rows.h"
#include "operators/loops/one_axis.h"
#include "operators/loss/softmax_loss.h"
#include "operators/norm/batch_norm.h"
#include "operators/norm/batch_norm_second.h"
#include "operators/norm/layer_norm_second.h"
#include "operators/norm/normalize.h"
#include "operators/products/added_sizes.h"

namespace stepnet {
namespace {

constexpr int64_t kNumber = sizeof(double), kPair = 2 * kNumber, kPlace = sizeof(int64_t);

int64_t element(const Call& c, int i) { return static_cast<int64_t>(dtype_size(c.in(i).dtype())); }

// gpu/reduce/sum.cu: sums of more terms than one launch adds grow beside the output.
const bool kOfSum = offer_scratch("Sum", [](const void*, const Call& c) {
  constexpr int kTerms = 64;
  if (c.inputs() <= kTerms) return DeviceScratch{};
  return DeviceScratch{static_cast<int64_t>(c.out(0).bytes())};
});

// gpu/products/add_bmm.cu: matrices side by side.
const bool kOfAddBmm = offer_device_scratch<AddedArgs>("AddBMM", [](const AddedArgs&, const Call& c) {
  if (c.in(1).dim(0) <= 1) return DeviceScratch{};
  return DeviceScratch{static_cast<int64_t>(c.in(1).bytes())};
});

// gpu/norm/batch_norm.cu, by cuDNN: statistics that are not outputs.
DeviceScratch batch_norm(const BatchNormArgs& a, const Call& c) {
  if (a.is_test) return {};
  const Channels channels(a, c.in(0).shape());
  if (channels.size() < 2) return {kPair * channels.count};
  return {4 * element(c, 0) * channels.count};
}
// And its gradient, without cuDNN where only some gradients are asked for or come in.
DeviceScratch batch_norm_gradient(const BatchNormArgs& a, const Call& c) {
  const Channels channels(a, c.in(0).shape());
  const bool by_library = c.has(2) && !c.has(5) && !c.has(6) && c.wants(0) && channels.size() > 1;
  return {(by_library ? 2 * element(c, 0) : kPair) * channels.count};
}
const bool kOfBatchNorm = offer_device_scratch<BatchNormArgs>("BatchNorm", batch_norm) &&
                          offer_device_scratch<BatchNormArgs>("SpatialBN", batch_norm) &&
                          offer_device_scratch<BatchNormArgs>("BatchNormGradient", batch_norm_gradient) &&
                          offer_device_scratch<BatchNormArgs>("SpatialBNGradient", batch_norm_gradient);
const bool kOfBatchNormSecond =
    offer_device_scratch<BatchNormArgs>("BatchNormSecondGradient", [](const BatchNormArgs& a, const Call& c) {
      return DeviceScratch{static_cast<int64_t>(sizeof(BatchNormSecondSums)) * Channels(a, c.in(0).shape()).count};
    });

// gpu/norm/normalize.cu: two sums for each line; the second gradient has four.
DeviceScratch sums_of_lines(const NormalizeArgs& a, const Call& c) {
  return {kPair * one_axis(a, c.in(0).shape()).lines()};
}
const bool kOfNormalize =
    offer_device_scratch<NormalizeArgs>("Normalize", sums_of_lines) &&
    offer_device_scratch<NormalizeArgs>("NormalizeGradient", sums_of_lines) &&
    offer_device_scratch<NormalizeArgs>("NormalizeSecondGradient", [](const NormalizeArgs& a, const Call& c) {
      return DeviceScratch{sums_of_lines(a, c)[0], sums_of_lines(a, c)[0]};
    });

// gpu/norm/layer_norm_second.cu
const bool kOfLayerNormSecond = offer_device_scratch<LayerNormSecondArgs>(
    "LayerNormSecondGradient", [](const LayerNormSecondArgs& a, const Call& c) {
      return DeviceScratch{kPair * rows_of(a, c.in(0).shape()).count};
    });

// gpu/loss/softmax_with_loss.cu: the loss of each line, and their sums.
template <class Args>
DeviceScratch losses(const Args& a, const Call& c) {
  return {kNumber * loss_lines(a, c.in(0).shape()).lines(), 2 * kNumber};
}
DeviceScratch one_number(const void*, const Call&) { return {kNumber}; }
const bool kOfLosses = offer_device_scratch<LossArgs>("SoftmaxWithLoss", losses<LossArgs>) &&
                       offer_device_scratch<SpatialLossArgs>("SpatialSoftmaxWithLoss", losses<SpatialLossArgs>) &&
                       offer_scratch("SoftmaxWithLossGradient", one_number) &&
                       offer_scratch("SpatialSoftmaxWithLossGradient", one_number);

// gpu/index/gather_ranges.cu: where each range begins, and the place of each row.
DeviceScratch places(int64_t ranges, int64_t rows) { return {kPlace * (ranges + 1), kPlace * rows}; }
const bool kOfGatherRanges =
    offer_scratch("GatherRanges",
                  [](const void*, const Call& c) {
                    return c.wants(0) ? places(c.in(1).size() / 2, c.out(0).dim(0)) : DeviceScratch{};
                  }) &&
    offer_scratch("GatherRangesGradient",
                  [](const void*, const Call& c) { return places(c.in(1).size() / 2, c.in(2).dim(0)); });

// gpu/optimizer/row_wise_sparse_adagrad.cu: a moment for each index.
const bool kOfRowWise = offer_scratch(
    "RowWiseSparseAdagrad", [](const void*, const Call& c) { return DeviceScratch{element(c, 0) * c.in(2).size()}; });

}  // namespace
}  // namespace stepnet
