// Programs, sources and batches for tests of the augment kernel.

#ifndef DATASETD_TESTS_CUDA_KERNELS_AUGMENT_CASE_H_
#define DATASETD_TESTS_CUDA_KERNELS_AUGMENT_CASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"

namespace datasetd::testing {

// Makes an image field; each op takes the sizes that the one before left.
class FieldBuilder {
 public:
  FieldBuilder(int height, int width, int channels);

  FieldBuilder& In(Dtype dtype);
  FieldBuilder& Out(Dtype dtype, Layout layout);
  FieldBuilder& Crop(int top, int left, int height, int width);
  FieldBuilder& RandomCrop(int height, int width);
  // Left, top, right, bottom. Fills differ by channel and by move.
  FieldBuilder& Pad(int left, int top, int right, int bottom, PaddingMode mode);
  FieldBuilder& PadFill(int size, const std::vector<float>& fill);
  FieldBuilder& HorizontalFlip(float probability);
  FieldBuilder& VerticalFlip(float probability);
  FieldBuilder& AlternatingFlip();
  FieldBuilder& Divide(float divisor);
  // Mean and std differ by channel.
  FieldBuilder& Normalize();

  FieldProgram Build() const { return field_; }

 private:
  Move& AddMove(MoveKind kind, int out_height, int out_width);

  FieldProgram field_ = {};
  uint32_t next_op_index_ = 0;
};

// A field of `width` elements a sample that is no image.
FieldProgram ElementsField(Dtype in, Dtype out, int width);

// A program with its sources and one batch, all memory its own. The fields'
// sources, strides and offsets are set here.
class AugmentCase {
 public:
  // Unused bytes and rows of the slot hold this.
  static constexpr uint8_t kPoison = 0xA5;

  // Sources of random samples; `offset_step` moves every field's offset away
  // from multiples of 256 by so many elements.
  AugmentCase(std::vector<FieldProgram> fields, int num_samples,
              int num_resident = 12, uint64_t seed = 7, int offset_step = 0);

  const AugmentProgram& program() const { return program_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  // A batch with a poisoned slot of its own.
  BatchTask NewBatch(uint64_t epoch);
  // The slot of a batch by the reference: poison where nothing is written.
  std::vector<uint8_t> ExpectedSlot(const BatchTask& batch) const;
  std::vector<uint8_t> Slot(const BatchTask& batch) const;
  // The sources, the indices and the slots of all batches so far.
  std::vector<MemoryRange> Memory() const;

  // Where two slots first differ, in words; empty if nowhere.
  std::string Difference(const std::vector<uint8_t>& actual,
                         const std::vector<uint8_t>& expected) const;

 private:
  struct AlignedBytes {
    explicit AlignedBytes(int64_t size_bytes);
    std::unique_ptr<uint8_t[]> storage;
    uint8_t* data;  // 256-byte aligned
    int64_t size_bytes;
  };

  AugmentProgram program_ = {};
  std::vector<std::unique_ptr<AlignedBytes>> sources_;
  std::vector<std::unique_ptr<AlignedBytes>> slots_;
  std::vector<int64_t> indices_;
  int64_t slot_bytes_ = 0;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CUDA_KERNELS_AUGMENT_CASE_H_
