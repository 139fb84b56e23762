#include "client/push_hasher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"

namespace datasetd::client {
namespace {

constexpr size_t kMaxHashed = 4;
// Of the buffers of all fields; smaller ones are hashed slowly.
constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kMinBufferBytes = 16 << 10;

}  // namespace

size_t SampleBytes(const v1::Field& field) {
  auto bytes =
      static_cast<size_t>(DtypeSizeBytes(static_cast<Dtype>(field.dtype())));
  for (const int64_t extent : field.shape()) {
    if (extent < 1 || field.is_encoded()) return 0;
    bytes *= static_cast<size_t>(extent);
  }
  return bytes;
}

PushHasher::PushHasher(const v1::PushHeader& header)
    : num_samples_(header.num_samples()),
      hasher_(static_cast<size_t>(header.fields_size()),
              ContentHasher::DefaultNumThreads()) {
  for (const v1::Field& field : header.fields()) {
    fields_.emplace_back().sample_bytes = SampleBytes(field);
  }
  buffer_bytes_ = std::max(kMinBufferBytes, kBufferBytes / fields_.size());
}

absl::Status PushHasher::Write(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (num_written_ == num_samples_) return TooMany();
    Field& field = fields_[field_];
    const size_t size = std::min({bytes.size(), field.sample_bytes - offset_,
                                  buffer_bytes_ - field.buffer.size()});
    field.buffer.insert(field.buffer.end(), bytes.begin(),
                        bytes.begin() + static_cast<std::ptrdiff_t>(size));
    bytes.remove_prefix(size);
    offset_ += size;
    if (field.buffer.size() == buffer_bytes_) Hash(field_);
    if (offset_ < field.sample_bytes) continue;
    offset_ = 0;
    field_ = (field_ + 1) % fields_.size();
    if (field_ == 0) ++num_written_;
  }
  return absl::OkStatus();
}

absl::Status PushHasher::WriteSamples(absl::Span<const uint8_t* const> fields,
                                      int64_t num_samples) {
  if (field_ != 0 || offset_ != 0) {
    return absl::InvalidArgumentError(
        "samples by field: the bytes before end within a sample");
  }
  if (num_samples > num_samples_ - num_written_) return TooMany();
  ContentHasher::Ticket ticket = 0;
  for (size_t f = 0; f < fields_.size(); ++f) {
    if (!fields_[f].buffer.empty()) Hash(f);
    const size_t bytes =
        static_cast<size_t>(num_samples) * fields_[f].sample_bytes;
    ticket = hasher_.Add(f, absl::MakeConstSpan(fields[f], bytes));
  }
  hasher_.Await(ticket);
  num_written_ += num_samples;
  return absl::OkStatus();
}

absl::Status PushHasher::TooMany() const {
  return absl::InvalidArgumentError(
      absl::StrCat("more was sent than the ", num_samples_,
                   " samples that the header declares"));
}

void PushHasher::Hash(size_t field) {
  std::vector<uint8_t> next;
  if (hashed_.size() == kMaxHashed) {
    hasher_.Await(hashed_.front().ticket);
    next = std::move(hashed_.front().buffer);
    next.clear();
    hashed_.pop_front();
  }
  Hashed& hashed = hashed_.emplace_back();
  hashed.buffer = std::exchange(fields_[field].buffer, std::move(next));
  hashed.ticket = hasher_.Add(field, hashed.buffer);
}

absl::StatusOr<v1::PushDigests> PushHasher::Finish() {
  if (num_written_ < num_samples_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the samples ended after ", num_written_, " of ",
                     num_samples_, " that the header declares"));
  }
  v1::PushDigests digests;
  for (size_t f = 0; f < fields_.size(); ++f) {
    hasher_.Add(f, fields_[f].buffer);
    const Digest digest = hasher_.Finish(f);
    digests.add_fields(digest.data(), digest.size());
  }
  return digests;
}

}  // namespace datasetd::client
