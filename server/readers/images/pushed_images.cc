#include "server/readers/images/pushed_images.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/readers/first_sample.h"
#include "server/readers/images/image_codec.h"
#include "server/readers/images/image_options.h"
#include "server/readers/list_memory.h"
#include "server/readers/option_values.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

// Takes samples apart as their bytes come: finds where each of them ends.
class SampleScanner {
 public:
  // Both outlive the scanner.
  SampleScanner(const std::vector<FieldSpec>* fields,
                const std::vector<bool>* is_encoded)
      : fields_(*fields), is_encoded_(*is_encoded) {
    BeginField();
  }

  // Passes over bytes of the current sample; returns how many. At the end of it
  // is_at_end() is true.
  absl::StatusOr<size_t> Pass(absl::Span<const uint8_t> bytes) {
    is_at_end_ = false;
    size_t done = 0;
    while (done < bytes.size()) {
      if (num_prefix_bytes_ < prefix_bytes_) {
        prefix_[num_prefix_bytes_++] = bytes[done++];
        if (num_prefix_bytes_ < prefix_bytes_) continue;
        uint32_t size = 0;
        std::memcpy(&size, prefix_, sizeof(size));
        if (size > kMaxImageFileBytes) {
          return absl::InvalidArgumentError(absl::StrCat(
              "sample ", num_samples_, ", field '", fields_[field_].name,
              "': its file has ", size, " bytes, and an image may have ",
              kMaxImageFileBytes));
        }
        left_ = size;
      }
      const size_t count = static_cast<size_t>(
          std::min(left_, static_cast<int64_t>(bytes.size() - done)));
      done += count;
      left_ -= static_cast<int64_t>(count);
      if (left_ > 0) continue;
      if (EndField()) break;
    }
    return done;
  }

  bool is_at_end() const { return is_at_end_; }
  int64_t num_samples() const { return num_samples_; }

 private:
  void BeginField() {
    num_prefix_bytes_ = 0;
    prefix_bytes_ = is_encoded_[field_] ? sizeof(prefix_) : 0;
    left_ = is_encoded_[field_] ? 0 : fields_[field_].sample_bytes();
  }
  // True at the end of the sample.
  bool EndField() {
    is_at_end_ = ++field_ == fields_.size();
    if (is_at_end_) {
      field_ = 0;
      ++num_samples_;
    }
    BeginField();
    return is_at_end_;
  }

  const std::vector<FieldSpec>& fields_;
  const std::vector<bool>& is_encoded_;
  int64_t num_samples_ = 0;  // passed
  size_t field_ = 0;
  // The size of a file.
  uint8_t prefix_[sizeof(uint32_t)] = {};
  size_t num_prefix_bytes_ = 0;
  size_t prefix_bytes_ = 0;
  int64_t left_ = 0;
  bool is_at_end_ = false;
};

class PushedImages final : public SampleSource {
 public:
  PushedImages(PushedImagesOptions pushed, const ImageOptions& options,
               PushedSource::NextBlock next_block,
               std::function<bool()> is_cancelled, SpoolSpace* space)
      : info_(std::move(pushed.info)),
        is_encoded_(std::move(pushed.is_encoded)),
        account_(pushed.account),
        may_have_all_(pushed.may_have_all),
        lists_(account_),
        options_(options),
        next_block_(std::move(next_block)),
        is_cancelled_(std::move(is_cancelled)),
        space_(space) {
    info_.is_encoded = true;
    info_.is_awaited = true;
    for (FieldSpec& field : info_.fields) {
      field.is_ragged = field.is_packed();
      num_ragged_ += field.is_ragged ? 1 : 0;
      // Until the samples are here.
      if (field.is_ragged) field.shape[0] = field.shape[1] = 1;
    }
    num_encoded_ = static_cast<int>(
        std::count(is_encoded_.begin(), is_encoded_.end(), true));
  }

  const SourceInfo& info() const override { return info_; }

