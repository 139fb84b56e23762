#include "server/readers/read_buffers.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace datasetd {

absl::Status CheckReadBuffers(const SourceInfo& info, int64_t first,
                              int64_t count,
                              absl::Span<const absl::Span<uint8_t>> fields) {
  if (first < 0 || count < 0 || count > info.num_samples - first) {
    return absl::InternalError(absl::StrCat("Read of ", count, " samples at ",
                                            first, ", of ", info.num_samples));
  }
  if (fields.size() != info.fields.size()) {
    return absl::InternalError(absl::StrCat(
        "Read into ", fields.size(), " fields, expected ", info.fields.size()));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const int64_t expected = count * info.fields[i].sample_bytes();
    if (static_cast<int64_t>(fields[i].size()) != expected) {
      return absl::InternalError(
          absl::StrCat("Read of field ", info.fields[i].name, " into ",
                       fields[i].size(), " bytes, expected ", expected));
    }
  }
  return absl::OkStatus();
}

}  // namespace datasetd
