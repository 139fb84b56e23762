// Makes the k-th call that may fail fail. Shared by the faulty doubles of a
// test; thread-safe.

#ifndef DATASETD_TESTS_TESTING_FAULT_PLAN_H_
#define DATASETD_TESTS_TESTING_FAULT_PLAN_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace datasetd::testing {

// Calls of these kinds count; of all others a plan knows nothing.
enum FaultKind : uint32_t {
  kFaultAllocate = 1,   // memory, streams, events, programs
  kFaultDevice = 2,     // copies, launches, records, waits
  kFaultRead = 4,       // opening, listing and reading files
  kFaultWrite = 8,      // creating, writing, syncing, renaming files
  kFaultShortRead = 16  // a read gives one byte less than there is
};

class FaultPlan {
 public:
  FaultPlan(uint32_t kinds, int64_t fail_at)
      : kinds_(kinds), fail_at_(fail_at) {}
  // Nothing fails.
  static FaultPlan* None() {
    static FaultPlan none(0, 0);
    return &none;
  }

  // True once, on the call that is to fail.
  bool Fires(FaultKind kind) {
    return (kinds_ & kind) != 0 && ++num_calls_ == fail_at_;
  }
  // RESOURCE_EXHAUSTED for allocations and writes, INTERNAL for the device,
  // UNAVAILABLE for reads.
  absl::Status Pass(FaultKind kind, const char* call) {
    if (!Fires(kind)) return absl::OkStatus();
    const std::string text = absl::StrCat("injected fault: ", call);
    if (kind == kFaultDevice) return absl::InternalError(text);
    if (kind == kFaultRead) return absl::UnavailableError(text);
    return absl::ResourceExhaustedError(text);
  }
  bool has_fired() const { return num_calls_ >= fail_at_; }
  int64_t num_calls() const { return num_calls_; }

 private:
  const uint32_t kinds_;
  const int64_t fail_at_;
  std::atomic<int64_t> num_calls_ = 0;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_FAULT_PLAN_H_
