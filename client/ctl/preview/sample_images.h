// Images of chosen samples in chosen epochs, drawn through a feed as a job
// would draw them.

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
  // Others whose samples have sizes of their own: a feed must give them one.
  std::vector<std::string> other_ragged_fields;
  uint64_t first_sample = 0;
  uint32_t num_samples = 1;
  uint64_t seed = 0;
  uint64_t first_epoch = 0;
  uint32_t num_epochs = 1;
};

// result[epoch][sample]: what the pipeline makes of the samples, which does not
// depend on the order they are drawn in. What its ToDtype and Normalize do to
// the numbers is undone. REQUIRES: the samples exist.
//   INVALID_ARGUMENT  the images do not come out with 1, 3 or 4 channels
// and all of Client::OpenFeed and Feed::Next.
absl::StatusOr<std::vector<std::vector<SampleImage>>> DrawSampleImages(
    Client* connection, const SampleRange& range, const v1::Pipeline& pipeline);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PREVIEW_SAMPLE_IMAGES_H_
