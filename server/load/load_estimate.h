// A dry run: what a load would find and need, without loading.

#ifndef DATASETD_SERVER_LOAD_LOAD_ESTIMATE_H_
#define DATASETD_SERVER_LOAD_LOAD_ESTIMATE_H_

#include "absl/status/statusor.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/memory_budget.h"
#include "server/load/dataset_sources.h"
#include "server/load/source_scan.h"

namespace datasetd {

// Reads every sample of an encoded source and parses its headers, on all cores,
// but decodes none. Blocks; `progress` counts the samples. `terms` are those of
// the load. CANCELLED if progress.is_cancelled was set; any other error of the
// load is in the estimate.
absl::StatusOr<v1::LoadEstimate> EstimateLoad(const OpenedSource& source,
                                              const MemoryBudget::Terms& terms,
                                              const DecodeAccount& account,
                                              SourceScan& progress);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_LOAD_ESTIMATE_H_
