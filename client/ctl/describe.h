// Datasets in words, for people.

#ifndef DATASETD_CLIENT_CTL_DESCRIBE_H_
#define DATASETD_CLIENT_CTL_DESCRIBE_H_

#include <string>

#include "datasetd/v1/dataset.pb.h"

namespace datasetd::ctl {

// "ready", "loading 45%".
std::string StateText(const v1::Dataset& dataset);

// Several lines on one dataset, bad samples included.
std::string DescribeDataset(const v1::Dataset& dataset);

// Several lines on what a load would find and need.
std::string DescribeEstimate(const v1::LoadEstimate& estimate);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DESCRIBE_H_
