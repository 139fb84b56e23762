// Copies a dataset from the device it was read into to another one.

#ifndef DATASETD_SERVER_LOAD_REPLICATE_H_
#define DATASETD_SERVER_LOAD_REPLICATE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "server/dataset/dataset.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/memory_budget.h"
#include "server/load/sample_loader.h"

namespace datasetd {

// The replica on `backend`: the same samples, places and content hash; the
// report of bad samples stays with `dataset`. By the device itself where it
// reads the other's memory, else through pinned host memory, which is charged
// to the account. Blocks, as background work of the account's user. Takes the
// reservation on success.
//   CANCELLED           counters.Cancel was called
//   RESOURCE_EXHAUSTED  the device is out of memory
absl::StatusOr<std::shared_ptr<const Dataset>> Replicate(
    const Dataset& dataset, Backend* backend, Reservation&& reservation,
    LoadCounters& counters, const DecodeAccount& account);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_REPLICATE_H_
