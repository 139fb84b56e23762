#include "client/ctl/preview/sample_images.h"

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "client/ctl/preview/picture_numbers.h"

namespace datasetd::ctl {
namespace {

absl::Status CheckPicture(const v1::SlotField& field) {
  const auto dtype = static_cast<Dtype>(field.dtype());
  if (dtype != Dtype::kUint8 && dtype != Dtype::kFloat32) {
    return absl::InvalidArgumentError(absl::StrCat(
        "field '", field.name(), "' comes out of the transforms as ",
        DtypeName(dtype),
        "; a picture is made of uint8 or float32: end with to_dtype"));
  }
  const int64_t channels = field.shape_size() == 4 ? field.shape(1) : 0;
  if (channels != 1 && channels != 3 && channels != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("field '", field.name(), "' has ", channels,
                     " channels; a picture has 1, 3 or 4"));
  }
  return absl::OkStatus();
}

// Takes an image [H, W, C] from the front of `data`.
SampleImage TakeImage(const v1::SlotField& field, int64_t height, int64_t width,
                      const PictureNumbers& numbers, const char** data) {
  SampleImage image;
  image.num_channels = static_cast<int>(field.shape(1));
  image.height = static_cast<int>(height);
  image.width = static_cast<int>(width);
  image.pixels.resize(static_cast<size_t>(height * width) * image.num_channels);
  const size_t count = image.pixels.size();
  if (static_cast<Dtype>(field.dtype()) == Dtype::kUint8) {
    std::memcpy(image.pixels.data(), *data, count);
    *data += count;
    return image;
  }
  for (size_t i = 0; i < count; ++i) {
    float element;
    std::memcpy(&element, *data, sizeof(element));
    *data += sizeof(element);
    image.pixels[i] =
        numbers.Level(static_cast<int>(i % image.num_channels), element);
  }
  return image;
}

absl::StatusOr<std::vector<SampleImage>> ImagesOf(
    const client::Samples& samples, const PictureNumbers& numbers) {
  const v1::ReadField& field = samples.info.fields(0);
  DATASETD_RETURN_IF_ERROR(CheckPicture(field.array()));
  const bool is_ragged = field.array().strides().empty();
  const char* sizes = samples.data.data() + field.sizes_offset_bytes();
  const char* data = samples.data.data() + field.array().offset_bytes();
  std::vector<SampleImage> images;
  for (int64_t i = 0; i < field.array().shape(0); ++i) {
    int64_t height = field.array().shape(2);
    int64_t width = field.array().shape(3);
    if (is_ragged) {
      uint32_t size[2];
      std::memcpy(size, sizes + i * sizeof(size), sizeof(size));
      height = size[0];
      width = size[1];
    }
    images.push_back(TakeImage(field.array(), height, width, numbers, &data));
  }
  return images;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<SampleImage>>> DrawSampleImages(
    Client* connection, const SampleRange& range,
    const v1::Pipeline& pipeline) {
  v1::ReadSamplesRequest request;
  request.set_dataset(range.dataset);
  request.set_seed(range.seed);
  request.add_field_names(range.field);
  v1::FieldOptions& field = (*request.mutable_fields())[range.field];
  *field.mutable_transforms() = pipeline.transforms();
  // Smaller types would add another rounding.
  for (v1::Transform& op : *field.mutable_transforms()) {
    if (op.has_to_dtype()) op.mutable_to_dtype()->set_dtype(v1::DTYPE_FLOAT32);
  }
  const PictureNumbers numbers(range.dtype, pipeline);
  field.set_layout(v1::LAYOUT_NHWC);

  // Originals may be large; what transforms mix is read at once.
  const uint32_t rows = pipeline.transforms().empty() ? 1 : range.num_samples;
  double bytes = 0;
  std::vector<std::vector<SampleImage>> images(range.num_epochs);
  for (uint32_t e = 0; e < range.num_epochs; ++e) {
    request.set_epoch(range.first_epoch + e);
    for (uint32_t begin = 0; begin < range.num_samples; begin += rows) {
      request.clear_indices();
      for (uint32_t i = begin; i < begin + rows; ++i) {
        request.add_indices(static_cast<int64_t>(range.first_sample + i));
      }
      DATASETD_ASSIGN_OR_RETURN(const client::Samples samples,
                                connection->ReadSamples(request));
      DATASETD_ASSIGN_OR_RETURN(std::vector<SampleImage> read,
                                ImagesOf(samples, numbers));
      for (SampleImage& image : read) {
        bytes += static_cast<double>(image.pixels.size());
        images[e].push_back(std::move(image));
      }
      DATASETD_RETURN_IF_ERROR(CheckPreviewBytes("the images", bytes));
    }
  }
  return images;
}

}  // namespace datasetd::ctl
