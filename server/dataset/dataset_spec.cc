#include "server/dataset/dataset_spec.h"

namespace datasetd {

const char* ResidencyName(Residency residency) {
  switch (residency) {
    case Residency::kDevice:
      return "device";
    case Residency::kPinned:
      return "pinned";
    case Residency::kSplit:
      return "split";
    case Residency::kAuto:
      return "auto";
    case Residency::kMapped:
      return "mapped";
  }
  return "?";
}

}  // namespace datasetd
