// The specification of a dataset: what to load, and how.

#ifndef DATASETD_SERVER_DATASET_DATASET_SPEC_H_
#define DATASETD_SERVER_DATASET_DATASET_SPEC_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "datasetd/v1/transform.pb.h"
#include "server/dataset/bad_samples.h"

namespace datasetd {

inline constexpr int64_t kDefaultMaxBadSamples = 100;

// Where samples lie, as v1::Residency.
enum class Residency : uint8_t {
  kDevice = 1,
  kPinned,
  kSplit,
  kAuto,
  kMapped,
};
// "device", "pinned", "split", "auto", "mapped".
const char* ResidencyName(Residency residency);

struct DatasetSpec {
  std::string name;
  std::string format;
  std::string path;
  std::string split;
  std::string device;  // empty: the first device
  // By field, with their defaults filled in.
  std::map<std::string, std::vector<v1::Transform>> pretransforms;
  std::map<std::string, std::string> options;
  Residency residency = Residency::kDevice;
  // With kSplit, the most bytes of samples on a device.
  int64_t device_bytes = 0;
  // Equal if and only if the pretransforms are equal.
  std::string pretransforms_key;
  bool is_pinned = false;
  bool is_private = false;
  // For encoded sources.
  BadSamplePolicy bad_samples = BadSamplePolicy::kFail;
  // A load that skips or replaces more samples than this fails.
  int64_t max_bad_samples = kDefaultMaxBadSamples;
  // The original request, kept to repeat the load later; may be null.
  std::shared_ptr<const std::string> wire;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_SPEC_H_
