#include "server/dataset/sample_source.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/status_macros.h"
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

absl::Status SampleSource::Read(int64_t count,
                                absl::Span<const absl::Span<uint8_t>> fields) {
  return NotOfThisKind("Read");
}

absl::Status SampleSource::Skip(int64_t count) {
  constexpr int64_t kBlockBytes = 4 << 20;
  int64_t sample_bytes = 0;
  for (const FieldSpec& field : info().fields) {
    sample_bytes = SaturatingAdd(sample_bytes, field.sample_bytes());
  }
  const int64_t block = std::clamp<int64_t>(
      kBlockBytes / std::max<int64_t>(sample_bytes, 1), 1, count);
  std::vector<std::vector<uint8_t>> memory;
  for (const FieldSpec& field : info().fields) {
    memory.emplace_back(static_cast<size_t>(block * field.sample_bytes()));
  }
  for (int64_t left = count; left > 0; left -= block) {
    const int64_t now = std::min(block, left);
    std::vector<absl::Span<uint8_t>> fields;
    for (size_t f = 0; f < memory.size(); ++f) {
      fields.push_back(absl::MakeSpan(memory[f]).subspan(
          0, static_cast<size_t>(now * info().fields[f].sample_bytes())));
    }
    DATASETD_RETURN_IF_ERROR(Read(now, fields));
  }
  return absl::OkStatus();
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
