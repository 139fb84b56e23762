// The options of a dataset's format, in an order.

#ifndef DATASETD_SERVER_DATASET_SORTED_OPTIONS_H_
#define DATASETD_SERVER_DATASET_SORTED_OPTIONS_H_

#include <map>
#include <string>

#include "datasetd/v1/dataset.pb.h"

namespace datasetd {

// Returns the options by name. The map of the message has no order.
inline std::map<std::string, std::string> SortedOptions(
    const v1::DatasetSpec& spec) {
  return {spec.options().begin(), spec.options().end()};
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_SORTED_OPTIONS_H_