  absl::Status Receive() override {
    DATASETD_ASSIGN_OR_RETURN(spool_,
                              space_->Open(account_.uid, may_have_all_));
    DATASETD_RETURN_IF_ERROR(ReceiveSamples());
    if (num_ragged_ > 0) DATASETD_RETURN_IF_ERROR(FindShapes());
    info_.is_awaited = false;
    return absl::OkStatus();
  }

  absl::Status Fetch(int64_t index, RawSample& raw) const override {
    if (is_cancelled_ != nullptr && is_cancelled_()) {
      return absl::CancelledError("the push was broken off");
    }
    raw.parts.resize(1);
    raw.parts[0].resize(static_cast<size_t>(SampleBytes(index)));
    return spool_->ReadAt(Begin(index), absl::MakeSpan(raw.parts[0]));
  }

  absl::Status Probe(int64_t, const RawSample& raw,
                     SampleProbe& probe) const override {
    probe = SampleProbe();
    return ForEachField(
        raw, [&](size_t f, absl::Span<const uint8_t> bytes) -> absl::Status {
          const FieldSpec& field = info_.fields[f];
          if (!is_encoded_[f]) {
            probe.decode_bytes += field.sample_bytes();
            return absl::OkStatus();
          }
          const ImageOptions options = OptionsOf(field);
          DATASETD_ASSIGN_OR_RETURN(const ImageHeader header,
                                    ProbeImage(bytes, options, AtLeast(field)));
          if (header.channels != field.shape[2]) {
            return absl::InvalidArgumentError(absl::StrCat(
                header.channels, " channels, and the push declares ",
                field.shape[2], "; give the option channels=1, 3 or 4"));
          }
          probe.decode_bytes += header.decode_bytes;
          probe.has_unapplied_exif |= header.has_unapplied_exif;
          if (field.is_ragged) {
            probe.sizes.push_back(header.size);
          } else if (header.size.height != field.shape[0] ||
                     header.size.width != field.shape[1]) {
            return absl::InvalidArgumentError(
                absl::StrCat(header.size.height, "x", header.size.width,
                             " pixels (height x width), and the push declares ",
                             field.shape[0], "x", field.shape[1]));
          }
          return absl::OkStatus();
        });
  }

