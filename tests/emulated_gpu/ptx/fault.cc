#include "tests/emulated_gpu/ptx/fault.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace datasetd::emulated_gpu {

absl::string_view FaultKindName(FaultKind kind) {
  switch (kind) {
    case FaultKind::kInvalidAddress:
      return "invalid address";
    case FaultKind::kMisalignedAddress:
      return "misaligned address";
    case FaultKind::kUninitialised:
      return "uninitialised read";
    case FaultKind::kRace:
      return "race";
    case FaultKind::kReadOnlyWritten:
      return "read-only load of written memory";
    case FaultKind::kDivergentBarrier:
      return "divergent barrier";
    case FaultKind::kDivisionByZero:
      return "division by zero";
    case FaultKind::kInstructionBudget:
      return "instruction budget";
    case FaultKind::kStackOverflow:
      return "stack overflow";
    case FaultKind::kTrap:
      return "trap";
  }
  return "fault";
}

std::string Fault::ToString() const {
  std::string text = absl::StrCat(FaultKindName(kind), ": ", message);
  absl::StrAppend(&text, "\n    at ", function, ", PTX line ", ptx_line);
  for (const SourceLine& line : source) {
    absl::StrAppend(&text, "\n    at ", line.file, ":", line.line);
    if (!line.function.empty()) absl::StrAppend(&text, " in ", line.function);
  }
  absl::StrAppendFormat(
      &text, "\n    by thread (%u,%u,%u) in block (%u,%u,%u) of %s", thread.x,
      thread.y, thread.z, block.x, block.y, block.z, kernel);
  if (address != 0) absl::StrAppendFormat(&text, "\n    address %#x", address);
  return text;
}

}  // namespace datasetd::emulated_gpu
