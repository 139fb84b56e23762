// Element values: load, value ops in float32, one rounding, store.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_VALUE_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_VALUE_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// REQUIRES: the memory is not written concurrently.
template <typename T>
DATASETD_HOST_DEVICE inline T LoadAs(const uint8_t* from, int64_t index) {
#if defined(__CUDA_ARCH__)
  return __ldg(reinterpret_cast<const T*>(from) + index);
#else
  return reinterpret_cast<const T*>(from)[index];
#endif
}

template <typename T>
DATASETD_HOST_DEVICE inline void StoreAs(uint8_t* to, int64_t index, T value) {
  reinterpret_cast<T*>(to)[index] = value;
}

// True if an image's elements are copied bitwise: no value op, no change of
// dtype.
DATASETD_HOST_DEVICE inline bool IsBitCopy(const MoveProgram& field) {
  return field.num_value_ops == 0 && field.in_dtype == field.out_dtype;
}

// Applies the value ops to a value of channel `channel`.
DATASETD_HOST_DEVICE inline float ApplyValueOps(const MoveProgram& field,
                                                int channel, float x) {
  DATASETD_NO_UNROLL
  for (int i = 0; i < field.num_value_ops; ++i) {
    const ValueOp& op = field.value_ops[i];
    switch (op.kind) {
      case ValueOpKind::kDivide:
        x = x / op.divisor;
        break;
      case ValueOpKind::kNormalize:
        x = (x - op.mean[channel]) / op.std[channel];
        break;
    }
  }
  return x;
}

// The same for `count` values, op by op to keep the loops branch-free.
inline void ApplyValueOpsTo(const MoveProgram& field, int channel,
                            int64_t count, float* values) {
  for (int k = 0; k < field.num_value_ops; ++k) {
    const ValueOp& op = field.value_ops[k];
    const bool is_divide = op.kind == ValueOpKind::kDivide;
    const float mean = is_divide ? 0.0f : op.mean[channel];
    const float divisor = is_divide ? op.divisor : op.std[channel];
    for (int64_t i = 0; i < count; ++i) {
      values[i] = (values[i] - mean) / divisor;
    }
  }
}

// Loads an image element before value ops. REQUIRES: dtype is uint8 or float32.
DATASETD_HOST_DEVICE inline float LoadFloat(const uint8_t* from, Dtype dtype,
                                            int64_t index) {
  if (dtype == Dtype::kUint8) {
    return static_cast<float>(LoadAs<uint8_t>(from, index));
  }
  return LoadAs<float>(from, index);
}

// Returns the bits of `x` rounded to `dtype`, in the low bytes. REQUIRES:
// kUint8, kFloat16, kBfloat16 or kFloat32.
DATASETD_HOST_DEVICE inline uint32_t RoundedBits(float x, Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
      return FloatToUint8(x);
    case Dtype::kFloat16:
      return FloatToFloat16(x);
    case Dtype::kBfloat16:
      return FloatToBfloat16(x);
    default:
      return FloatBits(CanonicalFloat(x));
  }
}

// Returns `x` rounded to kDtype, as it is stored. REQUIRES: as RoundedBits.
template <Dtype kDtype>
inline auto Rounded(float x) {
  if constexpr (kDtype == Dtype::kUint8) {
    return FloatToUint8(x);
  } else if constexpr (kDtype == Dtype::kFloat16) {
    return FloatToFloat16(x);
  } else if constexpr (kDtype == Dtype::kBfloat16) {
    return FloatToBfloat16(x);
  } else {
    return CanonicalFloat(x);
  }
}

// Calls visit(dtype) with `dtype` as a std::integral_constant. REQUIRES: as
// RoundedBits.
template <typename Visit>
inline auto VisitImageDtype(Dtype dtype, const Visit& visit) {
  switch (dtype) {
    case Dtype::kUint8:
      return visit(std::integral_constant<Dtype, Dtype::kUint8>());
    case Dtype::kFloat16:
      return visit(std::integral_constant<Dtype, Dtype::kFloat16>());
    case Dtype::kBfloat16:
      return visit(std::integral_constant<Dtype, Dtype::kBfloat16>());
    default:
      return visit(std::integral_constant<Dtype, Dtype::kFloat32>());
  }
}

// Stores the low `size_bytes` (1, 2, 4 or 8) of `bits` at element `index`.
DATASETD_HOST_DEVICE inline void StoreBits(uint8_t* to, int size_bytes,
                                           int64_t index, uint64_t bits) {
  if (size_bytes == 1) {
    StoreAs<uint8_t>(to, index, static_cast<uint8_t>(bits));
  } else if (size_bytes == 2) {
    StoreAs<uint16_t>(to, index, static_cast<uint16_t>(bits));
  } else if (size_bytes == 4) {
    StoreAs<uint32_t>(to, index, static_cast<uint32_t>(bits));
  } else {
    StoreAs<uint64_t>(to, index, bits);
  }
}

