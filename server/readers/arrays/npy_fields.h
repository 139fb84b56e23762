// Maps arrays of samples to fields, some of which are images.

#ifndef DATASETD_SERVER_READERS_ARRAYS_NPY_FIELDS_H_
#define DATASETD_SERVER_READERS_ARRAYS_NPY_FIELDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/dataset/field_spec.h"
#include "server/readers/npy_header.h"
#include "server/readers/reader.h"

namespace datasetd {

inline constexpr absl::string_view kImagesOption = "images";
inline constexpr absl::string_view kMasksOption = "masks";

// The options by field name: true, or false if preceded by a minus.
struct ImageChoices {
  std::map<std::string, bool> images;
  std::map<std::string, bool> masks;
};
absl::StatusOr<ImageChoices> ParseImageChoices(const v1::DatasetSpec& spec);

// Returns the field `name` for an array of samples, by the rules of
// npy_reader.h, and removes its entries from `choices`. Errors start with
// `where`.
//   INVALID_ARGUMENT  an invalid name; an image of a wrong shape; more than
//                     2^31 - 1 elements per sample; contradicting choices
absl::StatusOr<FieldSpec> MakeNpyField(const std::string& where,
                                       const std::string& name,
                                       const NpyHeader& header,
                                       ImageChoices& choices);

// Makes masks of the images that are masks by their names, unless they are
// chosen to be otherwise. `fields`: all of a source.
void MarkMasks(const ImageChoices& choices, std::vector<FieldSpec>& fields);

//   INVALID_ARGUMENT  a choice is left after all fields were made
absl::Status CheckAllTaken(const ImageChoices& choices,
                           const std::string& path);

//   INVALID_ARGUMENT  a bool other than 0 or 1; `first_sample` is the first of
//                     `values`
absl::Status CheckBools(const std::string& where, const FieldSpec& field,
                        int64_t first_sample, absl::Span<const uint8_t> values);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_NPY_FIELDS_H_
