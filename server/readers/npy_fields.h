// What arrays of samples become: fields, some of which are images.

#ifndef DATASETD_SERVER_READERS_NPY_FIELDS_H_
#define DATASETD_SERVER_READERS_NPY_FIELDS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/core/field_spec.h"
#include "server/readers/npy_header.h"
#include "server/readers/reader.h"

namespace datasetd {

inline constexpr absl::string_view kImagesOption = "images";

// The option: true for the fields that are images, false for those not.
absl::StatusOr<std::map<std::string, bool>> ParseImagesOption(
    const SourceSpec& spec);

// The field `name` of an array of samples, by the rules of npy_reader.h.
// `where` begins the errors.
//   INVALID_ARGUMENT  the name cannot be one; an image of a wrong shape; more
//                     than 2^31 - 1 elements a sample
absl::StatusOr<FieldSpec> MakeNpyField(
    const std::string& where, const std::string& name, const NpyHeader& header,
    const std::map<std::string, bool>& images);

//   INVALID_ARGUMENT  a bool that is not 0 or 1. `first_sample` is that of
//                     `values`.
absl::Status CheckBools(const std::string& where, const FieldSpec& field,
                        int64_t first_sample,
                        absl::Span<const uint8_t> values);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_NPY_FIELDS_H_
