#include "server/feed/slab_allocation.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "cuda/backend/device_failure.h"

namespace datasetd {
namespace {

// Another export would not meet the error. In containers and on virtual GPUs
// drivers refuse an export with various errors.
bool IsOfThisExport(const absl::Status& error) {
  return !absl::IsResourceExhausted(error) && !absl::IsInvalidArgument(error) &&
         !IsDeviceFailure(error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateSlab(
    Backend& backend, size_t size_bytes, absl::Span<const ExportKind> allowed,
    absl::Span<const int> excluded, bool has_daemons_pid) {
  std::string tried;
  for (const ExportKind kind : backend.export_kinds()) {
    const bool is_allowed =
        backend.info().is_host || allowed.empty() ||
        std::find(allowed.begin(), allowed.end(), kind) != allowed.end();
    const bool is_excluded =
        std::find(excluded.begin(), excluded.end(), static_cast<int>(kind)) !=
        excluded.end();
    const bool is_own = has_daemons_pid && kind == ExportKind::kCudaIpcHandle;
    absl::StrAppend(&tried, tried.empty() ? "" : ", ", ExportKindName(kind),
                    !is_allowed   ? " (not allowed by 'slab_export')"
                    : is_excluded ? " (failed in the client)"
                    : is_own      ? " (daemon and client have the same process "
                                    "number, in different PID namespaces)"
                                  : "");
    if (!is_allowed || is_excluded || is_own) continue;
    auto slab = backend.AllocateExported(size_bytes, kind);
    if (slab.ok() || !IsOfThisExport(slab.status())) return slab;
    absl::StrAppend(&tried, " (", slab.status().message(), ")");
  }
  return absl::UnimplementedError(absl::StrCat(
      "no way is left to share memory of ", backend.info().name,
      " with this client: ", tried,
      "; run `datasetctl doctor`, and see 'Containers' in the README"));
}

}  // namespace datasetd
