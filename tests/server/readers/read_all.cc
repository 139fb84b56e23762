#include "tests/server/readers/read_all.h"

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cuda/status_macros.h"

namespace datasetd::testing {
namespace {

absl::Status CheckInfo(const SourceInfo& info) {
  if (info.num_samples <= 0) return absl::InternalError("no samples");
  if (info.fields.empty()) return absl::InternalError("no fields");
  int64_t file_bytes = 0;
  for (const FileInfo& file : info.files) file_bytes += file.size_bytes;
  std::set<std::string> names;
  double declared_bytes = 0;
  for (const FieldSpec& field : info.fields) {
    if (!names.insert(field.name).second) {
      return absl::InternalError(absl::StrCat("field twice: ", field.name));
    }
    if (field.sample_bytes() <= 0) {
      return absl::InternalError(absl::StrCat("empty field: ", field.name));
    }
    declared_bytes += static_cast<double>(info.num_samples) *
                      static_cast<double>(field.sample_bytes());
  }
  // One more for what rounding in the reader's own check lets through.
  if (declared_bytes > static_cast<double>(kMaxExpansion) *
                           static_cast<double>(file_bytes + 2)) {
    return absl::InternalError(absl::StrCat(
        declared_bytes, " bytes declared by files of ", file_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AllSamples> ReadAll(const SourceSpec& spec,
                                   const FileSystem& files, int64_t block) {
  DATASETD_ASSIGN_OR_RETURN(const auto reader, OpenReader(spec, files));
  AllSamples all;
  all.info = reader->info();
  DATASETD_RETURN_IF_ERROR(CheckInfo(all.info));
  for (const FieldSpec& field : all.info.fields) {
    all.fields.emplace_back(
        static_cast<size_t>(all.info.num_samples * field.sample_bytes()), '\0');
  }
  for (int64_t done = 0; done < all.info.num_samples;) {
    const int64_t count = std::min(block, all.info.num_samples - done);
    std::vector<absl::Span<uint8_t>> buffers;
    for (size_t i = 0; i < all.fields.size(); ++i) {
      const int64_t bytes = all.info.fields[i].sample_bytes();
      buffers.emplace_back(
          reinterpret_cast<uint8_t*>(all.fields[i].data()) + done * bytes,
          static_cast<size_t>(count * bytes));
    }
    DATASETD_RETURN_IF_ERROR(reader->Read(count, buffers));
    done += count;
  }
  return all;
}

}  // namespace datasetd::testing
