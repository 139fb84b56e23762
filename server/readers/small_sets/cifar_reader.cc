#include "server/readers/small_sets/cifar_reader.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "server/readers/class_names.h"
#include "server/readers/interleave_planes.h"
#include "server/readers/read_buffers.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr int kExtent = 32;
constexpr int kPlaneBytes = kExtent * kExtent;
constexpr int kImageBytes = 3 * kPlaneBytes;
constexpr int64_t kRecordsPerRead = 256;
constexpr absl::string_view kCifarSplits[] = {"train", "test"};

// A label field: one byte of the record, at `offset`.
struct LabelByte {
  const char* field;
  int offset;
  int num_classes;
};

// The differences between the two sets. The image follows the labels.
struct CifarFormat {
  const char* subdirectory;
  std::vector<const char*> train_files;
  std::vector<const char*> test_files;
  const char* python_file;  // identifies the Python version
  const char* class_names_file;
  std::vector<LabelByte> labels;  // in field order; the first has class names

  int record_bytes() const {
    return static_cast<int>(labels.size()) + kImageBytes;
  }
};

CifarFormat Cifar10Format() {
  return {
      .subdirectory = "cifar-10-batches-bin",
      .train_files = {"data_batch_1.bin", "data_batch_2.bin",
                      "data_batch_3.bin", "data_batch_4.bin",
                      "data_batch_5.bin"},
      .test_files = {"test_batch.bin"},
      .python_file = "data_batch_1",
      .class_names_file = "batches.meta.txt",
      .labels = {{"label", 0, 10}},
  };
}

CifarFormat Cifar100Format() {
  return {
      .subdirectory = "cifar-100-binary",
      .train_files = {"train.bin"},
      .test_files = {"test.bin"},
      .python_file = "train",
      .class_names_file = "fine_label_names.txt",
      .labels = {{"label", 1, 100}, {"coarse_label", 0, 20}},
  };
}

class CifarReader : public Reader {
 public:
  CifarReader(CifarFormat format, SourceInfo info,
              std::vector<std::unique_ptr<RandomAccessFile>> files)
      : format_(std::move(format)),
        info_(std::move(info)),
        files_(std::move(files)) {}

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, first, count, fields));
    std::vector<uint8_t> buffer(static_cast<size_t>(
        std::min(count, kRecordsPerRead) * format_.record_bytes()));
    int64_t file_begin = 0;
    int64_t done = 0;
    for (const auto& file : files_) {
      const int64_t file_end =
          file_begin + file->info().size_bytes / format_.record_bytes();
      while (done < count && first + done < file_end) {
        const int64_t block =
            std::min({count - done, file_end - first - done, kRecordsPerRead});
        DATASETD_RETURN_IF_ERROR(ReadBlock(*file, first + done - file_begin,
                                           block, done, fields, buffer));
        done += block;
      }
      file_begin = file_end;
    }
    return absl::OkStatus();
  }

 private:
  // Reads `count` records of one file to rows starting at `row`.
  absl::Status ReadBlock(const RandomAccessFile& file, int64_t first,
                         int64_t count, int64_t row,
                         absl::Span<const absl::Span<uint8_t>> fields,
                         std::vector<uint8_t>& buffer) const {
    const int64_t record_bytes = format_.record_bytes();
    DATASETD_RETURN_IF_ERROR(
        ReadExactly(file, first * record_bytes,
                    absl::MakeSpan(buffer).subspan(
                        0, static_cast<size_t>(count * record_bytes))));
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* record = buffer.data() + i * record_bytes;
      for (size_t j = 0; j < format_.labels.size(); ++j) {
        const LabelByte& label = format_.labels[j];
        const int value = record[label.offset];
        if (value >= label.num_classes) {
          return absl::InvalidArgumentError(absl::StrCat(
              file.info().path, ": record ", first + i, ": ", label.field,
              " is ", value, ", expected 0 to ", label.num_classes - 1));
        }
        fields[1 + j][row + i] = static_cast<uint8_t>(value);
      }
      InterleavePlanes(record + format_.labels.size(), kPlaneBytes,
                       fields[0].data() + (row + i) * kImageBytes);
    }
    return absl::OkStatus();
  }

  const CifarFormat format_;
  const SourceInfo info_;
  const std::vector<std::unique_ptr<RandomAccessFile>> files_;
};

absl::StatusOr<std::string> FindDirectory(const v1::DatasetSpec& spec,
                                          const CifarFormat& format,
                                          const FileSystem& files) {
  DATASETD_RETURN_IF_ERROR(CheckDirectory(
      files, spec.path(), absl::StrCat(format.train_files.front(), ", ...")));
  const std::string below = JoinPath(spec.path(), format.subdirectory);
  const auto info = files.Stat(below);
  if (info.ok() && info->is_directory) return below;
  if (info.ok() || absl::IsNotFound(info.status())) return spec.path();
  return info.status();
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBatch(
    const std::string& directory, const char* name, const v1::DatasetSpec& spec,
    const CifarFormat& format, const FileSystem& files) {
  auto file = files.Open(JoinPath(directory, name));
  if (absl::IsNotFound(file.status()) &&
      files.Stat(JoinPath(directory, format.python_file)).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": holds the Python version (",
                     format.python_file, "), expected the binary version (",
                     name, ") for format ", spec.format()));
  }
  return file;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenCifarReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  CifarFormat format =
      spec.format() == "cifar10" ? Cifar10Format() : Cifar100Format();
  DATASETD_ASSIGN_OR_RETURN(const std::string split,
                            ChooseSplit(spec, kCifarSplits));
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, {}));
  DATASETD_ASSIGN_OR_RETURN(const std::string directory,
                            FindDirectory(spec, format, context.files));

  SourceInfo info;
  std::vector<std::unique_ptr<RandomAccessFile>> opened;
  const int64_t record_bytes = format.record_bytes();
  for (const char* name :
       split == "train" ? format.train_files : format.test_files) {
    DATASETD_ASSIGN_OR_RETURN(
        auto file, OpenBatch(directory, name, spec, format, context.files));
    const FileInfo& file_info = file->info();
    if (file_info.size_bytes == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_info.path, ": empty: zero samples, expected ",
                       record_bytes, " bytes for each"));
    }
    if (file_info.size_bytes % record_bytes != 0) {
      return absl::DataLossError(absl::StrCat(
          file_info.path, ": ", file_info.size_bytes,
          " bytes, expected a multiple of a record's ", record_bytes,
          "; the last record begins at offset ",
          file_info.size_bytes / record_bytes * record_bytes,
          " and is cut off, or this is not format ", spec.format()));
    }
    info.num_samples += file_info.size_bytes / record_bytes;
    info.files.push_back(file_info);
    opened.push_back(std::move(file));
  }
  DATASETD_ASSIGN_OR_RETURN(
      ClassNames class_names,
      ReadClassNames(context.files,
                     JoinPath(directory, format.class_names_file),
                     format.labels.front().num_classes));
  if (!class_names.names.empty()) {
    info.files.push_back(class_names.file);
    info.class_names = std::move(class_names.names);
  }
  info.fields.push_back({.name = "image",
                         .dtype = Dtype::kUint8,
                         .shape = {kExtent, kExtent, 3},
                         .is_image = true});
  for (const LabelByte& label : format.labels) {
    info.fields.push_back(
        {.name = label.field, .dtype = Dtype::kUint8, .shape = {}});
  }
  return std::make_unique<CifarReader>(std::move(format), std::move(info),
                                       std::move(opened));
}

}  // namespace datasetd
