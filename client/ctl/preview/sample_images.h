// Images of given samples in given epochs, as a job gets them.

#ifndef DATASETD_CLIENT_CTL_PREVIEW_SAMPLE_IMAGES_H_
#define DATASETD_CLIENT_CTL_PREVIEW_SAMPLE_IMAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/ctl/preview/contact_sheet.h"
#include "datasetd/v1/transform.pb.h"

namespace datasetd::ctl {

struct SampleRange {
  std::string dataset;
  std::string field;
  v1::Dtype dtype = v1::DTYPE_UINT8;  // of the field, resident
  uint64_t first_sample = 0;
  uint32_t num_samples = 1;
  uint64_t seed = 0;
  uint64_t first_epoch = 0;
  uint32_t num_epochs = 1;
};

// Returns result[epoch][sample], the samples after the pipeline, with ToDtype
// and Normalize undone. REQUIRES: the samples exist.
//   INVALID_ARGUMENT    the resulting images do not have 1, 3 or 4 channels
//   RESOURCE_EXHAUSTED  the images are too large for a preview
// and all errors of Client::ReadSamples.
absl::StatusOr<std::vector<std::vector<SampleImage>>> DrawSampleImages(
    Client* connection, const SampleRange& range, const v1::Pipeline& pipeline);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PREVIEW_SAMPLE_IMAGES_H_
