#include "server/readers/small_sets/cifar_python_reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "server/readers/interleave_planes.h"
#include "server/readers/read_buffers.h"
#include "server/readers/small_sets/pickle_data.h"
#include "server/readers/source_file.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

using Kind = PickleValue::Kind;

constexpr int64_t kPlaneBytes = 32 * 32;
constexpr int64_t kImageBytes = 3 * kPlaneBytes;
constexpr int64_t kImagesPerRead = 256;
constexpr absl::string_view kSplits[] = {"train", "test"};

struct LabelKey {
  const char* field;
  const char* key;        // in a batch
  const char* names_key;  // in the file of names
  int num_classes;
};

struct CifarPythonFormat {
  const char* subdirectory;
  std::vector<const char*> train_files;
  std::vector<const char*> test_files;
  const char* names_file;
  std::vector<LabelKey> labels;  // in field order; the first has class names
};

CifarPythonFormat Cifar10Format() {
  return {.subdirectory = "cifar-10-batches-py",
          .train_files = {"data_batch_1", "data_batch_2", "data_batch_3",
                          "data_batch_4", "data_batch_5"},
          .test_files = {"test_batch"},
          .names_file = "batches.meta",
          .labels = {{"label", "labels", "label_names", 10}}};
}

CifarPythonFormat Cifar100Format() {
  return {
      .subdirectory = "cifar-100-python",
      .train_files = {"train"},
      .test_files = {"test"},
      .names_file = "meta",
      .labels = {{"label", "fine_labels", "fine_label_names", 100},
                 {"coarse_label", "coarse_labels", "coarse_label_names", 20}}};
}

// One pickle whose root is a dict.
class Batch {
 public:
  static absl::StatusOr<Batch> Open(const FileSystem& files,
                                    const std::string& path) {
    Batch batch;
    DATASETD_ASSIGN_OR_RETURN(batch.file_,
                              OpenSourceFile(files, path, "a pickle of CIFAR"));
    DATASETD_ASSIGN_OR_RETURN(batch.pickle_, ReadPickle(*batch.file_));
    if (batch.pickle_.at(batch.pickle_.root).kind == Kind::kDict) return batch;
    return batch.Error("expected a dict");
  }

  // Finds the value of a key.
  absl::StatusOr<const PickleValue*> Find(absl::string_view key) const {
    const std::vector<int32_t>& items = pickle_.at(pickle_.root).items;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      DATASETD_ASSIGN_OR_RETURN(const std::string name,
                                Text(pickle_.at(items[i])));
      if (name == key) return &pickle_.at(items[i + 1]);
    }
    return Error(absl::StrCat("the dict has no '", key, "'"));
  }

  absl::StatusOr<std::string> Text(const PickleValue& value) const {
    return PickleText(*file_, value);
  }

  // The offset of the uint8 array `data`, [num_samples, 3072].
  absl::StatusOr<int64_t> DataOffset(int64_t* num_samples) const;

  absl::StatusOr<std::vector<uint8_t>> Labels(const LabelKey& key,
                                              int64_t num_samples) const;
  absl::StatusOr<std::vector<std::string>> Names(const LabelKey& key) const;

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_->info().path, ": ", what));
  }
  std::unique_ptr<RandomAccessFile> TakeFile() { return std::move(file_); }
  const FileInfo& info() const { return file_->info(); }

 private:
  // True if a value is numpy's `name` in a module with this suffix.
  absl::StatusOr<bool> IsGlobal(int32_t index, absl::string_view module_end,
                                absl::string_view name) const {
    const PickleValue& value = pickle_.at(index);
    if (value.kind != Kind::kGlobal) return false;
    DATASETD_ASSIGN_OR_RETURN(const std::string module_text,
                              Text(pickle_.at(value.items[0])));
    DATASETD_ASSIGN_OR_RETURN(const std::string name_text,
                              Text(pickle_.at(value.items[1])));
    return absl::StartsWith(module_text, "numpy") &&
           absl::EndsWith(module_text, module_end) && name_text == name;
  }
  absl::StatusOr<bool> IsUint8(const PickleValue& dtype) const {
    if (dtype.kind != Kind::kObject) return false;
    DATASETD_ASSIGN_OR_RETURN(const bool is_dtype,
                              IsGlobal(dtype.items[0], "", "dtype"));
    const PickleValue& arguments = pickle_.at(dtype.items[1]);
    if (!is_dtype || arguments.kind != Kind::kList || arguments.items.empty()) {
      return false;
    }
    DATASETD_ASSIGN_OR_RETURN(const std::string name,
                              Text(pickle_.at(arguments.items[0])));
    return name == "u1" || name == "|u1";
  }

  std::unique_ptr<RandomAccessFile> file_;
  PickleData pickle_;
};

