#include "client/feed/feed_arrays.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd::client {
namespace {

absl::Status SystemError(const char* call, size_t size_bytes) {
  const int error = errno;
  const std::string text =
      absl::StrCat("an array of ", size_bytes, " bytes for the daemon: ", call);
  const absl::Status status = absl::ErrnoToStatus(error, text);
  return error == ENOMEM || error == ENOSPC || error == EMFILE ||
                 error == ENFILE
             ? absl::ResourceExhaustedError(status.message())
             : status;
}

absl::StatusOr<GuardedFd> SealedCopy(const void* data, size_t size_bytes) {
  GuardedFd fd(memfd_create("datasetd-array", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_valid()) return SystemError("memfd_create", size_bytes);
  for (size_t done = 0; done < size_bytes;) {
    // Not mapped: writing says where there is no memory.
    const ssize_t size = write(fd.get(), static_cast<const char*>(data) + done,
                               size_bytes - done);
    if (size > 0) done += static_cast<size_t>(size);
    if (size < 0 && errno != EINTR) return SystemError("write", size_bytes);
  }
  if (fcntl(fd.get(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    return SystemError("F_ADD_SEALS", size_bytes);
  }
  return fd;
}

}  // namespace

absl::Status AddTo(v1::FeedOptions* options, const FeedArrays& arrays) {
  if (!arrays.weighted_samples.empty() &&
      arrays.weighted_samples.size() != arrays.weights.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: there are ", arrays.weights.size(), " for ",
                     arrays.weighted_samples.size(), " samples"));
  }
  if (!arrays.subset.empty()) options->set_subset_size(arrays.subset.size());
  if (!arrays.weights.empty()) {
    v1::WeightedOrder& order = *options->mutable_weighted_order();
    order.set_num_samples(arrays.weights.size());
    order.set_lists_samples(!arrays.weighted_samples.empty());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GuardedFd>> Seal(const FeedArrays& arrays) {
  std::vector<GuardedFd> sealed;
  const auto add = [&sealed](const auto& array) -> absl::Status {
    if (array.empty()) return absl::OkStatus();
    DATASETD_ASSIGN_OR_RETURN(
        GuardedFd fd,
        SealedCopy(array.data(), array.size() * sizeof(array[0])));
    sealed.push_back(std::move(fd));
    return absl::OkStatus();
  };
  DATASETD_RETURN_IF_ERROR(add(arrays.subset));
  DATASETD_RETURN_IF_ERROR(add(arrays.weights));
  DATASETD_RETURN_IF_ERROR(add(arrays.weighted_samples));
  DATASETD_RETURN_IF_ERROR(add(arrays.classes));
  return sealed;
}

absl::StatusOr<GuardedFd> SealWeights(absl::Span<const double> weights) {
  return SealedCopy(weights.data(), weights.size() * sizeof(weights[0]));
}

}  // namespace datasetd::client
