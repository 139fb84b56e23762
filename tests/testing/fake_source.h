// Sources in memory: what a reader would have read.

#ifndef DATASETD_TESTS_TESTING_FAKE_SOURCE_H_
#define DATASETD_TESTS_TESTING_FAKE_SOURCE_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/dataset/sample_source.h"

namespace datasetd::testing {

// Shared by the sources of a test: lets them read, or makes them fail.
class SourceGate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void Close() {
    std::lock_guard lock(mutex_);
    is_open_ = false;
  }
  void FailWith(absl::Status error) {
    std::lock_guard lock(mutex_);
    error_ = std::move(error);
  }
  absl::Status Pass(int64_t first) {
    std::unique_lock lock(mutex_);
    if (first == 0) ++num_reads_;
    changed_.wait(lock, [&] { return is_open_; });
    return error_;
  }
  // How often a source was read from its first sample.
  int num_reads() {
    std::lock_guard lock(mutex_);
    return num_reads_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  int num_reads_ = 0;
  absl::Status error_;
};

// Every sample of field `image`, uint8 [1, 1, sample_bytes / 1], is `fill`.
class FakeSource : public SampleSource {
 public:
  FakeSource(int64_t num_samples, int64_t width, const std::string& file,
             uint8_t fill, SourceGate* gate,
             std::vector<std::string> class_names = {})
      : fill_(fill), gate_(gate) {
    info_.num_samples = num_samples;
    info_.fields = {{.name = "image",
                     .dtype = Dtype::kUint8,
                     .shape = {1, width, 1},
                     .is_image = true}};
    info_.class_names = std::move(class_names);
    info_.files = {{.path = file, .size_bytes = num_samples * width}};
  }
  const SourceInfo& info() const override { return info_; }
  absl::Status Read(int64_t first, int64_t,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    absl::Status status = gate_->Pass(first);
    std::fill(fields[0].begin(), fields[0].end(), fill_);
    return status;
  }

 private:
  const uint8_t fill_;
  SourceGate* const gate_;
  SourceInfo info_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_FAKE_SOURCE_H_
