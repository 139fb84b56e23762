// The request of a load, a v1::DatasetSpec: its checks, what it means where the
// message alone does not say it, and the identity of what it asks for.

#ifndef DATASETD_SERVER_LOAD_LOAD_REQUEST_H_
#define DATASETD_SERVER_LOAD_LOAD_REQUEST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/caller.h"
#include "server/dataset/memory_budget.h"
#include "server/dataset/sample_source.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd {

// By field.
using Pretransforms = std::map<std::string, Transforms>;

std::string PretransformsHash(const Pretransforms& pretransforms);

// A request that CheckRequest accepted.
struct LoadRequest {
  // As it was sent, without defaults, since the manifest keeps it; but for the
  // path, which is normalised. Never null.
  std::shared_ptr<const v1::DatasetSpec> spec;
  Pretransforms pretransforms;  // with their defaults
};

// Checks everything that does not depend on the devices or on the source.
//   INVALID_ARGUMENT   names the key and says what is wrong
//   PERMISSION_DENIED  the caller may not pin a dataset
absl::StatusOr<LoadRequest> CheckRequest(v1::DatasetSpec spec,
                                         const Caller& caller = Caller());

// Returns the terms on which a caller reserves memory for a dataset.
MemoryBudget::Terms TermsOf(const v1::DatasetSpec& spec, const Caller& caller);

// A load that skips or replaces more samples than this fails.
int64_t MaxBadSamples(const v1::DatasetSpec& spec);

// "device", "pinned", "split", "auto", "mapped".
std::string ResidencyName(v1::Residency residency);

// The identity of a dataset before it is read: equal ids mean equal samples,
// unless a file changed without changing its size and mtime. The cache and the
// manifest keep ids across restarts. 64 hex digits of BLAKE3 over the spec and
// the source's files. `device` is the DevicePlacement::Text of the spec's
// device.
std::string SpecId(const LoadRequest& request, absl::string_view device,
                   const SourceInfo& source);

// The id of a pushed dataset, which has no files and belongs to the user who
// pushed it.
std::string PushedSpecId(const std::string& name,
                         const std::string& content_hash, uint32_t owner_uid);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_LOAD_REQUEST_H_