absl::StatusOr<int64_t> Batch::DataOffset(int64_t* num_samples) const {
  DATASETD_ASSIGN_OR_RETURN(const PickleValue* const data, Find("data"));
  const auto wrong = [this](absl::string_view why) {
    return Error(absl::StrCat(
        "'data' is not a uint8 array of [N, 3072] in C order: ", why));
  };
  if (data->kind != Kind::kObject || data->items.size() != 3) {
    return wrong("it is no array");
  }
  DATASETD_ASSIGN_OR_RETURN(
      const bool is_array,
      IsGlobal(data->items[0], "multiarray", "_reconstruct"));
  if (!is_array) return wrong("it is no array");
  const PickleValue& state = pickle_.at(data->items[2]);
  if (state.kind != Kind::kList || state.items.size() != 5) {
    return wrong("its state is not numpy's");
  }
  const PickleValue& shape = pickle_.at(state.items[1]);
  const PickleValue& order = pickle_.at(state.items[3]);
  const PickleValue& bytes = pickle_.at(state.items[4]);
  if (shape.kind != Kind::kList || shape.items.size() != 2 ||
      pickle_.at(shape.items[0]).kind != Kind::kInt ||
      pickle_.at(shape.items[1]).kind != Kind::kInt ||
      pickle_.at(shape.items[1]).number != kImageBytes) {
    return wrong("its shape");
  }
  DATASETD_ASSIGN_OR_RETURN(const bool is_uint8,
                            IsUint8(pickle_.at(state.items[2])));
  if (!is_uint8) return wrong("its dtype");
  if (order.number != 0) return wrong("it is in Fortran order");
  *num_samples = pickle_.at(shape.items[0]).number;
  if (bytes.kind != Kind::kText || *num_samples < 1 ||
      bytes.size_bytes % kImageBytes != 0 ||
      bytes.size_bytes / kImageBytes != *num_samples) {
    return wrong(
        absl::StrCat(*num_samples, " samples in ", bytes.size_bytes, " bytes"));
  }
  return bytes.number;
}

absl::StatusOr<std::vector<uint8_t>> Batch::Labels(const LabelKey& key,
                                                   int64_t num_samples) const {
  DATASETD_ASSIGN_OR_RETURN(const PickleValue* const list, Find(key.key));
  if (list->kind != Kind::kList ||
      static_cast<int64_t>(list->items.size()) != num_samples) {
    return Error(absl::StrCat("'", key.key, "' is not a list of ", num_samples,
                              " labels"));
  }
  std::vector<uint8_t> labels;
  for (const int32_t item : list->items) {
    const PickleValue& label = pickle_.at(item);
    if (label.kind != Kind::kInt || label.number < 0 ||
        label.number >= key.num_classes) {
      return Error(absl::StrCat("'", key.key, "' of sample ", labels.size(),
                                " is not 0 to ", key.num_classes - 1));
    }
    labels.push_back(static_cast<uint8_t>(label.number));
  }
  return labels;
}

absl::StatusOr<std::vector<std::string>> Batch::Names(
    const LabelKey& key) const {
  DATASETD_ASSIGN_OR_RETURN(const PickleValue* const list, Find(key.names_key));
  std::vector<std::string> names;
  if (list->kind == Kind::kList &&
      static_cast<int>(list->items.size()) == key.num_classes) {
    for (const int32_t item : list->items) {
      DATASETD_ASSIGN_OR_RETURN(std::string name, Text(pickle_.at(item)));
      if (name.empty() || !std::all_of(name.begin(), name.end(), [](char c) {
            return absl::ascii_isprint(static_cast<unsigned char>(c));
          })) {
        break;
      }
      names.push_back(std::move(name));
    }
  }
  if (static_cast<int>(names.size()) == key.num_classes) return names;
  return Error(absl::StrCat("'", key.names_key, "' is not a list of ",
                            key.num_classes, " names in printable ASCII"));
}

// The samples of one file.
struct Part {
  std::unique_ptr<RandomAccessFile> file;
  int64_t num_samples = 0;
  int64_t data_offset = 0;
  std::vector<std::vector<uint8_t>> labels;  // by field
};

