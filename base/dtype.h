// Element types, with the same values on host, device and wire.

#ifndef DATASETD_BASE_DTYPE_H_
#define DATASETD_BASE_DTYPE_H_

#include <cstdint>

namespace datasetd {

// The values are those of datasetd.v1.Dtype.
enum class Dtype : uint8_t {
  kUint8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kBfloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kInt8 = 9,
  kUint16 = 10,
  kUint32 = 11,
};
inline constexpr Dtype kLastDtype = Dtype::kUint32;

constexpr int DtypeSizeBytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kInt8:
      return 1;
    case Dtype::kInt16:
    case Dtype::kUint16:
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      return 2;
    case Dtype::kInt32:
    case Dtype::kUint32:
    case Dtype::kFloat32:
      return 4;
    case Dtype::kInt64:
    case Dtype::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool IsFloatingPoint(Dtype dtype) {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 ||
         dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64;
}

// Returns the name used by NumPy, torch and the configuration: "uint8",
// "float16", ...
constexpr const char* DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
      return "uint8";
    case Dtype::kInt16:
      return "int16";
    case Dtype::kInt32:
      return "int32";
    case Dtype::kInt64:
      return "int64";
    case Dtype::kFloat16:
      return "float16";
    case Dtype::kBfloat16:
      return "bfloat16";
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kFloat64:
      return "float64";
    case Dtype::kInt8:
      return "int8";
    case Dtype::kUint16:
      return "uint16";
    case Dtype::kUint32:
      return "uint32";
  }
  return "?";
}

}  // namespace datasetd

#endif  // DATASETD_BASE_DTYPE_H_
