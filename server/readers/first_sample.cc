#include "server/readers/first_sample.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/dataset/bad_samples.h"

namespace datasetd {

absl::Status FindFirstGoodSample(
    const SampleSource& source, const DecodeAccount& account,
    absl::FunctionRef<absl::Status(int64_t index, const RawSample& raw)> look) {
  const int64_t num_tries =
      std::min(source.info().num_samples, kMaxFirstSamples);
  absl::Status first_error;
  for (int64_t i = 0; i < num_tries; ++i) {
    DecodeBudget::Share share(account.budget, account.uid);
    RawSample raw;
    absl::Status status = share.Take(source.Locate(i).size_bytes);
    if (status.ok()) status = source.Fetch(i, raw);
    if (status.ok()) status = look(i, raw);
    if (status.ok() || !IsBadSample(status)) return status;
    if (i == 0) first_error = LocatedStatus(source, 0, status);
  }
  return absl::Status(
      first_error.code(),
      absl::StrCat(first_error.message(), "; none of the first ", num_tries,
                   " samples can be decoded"));
}

}  // namespace datasetd
