#include "client/ctl/preview/sample_images.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "client/ctl/preview/picture_numbers.h"
#include "client/feed/feed.h"

namespace datasetd::ctl {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

absl::StatusOr<int> FindField(const client::Feed& feed,
                              const SampleRange& range) {
  for (int i = 0; i < feed.layout().num_fields(); ++i) {
    const client::FieldLayout& field = feed.layout().fields()[i];
    if (field.name != range.field) continue;
    if (field.dtype != Dtype::kUint8 && field.dtype != Dtype::kFloat32) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", field.name, "' comes out of the transforms as ",
          DtypeName(field.dtype),
          "; a picture is made of uint8 or float32: end with to_dtype"));
    }
    const int64_t channels = field.num_dimensions == 4 ? field.shape[1] : 0;
    if (channels != 1 && channels != 3 && channels != 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("field '", field.name, "' has ", channels,
                       " channels; a picture has 1, 3 or 4"));
    }
    return i;
  }
  return absl::NotFoundError(absl::StrCat(
      "dataset '", range.dataset, "' has no field '", range.field, "'"));
}

// Copies row `row` of a field [B, C, H, W] whose memory is [B, H, W, C].
absl::StatusOr<SampleImage> CopyImage(const client::Batch& batch,
                                      const client::FieldView& field,
                                      int64_t row,
                                      const PictureNumbers& numbers) {
  SampleImage image;
  image.num_channels = static_cast<int>(field.shape[1]);
  image.height = static_cast<int>(field.shape[2]);
  image.width = static_cast<int>(field.shape[3]);
  image.pixels.resize(static_cast<size_t>(image.height) * image.width *
                      image.num_channels);
  const size_t count = image.pixels.size();
  const int64_t start = row * field.strides[0];
  if (field.dtype == Dtype::kUint8) {
    DATASETD_RETURN_IF_ERROR(batch.CopyToHost(
        image.pixels.data(), static_cast<const uint8_t*>(field.data) + start,
        count));
    return image;
  }
  std::vector<float> elements(count);
  DATASETD_RETURN_IF_ERROR(batch.CopyToHost(
      elements.data(), static_cast<const float*>(field.data) + start,
      count * sizeof(float)));
  for (size_t i = 0; i < count; ++i) {
    image.pixels[i] =
        numbers.Level(static_cast<int>(i % image.num_channels), elements[i]);
  }
  return image;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<SampleImage>>> DrawSampleImages(
    Client* connection, const SampleRange& range,
    const v1::Pipeline& pipeline) {
  v1::FeedOptions options;
  options.set_dataset(range.dataset);
  options.set_batch_size(range.num_samples);
  options.set_seed(range.seed);
  options.set_name("preview");
  // Unshuffled, so that a sample's batch is known.
  options.set_shuffle(false);
  const uint64_t first_batch = range.first_sample / range.num_samples;
  const uint64_t end_sample = range.first_sample + range.num_samples;
  options.mutable_start()->set_epoch(range.first_epoch);
  options.mutable_start()->set_batch(first_batch);
  options.set_prefetch(2);
  v1::FieldOptions& field = (*options.mutable_fields())[range.field];
  *field.mutable_transforms() = pipeline.transforms();
  // Smaller types would add another rounding.
  for (v1::Transform& op : *field.mutable_transforms()) {
    if (op.has_to_dtype()) op.mutable_to_dtype()->set_dtype(v1::DTYPE_FLOAT32);
  }
  const PictureNumbers numbers(range.dtype, pipeline);
  field.set_layout(v1::LAYOUT_NHWC);
  for (const std::string& other : range.other_ragged_fields) {
    v1::CenterCrop* const pixel = (*options.mutable_fields())[other]
                                      .add_transforms()
                                      ->mutable_center_crop();
    pixel->set_height(1);
    pixel->set_width(1);
  }

  DATASETD_ASSIGN_OR_RETURN(client::Feed feed, connection->OpenFeed(options));
  DATASETD_ASSIGN_OR_RETURN(const int index, FindField(feed, range));
  const auto& shape = feed.layout().fields()[index].shape;
  DATASETD_RETURN_IF_ERROR(CheckPreviewBytes(
      "the images", static_cast<double>(range.num_epochs) * range.num_samples *
                        shape[1] * shape[2] * shape[3]));
  std::vector<std::vector<SampleImage>> images(range.num_epochs);
  for (uint32_t e = 0; e < range.num_epochs; ++e) {
    DATASETD_RETURN_IF_ERROR(feed.Seek(range.first_epoch + e, first_batch));
    for (uint64_t sample = first_batch * range.num_samples;
         sample < end_sample;) {
      DATASETD_ASSIGN_OR_RETURN(const client::Batch batch,
                                feed.Next(0, kTimeout));
      const client::FieldView view = batch.field(index);
      for (int64_t row = 0; row < view.shape[0]; ++row, ++sample) {
        if (sample < range.first_sample || sample >= end_sample) continue;
        DATASETD_ASSIGN_OR_RETURN(SampleImage image,
                                  CopyImage(batch, view, row, numbers));
        images[e].push_back(std::move(image));
      }
    }
  }
  return images;
}

}  // namespace datasetd::ctl
