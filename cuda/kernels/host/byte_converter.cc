#include "cuda/kernels/host/byte_converter.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "cuda/kernels/host/byte_vector.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {
namespace {

template <typename T>
void LookUp(const uint8_t* from, int64_t count, const uint32_t* table,
            uint8_t* to) {
  T* out = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(table[from[i]]);
}

template <typename T>
void LookUpPixels(const uint8_t* from, int64_t count, int num_channels,
                  const uint32_t (*tables)[256], uint8_t* to) {
  T* out = reinterpret_cast<T*>(to);
  int channel = 0;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<T>(tables[channel][from[i]]);
    if (++channel == num_channels) channel = 0;
  }
}

Reciprocal MakeReciprocal(float divisor) {
  const double reciprocal = 1.0 / static_cast<double>(divisor);
  const float high = static_cast<float>(reciprocal);
  return {high, static_cast<float>(reciprocal - static_cast<double>(high))};
}

}  // namespace

ByteConverter::ByteConverter(const FieldProgram& field,
                             const ByteVector* vector)
    : out_dtype_(field.out_dtype),
      is_copy_(IsBitCopy(field)),
      num_channels_(field.channels) {
  MakeTables(field);
  FindFillBytes(field);
  if (vector != nullptr && out_dtype_ != Dtype::kUint8 && MakeChain(field) &&
      IsChainExact(*vector)) {
    vector_ = vector;
  }
}

void ByteConverter::MakeTables(const FieldProgram& field) {
  for (int c = 0; c < num_channels_; ++c) {
    float* values = values_[c];
    for (int i = 0; i < 256; ++i) values[i] = static_cast<float>(i);
    // Apply op by op to keep the loops branch-free.
    for (int k = 0; k < field.num_value_ops; ++k) {
      const ValueOp& op = field.value_ops[k];
      const bool is_divide = op.kind == ValueOpKind::kDivide;
      const float mean = is_divide ? 0.0f : op.mean[c];
      const float divisor = is_divide ? op.divisor : op.std[c];
      for (int i = 0; i < 256; ++i) values[i] = (values[i] - mean) / divisor;
    }
    for (int i = 0; i < 256; ++i) {
      table_[c][i] = RoundedBits(values[i], out_dtype_);
    }
  }
}

bool ByteConverter::MakeChain(const FieldProgram& field) {
  int next = 0;
  if (next < field.num_value_ops &&
      field.value_ops[next].kind == ValueOpKind::kDivide) {
    chain_.has_divide = true;
    chain_.divide = MakeReciprocal(field.value_ops[next].divisor);
    ++next;
  }
  if (next < field.num_value_ops &&
      field.value_ops[next].kind == ValueOpKind::kNormalize) {
    chain_.has_normalize = true;
    for (int c = 0; c < num_channels_; ++c) {
      chain_.mean[c] = field.value_ops[next].mean[c];
      chain_.std[c] = MakeReciprocal(field.value_ops[next].std[c]);
    }
    ++next;
  }
  return next == field.num_value_ops;
}

bool ByteConverter::IsChainExact(const ByteVector& vector) const {
  uint8_t bytes[256];
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<uint8_t>(i);
  for (int c = 0; c < num_channels_; ++c) {
    // Compare in float32, which is stricter than float16. One element off
    // alignment, so that no stores are streamed.
    alignas(64) float computed[257];
    vector.convert(bytes, 256, chain_, c, 1, Dtype::kFloat32,
                   reinterpret_cast<uint8_t*>(computed + 1));
    if (std::memcmp(computed + 1, values_[c], sizeof(values_[c])) != 0) {
      return false;
    }
    for (const float value : values_[c]) {
      if (value != value) return false;
    }
  }
  return true;
}

void ByteConverter::FindFillBytes(const FieldProgram& field) {
  for (int i = 0; i < field.num_moves; ++i) {
    if (field.moves[i].kind != MoveKind::kPad ||
        field.moves[i].padding_mode != PaddingMode::kConstant) {
      continue;
    }
    for (int c = 0; c < num_channels_; ++c) {
      const uint32_t* table = table_[c];
      const uint32_t* found =
          std::find(table, table + 256, FillElementBits(field, i, c));
      if (found == table + 256) {
        has_fill_bytes_ = false;
        return;
      }
      fill_bytes_[i][c] = static_cast<uint8_t>(found - table);
    }
  }
}

void ByteConverter::ConvertPlane(const uint8_t* from, int64_t count,
                                 int channel, uint8_t* to) const {
  if (is_copy_) {
    std::memcpy(to, from, static_cast<size_t>(count));
    return;
  }
  const int size_bytes = DtypeSizeBytes(out_dtype_);
  if (is_vectorised()) {
    const int64_t done =
        vector_->convert(from, count, chain_, channel, 1, out_dtype_, to);
    from += done;
    to += done * size_bytes;
    count -= done;
  }
  switch (size_bytes) {
    case 1:
      LookUp<uint8_t>(from, count, table_[channel], to);
      return;
    case 2:
      LookUp<uint16_t>(from, count, table_[channel], to);
      return;
    default:
      LookUp<uint32_t>(from, count, table_[channel], to);
      return;
  }
}

void ByteConverter::ConvertPixels(const uint8_t* from, int64_t count,
                                  uint8_t* to) const {
  if (is_copy_ || num_channels_ == 1) {
    ConvertPlane(from, count, 0, to);
    return;
  }
  const int size_bytes = DtypeSizeBytes(out_dtype_);
  if (is_vectorised()) {
    const int64_t done =
        vector_->convert(from, count, chain_, 0, num_channels_, out_dtype_, to);
    from += done;
    to += done * size_bytes;
    count -= done;
  }
  switch (size_bytes) {
    case 1:
      LookUpPixels<uint8_t>(from, count, num_channels_, table_, to);
      return;
    case 2:
      LookUpPixels<uint16_t>(from, count, num_channels_, table_, to);
      return;
    default:
      LookUpPixels<uint32_t>(from, count, num_channels_, table_, to);
      return;
  }
}

}  // namespace datasetd
