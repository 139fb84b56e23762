#include "cuda/backend/backend.h"

namespace datasetd {

const char* ExportKindName(ExportKind kind) {
  switch (kind) {
    case ExportKind::kMemfd:
      return "memfd";
    case ExportKind::kCudaIpcHandle:
      return "cuda_ipc_handle";
    case ExportKind::kCudaVmmFd:
      return "cuda_vmm_fd";
  }
  return "?";
}

}  // namespace datasetd