  absl::Status Decode(
      int64_t, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const override {
    return ForEachField(
        raw, [&](size_t f, absl::Span<const uint8_t> bytes) -> absl::Status {
          if (is_encoded_[f]) {
            const FieldSpec& field = info_.fields[f];
            return DecodeImage(bytes, OptionsOf(field), AtLeast(field),
                               fields[f]);
          }
          std::memcpy(fields[f].data(), bytes.data(), bytes.size());
          return absl::OkStatus();
        });
  }

  SampleLocation Locate(int64_t index) const override {
    return {.path = absl::StrCat("sample ", index),
            .size_bytes = SampleBytes(index)};
  }

  void AllowSmallerImages(ImageSize at_least) override {
    if (options_.fast_decode) at_least_ = at_least;
  }

 private:
  absl::Status ReceiveSamples() {
    SampleScanner scanner(&info_.fields, &is_encoded_);
    std::string block;
    while (true) {
      DATASETD_ASSIGN_OR_RETURN(const bool has_block, next_block_(&block));
      if (!has_block) break;
      DATASETD_RETURN_IF_ERROR(AddBlock(
          absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(block.data()),
                              block.size()),
          scanner));
    }
    if (scanner.num_samples() == info_.num_samples) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the samples ended after ", scanner.num_samples(), " of ",
                     info_.num_samples, " that the header declares"));
  }

  absl::Status AddBlock(absl::Span<const uint8_t> block,
                        SampleScanner& scanner) {
    int64_t offset = spool_->size_bytes();
    for (absl::Span<const uint8_t> rest = block; !rest.empty();) {
      if (scanner.num_samples() == info_.num_samples) {
        return absl::InvalidArgumentError(
            absl::StrCat("more was sent than the ", info_.num_samples,
                         " samples that the header declares"));
      }
      DATASETD_ASSIGN_OR_RETURN(const size_t count, scanner.Pass(rest));
      offset += static_cast<int64_t>(count);
      rest.remove_prefix(count);
      if (!scanner.is_at_end()) continue;
      // Its end here, and its sizes while they are looked for.
      const int64_t list_bytes = SaturatingMultiply(
          scanner.num_samples(),
          static_cast<int64_t>(sizeof(int64_t)) +
              num_ragged_ * static_cast<int64_t>(sizeof(ImageSize)));
      DATASETD_RETURN_IF_ERROR(lists_.GrowTo(list_bytes));
      ends_.push_back(offset);
    }
    return spool_->Append(block);
  }

  // Gives the ragged fields the sizes of the first good sample.
  absl::Status FindShapes() {
    return FindFirstGoodSample(
        *this, account_,
        [this](int64_t index, const RawSample& raw) -> absl::Status {
          SampleProbe probe;
          DATASETD_RETURN_IF_ERROR(Probe(index, raw, probe));
          auto size = probe.sizes.begin();
          for (FieldSpec& field : info_.fields) {
            if (!field.is_ragged) continue;
            field.shape[0] = size->height;
            field.shape[1] = size->width;
            ++size;
          }
          return absl::OkStatus();
        });
  }

  // Calls `visit` with each field's bytes; stops at an error, which it gives
  // the field's name if several could have it. REQUIRES: a sample that the
  // scanner passed.
  template <typename Visit>
  absl::Status ForEachField(const RawSample& raw, Visit visit) const {
    absl::Span<const uint8_t> rest = absl::MakeConstSpan(raw.parts[0]);
    for (size_t f = 0; f < info_.fields.size(); ++f) {
      uint32_t size = 0;
      if (is_encoded_[f]) {
        std::memcpy(&size, rest.data(), sizeof(size));
        rest.remove_prefix(sizeof(size));
      } else {
        size = Narrow<uint32_t>(info_.fields[f].sample_bytes());
      }
      const absl::Status status = visit(f, rest.subspan(0, size));
      if (!status.ok()) {
        if (num_encoded_ == 1) return status;
        return absl::Status(status.code(),
                            absl::StrCat("field '", info_.fields[f].name,
                                         "': ", status.message()));
      }
      rest.remove_prefix(size);
    }
    return absl::OkStatus();
  }

  ImageOptions OptionsOf(const FieldSpec& field) const {
    ImageOptions options = options_;
    if (options.channels != 0) options.channels = Narrow<int>(field.shape[2]);
    if (field.is_mask && field.shape[2] == 1) {
      options.channels = 1;
      options.keeps_classes = true;
    }
    return options;
  }
  ImageSize AtLeast(const FieldSpec& field) const {
    return field.is_ragged ? at_least_ : ImageSize();
  }
  int64_t Begin(int64_t index) const {
    return index == 0 ? 0 : ends_[static_cast<size_t>(index) - 1];
  }
  int64_t SampleBytes(int64_t index) const {
    return ends_[static_cast<size_t>(index)] - Begin(index);
  }

  SourceInfo info_;
  const std::vector<bool> is_encoded_;
  const DecodeAccount account_;
  const bool may_have_all_;
  ListMemory lists_;
  const ImageOptions options_;
  const PushedSource::NextBlock next_block_;
  const std::function<bool()> is_cancelled_;
  SpoolSpace* const space_;
  int num_ragged_ = 0;
  int num_encoded_ = 0;
  ImageSize at_least_;
  std::unique_ptr<Spool> spool_;
  std::vector<int64_t> ends_;  // of each sample in the spool
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenPushedImages(
    PushedImagesOptions options, PushedSource::NextBlock next_block,
    std::function<bool()> is_cancelled, SpoolSpace* space) {
  const v1::DatasetSpec& spec = options.spec;
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, kImageOptionNames));
  const std::string* const channels = FindOption(spec, "channels");
  if (channels != nullptr && *channels != "as_is") {
    return WrongOption("channels", *channels,
                       "as_is: else it is in the field's shape");
  }
  DATASETD_ASSIGN_OR_RETURN(const ImageOptions image, ParseImageOptions(spec));
  return std::make_unique<PushedImages>(std::move(options), image,
                                        std::move(next_block),
                                        std::move(is_cancelled), space);
}

}  // namespace datasetd
