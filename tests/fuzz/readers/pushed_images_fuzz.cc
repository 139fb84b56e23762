// Input: a byte of fields and options, the number of samples, the size of a
// block, the bytes of the samples.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/readers/images/pushed_images.h"

namespace datasetd {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

bool IsBadImage(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kDataLoss;
}

PushedImagesOptions OptionsOf(uint8_t bits) {
  PushedImagesOptions options;
  const int64_t channels = (bits & 1) != 0 ? 3 : 1;
  const int64_t extent = (bits & 2) != 0 ? 2 : kAnyExtent;
  options.info.fields = {
      {.name = "image", .shape = {extent, extent, channels}, .is_image = true}};
  options.is_encoded = {true};
  if ((bits & 4) != 0) {
    options.info.fields.push_back(
        {.name = "label", .dtype = Dtype::kInt16, .shape = {3}});
    options.is_encoded.push_back(false);
  }
  if ((bits & 8) != 0) {
    options.info.fields.push_back({.name = "mask",
                                   .shape = {kAnyExtent, kAnyExtent, 1},
                                   .is_image = true,
                                   .is_mask = true});
    options.is_encoded.push_back(true);
  }
  auto& to = *options.spec.mutable_options();
  to["max_pixels"] = "4096";
  if ((bits & 16) != 0) to["apply_exif"] = "true";
  if ((bits & 32) != 0) to["channels"] = "as_is";
  return options;
}

// Decodes a sample that the push holds, good or bad.
void Decode(const SampleSource& source, int64_t index) {
  RawSample raw;
  Require(source.Fetch(index, raw).ok(), "a sample cannot be read");
  Require(RawBytes(raw) == source.Locate(index).size_bytes, "another size");
  SampleProbe probe;
  absl::Status status = source.Probe(index, raw, probe);
  if (!status.ok()) {
    Require(IsBadImage(status), "another status of Probe");
    return;
  }
  std::vector<std::vector<uint8_t>> pixels;
  auto size = probe.sizes.begin();
  for (FieldSpec field : source.info().fields) {
    if (field.is_ragged) {
      Require(size != probe.sizes.end(), "a size is missing");
      field.shape[0] = size->height;
      field.shape[1] = size->width;
      ++size;
    }
    pixels.emplace_back(static_cast<size_t>(field.sample_bytes()));
  }
  std::vector<absl::Span<uint8_t>> fields;
  for (auto& field : pixels) fields.push_back(absl::MakeSpan(field));
  status = source.Decode(index, raw, fields);
  Require(status.ok() || IsBadImage(status), "another status of Decode");
}

void Push(const uint8_t* data, size_t size) {
  PushedImagesOptions options = OptionsOf(data[0]);
  options.info.num_samples = data[1];
  const size_t block_bytes = size_t{data[2]} + 1;
  std::string bytes(reinterpret_cast<const char*>(data) + 3, size - 3);
  if (!CheckPushedInfo(&options.info, options.is_encoded).ok()) {
    Require(data[1] == 0, "a header of samples was refused");
    return;
  }
  DecodeBudget budget({.sample_bytes = 1 << 20, .total_bytes = 1 << 20});
  DecodeBudget lists{DecodeBudget::Limits()};
  options.account = {.budget = &budget, .lists = &lists};
  options.may_have_all = true;
  SpoolSpace space("", 1 << 16, "push_spool_mib");
  {
    const auto source = OpenPushedImages(
        std::move(options),
        [&](std::string* block) -> absl::StatusOr<bool> {
          *block = bytes.substr(0, block_bytes);
          bytes.erase(0, block->size());
          return !block->empty();
        },
        /*is_cancelled=*/nullptr, &space);
    Require(source.ok(), "the options were refused");
    const absl::Status status = (*source)->Receive();
    Require(space.used_bytes() <= 1 << 16, "more than the space");
    if (status.ok()) {
      Require(space.used_bytes() == static_cast<int64_t>(size - 3),
              "not all bytes were kept");
      for (int64_t i = 0; i < data[1]; ++i) Decode(**source, i);
    } else {
      Require(IsBadImage(status) || absl::IsResourceExhausted(status),
              "another status of Receive");
    }
  }
  Require(space.used_bytes() == 0 && budget.used_bytes() == 0 &&
              lists.used_bytes() == 0,
          "memory was not given back");
}

}  // namespace
}  // namespace datasetd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size >= 3) datasetd::Push(data, size);
  return 0;
}