class CifarPythonReader : public Reader {
 public:
  CifarPythonReader(SourceInfo info, std::vector<Part> parts)
      : info_(std::move(info)), parts_(std::move(parts)) {}

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, position_, count, fields));
    for (int64_t done = 0; done < count;) {
      const Part& part = parts_[part_index_];
      const int64_t left = part.num_samples - row_;
      if (left == 0) {
        ++part_index_;
        row_ = 0;
        continue;
      }
      const int64_t block = std::min({count - done, left, kImagesPerRead});
      DATASETD_RETURN_IF_ERROR(ReadBlock(part, block, done, fields));
      done += block;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadBlock(const Part& part, int64_t count, int64_t to,
                         absl::Span<const absl::Span<uint8_t>> fields) {
    buffer_.resize(static_cast<size_t>(count * kImageBytes));
    DATASETD_RETURN_IF_ERROR(ReadExactly(*part.file,
                                         part.data_offset + row_ * kImageBytes,
                                         absl::MakeSpan(buffer_)));
    for (int64_t i = 0; i < count; ++i) {
      InterleavePlanes(buffer_.data() + i * kImageBytes, kPlaneBytes,
                       fields[0].data() + (to + i) * kImageBytes);
    }
    for (size_t j = 0; j < part.labels.size(); ++j) {
      std::copy_n(part.labels[j].begin() + row_, count,
                  fields[1 + j].begin() + to);
    }
    row_ += count;
    position_ += count;
    return absl::OkStatus();
  }

  const SourceInfo info_;
  const std::vector<Part> parts_;
  std::vector<uint8_t> buffer_;
  int64_t position_ = 0;
  size_t part_index_ = 0;
  int64_t row_ = 0;  // index in the current part
};

absl::StatusOr<std::string> FindDirectory(const SourceSpec& spec,
                                          const CifarPythonFormat& format,
                                          const FileSystem& files) {
  DATASETD_RETURN_IF_ERROR(CheckDirectory(
      files, spec.path, absl::StrCat(format.train_files.front(), ", ...")));
  const std::string below = JoinPath(spec.path, format.subdirectory);
  const auto info = files.Stat(below);
  if (info.ok() && info->is_directory) return below;
  if (info.ok() || absl::IsNotFound(info.status())) return spec.path;
  return info.status();
}

absl::StatusOr<std::unique_ptr<Reader>> OpenCifarPythonReader(
    const SourceSpec& spec, const CifarPythonFormat& format,
    const FileSystem& files) {
  DATASETD_ASSIGN_OR_RETURN(const std::string split,
                            ChooseSplit(spec, kSplits));
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, {}));
  DATASETD_ASSIGN_OR_RETURN(const std::string directory,
                            FindDirectory(spec, format, files));
  SourceInfo info;
  std::vector<Part> parts;
  for (const char* name :
       split == "train" ? format.train_files : format.test_files) {
    DATASETD_ASSIGN_OR_RETURN(Batch batch,
                              Batch::Open(files, JoinPath(directory, name)));
    Part part;
    DATASETD_ASSIGN_OR_RETURN(part.data_offset,
                              batch.DataOffset(&part.num_samples));
    for (const LabelKey& key : format.labels) {
      DATASETD_ASSIGN_OR_RETURN(std::vector<uint8_t> labels,
                                batch.Labels(key, part.num_samples));
      part.labels.push_back(std::move(labels));
    }
    info.num_samples += part.num_samples;
    info.files.push_back(batch.info());
    part.file = batch.TakeFile();
    parts.push_back(std::move(part));
  }
  const std::string names_path = JoinPath(directory, format.names_file);
  const auto names_info = files.Stat(names_path);
  if (names_info.ok()) {
    DATASETD_ASSIGN_OR_RETURN(const Batch names,
                              Batch::Open(files, names_path));
    DATASETD_ASSIGN_OR_RETURN(info.class_names,
                              names.Names(format.labels.front()));
    info.files.push_back(names.info());
  } else if (!absl::IsNotFound(names_info.status())) {
    return names_info.status();
  }
  info.fields.push_back({.name = "image",
                         .dtype = Dtype::kUint8,
                         .shape = {32, 32, 3},
                         .is_image = true});
  for (const LabelKey& key : format.labels) {
    info.fields.push_back(
        {.name = key.field, .dtype = Dtype::kUint8, .shape = {}});
  }
  return std::make_unique<CifarPythonReader>(std::move(info), std::move(parts));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenCifar10PythonReader(
    const SourceSpec& spec, const FileSystem& files) {
  return OpenCifarPythonReader(spec, Cifar10Format(), files);
}

absl::StatusOr<std::unique_ptr<Reader>> OpenCifar100PythonReader(
    const SourceSpec& spec, const FileSystem& files) {
  return OpenCifarPythonReader(spec, Cifar100Format(), files);
}

}  // namespace datasetd