// Returns the output bits of image element `index` of the sample at `from`.
DATASETD_HOST_DEVICE inline uint32_t ImageElementBits(const MoveProgram& field,
                                                      const uint8_t* from,
                                                      int64_t index,
                                                      int channel) {
  if (IsBitCopy(field)) {
    return field.in_dtype == Dtype::kUint8 ? LoadAs<uint8_t>(from, index)
                                           : LoadAs<uint32_t>(from, index);
  }
  return RoundedBits(
      ApplyValueOps(field, channel, LoadFloat(from, field.in_dtype, index)),
      field.out_dtype);
}

// Returns the output bits of a pixel that move `move_index` fills.
DATASETD_HOST_DEVICE inline uint32_t FillElementBits(const MoveProgram& field,
                                                     int move_index,
                                                     int channel) {
  return RoundedBits(field.moves[move_index].fill[channel], field.out_dtype);
}

// Returns the output bits of element `index` of a non-image field: copied, or
// converted by static_cast.
DATASETD_HOST_DEVICE inline uint64_t CastElementBits(const uint8_t* from,
                                                     Dtype in, Dtype out,
                                                     int64_t index) {
  if (in == out) {
    switch (DtypeSizeBytes(in)) {
      case 1:
        return LoadAs<uint8_t>(from, index);
      case 2:
        return LoadAs<uint16_t>(from, index);
      case 4:
        return LoadAs<uint32_t>(from, index);
      default:
        return LoadAs<uint64_t>(from, index);
    }
  }
  int64_t integer = 0;
  double real = 0;
  bool is_integer = true;
  switch (in) {
    case Dtype::kUint8:
      integer = LoadAs<uint8_t>(from, index);
      break;
    case Dtype::kInt8:
      integer = LoadAs<int8_t>(from, index);
      break;
    case Dtype::kInt16:
      integer = LoadAs<int16_t>(from, index);
      break;
    case Dtype::kUint16:
      integer = LoadAs<uint16_t>(from, index);
      break;
    case Dtype::kUint32:
      integer = LoadAs<uint32_t>(from, index);
      break;
    case Dtype::kInt32:
      integer = LoadAs<int32_t>(from, index);
      break;
    case Dtype::kInt64:
      integer = LoadAs<int64_t>(from, index);
      break;
    case Dtype::kFloat16:
      real = static_cast<double>(Float16ToFloat(LoadAs<uint16_t>(from, index)));
      is_integer = false;
      break;
    case Dtype::kBfloat16:
      real = static_cast<double>(
          FloatFromBits(uint32_t{LoadAs<uint16_t>(from, index)} << 16));
      is_integer = false;
      break;
    case Dtype::kFloat32:
      real = static_cast<double>(LoadAs<float>(from, index));
      is_integer = false;
      break;
    case Dtype::kFloat64:
      real = LoadAs<double>(from, index);
      is_integer = false;
      break;
  }
  if (out == Dtype::kInt64) return static_cast<uint64_t>(integer);
  if (out == Dtype::kFloat32) {
    return FloatBits(CanonicalFloat(is_integer ? static_cast<float>(integer)
                                               : static_cast<float>(real)));
  }
  return RoundedBits(is_integer ? Int64ToFloatForRounding(integer)
                                : DoubleToFloatForRounding(real),
                     out);
}

// Returns the output bits of element `index` of a row of a field with
// entry_kind. `entries` are the row's.
DATASETD_HOST_DEVICE inline uint64_t EntryElementBits(const FieldProgram& field,
                                                      const int64_t* entries,
                                                      int32_t index) {
  const int32_t place =
      field.entry_elements == 1 ? index : index / field.entry_elements;
  const int64_t entry = entries[field.first_entry + place];
  if (field.entry_kind == EntryKind::kNumber) {
    return static_cast<uint64_t>(entry);
  }
  if (entry < 0) return field.fill;
  const int64_t position = EntryPosition(entry);
  if (field.entry_kind == EntryKind::kPosition) {
    return static_cast<uint64_t>(position);
  }
  if (field.fills_starts && position == 0) return field.fill;
  return CastElementBits(
      field.source + EntryStep(entry) * field.sample_stride_bytes,
      field.in_dtype, field.out_dtype, index - place * field.entry_elements);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_VALUE_H_
