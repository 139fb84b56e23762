#include "base/gpu_uuid.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

constexpr size_t kPrefixBytes = 4;

}  // namespace

std::string GpuUuidText(absl::string_view uuid, bool is_mig) {
  if (uuid.size() != kGpuUuidBytes) return "";
  const std::string hex = absl::BytesToHexString(uuid);
  const absl::string_view digits = hex;
  return absl::StrCat(is_mig ? "MIG-" : "GPU-", digits.substr(0, 8), "-",
                      digits.substr(8, 4), "-", digits.substr(12, 4), "-",
                      digits.substr(16, 4), "-", digits.substr(20));
}

bool IsGpuUuidName(absl::string_view name) {
  return absl::StartsWith(name, "GPU-") || absl::StartsWith(name, "MIG-");
}

bool GpuUuidHasPrefix(absl::string_view text, absl::string_view name) {
  return !text.empty() && IsGpuUuidName(name) && name.size() > kPrefixBytes &&
         absl::StartsWithIgnoreCase(text.substr(kPrefixBytes),
                                    name.substr(kPrefixBytes));
}

}  // namespace datasetd
