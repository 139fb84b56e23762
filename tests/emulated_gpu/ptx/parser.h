// Parses PTX source. Everything that it does not know is refused, with its
// line.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_PARSER_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_PARSER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/syntax.h"

namespace datasetd::emulated_gpu {

// `source` must outlive the result. INVALID_ARGUMENT says what is wrong, with
// the line; UNIMPLEMENTED names a directive that is not known.
absl::StatusOr<ModuleSyntax> ParsePtx(absl::string_view source);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_PARSER_H_
