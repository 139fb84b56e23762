// A source of samples that a client pushes, with images among their fields that
// are encoded as JPEG, PNG or BMP.
//
// The samples are kept in a spool as they come, since a load reads them in any
// order and more than once. In messages sample i is "sample i".

#ifndef DATASETD_SERVER_READERS_IMAGES_PUSHED_IMAGES_H_
#define DATASETD_SERVER_READERS_IMAGES_PUSHED_IMAGES_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/sample_source.h"
#include "server/files/spool.h"
#include "server/readers/pushed_source.h"

namespace datasetd {

struct PushedImagesOptions {
  // CheckPushedInfo accepted both.
  SourceInfo info;
  std::vector<bool> is_encoded;  // by field
  // Its options are those of ParseImageOptions. Of channels only `as_is`, which
  // makes a sample bad whose number is not that of the field's shape.
  v1::DatasetSpec spec;
  // Pays for the list of the samples, and for those that are looked at to find
  // the size of images.
  DecodeAccount account;
  // The user may have all of the spool's space, not half.
  bool may_have_all = false;
};

// `space` outlives the source. `is_cancelled` ends decoding; may be null.
//   INVALID_ARGUMENT  an unknown option, or an invalid value
absl::StatusOr<std::unique_ptr<SampleSource>> OpenPushedImages(
    PushedImagesOptions options, PushedSource::NextBlock next_block,
    std::function<bool()> is_cancelled, SpoolSpace* space);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_PUSHED_IMAGES_H_
