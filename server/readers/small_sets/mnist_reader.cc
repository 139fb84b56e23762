#include "server/readers/small_sets/mnist_reader.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "server/readers/read_buffers.h"
#include "server/readers/small_sets/idx_file.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr absl::string_view kMnistSplits[] = {"train", "test"};

class MnistReader : public Reader {
 public:
  MnistReader(SourceInfo info, IdxFile images, IdxFile labels)
      : info_(std::move(info)),
        images_(std::move(images)),
        labels_(std::move(labels)) {}

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, first, count, fields));
    DATASETD_RETURN_IF_ERROR(ReadExactly(
        *images_.values,
        images_.header_bytes + first * info_.fields[0].sample_bytes(),
        fields[0]));
    return ReadExactly(*labels_.values, labels_.header_bytes + first,
                       fields[1]);
  }

 private:
  const SourceInfo info_;
  const IdxFile images_;
  const IdxFile labels_;
};

// `kind` is "images-idx3" or "labels-idx1".
absl::StatusOr<std::unique_ptr<RandomAccessFile>> FindIdxFile(
    const v1::DatasetSpec& spec, absl::string_view prefix,
    absl::string_view kind, const FileSystem& files) {
  const std::string name = absl::StrCat(prefix, "-", kind, "-ubyte");
  std::string dotted = name;
  dotted[dotted.rfind("-idx")] = '.';
  for (const std::string& candidate :
       {name, absl::StrCat(name, ".gz"), dotted, absl::StrCat(dotted, ".gz")}) {
    auto file = files.Open(JoinPath(spec.path(), candidate));
    if (!absl::IsNotFound(file.status())) return file;
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
      auto images_file,
      FindIdxFile(spec, prefix, "images-idx3", context.files));
  DATASETD_ASSIGN_OR_RETURN(
      auto labels_file,
      FindIdxFile(spec, prefix, "labels-idx1", context.files));
  DATASETD_ASSIGN_OR_RETURN(IdxFile images,
                            OpenIdxFile(std::move(images_file), 3));
  DATASETD_ASSIGN_OR_RETURN(IdxFile labels,
                            OpenIdxFile(std::move(labels_file), 1));
  if (images.extents[0] != labels.extents[0]) {
    return absl::InvalidArgumentError(absl::StrCat(
        images.info.path, " declares ", images.extents[0], " samples, but ",
        labels.info.path, " declares ", labels.extents[0]));
  }
  SourceInfo info;
  info.num_samples = images.extents[0];
  info.fields = {{.name = "image",
                  .dtype = Dtype::kUint8,
                  .shape = {images.extents[1], images.extents[2], 1},
                  .is_image = true},
                 {.name = "label", .dtype = Dtype::kUint8, .shape = {}}};
  info.files = {images.info, labels.info};
  info.is_sequential = images.is_compressed || labels.is_compressed;
  return std::make_unique<MnistReader>(std::move(info), std::move(images),
                                       std::move(labels));
}

}  // namespace datasetd
