#include "server/core/sample_source.h"

#include "server/core/ragged_index.h"

namespace datasetd {
namespace {

absl::Status NotOfThisKind(const char* call) {
  return absl::InternalError(
      std::string(call) + " of a source that is not of this kind");
}

}  // namespace

absl::StatusOr<RaggedIndex> SampleSource::ReadIndex(size_t) {
  return absl::InternalError("the source has no packed field");
}

absl::Status SampleSource::Read(int64_t count,
                                absl::Span<const absl::Span<uint8_t>> fields) {
  return NotOfThisKind("Read");
}

absl::Status SampleSource::ReadRaw(int64_t index, RawSample& raw) const {
  return NotOfThisKind("ReadRaw");
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

SampleLocation SampleSource::Locate(int64_t index) const { return {}; }

}  // namespace datasetd
