// The fundamental types of PTX (PTX ISA, "Fundamental Types").

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_TYPE_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_TYPE_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"

namespace datasetd::emulated_gpu {

inline int64_t AlignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

enum class Type {
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBf16,
  kF16x2,
  kBf16x2,
  kF32,
  kF64,
};

// "u32", without the dot.
inline std::optional<Type> ParseType(absl::string_view name) {
  constexpr std::pair<absl::string_view, Type> kTypes[] = {
      {"pred", Type::kPred},   {"b8", Type::kB8},         {"b16", Type::kB16},
      {"b32", Type::kB32},     {"b64", Type::kB64},       {"u8", Type::kU8},
      {"u16", Type::kU16},     {"u32", Type::kU32},       {"u64", Type::kU64},
      {"s8", Type::kS8},       {"s16", Type::kS16},       {"s32", Type::kS32},
      {"s64", Type::kS64},     {"f16", Type::kF16},       {"bf16", Type::kBf16},
      {"f16x2", Type::kF16x2}, {"bf16x2", Type::kBf16x2}, {"f32", Type::kF32},
      {"f64", Type::kF64}};
  for (const auto& [text, type] : kTypes) {
    if (text == name) return type;
  }
  return std::nullopt;
}

// 0: a predicate.
constexpr int SizeBytes(Type type) {
  switch (type) {
    case Type::kPred:
      return 0;
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
      return 2;
    case Type::kB32:
    case Type::kU32:
    case Type::kS32:
    case Type::kF16x2:
    case Type::kBf16x2:
    case Type::kF32:
      return 4;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
  }
  return 0;
}

constexpr bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 ||
         type == Type::kS64;
}

constexpr bool IsFloat(Type type) {
  return type >= Type::kF16 && type <= Type::kF64;
}

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_TYPE_H_
