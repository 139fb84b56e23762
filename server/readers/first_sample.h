// Finds the first good sample of an encoded source, which tells the shapes of
// its fields.

#ifndef DATASETD_SERVER_READERS_FIRST_SAMPLE_H_
#define DATASETD_SERVER_READERS_FIRST_SAMPLE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

// So many bad samples at its beginning end the search.
inline constexpr int64_t kMaxFirstSamples = 1000;

// Fetches the samples from the first on, and charges each to the account, until
// `look` returns OK. All errors that mark no bad sample are returned at once.
//   as the first sample's  all are bad; the message has the first one's path
absl::Status FindFirstGoodSample(
    const SampleSource& source, const DecodeAccount& account,
    absl::FunctionRef<absl::Status(int64_t index, const RawSample& raw)> look);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_FIRST_SAMPLE_H_
