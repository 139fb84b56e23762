#include "server/readers/archives/tfrecord_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/readers/archives/crc32c.h"
#include "server/readers/archives/shard_files.h"
#include "server/readers/archives/tf_features.h"
#include "server/readers/images/image_options.h"
#include "server/readers/list_memory.h"
#include "server/readers/option_values.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr int64_t kHeaderBytes = 12;  // the length and its CRC
constexpr int64_t kFooterBytes = 4;   // the CRC of the data
constexpr int64_t kMaxRecordBytes = 256 << 20;

uint64_t Number(const uint8_t* bytes, int size) {
  uint64_t value = 0;
  for (int i = size; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

bool IsHeader(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= static_cast<size_t>(kHeaderBytes) &&
         Number(bytes.data() + 8, 4) == MaskedCrc32c(bytes.first(8));
}

// True for the compressed formats of TFRecordOptions. A record's length may
// start with the same bytes, so check for a valid record first.
bool IsGzipOrZlib(absl::Span<const uint8_t> head) {
  if (head.size() < 2 || IsHeader(head)) return false;
  const bool is_gzip = head[0] == 0x1f && head[1] == 0x8b;
  const bool is_zlib =
      (head[0] & 0x8f) == 8 && (head[0] << 8 | head[1]) % 31 == 0;
  return is_gzip || is_zlib;
}

// The record without its CRC.
//   DATA_LOSS  the CRC is wrong
absl::StatusOr<absl::Span<const uint8_t>> Checked(
    absl::Span<const uint8_t> record) {
  const size_t size = record.size() - kFooterBytes;
  const absl::Span<const uint8_t> data = record.first(size);
  if (Number(record.data() + size, 4) == MaskedCrc32c(data)) return data;
  return absl::DataLossError("the record's CRC is wrong");
}

class TfrecordSource : public Reader {
 public:
  TfrecordSource(ShardFiles shards, const DecodeAccount& account)
      : shards_(std::move(shards)), list_memory_(account) {
    info_.is_encoded = true;
    info_.files = shards_.infos();
  }

  absl::Status Index();
  absl::Status MakeFields(absl::string_view option, const ImageOptions& options,
                          const DecodeAccount& account);

  const SourceInfo& info() const override { return info_; }

  absl::Status ReadRaw(int64_t index, RawSample& raw) const override {
    const Record& record = records_[static_cast<size_t>(index)];
    raw.parts.resize(1);
    raw.parts[0].resize(static_cast<size_t>(record.size_bytes));
    return shards_.ReadAt(ShardOf(index), record.offset,
                          absl::MakeSpan(raw.parts[0]));
  }

  absl::Status Probe(int64_t index, const RawSample& raw,
                     SampleProbe& probe) const override {
    probe.sizes.clear();
    probe.decode_bytes = 0;
    DATASETD_ASSIGN_OR_RETURN(const auto example, Checked(raw.parts[0]));
    return features_.Probe(example, at_least_, probe);
  }

  absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const override {
    DATASETD_ASSIGN_OR_RETURN(const auto example, Checked(raw.parts[0]));
    return features_.Decode(example, at_least_, fields);
  }

  SampleLocation Locate(int64_t index) const override {
    const Record& record = records_[static_cast<size_t>(index)];
    return {.path = info_.files[ShardOf(index)].path,
            .offset = record.offset,
            .size_bytes = record.size_bytes};
  }

  void AllowSmallerImages(ImageSize at_least) override {
    if (fast_decode_) at_least_ = at_least;
  }

 private:
  // A record's data and the CRC after it.
  struct Record {
    int64_t offset;
    int64_t size_bytes;
  };

  absl::Status IndexShard(size_t shard);
  size_t ShardOf(int64_t index) const {
    return static_cast<size_t>(std::upper_bound(first_of_shard_.begin(),
                                                first_of_shard_.end(), index) -
                               first_of_shard_.begin() - 1);
  }

  const ShardFiles shards_;
  ListMemory list_memory_;
  SourceInfo info_;
  TfFeatures features_;
  std::vector<int64_t> first_of_shard_;  // index of each shard's first sample
  std::vector<Record> records_;
  bool fast_decode_ = false;
  ImageSize at_least_;
};

absl::Status TfrecordSource::Index() {
  for (size_t shard = 0; shard < shards_.infos().size(); ++shard) {
    first_of_shard_.push_back(static_cast<int64_t>(records_.size()));
    DATASETD_RETURN_IF_ERROR(IndexShard(shard));
  }
  info_.num_samples = static_cast<int64_t>(records_.size());
  if (info_.num_samples > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      info_.files.front().path, ": zero samples: no record, decompressed"));
}

absl::Status TfrecordSource::IndexShard(size_t shard) {
  DATASETD_ASSIGN_OR_RETURN(const auto file, shards_.OpenOne(shard));
  const std::string& path = file->info().path;
  const int64_t size = file->info().size_bytes;
  for (int64_t offset = 0; offset < size;) {
    uint8_t header[kHeaderBytes] = {};
    DATASETD_RETURN_IF_ERROR(
        ReadExactly(*file, offset, absl::MakeSpan(header)));
    if (!IsHeader(header)) {
      return absl::DataLossError(absl::StrCat(
          path, ": offset ", offset, ": the CRC of a record's length is wrong",
          offset == 0 ? "; is this a file of TFRecords?" : ""));
    }
    const uint64_t length = Number(header, 8);
    const int64_t left = size - offset - kHeaderBytes - kFooterBytes;
    if (left < 0 || length > static_cast<uint64_t>(left) ||
        length > static_cast<uint64_t>(kMaxRecordBytes)) {
      return absl::DataLossError(
          absl::StrCat(path, ": offset ", offset, ": a record of ", length,
                       " bytes, found ", std::max<int64_t>(left, 0),
                       ", and at most ", kMaxRecordBytes, " are read"));
    }
    DATASETD_RETURN_IF_ERROR(list_memory_.GrowTo(
        static_cast<int64_t>((records_.size() + 1) * sizeof(Record))));
    records_.push_back(
        {offset + kHeaderBytes, static_cast<int64_t>(length) + kFooterBytes});
    offset += kHeaderBytes + static_cast<int64_t>(length) + kFooterBytes;
  }
  return absl::OkStatus();
}

absl::Status TfrecordSource::MakeFields(absl::string_view option,
                                        const ImageOptions& options,
                                        const DecodeAccount& account) {
  fast_decode_ = options.fast_decode;
  const auto make = [&]() -> absl::StatusOr<TfFeatures> {
    DecodeBudget::Share share(account.budget, account.uid);
    DATASETD_RETURN_IF_ERROR(share.Take(records_[0].size_bytes));
    RawSample raw;
    DATASETD_RETURN_IF_ERROR(ReadRaw(0, raw));
    DATASETD_ASSIGN_OR_RETURN(const auto example, Checked(raw.parts[0]));
    return TfFeatures::Make(option, example, options);
  };
  auto features = make();
  if (!features.ok()) {
    return absl::Status(features.status().code(),
                        absl::StrCat(Locate(0).path, ": the first record: ",
                                     features.status().message()));
  }
  features_ = *std::move(features);
  info_.fields = features_.specs();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenTfrecordReader(
    const SourceSpec& spec, const FileSystem& files) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  std::vector<absl::string_view> known = {"features", ShardFiles::kOptionName};
  known.insert(known.end(), std::begin(kImageOptionNames),
               std::end(kImageOptionNames));
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, known));
  DATASETD_ASSIGN_OR_RETURN(const ImageOptions options,
                            ParseImageOptions(spec));
  DATASETD_ASSIGN_OR_RETURN(
      ShardFiles shards,
      ShardFiles::Open(files, spec,
                       "a file of TFRecords, or a pattern of them as "
                       "DIR/train-{00000..00127}-of-00128",
                       IsGzipOrZlib));
  auto source =
      std::make_unique<TfrecordSource>(std::move(shards), spec.account);
  DATASETD_RETURN_IF_ERROR(source->Index());
  DATASETD_RETURN_IF_ERROR(source->MakeFields(OptionOr(spec, "features", ""),
                                              options, spec.account));
  return source;
}

}  // namespace datasetd
