#include "tests/cuda/kernels/augment_case.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cuda/kernels/program/params.h"
#include "tests/reference/augment_reference.h"

namespace datasetd::testing {
namespace {

// Random bytes that are good values of `dtype`: floats are finite and in the
// range of pixels, with some beyond uint8.
void FillRandom(Dtype dtype, int64_t count, std::mt19937& engine, uint8_t* to) {
  if (!IsFloatingPoint(dtype)) {
    const int64_t size_bytes = count * DtypeSizeBytes(dtype);
    for (int64_t i = 0; i < size_bytes; i += 4) {
      const uint32_t word = engine();
      std::memcpy(to + i, &word, std::min<int64_t>(4, size_bytes - i));
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = engine();
    if (dtype == Dtype::kFloat32) {
      const float value = static_cast<float>(bits % 400000) / 1000.0f - 70.0f;
      std::memcpy(&bits, &value, sizeof(value));
    } else if (dtype == Dtype::kFloat64) {
      const double value = static_cast<double>(bits) / 7.0 - 1e8;
      std::memcpy(&bits, &value, sizeof(value));
    } else if (dtype == Dtype::kFloat16) {
      bits = bits % 0x7C00;
    } else if (dtype == Dtype::kBfloat16) {
      bits = bits % 0x7F80;
    }
    std::memcpy(to + i * DtypeSizeBytes(dtype), &bits, DtypeSizeBytes(dtype));
  }
}

int64_t InElements(const FieldProgram& field) {
  return int64_t{field.in_height} * field.in_width * field.channels;
}

int64_t OutElements(const FieldProgram& field) {
  return field.is_image
             ? int64_t{field.out_height} * field.out_width * field.channels
             : field.in_width;
}

}  // namespace

FieldBuilder::FieldBuilder(int height, int width, int channels) {
  field_.is_image = true;
  field_.in_dtype = Dtype::kUint8;
  field_.out_dtype = Dtype::kUint8;
  field_.layout = Layout::kNchw;
  field_.in_height = field_.out_height = height;
  field_.in_width = field_.out_width = width;
  field_.channels = channels;
}

FieldBuilder& FieldBuilder::In(Dtype dtype) {
  field_.in_dtype = dtype;
  return *this;
}

FieldBuilder& FieldBuilder::Out(Dtype dtype, Layout layout) {
  field_.out_dtype = dtype;
  field_.layout = layout;
  return *this;
}

Move& FieldBuilder::AddMove(MoveKind kind, int out_height, int out_width) {
  Move& move = field_.moves[field_.num_moves++];
  move.kind = kind;
  move.padding_mode = PaddingMode::kConstant;
  move.op_index = next_op_index_++;
  move.in_height = field_.out_height;
  move.in_width = field_.out_width;
  move.out_height = field_.out_height = out_height;
  move.out_width = field_.out_width = out_width;
  return move;
}

FieldBuilder& FieldBuilder::Crop(int top, int left, int height, int width) {
  Move& move = AddMove(MoveKind::kCrop, height, width);
  move.top = top;
  move.left = left;
  return *this;
}

FieldBuilder& FieldBuilder::RandomCrop(int height, int width) {
  AddMove(MoveKind::kRandomCrop, height, width);
  return *this;
}

FieldBuilder& FieldBuilder::Pad(int left, int top, int right, int bottom,
                                PaddingMode mode) {
  Move& move = AddMove(MoveKind::kPad, field_.out_height + top + bottom,
                       field_.out_width + left + right);
  move.padding_mode = mode;
  move.left = left;
  move.top = top;
  for (int c = 0; c < kMaxChannels; ++c) {
    move.fill[c] = 1.25f + static_cast<float>(c) +
                   10.0f * static_cast<float>(field_.num_moves);
  }
  return *this;
}

FieldBuilder& FieldBuilder::PadFill(int size, const std::vector<float>& fill) {
  Pad(size, size, size, size, PaddingMode::kConstant);
  std::copy(fill.begin(), fill.end(), field_.moves[field_.num_moves - 1].fill);
  return *this;
}

FieldBuilder& FieldBuilder::HorizontalFlip(float probability) {
  AddMove(MoveKind::kHorizontalFlip, field_.out_height, field_.out_width)
      .probability = probability;
  return *this;
}

FieldBuilder& FieldBuilder::VerticalFlip(float probability) {
  AddMove(MoveKind::kVerticalFlip, field_.out_height, field_.out_width)
      .probability = probability;
  return *this;
}

FieldBuilder& FieldBuilder::AlternatingFlip() {
  AddMove(MoveKind::kAlternatingFlip, field_.out_height, field_.out_width);
  return *this;
}

FieldBuilder& FieldBuilder::Divide(float divisor) {
  ValueOp& op = field_.value_ops[field_.num_value_ops++];
  op.kind = ValueOpKind::kDivide;
  op.divisor = divisor;
  return *this;
}

FieldBuilder& FieldBuilder::Normalize() {
  constexpr float kMean[kMaxChannels] = {0.4914f, 0.4822f, 0.4465f, 0.25f};
  constexpr float kStd[kMaxChannels] = {0.2470f, 0.2435f, 0.2616f, 0.125f};
  ValueOp& op = field_.value_ops[field_.num_value_ops++];
  op.kind = ValueOpKind::kNormalize;
  std::copy(kMean, kMean + kMaxChannels, op.mean);
  std::copy(kStd, kStd + kMaxChannels, op.std);
  return *this;
}

FieldProgram ElementsField(Dtype in, Dtype out, int width) {
  FieldProgram field = {};
  field.in_dtype = in;
  field.out_dtype = out;
  field.layout = Layout::kNchw;
  field.in_height = field.out_height = 1;
  field.in_width = field.out_width = width;
  field.channels = 1;
  return field;
}

AugmentCase::AlignedBytes::AlignedBytes(int64_t size_bytes)
    : storage(new uint8_t[size_bytes + 256]), size_bytes(size_bytes) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage.get());
  data = storage.get() + (256 - address % 256) % 256;
}

