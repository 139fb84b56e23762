// Parses the transforms of a command line: a preset, JSON, or a file of JSON.
//
//   none                     unchanged samples
//   crop-flip                names joined by '-', in this order of doing:
//       crop         RandomCrop of the image's size, padded by an eighth of
//                    its larger side, reflected (32x32: 4)
//       flip         RandomHorizontalFlip
//       vflip        RandomVerticalFlip
//       altflip      AlternatingFlip
//       resizedcrop  RandomResizedCrop to the image's size
//       rotate       RandomRotation by up to 10 degrees, bilinear
//       jitter       ColorJitter of 0.4, 0.4, 0.4, 0.1
//   [{"center_crop": {"height": 24, "width": 24}}]   Transform messages, where
//                                 enums may lack their prefix: "reflect"
//   {"transforms": [...]}                            a Pipeline message
//   @FILE                                            the file's text, as above

#ifndef DATASETD_CLIENT_CTL_TRANSFORMS_ARGUMENT_H_
#define DATASETD_CLIENT_CTL_TRANSFORMS_ARGUMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasetd/v1/transform.pb.h"

namespace datasetd::ctl {

// Parses `text`, for images of height x width. INVALID_ARGUMENT tells what is
// wrong in `text`; NOT_FOUND and similar if a file cannot be read.
absl::StatusOr<v1::Pipeline> ParseTransforms(const std::string& text,
                                             int64_t height, int64_t width);

// Removes the trailing ops that only change the number format (ToDtype,
// Normalize), and returns their names in order.
std::vector<std::string> TakeNumberOps(v1::Pipeline* pipeline);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_TRANSFORMS_ARGUMENT_H_
