// The names by which images of one channel are masks, images of classes. The
// client's list, for pushes, is in client/python/datasetd/sources/_names.py.

#ifndef DATASETD_SERVER_READERS_MASK_NAMES_H_
#define DATASETD_SERVER_READERS_MASK_NAMES_H_

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/dataset/field_spec.h"

namespace datasetd {

// What else is known of the image.
struct MaskHints {
  bool is_bytes = true;  // uint8
  // The sample has an image of colours, too.
  bool is_beside_colours = false;
};

// True if an image of one channel of this name is a mask: with a word such as
// mask, seg or annotation; or of bytes and called label; or beside an image of
// colours and called target or gt.
bool IsMaskName(absl::string_view name, MaskHints hints);

// True if another field than `field` is an image of several channels, and no
// mask by its name.
bool HasOtherColours(const std::vector<FieldSpec>& fields, size_t field);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_MASK_NAMES_H_
