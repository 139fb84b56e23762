// Parses --pretransforms of a load, which is one of:
//
//   [{"center_crop": {"height": 24, "width": 24}}]   Transform messages
//   {"transforms": [...]}                            a Pipeline message
//   @FILE                                            a file with one of these
//   none                                             no transforms
//
// The value of an enum may be written without its prefix: "reflect".

#ifndef DATASETD_CLIENT_CTL_PRETRANSFORMS_ARGUMENT_H_
#define DATASETD_CLIENT_CTL_PRETRANSFORMS_ARGUMENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "datasetd/v1/transform.pb.h"

namespace datasetd::ctl {

// INVALID_ARGUMENT tells what is wrong in `text`; NOT_FOUND and similar if a
// file cannot be read.
absl::StatusOr<v1::Pipeline> ParsePretransforms(const std::string& text);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PRETRANSFORMS_ARGUMENT_H_
