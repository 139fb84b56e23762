#include "server/service/proto_convert.h"

#include "absl/strings/str_cat.h"
#include "server/dataset/field_message.h"

namespace datasetd {

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
