// Human-readable descriptions of datasets.

#ifndef DATASETD_CLIENT_CTL_DESCRIBE_H_
#define DATASETD_CLIENT_CTL_DESCRIBE_H_

#include <string>

#include "datasetd/v1/dataset.pb.h"

namespace datasetd::ctl {

// Returns "pinned"; empty if it is not known yet.
std::string ResidencyText(v1::Residency residency);

// Returns "ready", "loading 45%".
std::string StateText(const v1::Dataset& dataset);

// Returns what a load found, left out and decided, in one line:
// "image_folder: 12 samples, 2 classes ['cat', 'dog']; left out: 3 .gif files".
std::string SummaryText(const v1::Dataset& dataset);

// Describes a dataset in several lines, including bad samples.
std::string DescribeDataset(const v1::Dataset& dataset);

// Describes a load estimate in several lines.
std::string DescribeEstimate(const v1::LoadEstimate& estimate);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DESCRIBE_H_
