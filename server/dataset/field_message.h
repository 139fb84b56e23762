// FieldSpec as a message.

#ifndef DATASETD_SERVER_DATASET_FIELD_MESSAGE_H_
#define DATASETD_SERVER_DATASET_FIELD_MESSAGE_H_

#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/field_spec.h"

namespace datasetd {

// Leaves out is_ragged and packed_bytes.
void FieldToMessage(const FieldSpec& spec, v1::Field* field);

// REQUIRES: the dtype is 0 to 255; it may be unknown.
FieldSpec FieldFromMessage(const v1::Field& field);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_FIELD_MESSAGE_H_
