#include "server/order/document_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/require.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/program/params.h"
#include "server/order/uniform_int64.h"

namespace datasetd {
namespace {

// Measured and rounded up: of a document whose neighbours are not in the cache.
constexpr int64_t kDocumentNanoseconds = 30;
constexpr int64_t kEntryNanoseconds = 2;
constexpr int64_t kDocumentRowNanoseconds = 400;

}  // namespace

absl::Status DocumentTable::CheckLength(int64_t begin, int64_t end) const {
  if (end - begin <= kMaxEntryPosition + 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "documents: the one that begins at step ", begin, " of dataset '",
      options_.dataset, "' has ", end - begin, " steps; at most ",
      kMaxEntryPosition + 1, " are possible: divide it by further starts"));
}

absl::Status DocumentTable::Append(absl::Span<const int64_t> starts) {
  for (const int64_t start : starts) {
    const int64_t before = starts_.empty() ? -1 : starts_.back();
    if (start < 0 || start >= options_.num_steps) {
      return absl::OutOfRangeError(absl::StrCat(
          "documents[", starts_.size(), "] begins at ", start, "; dataset '",
          options_.dataset, "' has the steps 0..", options_.num_steps - 1));
    }
    if (start <= before || (starts_.empty() && start != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "documents[", starts_.size(), "] begins at ", start,
          starts_.empty() ? ""
                          : absl::StrCat(", and the one before at ", before),
          "; the first steps of documents must ascend from 0"));
    }
    if (!starts_.empty()) {
      const absl::Status status = CheckLength(before, start);
      if (!status.ok()) return status;
    }
    starts_.push_back(start);
  }
  return absl::OkStatus();
}

absl::Status DocumentTable::Finish() const {
  Require(starts_.size() == static_cast<size_t>(options_.num_documents),
          "all documents are there");
  return CheckLength(starts_.back(), options_.num_steps);
}

int64_t DocumentOrder::SizeBytes(const DocumentPlan& plan) {
  return 2 * plan.num_documents *
         static_cast<int64_t>(sizeof(uint32_t) + sizeof(int64_t));
}

DocumentOrder::DocumentOrder(const DocumentPlan& plan, uint64_t seed)
    : plan_(plan), seed_(seed) {
  for (Epoch& epoch : epochs_) {
    epoch.documents.resize(static_cast<size_t>(plan.num_documents));
    epoch.ends.resize(static_cast<size_t>(plan.num_documents));
  }
}

const DocumentOrder::Epoch* DocumentOrder::Find(uint64_t epoch) const {
  for (const Epoch& one : epochs_) {
    if (one.IsOf(epoch)) return &one;
  }
  return nullptr;
}

bool DocumentOrder::Prepare(uint64_t number, int64_t* nanoseconds) {
  const Epoch* const found = Find(number);
  Epoch& epoch =
      found != nullptr ? epochs_[found - epochs_] : epochs_[1 - used_];
  if (found == nullptr) {
    epoch.number = number;
    epoch.is_begun = true;
    epoch.num_shuffled = 0;
    epoch.num_ends = 0;
  }
  const size_t size = epoch.ends.size();
  const auto take = [&](size_t num_left) {
    const size_t count = std::min<size_t>(
        num_left, static_cast<size_t>(std::max<int64_t>(
                      1, *nanoseconds / kDocumentNanoseconds)));
    *nanoseconds -= static_cast<int64_t>(count) * kDocumentNanoseconds;
    return count;
  };
  // "Inside out": document i comes to a place up to i, and what was there to
  // place i. So it can be continued, and takes no pass before.
  for (size_t left = take(size - epoch.num_shuffled); left > 0; --left) {
    const size_t i = epoch.num_shuffled++;
    size_t place = i;
    if (plan_.shuffle) {
      const Words4 words = Draw(seed_, static_cast<uint32_t>(i / 2),
                                kDocumentOpIndex, static_cast<uint32_t>(number),
                                static_cast<uint32_t>(number >> 32));
      place = UniformInt64(HalfOf(words, i % 2), i + 1);
    }
    epoch.documents[i] = epoch.documents[place];
    epoch.documents[place] = static_cast<uint32_t>(i);
  }
  if (epoch.num_shuffled < size) return false;
  for (size_t left = *nanoseconds > 0 ? take(size - epoch.num_ends) : 0;
       left > 0; --left) {
    const size_t i = epoch.num_ends++;
    epoch.ends[i] = (i == 0 ? 0 : epoch.ends[i - 1]) +
                    plan_.table->length(epoch.documents[i]);
  }
  return epoch.is_complete();
}

int64_t DocumentOrder::NanosecondsLeft(uint64_t number) const {
  const Epoch* const epoch = Find(number);
  int64_t num_left = 2 * plan_.num_documents;
  if (epoch != nullptr) {
    num_left -= static_cast<int64_t>(epoch->num_shuffled + epoch->num_ends);
  }
  return num_left * kDocumentNanoseconds;
}

int64_t DocumentOrder::row_nanoseconds() const {
  return kDocumentRowNanoseconds + plan_.row_entries() * kEntryNanoseconds;
}

void DocumentOrder::Fill(uint64_t number, absl::Span<int64_t> rows,
                         int64_t* entries) {
  const Epoch* const epoch = Find(number);
  Require(epoch != nullptr && epoch->is_complete(), "the order is complete");
  used_ = static_cast<int>(epoch - epochs_);
  for (int64_t& row : rows) {
    FillRow(*epoch, row, entries);
    row = EntryStep(entries[0]);
    entries += plan_.row_entries();
  }
}

void DocumentOrder::FillRow(const Epoch& epoch, int64_t row,
                            int64_t* entries) const {
  const int64_t length = plan_.length;
  int64_t at = row * length;  // in the laid out order
  auto end = std::upper_bound(epoch.ends.begin(), epoch.ends.end(), at);
  int64_t* const sequences = entries + length + 1;
  int64_t num_sequences = 0;
  int64_t i = 0;
  while (i <= length && end != epoch.ends.end()) {
    const uint32_t document =
        epoch.documents[static_cast<size_t>(end - epoch.ends.begin())];
    const int64_t count = std::min(*end - at, length + 1 - i);
    const int64_t position = plan_.table->length(document) - (*end - at);
    const int64_t step = plan_.table->start(document) + position;
    if (plan_.has_sequences && i < length) sequences[num_sequences++] = i;
    for (int64_t k = 0; k < count; ++k) {
      entries[i + k] = MakeEntry(step + k, position + k);
    }
    i += count;
    at += count;
    ++end;
  }
  const int64_t num_steps = std::min(i, length);
  std::fill(entries + i, entries + length + 1, kNoEntry);
  if (plan_.has_sequences) {
    std::fill(sequences + num_sequences, sequences + length + 1, num_steps);
  }
}

}  // namespace datasetd
