// A DLPack tensor that owns a copy of one field of one batch.

#ifndef DATASETD_CLIENT_FEED_COPIED_TENSOR_H_
#define DATASETD_CLIENT_FEED_COPIED_TENSOR_H_

#include <dlpack/dlpack.h>

#include "client/feed/slot_layout.h"

namespace datasetd::client {

// `data` is the field's on the host, of `num_samples` rows. The tensor's
// deleter frees the copy, on any thread and also in a child of fork().
DLManagedTensor* MakeCopiedTensor(const FieldLayout& layout,
                                  int64_t num_samples, const void* data);

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_COPIED_TENSOR_H_