AugmentCase::AugmentCase(std::vector<FieldProgram> fields, int num_samples,
                         int num_resident, uint64_t seed, int offset_step) {
  std::mt19937 engine(static_cast<uint32_t>(seed) * 31 + 5);
  program_.seed = seed * 0x9E3779B97F4A7C15u;
  // Each field has room for three rows more than the batch writes.
  const int64_t capacity = num_samples + 3;
  for (FieldProgram& field : fields) {
    const int64_t in_bytes = InElements(field) * DtypeSizeBytes(field.in_dtype);
    // Samples need not be adjacent.
    field.sample_stride_bytes = in_bytes + 3 * DtypeSizeBytes(field.in_dtype);
    // A multiple of 16 bytes, as device memory.
    sources_.push_back(std::make_unique<AlignedBytes>(
        (field.sample_stride_bytes * num_resident + 15) / 16 * 16));
    FillRandom(field.in_dtype,
               field.sample_stride_bytes * num_resident /
                   DtypeSizeBytes(field.in_dtype),
               engine, sources_.back()->data);
    field.source = sources_.back()->data;
    field.offset_bytes =
        slot_bytes_ + offset_step * DtypeSizeBytes(field.out_dtype);
    const int64_t out_bytes =
        OutElements(field) * DtypeSizeBytes(field.out_dtype);
    const int64_t end = field.offset_bytes + capacity * out_bytes;
    slot_bytes_ = (end + 255) / 256 * 256;
    program_.fields[program_.num_fields++] = field;
  }
  program_.indices_offset_bytes = slot_bytes_;
  slot_bytes_ += (capacity * 8 + 255) / 256 * 256;
  for (int i = 0; i < num_samples; ++i) {
    indices_.push_back(static_cast<int64_t>(engine() % num_resident));
  }
}

BatchTask AugmentCase::NewBatch(uint64_t epoch) {
  slots_.push_back(std::make_unique<AlignedBytes>(slot_bytes_));
  std::memset(slots_.back()->data, kPoison, slot_bytes_);
  BatchTask batch = {};
  batch.slot = slots_.back()->data;
  batch.indices = indices_.data();
  batch.num_samples = static_cast<int32_t>(indices_.size());
  batch.epoch = epoch;
  return batch;
}

std::vector<uint8_t> AugmentCase::ExpectedSlot(const BatchTask& batch) const {
  std::vector<uint8_t> slot(slot_bytes_, kPoison);
  for (int i = 0; i < program_.num_fields; ++i) {
    const reference::FieldOutput output =
        reference::AugmentField(program_, i, batch);
    std::copy(output.bytes.begin(), output.bytes.end(),
              slot.begin() + program_.fields[i].offset_bytes);
  }
  std::memcpy(slot.data() + program_.indices_offset_bytes, batch.indices,
              8 * batch.num_samples);
  return slot;
}

std::vector<uint8_t> AugmentCase::Slot(const BatchTask& batch) const {
  return std::vector<uint8_t>(batch.slot, batch.slot + slot_bytes_);
}

std::vector<MemoryRange> AugmentCase::Memory() const {
  std::vector<MemoryRange> memory = {
      {indices_.data(), static_cast<int64_t>(8 * indices_.size()), false}};
  for (const auto& source : sources_) {
    memory.push_back({source->data, source->size_bytes, false});
  }
  for (const auto& slot : slots_) {
    memory.push_back({slot->data, slot->size_bytes, true});
  }
  return memory;
}

std::string AugmentCase::Difference(
    const std::vector<uint8_t>& actual,
    const std::vector<uint8_t>& expected) const {
  const auto [at, expected_at] =
      std::mismatch(actual.begin(), actual.end(), expected.begin());
  if (at == actual.end()) return "";
  const int64_t offset = at - actual.begin();
  std::string text = "byte " + std::to_string(offset) + " is " +
                     std::to_string(*at) + ", must be " +
                     std::to_string(*expected_at);
  for (int i = program_.num_fields - 1; i >= 0; --i) {
    const FieldProgram& field = program_.fields[i];
    if (offset < field.offset_bytes) continue;
    const int64_t element =
        (offset - field.offset_bytes) / DtypeSizeBytes(field.out_dtype);
    return text + "; field " + std::to_string(i) + ", row " +
           std::to_string(element / OutElements(field)) + ", element " +
           std::to_string(element % OutElements(field));
  }
  return text;
}

}  // namespace datasetd::testing
