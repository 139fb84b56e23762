#include "server/dataset/sample_source.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/checked_math.h"
#include "server/dataset/ragged_index.h"

namespace datasetd {
namespace {

absl::Status NotOfThisKind(const char* call) {
  return absl::InternalError(std::string(call) +
                             " of a source that is not of this kind");
}

}  // namespace

void KeepAtMost(int64_t size_bytes, RawSample& raw) {
  if (raw.parts.empty()) return;
  const size_t share = static_cast<size_t>(size_bytes) / raw.parts.size();
  for (std::vector<uint8_t>& part : raw.parts) {
    if (part.capacity() > share) std::vector<uint8_t>().swap(part);
  }
}

int64_t RawBytes(const RawSample& raw) {
  int64_t bytes = 0;
  for (const std::vector<uint8_t>& part : raw.parts) {
    bytes += static_cast<int64_t>(part.size());
  }
  return bytes;
}

absl::Status SampleSource::Receive() { return NotOfThisKind("Receive"); }

absl::StatusOr<RaggedIndex> SampleSource::ReadIndex(size_t) {
  return absl::InternalError("the source has no packed field");
}

absl::Status SampleSource::Read(int64_t first, int64_t count,
                                absl::Span<const absl::Span<uint8_t>> fields) {
  return NotOfThisKind("Read");
}

absl::Status SampleSource::Fetch(int64_t index, RawSample& raw) const {
  return NotOfThisKind("Fetch");
}

absl::Status SampleSource::Probe(int64_t index, const RawSample& raw,
                                 SampleProbe& probe) const {
  return NotOfThisKind("Probe");
}

absl::Status SampleSource::Decode(
    int64_t index, const RawSample& raw,
    absl::Span<const absl::Span<uint8_t>> fields) const {
  return NotOfThisKind("Decode");
}

SampleLocation SampleSource::Locate(int64_t index) const {
  SampleLocation location;
  if (!info().files.empty()) location.path = info().files.front().path;
  for (const FieldSpec& field : info().fields) {
    location.size_bytes =
        SaturatingAdd(location.size_bytes, field.sample_bytes());
  }
  return location;
}

absl::Status LocatedStatus(const SampleSource& source, int64_t index,
                           const absl::Status& status) {
  const SampleLocation location = source.Locate(index);
  absl::string_view reason = status.message();
  absl::ConsumePrefix(&reason, absl::StrCat(location.path, ": "));
  const std::string offset =
      location.offset == 0 ? ""
                           : absl::StrCat("offset ", location.offset, ": ");
  return absl::Status(status.code(),
                      absl::StrCat(location.path, ": ", offset, reason));
}

}  // namespace datasetd
