// The syntax of dataset names.

#ifndef DATASETD_SERVER_DATASET_DATASET_NAME_H_
#define DATASETD_SERVER_DATASET_DATASET_NAME_H_

#include <string>

namespace datasetd {

// True for 1 to 128 characters of [A-Za-z0-9._-] that start with a letter or
// digit.
bool IsDatasetName(const std::string& name);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_NAME_H_
