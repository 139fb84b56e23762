#include "server/readers/images/image_list.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/files/reopened_file.h"
#include "server/readers/first_sample.h"
#include "server/readers/images/encoded_field.h"
#include "server/readers/images/image_codec.h"

namespace datasetd {
namespace {

constexpr absl::string_view kExtensions[] = {
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

class ImageListSource : public Reader {
 public:
  ImageListSource(ImageList list, const FileSystem& files)
      : memory_(std::move(list.memory)),
        num_other_files_(list.other_files.size()),
        labels_(std::move(list.labels)),
        targets_(std::move(list.targets)),
        files_(files) {
    info_.num_samples = static_cast<int64_t>(list.images.size());
    info_.class_names = std::move(list.class_names);
    info_.notes = std::move(list.notes);
    info_.is_unlike_sibling = list.is_unlike_sibling;
    info_.is_encoded = true;
    info_.files = std::move(list.images);
    for (FileInfo& image : info_.files) image.is_checked_when_read = true;
    info_.files.insert(info_.files.begin(),
                       std::make_move_iterator(list.other_files.begin()),
                       std::make_move_iterator(list.other_files.end()));
  }

  // Gives the fields their shapes, and `as_is` its number of channels.
  absl::Status FindShape(const ImageOptions& options,
                         const DecodeAccount& account) {
    return FindFirstGoodSample(
        *this, account, [&](int64_t, const RawSample& raw) -> absl::Status {
          DATASETD_ASSIGN_OR_RETURN(
              image_, EncodedField::Make("image", EncodedField::Kind::kImage,
                                         raw.parts[0], options));
          info_.fields = {image_.spec()};
          if (!labels_.empty() || !targets_.empty()) {
            info_.fields.push_back(
                {.name = "label",
                 .dtype = targets_.empty() ? Dtype::kInt64 : Dtype::kFloat32,
                 .shape = {}});
          }
          return absl::OkStatus();
        });
  }

  const SourceInfo& info() const override { return info_; }

  absl::Status Fetch(int64_t index, RawSample& raw) const override {
    const auto opened = OpenUnchanged(files_, FileOf(index));
    // A bad sample, which need not end the load.
    if (absl::IsFailedPrecondition(opened.status())) {
      return absl::DataLossError(opened.status().message());
    }
    DATASETD_RETURN_IF_ERROR(opened.status());
    const RandomAccessFile* const file = opened->get();
    const int64_t size = file->info().size_bytes;
    if (size > kMaxImageFileBytes) {
      return InBytes(absl::InvalidArgumentError(absl::StrCat(
          size, " bytes, and an image may have ", kMaxImageFileBytes)));
    }
    raw.parts.resize(1);
    raw.parts[0].resize(static_cast<size_t>(size));
    return ReadExactly(*file, 0, absl::MakeSpan(raw.parts[0]));
  }

  absl::Status Probe(int64_t index, const RawSample& raw,
                     SampleProbe& probe) const override {
    probe = SampleProbe();
    return image_.Probe(raw.parts[0], at_least_, probe);
  }

  absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const override {
    DATASETD_RETURN_IF_ERROR(image_.Decode(raw.parts[0], at_least_, fields[0]));
    const auto sample = static_cast<size_t>(index);
    if (!labels_.empty()) {
      std::memcpy(fields[1].data(), &labels_[sample], sizeof(int64_t));
    } else if (!targets_.empty()) {
      std::memcpy(fields[1].data(), &targets_[sample], sizeof(float));
    }
    return absl::OkStatus();
  }

  SampleLocation Locate(int64_t index) const override {
    const FileInfo& file = FileOf(index);
    return {.path = file.path, .size_bytes = file.size_bytes};
  }

  void AllowSmallerImages(ImageSize at_least) override { at_least_ = at_least; }

  bool KeepClasses(size_t field, bool is_certain) override {
    if (field != 0) return false;
    image_.KeepClasses(is_certain);
    info_.fields[0] = image_.spec();
    return image_.spec().is_mask;
  }

 private:
  const FileInfo& FileOf(int64_t index) const {
    return info_.files[num_other_files_ + static_cast<size_t>(index)];
  }

  const std::unique_ptr<ListMemory> memory_;
  const size_t num_other_files_;
  const std::vector<int64_t> labels_;
  const std::vector<float> targets_;
  const FileSystem& files_;
  SourceInfo info_;
  EncodedField image_;
  ImageSize at_least_;
};

}  // namespace

bool HasImageExtension(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [&](absl::string_view extension) {
                       return absl::EndsWith(lower, extension);
                     });
}

absl::StatusOr<std::unique_ptr<Reader>> OpenImageList(
    ImageList list, const ImageOptions& options, const FileSystem& files,
    const DecodeAccount& account) {
  if (list.images.empty()) {
    return absl::InvalidArgumentError("zero samples: the list is empty");
  }
  auto source = std::make_unique<ImageListSource>(std::move(list), files);
  DATASETD_RETURN_IF_ERROR(source->FindShape(options, account));
  return source;
}

}  // namespace datasetd
