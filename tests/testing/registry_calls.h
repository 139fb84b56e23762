// Calls of a registry that wait, for tests.

#ifndef DATASETD_TESTS_TESTING_REGISTRY_CALLS_H_
#define DATASETD_TESTS_TESTING_REGISTRY_CALLS_H_

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/registry/dataset_registry.h"

namespace datasetd::testing {

// Begins a load and waits until its files are known. Errors as those of the
// call.
inline absl::StatusOr<std::shared_ptr<LoadCall>> Load(DatasetRegistry& registry,
                                                      v1::DatasetSpec spec,
                                                      const Caller& caller) {
  auto call = registry.BeginLoad(std::move(spec), caller);
  while (call.ok()) {
    const bool is_settled = (*call)->settled.Await(absl::ZeroDuration());
    const auto info = (*call)->Await(absl::ZeroDuration());
    if (!info.ok()) return info.status();
    if (info->state != DatasetState::kLoading ||
        !info->dataset.progress().is_scanning()) {
      break;
    }
    if (is_settled) {
      return absl::UnavailableError("the registry ends");
    }
    std::this_thread::yield();
  }
  return call;
}

// Waits until the dataset of a name is no longer LOADING, or `timeout` passes.
inline absl::StatusOr<DatasetInfo> AwaitLoaded(DatasetRegistry& registry,
                                               const std::string& name,
                                               absl::Duration timeout) {
  const absl::Duration deadline = MonotonicNow() + timeout;
  while (true) {
    auto info = registry.Hold(name, Caller(), /*only_describes=*/true);
    if (!info.ok() || info->state != DatasetState::kLoading ||
        MonotonicNow() >= deadline) {
      return info;
    }
    std::this_thread::yield();
  }
}

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_REGISTRY_CALLS_H_
