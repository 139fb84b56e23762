#include "server/files/random_access_file.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {

absl::Status ReadExactly(const RandomAccessFile& file, int64_t offset,
                         absl::Span<uint8_t> buffer) {
  DATASETD_ASSIGN_OR_RETURN(const int64_t count, file.ReadAt(offset, buffer));
  if (count == static_cast<int64_t>(buffer.size())) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(file.info().path, ": ends early: wanted ", buffer.size(),
                   " bytes at offset ", offset, ", found ", count));
}

}  // namespace datasetd
