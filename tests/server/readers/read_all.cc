#include "tests/server/readers/read_all.h"

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "server/readers/formats/formats.h"

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
  // One more for what rounding in the reader's own check lets through. What
  // codecs can expand to is bounded by the readers' limits of each sample.
  if (!info.is_encoded &&
      declared_bytes > static_cast<double>(kMaxExpansion) *
                           static_cast<double>(file_bytes + 2)) {
    return absl::InternalError(absl::StrCat(
        declared_bytes, " bytes declared by files of ", file_bytes));
  }
  return absl::OkStatus();
}

// One sample's fields.
absl::Status ReadEncoded(const SampleSource& source, int64_t index,
                         RawSample& raw, std::vector<std::string>& sample) {
  const SampleLocation location = source.Locate(index);
  if (location.path.empty() || location.offset < 0 || location.size_bytes < 0) {
    return absl::InternalError(absl::StrCat("sample ", index, " is nowhere"));
  }
  DATASETD_RETURN_IF_ERROR(source.Fetch(index, raw));
  SampleProbe probe;
  DATASETD_RETURN_IF_ERROR(source.Probe(index, raw, probe));
  sample.clear();
  std::vector<absl::Span<uint8_t>> spans;
  size_t num_ragged = 0;
  for (const FieldSpec& field : source.info().fields) {
    FieldSpec actual = field;
    if (field.is_ragged) {
      if (num_ragged == probe.sizes.size()) break;
      actual.shape[0] = probe.sizes[num_ragged].height;
      actual.shape[1] = probe.sizes[num_ragged].width;
      ++num_ragged;
    }
    sample.emplace_back(static_cast<size_t>(actual.sample_bytes()), '\0');
  }
  if (num_ragged != probe.sizes.size() ||
      sample.size() != source.info().fields.size()) {
    return absl::InternalError(absl::StrCat(
        "sample ", index, ": ", probe.sizes.size(), " sizes were probed"));
  }
  for (std::string& bytes : sample) {
    spans.emplace_back(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size());
  }
  return source.Decode(index, raw, spans);
}

// Names the file, as whoever loads a source does.
absl::Status WithPath(const absl::Status& status, const std::string& path) {
  if (status.ok() || absl::StartsWith(status.message(), path)) return status;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::Status ReadAllEncoded(const SampleSource& source, int64_t block,
                            AllSamples& all) {
  const int64_t num_samples = source.info().num_samples;
  std::vector<std::vector<std::string>> samples(
      static_cast<size_t>(num_samples));
  RawSample raw;
  block = std::min(block, num_samples);
  const int64_t blocks = (num_samples + block - 1) / block;
  // Blocks from the last to the first: any order must do.
  for (int64_t b = blocks; b-- > 0;) {
    const int64_t end = std::min(num_samples, (b + 1) * block);
    for (int64_t index = b * block; index < end; ++index) {
      DATASETD_RETURN_IF_ERROR(WithPath(
          ReadEncoded(source, index, raw, samples[static_cast<size_t>(index)]),
          source.Locate(index).path));
    }
  }
  all.fields.resize(source.info().fields.size());
  for (const std::vector<std::string>& sample : samples) {
    for (size_t f = 0; f < sample.size(); ++f) all.fields[f] += sample[f];
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadSample(SampleSource& source,
                                                    int64_t index) {
  std::vector<std::string> sample;
  if (source.info().is_encoded) {
    RawSample raw;
    DATASETD_RETURN_IF_ERROR(ReadEncoded(source, index, raw, sample));
    return sample;
  }
  std::vector<absl::Span<uint8_t>> spans;
  for (const FieldSpec& field : source.info().fields) {
    sample.emplace_back(static_cast<size_t>(field.sample_bytes()), '\0');
  }
  for (std::string& bytes : sample) {
    spans.emplace_back(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size());
  }
  DATASETD_RETURN_IF_ERROR(source.Read(index, 1, spans));
  return sample;
}

absl::StatusOr<AllSamples> ReadAll(const v1::DatasetSpec& spec,
                                   const FileSystem& files, int64_t block) {
  DATASETD_ASSIGN_OR_RETURN(const auto reader, OpenReader(spec, {files}));
  AllSamples all;
  all.info = reader->info();
  DATASETD_RETURN_IF_ERROR(CheckInfo(all.info));
  if (all.info.is_encoded) {
    DATASETD_RETURN_IF_ERROR(ReadAllEncoded(*reader, block, all));
    return all;
  }
  for (const FieldSpec& field : all.info.fields) {
    all.fields.emplace_back(
        static_cast<size_t>(all.info.num_samples * field.sample_bytes()), '\0');
  }
  block = std::min(block, all.info.num_samples);
  for (int64_t b = (all.info.num_samples + block - 1) / block; b-- > 0;) {
    const int64_t first = b * block;
    const int64_t count = std::min(block, all.info.num_samples - first);
    std::vector<absl::Span<uint8_t>> buffers;
    for (size_t i = 0; i < all.fields.size(); ++i) {
      const int64_t bytes = all.info.fields[i].sample_bytes();
      buffers.emplace_back(
          reinterpret_cast<uint8_t*>(all.fields[i].data()) + first * bytes,
          static_cast<size_t>(count * bytes));
    }
    DATASETD_RETURN_IF_ERROR(reader->Read(first, count, buffers));
  }
  return all;
}

}  // namespace datasetd::testing
