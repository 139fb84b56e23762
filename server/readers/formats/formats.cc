#include "server/readers/formats/formats.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "server/readers/archives/webdataset_reader.h"
#include "server/readers/arrays/npy_reader.h"
#include "server/readers/arrays/raw_reader.h"
#include "server/readers/arrays/tokens_reader.h"
#include "server/readers/formats/join_reader.h"
#include "server/readers/formats/part_reader.h"
#include "server/readers/images/image_csv_reader.h"
#include "server/readers/images/image_folder_reader.h"
#include "server/readers/option_values.h"
#include "server/readers/small_sets/cifar_reader.h"
#include "server/readers/small_sets/mnist_reader.h"

namespace datasetd {
namespace {

struct Format {
  const char* name;
  // Null if the Python package reads the format, and pushes what it read.
  absl::StatusOr<std::unique_ptr<Reader>> (*open)(
      const v1::DatasetSpec&, const ReaderContext&) = nullptr;
  // That of datasetd.sources, if it is not called as the format.
  const char* python_function = name;
  bool derives_classes = false;  // may be given class names
};

constexpr bool kDerivesClasses = true;

// Sorted by name. formats_test.py compares it with the Python package.
constexpr Format kFormats[] = {
    {"arrow"},
    {"cifar10", OpenCifarReader},
    {"cifar100", OpenCifarReader},
    {"cifar100_python", nullptr, "cifar_python"},
    {"cifar10_python", nullptr, "cifar_python"},
    {"cifar_python"},
    {"csv"},
    {"csv_pixels"},
    {"hdf5"},
    {"image_csv", OpenImageCsvReader, "image_csv", kDerivesClasses},
    {"image_folder", OpenImageFolderReader, "image_folder", kDerivesClasses},
    {"join", OpenJoinReader},
    {"lmdb"},
    {"mnist", OpenMnistReader},
    {"n5"},
    {"npy", OpenNpyReader},
    {"npz"},
    {"parquet"},
    {"raw", OpenRawReader},
    {"recordio"},
    {"safetensors"},
    {"tfrecord"},
    {"tokens", OpenTokensReader},
    {"torch_file"},
    {"webdataset", OpenWebdatasetReader},
    {"zarr"},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  if (const std::string* const part = FindOption(spec, kPartOption)) {
    v1::DatasetSpec whole = spec;
    whole.mutable_options()->erase(kPartOption);
    DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader,
                              OpenReader(whole, context));
    return TakePart(std::move(reader), *part);
  }
  for (const Format& format : kFormats) {
    if (spec.format() != format.name) continue;
    if (format.open != nullptr && !format.derives_classes &&
        !spec.class_names().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "class_names: format ", format.name,
          " derives no classes from its files, as image_folder and image_csv "
          "do; leave classes= out"));
    }
    if (format.open != nullptr) return format.open(spec, context);
    return absl::InvalidArgumentError(absl::StrCat(
        "format \"", format.name, "\" is read by the job: python -m datasetd ",
        "load NAME ", format.name, " PATH, or datasetd.sources.",
        format.python_function));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown format '", absl::Utf8SafeCHexEscape(spec.format()),
                   "'; there are: ", absl::StrJoin(ReaderFormats(), ", ")));
}

std::vector<std::string> ReaderFormats() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) {
    if (format.open != nullptr) names.push_back(format.name);
  }
  return names;
}

}  // namespace datasetd
