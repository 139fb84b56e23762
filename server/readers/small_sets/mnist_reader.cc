#include "server/readers/small_sets/mnist_reader.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "server/readers/input_stream.h"
#include "server/readers/read_buffers.h"
#include "server/readers/small_sets/idx_header.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr absl::string_view kMnistSplits[] = {"train", "test"};

class MnistReader : public Reader {
 public:
  MnistReader(SourceInfo info, std::unique_ptr<InputStream> images,
              std::unique_ptr<InputStream> labels)
      : info_(std::move(info)),
        images_(std::move(images)),
        labels_(std::move(labels)) {}

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, position_, count, fields));
    DATASETD_RETURN_IF_ERROR(images_->Read(fields[0]));
    DATASETD_RETURN_IF_ERROR(labels_->Read(fields[1]));
    position_ += count;
    if (position_ < info_.num_samples) return absl::OkStatus();
    DATASETD_RETURN_IF_ERROR(images_->ExpectEnd());
    return labels_->ExpectEnd();
  }

 private:
  const SourceInfo info_;
  const std::unique_ptr<InputStream> images_;
  const std::unique_ptr<InputStream> labels_;
  int64_t position_ = 0;
};

// `kind` is "images-idx3" or "labels-idx1".
absl::StatusOr<std::unique_ptr<InputStream>> OpenIdxFile(
    const v1::DatasetSpec& spec, absl::string_view prefix,
    absl::string_view kind, const FileSystem& files) {
  const std::string name = absl::StrCat(prefix, "-", kind, "-ubyte");
  std::string dotted = name;
  dotted[dotted.rfind("-idx")] = '.';
  for (const std::string& candidate :
       {name, absl::StrCat(name, ".gz"), dotted, absl::StrCat(dotted, ".gz")}) {
    auto file = files.Open(JoinPath(spec.path(), candidate));
    if (absl::IsNotFound(file.status())) continue;
    DATASETD_RETURN_IF_ERROR(file.status());
    return OpenInputStream(*std::move(file));
  }
  return absl::NotFoundError(
      absl::StrCat(spec.path(), ": holds no ", name,
                   ", plain or .gz, as seen by the daemon"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenMnistReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  DATASETD_ASSIGN_OR_RETURN(const std::string split,
                            ChooseSplit(spec, kMnistSplits));
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, {}));
  DATASETD_RETURN_IF_ERROR(CheckDirectory(context.files, spec.path(),
                                          "train-images-idx3-ubyte, ..."));
  const absl::string_view prefix = split == "train" ? "train" : "t10k";
  DATASETD_ASSIGN_OR_RETURN(
      auto images, OpenIdxFile(spec, prefix, "images-idx3", context.files));
  DATASETD_ASSIGN_OR_RETURN(
      auto labels, OpenIdxFile(spec, prefix, "labels-idx1", context.files));
  DATASETD_ASSIGN_OR_RETURN(const std::vector<int64_t> image_extents,
                            ReadIdxHeader(*images, 3));
  DATASETD_ASSIGN_OR_RETURN(const std::vector<int64_t> label_extents,
                            ReadIdxHeader(*labels, 1));
  if (image_extents[0] != label_extents[0]) {
    return absl::InvalidArgumentError(absl::StrCat(
        images->info().path, " declares ", image_extents[0], " samples, but ",
        labels->info().path, " declares ", label_extents[0]));
  }
  SourceInfo info;
  info.num_samples = image_extents[0];
  info.fields = {{.name = "image",
                  .dtype = Dtype::kUint8,
                  .shape = {image_extents[1], image_extents[2], 1},
                  .is_image = true},
                 {.name = "label", .dtype = Dtype::kUint8, .shape = {}}};
  info.files = {images->info(), labels->info()};
  return std::make_unique<MnistReader>(std::move(info), std::move(images),
                                       std::move(labels));
}

}  // namespace datasetd
