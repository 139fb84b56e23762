#include "base/gpu_uuid.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

constexpr size_t kPrefixBytes = 4;

}  // namespace

std::string GpuUuidText(absl::string_view uuid) {
  if (uuid.size() != kGpuUuidBytes) return "";
  const std::string hex = absl::BytesToHexString(uuid);
  const absl::string_view digits = hex;
  return absl::StrCat("GPU-", digits.substr(0, 8), "-", digits.substr(8, 4),
                      "-", digits.substr(12, 4), "-", digits.substr(16, 4), "-",
                      digits.substr(20));
}

bool IsGpuUuidName(absl::string_view name) {
  return absl::StartsWith(name, "GPU-") || absl::StartsWith(name, "MIG-");
}

bool GpuUuidHasPrefix(absl::string_view uuid, absl::string_view name) {
  if (!IsGpuUuidName(name) || name.size() == kPrefixBytes) return false;
  const std::string text = GpuUuidText(uuid);
  if (text.empty()) return false;
  return absl::StartsWithIgnoreCase(
      absl::string_view(text).substr(kPrefixBytes), name.substr(kPrefixBytes));
}

}  // namespace datasetd
