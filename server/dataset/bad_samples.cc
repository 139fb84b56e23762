#include "server/dataset/bad_samples.h"

#include "absl/strings/cord.h"

namespace datasetd {
namespace {

constexpr char kPayloadUrl[] = "datasetd/in-bytes";

}  // namespace

absl::Status InBytes(absl::Status status) {
  status.SetPayload(kPayloadUrl, absl::Cord());
  return status;
}

bool IsInBytes(const absl::Status& status) {
  return status.GetPayload(kPayloadUrl).has_value();
}

}  // namespace datasetd
