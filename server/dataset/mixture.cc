#include "server/dataset/mixture.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/checked_math.h"
#include "base/digest.h"
#include "base/dtype.h"
#include "base/require.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

std::string Describe(const FieldSpec& field) {
  return absl::StrCat(field.is_mask    ? "mask"
                      : field.is_image ? "image"
                                       : "array",
                      " '", field.name, "' of ", DtypeName(field.dtype), " (",
                      absl::StrJoin(field.shape, ", "), ")");
}

std::string DescribeAll(const Dataset& dataset) {
  return absl::StrJoin(dataset.fields(), ", ",
                       [](std::string* out, const FieldSpec& field) {
                         out->append(Describe(field));
                       });
}

bool IsAlike(const FieldSpec& a, const FieldSpec& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
         a.is_image == b.is_image && a.is_mask == b.is_mask;
}

absl::Status CheckFields(const Dataset& first, const Dataset& part) {
  const std::vector<FieldSpec>& ours = first.fields();
  const std::vector<FieldSpec>& theirs = part.fields();
  if (ours.size() != theirs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mixture: the datasets must have equal fields, and '", first.name(),
        "' has ", DescribeAll(first), ", and '", part.name(), "' ",
        DescribeAll(part), ": load one of them with other fields"));
  }
  for (size_t f = 0; f < ours.size(); ++f) {
    if (IsAlike(ours[f], theirs[f])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "mixture: the datasets must have equal fields in the same order, and "
        "field ",
        f, " is ", Describe(ours[f]), " in '", first.name(), "' and ",
        Describe(theirs[f]), " in '", part.name(),
        "': load one of them anew, with fields in that order, or with "
        "pretransforms that give one size"));
  }
  return absl::OkStatus();
}

// Widens a packed field's description.
void Include(const FieldSpec& part, FieldSpec& field) {
  IncludeSize(part.smallest, field.smallest, field.largest);
  IncludeSize(part.largest, field.smallest, field.largest);
  field.num_pixels = SaturatingAdd(field.num_pixels, part.num_pixels);
  field.packed_bytes = SaturatingAdd(field.packed_bytes, part.packed_bytes);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> MakeMixture(
    std::vector<std::shared_ptr<const Dataset>> parts, std::string name,
    const std::string& order, Backend* backend) {
  Require(!parts.empty(), "a mixture has a part");
  Dataset::Contents contents;
  contents.fields = parts.front()->fields();
  std::string hashed = order;
  for (size_t d = 0; d < parts.size(); ++d) {
    const Dataset& part = *parts[d];
    Require(part.parts().empty(), "a mixture is no part of another");
    DATASETD_RETURN_IF_ERROR(CheckFields(*parts.front(), part));
    contents.num_samples += part.num_samples();
    if (contents.num_samples > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("mixture: ", d + 1, " datasets have ",
                       contents.num_samples, " samples together; there can be ",
                       std::numeric_limits<uint32_t>::max()));
    }
    absl::StrAppend(&hashed, " ", part.content_hash());
    for (size_t f = 0; d > 0 && f < contents.fields.size(); ++f) {
      if (part.fields()[f].is_packed()) {
        Include(part.fields()[f], contents.fields[f]);
      }
    }
  }
  contents.name = std::move(name);
  contents.backend = backend;
  contents.content_hash = HexDigest(hashed);
  contents.parts = std::move(parts);
  return std::make_shared<const Dataset>(std::move(contents));
}

}  // namespace datasetd
