// The description of a dataset: the message that clients get, and what the
// daemon knows beside it.

#ifndef DATASETD_SERVER_DATASET_DATASET_INFO_H_
#define DATASETD_SERVER_DATASET_DATASET_INFO_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/caller.h"

namespace datasetd {

// See dataset_registry.h.
enum class DatasetState { kLoading = 1, kReady, kFailed, kUnloading };

struct DatasetInfo {
  std::shared_ptr<const v1::DatasetSpec> spec;  // never null
  Caller owner;                                 // the client that loaded it
  DatasetState state = DatasetState::kLoading;
  absl::Status error;  // when FAILED
  // As clients get it. A brief info has no class names, bad samples and notes.
  v1::Dataset dataset;

  // Sets what is known of a load from its start.
  void SetRequest(std::shared_ptr<const v1::DatasetSpec> wanted,
                  const Caller& caller) {
    spec = std::move(wanted);
    owner = caller;
    dataset.set_name(spec->name());
    dataset.set_state(v1::DATASET_STATE_LOADING);
    dataset.set_device(spec->device());
    dataset.set_format(spec->format());
    dataset.set_path(spec->path());
    dataset.set_split(spec->split());
    dataset.set_owner_uid(caller.uid);
    dataset.set_is_pinned(spec->pin());
    dataset.set_is_private(spec->private_());
  }
  Visibility visibility() const { return {spec->private_(), owner.uid}; }
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_INFO_H_
