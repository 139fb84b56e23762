#include "server/service/proto_convert.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/utf8.h"
#include "proto/same_values.h"
#include "server/dataset/field_message.h"

namespace datasetd {
namespace {

DATASETD_SAME_VALUE(DatasetState::kLoading, DATASET_STATE_LOADING);
DATASETD_SAME_VALUE(DatasetState::kReady, DATASET_STATE_READY);
DATASETD_SAME_VALUE(DatasetState::kFailed, DATASET_STATE_FAILED);
DATASETD_SAME_VALUE(DatasetState::kUnloading, DATASET_STATE_UNLOADING);

void SetRates(const DatasetInfo& info, v1::LoadProgress* progress) {
  const double seconds = absl::ToDoubleSeconds(info.elapsed);
  if (seconds <= 0 || info.num_samples_loaded <= 0) return;
  const double rate = static_cast<double>(info.num_samples_loaded) / seconds;
  progress->set_samples_per_second(rate);
  progress->set_bytes_per_second(static_cast<double>(info.loaded_bytes) /
                                 seconds);
  if (info.state == DatasetState::kLoading) {
    progress->set_eta_seconds(
        static_cast<double>(info.num_samples - info.num_samples_loaded) / rate);
  }
}

}  // namespace

absl::StatusOr<PushSpec> PushSpecFromProto(const v1::PushHeader& header) {
  PushSpec to;
  v1::DatasetSpec& spec = to.spec;
  spec.set_name(header.name());
  spec.set_format("push");
  spec.set_device(header.device());
  *spec.mutable_pretransforms() = header.pretransforms();
  spec.set_pin(header.pin());
  spec.set_private_(header.private_());
  spec.set_residency(header.residency());
  spec.set_device_bytes(header.device_bytes());
  spec.set_bad_samples(header.bad_samples());
  if (header.has_max_bad_samples()) {
    spec.set_max_bad_samples(header.max_bad_samples());
  }
  *spec.mutable_options() = header.options();
  to.accepts_same = header.accepts_same();
  to.info.num_samples = header.num_samples();
  to.info.class_names.assign(header.class_names().begin(),
                             header.class_names().end());
  to.info.notes = NotesFromMessage(header.notes());
  for (const v1::Field& field : header.fields()) {
    if (field.dtype() == v1::DTYPE_UNSPECIFIED ||
        !v1::Dtype_IsValid(field.dtype())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", field.name(), "': dtype ", static_cast<int>(field.dtype()),
          " is unknown or missing"));
    }
    to.info.fields.push_back(FieldFromMessage(field));
    to.info.fields.back().smallest = {};  // the daemon finds it
    to.is_encoded.push_back(field.is_encoded());
  }
  return to;
}

void DatasetInfoToProto(const DatasetInfo& info, bool with_texts,
                        v1::Dataset* dataset) {
  dataset->set_name(info.spec->name());
  dataset->set_state(static_cast<v1::DatasetState>(info.state));
  if (!info.error.ok()) {
    dataset->set_error(PrintableUtf8(info.error.message()));
  }
  dataset->set_device(info.device);
  dataset->set_format(info.spec->format());
  dataset->set_path(info.spec->path());
  dataset->set_split(info.spec->split());
  dataset->set_num_samples(info.num_samples);
  for (const FieldSpec& field : info.fields) {
    FieldToMessage(field, dataset->add_fields());
  }
  dataset->set_resident_bytes(info.resident_bytes);
  if (!info.placements.empty()) {
    dataset->set_residency(info.residency);
  }
  *dataset->mutable_placements() = {info.placements.begin(),
                                    info.placements.end()};
  dataset->set_spec_id(info.spec_id);
  dataset->set_content_hash(info.content_hash);
  dataset->set_num_feeds(info.num_feeds);
  dataset->set_num_holders(info.num_holders);
  dataset->set_owner_uid(info.owner.uid);
  dataset->set_is_pinned(info.spec->pin());
  dataset->set_is_private(info.spec->private_());
  dataset->set_num_bad_samples(info.bad_samples.num_samples);
  if (with_texts) {
    dataset->mutable_class_names()->Assign(info.class_names.begin(),
                                           info.class_names.end());
    BadSamplesToMessage(info.bad_samples, dataset->mutable_bad_samples());
    NotesToMessage(info.notes, dataset->mutable_notes());
  }
  v1::LoadProgress* const progress = dataset->mutable_progress();
  progress->set_num_samples_loaded(info.num_samples_loaded);
  progress->set_num_samples(info.num_samples);
  progress->set_loaded_bytes(info.loaded_bytes);
  progress->set_resident_bytes(info.resident_bytes);
  progress->set_elapsed_seconds(absl::ToDoubleSeconds(info.elapsed));
  progress->set_is_scanning(info.is_scanning);
  progress->set_num_entries_scanned(info.num_entries_scanned);
  SetRates(info, progress);
}

void HistogramToProto(
    const LatencyHistogram::Snapshot& snapshot,
    google::protobuf::RepeatedPtrField<v1::DurationBucket>* buckets) {
  constexpr auto& kBounds = LatencyHistogram::kBoundsNanoseconds;
  for (size_t i = 0; i < snapshot.counts.size(); ++i) {
    if (snapshot.counts[i] == 0) continue;
    v1::DurationBucket* const bucket = buckets->Add();
    bucket->set_max_nanoseconds(i < kBounds.size() ? kBounds[i] : 0);
    bucket->set_count(snapshot.counts[i]);
  }
}

}  // namespace datasetd
