// The description of a dataset, as shown to clients.

#ifndef DATASETD_SERVER_DATASET_DATASET_INFO_H_
#define DATASETD_SERVER_DATASET_DATASET_INFO_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/caller.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/load_notes.h"

namespace datasetd {

// See dataset_registry.h.
enum class DatasetState { kLoading = 1, kReady, kFailed, kUnloading };

struct DatasetInfo {
  std::shared_ptr<const v1::DatasetSpec> spec;  // never null
  // The devices as DevicePlacement::Text; as the spec has them until they are
  // found.
  std::string device;
  DatasetState state = DatasetState::kLoading;
  absl::Status error;  // when FAILED
  Caller owner;        // the client that loaded it
  int64_t num_samples = 0;
  std::vector<FieldSpec> fields;
  std::vector<std::string> class_names;  // empty in a brief info
  int64_t resident_bytes = 0;            // of the samples, once
  v1::Residency residency = v1::RESIDENCY_DEVICE;
  // In the order of the devices; empty while the source is being opened.
  std::vector<v1::Placement> placements;
  std::string spec_id;
  std::string content_hash;
  int num_feeds = 0;
  int num_holders = 0;
  BadSampleReport bad_samples;  // the number only, if LOADING or brief
  std::vector<LoadNote> notes;  // if READY; empty in a brief info
  // True while LOADING and the source's files are being scanned, or then the
  // headers of its images; num_entries_scanned counts either.
  bool is_scanning = false;
  int64_t num_entries_scanned = 0;
  int64_t num_samples_loaded = 0;
  int64_t loaded_bytes = 0;
  absl::Duration elapsed;  // of the load

  Visibility visibility() const { return {spec->private_(), owner.uid}; }
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_INFO_H_
