// What to load, and how.

#ifndef DATASETD_SERVER_DATASET_DATASET_SPEC_H_
#define DATASETD_SERVER_DATASET_DATASET_SPEC_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/dataset/bad_samples.h"
#include "server/dataset/transform_spec.h"

namespace datasetd {

inline constexpr int64_t kDefaultMaxBadSamples = 100;

struct DatasetSpec {
  std::string name;
  std::string format;
  std::string path;
  std::string split;
  std::string device;  // empty: the first
  std::map<std::string, std::vector<TransformSpec>> pretransforms;
  std::map<std::string, std::string> options;
  // Equal for equal pretransforms.
  std::string pretransforms_key;
  bool is_pinned = false;
  bool is_private = false;
  // Of encoded sources.
  BadSamplePolicy bad_samples = BadSamplePolicy::kFail;
  // A load that skips or replaces more than these fails.
  int64_t max_bad_samples = kDefaultMaxBadSamples;
  // The request as it came, for who wants to make it again; may be null.
  std::shared_ptr<const std::string> wire;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_SPEC_H_
