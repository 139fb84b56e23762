// FieldSpec, and what else of a source is told to clients, as messages.

#ifndef DATASETD_SERVER_DATASET_FIELD_MESSAGE_H_
#define DATASETD_SERVER_DATASET_FIELD_MESSAGE_H_

#include <vector>

#include "absl/types/span.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/load_notes.h"

namespace datasetd {

// Leaves out is_ragged and packed_bytes.
void FieldToMessage(const FieldSpec& spec, v1::Field* field);

void SetExtent(ImageSize size, v1::ImageExtent* extent);

// The listed ones. Their texts, such as file names, may be invalid UTF-8, which
// a message must not contain.
void BadSamplesToMessage(
    const BadSampleReport& report,
    google::protobuf::RepeatedPtrField<v1::BadSample>* samples);

void NotesToMessage(absl::Span<const LoadNote> notes,
                    google::protobuf::RepeatedPtrField<v1::LoadNote>* to);
std::vector<LoadNote> NotesFromMessage(
    const google::protobuf::RepeatedPtrField<v1::LoadNote>& notes);

// REQUIRES: the dtype is 0 to 255; it may be unknown.
FieldSpec FieldFromMessage(const v1::Field& field);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_FIELD_MESSAGE_H_
