// A mixture: a Dataset of the samples of several datasets, one after another.
// It holds a reference to each, and has no memory of its own.

#ifndef DATASETD_SERVER_DATASET_MIXTURE_H_
#define DATASETD_SERVER_DATASET_MIXTURE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "server/dataset/dataset.h"

namespace datasetd {

// Sample i of a part is sample (samples of the parts before it) + i. `backend`
// is one of each part's. A dataset may be there several times. The content hash
// is made of those of the parts, in their order, and of `order`. REQUIRES:
// there is a part, and none is a mixture.
//   INVALID_ARGUMENT  the parts' fields differ in name, order, dtype, shape or
//                     kind; or there are 2^32 samples or more. Names the parts
absl::StatusOr<std::shared_ptr<const Dataset>> MakeMixture(
    std::vector<std::shared_ptr<const Dataset>> parts, std::string name,
    const std::string& order, Backend* backend);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_MIXTURE_H_
