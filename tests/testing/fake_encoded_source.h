// An encoded source in memory: images of any size, some of them bad.

#ifndef DATASETD_TESTS_TESTING_FAKE_ENCODED_SOURCE_H_
#define DATASETD_TESTS_TESTING_FAKE_ENCODED_SOURCE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/dataset/sample_source.h"

namespace datasetd::testing {

// Pixel (y, x) of sample i is i + 3 * y + 5 * x (mod 256); the label is 1000 +
// i.
class FakeEncodedSource : public SampleSource {
 public:
  using SizeOf = std::function<ImageSize(int64_t index)>;

  // The first sample's size is that of the field.
  FakeEncodedSource(int64_t num_samples, SizeOf size_of)
      : size_of_(std::move(size_of)) {
    const ImageSize first = size_of_(0);
    info_.num_samples = num_samples;
    info_.is_encoded = true;
    info_.fields = {{.name = "image",
                     .dtype = Dtype::kUint8,
                     .shape = {first.height, first.width, 1},
                     .is_image = true,
                     .is_ragged = true},
                    {.name = "label", .dtype = Dtype::kInt64, .shape = {}}};
    info_.files = {{.path = "/fake/source", .size_bytes = num_samples}};
  }

  static uint8_t Pixel(int64_t index, int64_t y, int64_t x) {
    return static_cast<uint8_t>(index + 3 * y + 5 * x);
  }

  void SetFiles(std::vector<FileInfo> files) { info_.files = std::move(files); }
  void SetUnreadable(int64_t index, absl::Status status) {
    unreadable_[index] = status;
  }
  void SetBad(int64_t index, absl::Status status) { bad_[index] = status; }
  void SetBadHeader(int64_t index, absl::Status status) {
    bad_headers_[index] = status;
  }
  // Called at the start of every Probe, on its thread.
  void OnProbe(std::function<void(int64_t index)> on_probe) {
    on_probe_ = std::move(on_probe);
  }
  // Called at the start of every Decode, on its thread.
  void OnDecode(std::function<void(int64_t index)> on_decode) {
    on_decode_ = std::move(on_decode);
  }
  int64_t num_decoded() const { return num_decoded_; }

  const SourceInfo& info() const override { return info_; }
  absl::Status Fetch(int64_t index, RawSample& raw) const override {
    const auto unreadable = unreadable_.find(index);
    if (unreadable != unreadable_.end()) return unreadable->second;
    raw.parts.resize(1);
    raw.parts[0].assign(1, static_cast<uint8_t>(index));
    return absl::OkStatus();
  }
  absl::Status Probe(int64_t index, const RawSample&,
                     SampleProbe& probe) const override {
    if (on_probe_) on_probe_(index);
    const auto bad = bad_headers_.find(index);
    if (bad != bad_headers_.end()) return bad->second;
    const ImageSize size = size_of_(index);
    probe.sizes.assign(1, size);
    probe.decode_bytes = size.height * size.width;
    return absl::OkStatus();
  }
  absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const override {
    if (on_decode_) on_decode_(index);
    ++num_decoded_;
    if (raw.parts[0][0] != static_cast<uint8_t>(index)) {
      return absl::InternalError("the bytes of another sample");
    }
    const ImageSize size = size_of_(index);
    uint8_t* row = fields[0].data();
    // A bad sample leaves something behind.
    for (int64_t y = 0; y < size.height; ++y, row += size.width) {
      CopyRow(Pixel(index, y, 0), size.width, row);
    }
    const auto bad = bad_.find(index);
    if (bad != bad_.end()) return bad->second;
    const int64_t label = 1000 + index;
    std::memcpy(fields[1].data(), &label, sizeof(label));
    return absl::OkStatus();
  }
  // Whether `row` is of sample `index`, from pixel (y, x) on.
  static bool IsRow(int64_t index, int64_t y, int64_t x,
                    absl::Span<const uint8_t> row) {
    std::vector<uint8_t> expected(row.size());
    CopyRow(Pixel(index, y, x), static_cast<int64_t>(row.size()),
            expected.data());
    return row == absl::MakeConstSpan(expected);
  }
  SampleLocation Locate(int64_t index) const override {
    return {.path = absl::StrCat("/fake/", index),
            .offset = index % 2 == 0 ? 0 : 10 * index,
            .size_bytes = 1};
  }

 private:
  // Writes the `width` pixels from one that is `first` on. They repeat after
  // 256; tests are not optimized, and a copy takes no time.
  static void CopyRow(uint8_t first, int64_t width, uint8_t* row) {
    static const std::vector<uint8_t>* const kRepeated = [] {
      auto* const repeated = new std::vector<uint8_t>(2 * 256);
      for (size_t x = 0; x < repeated->size(); ++x) {
        (*repeated)[x] = Pixel(0, 0, static_cast<int64_t>(x));
      }
      return repeated;
    }();
    // 5 * 205 = 1 (mod 256).
    const uint8_t* const from = kRepeated->data() + uint8_t(first * 205);
    for (int64_t x = 0; x < width; x += 256) {
      std::memcpy(row + x, from,
                  static_cast<size_t>(std::min<int64_t>(width - x, 256)));
    }
  }

  const SizeOf size_of_;
  SourceInfo info_;
  std::map<int64_t, absl::Status> unreadable_;
  std::map<int64_t, absl::Status> bad_;
  std::map<int64_t, absl::Status> bad_headers_;
  std::function<void(int64_t)> on_probe_;
  std::function<void(int64_t)> on_decode_;
  mutable std::atomic<int64_t> num_decoded_ = 0;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_FAKE_ENCODED_SOURCE_H_
