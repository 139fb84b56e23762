// What arrays of samples become: fields, some of which are images.

#ifndef DATASETD_SERVER_READERS_ARRAYS_NPY_FIELDS_H_
#define DATASETD_SERVER_READERS_ARRAYS_NPY_FIELDS_H_

#include <cstdint>
#include <map>
#include <string>

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

// The options, by field name: true, or false where a minus stood before it.
struct ImageChoices {
  std::map<std::string, bool> images;
  std::map<std::string, bool> masks;
};
absl::StatusOr<ImageChoices> ParseImageChoices(const SourceSpec& spec);

// The field `name` of an array of samples, by the rules of npy_reader.h. Takes
// what `choices` say of it out of them. `where` begins the errors.
//   INVALID_ARGUMENT  the name cannot be one; an image of a wrong shape; more
//                     than 2^31 - 1 elements a sample; contradicting choices
absl::StatusOr<FieldSpec> MakeNpyField(const std::string& where,
                                       const std::string& name,
                                       const NpyHeader& header,
                                       ImageChoices& choices);

//   INVALID_ARGUMENT  a choice is left, when every field has taken its own
absl::Status CheckAllTaken(const ImageChoices& choices,
                           const std::string& path);

//   INVALID_ARGUMENT  a bool that is not 0 or 1. `first_sample` is that of
//                     `values`.
absl::Status CheckBools(const std::string& where, const FieldSpec& field,
                        int64_t first_sample, absl::Span<const uint8_t> values);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_NPY_FIELDS_H_
