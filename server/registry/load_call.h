// A client's call for a dataset, until that is loaded.
//
// The call makes the dataset, or attaches to one that is still being scanned
// for the same spec. Otherwise the name is in use: then the call has no dataset
// until its own scan says that it means that one. Guarded by the registry's
// lock.

#ifndef DATASETD_SERVER_REGISTRY_LOAD_CALL_H_
#define DATASETD_SERVER_REGISTRY_LOAD_CALL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/dataset/caller.h"
#include "server/load/load_request.h"
#include "server/load/placement.h"
#include "server/load/source_scan.h"

namespace datasetd {

struct LoadCall {
  // These do not change, and need no lock.
  LoadRequest request;
  PlacementRequest placement;
  Caller caller;
  absl::Duration started;  // of the monotonic clock
  std::string request_id;  // as DatasetEntry::request_id
  std::shared_ptr<SourceScan> scan;

  uint64_t id = 0;  // of the dataset; 0 while it is not known
  // Why there is none. Does not change after Await has returned an error.
  absl::Status error;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_LOAD_CALL_H_
