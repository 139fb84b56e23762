// The rows of documents: a stream's documents are permuted for each epoch, laid
// end to end, and cut into rows (v1::DocumentOrder). docs/randomness.md has the
// order.

#ifndef DATASETD_SERVER_ORDER_DOCUMENT_ORDER_H_
#define DATASETD_SERVER_ORDER_DOCUMENT_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace datasetd {

// Where the documents of a stream begin. Constant once all were appended.
// Thread-compatible.
class DocumentTable {
 public:
  struct Options {
    int64_t num_documents = 0;  // 1..2^32 - 1
    int64_t num_steps = 0;      // of the stream, at most kMaxEntrySteps
    std::string dataset;        // its name, for errors
  };

  static int64_t SizeBytes(const Options& options) {
    return options.num_documents * static_cast<int64_t>(sizeof(int64_t));
  }
  explicit DocumentTable(const Options& options) : options_(options) {
    starts_.reserve(static_cast<size_t>(options.num_documents));
  }

  // Appends first steps, num_documents altogether.
  //   INVALID_ARGUMENT  they do not ascend from 0, or a document is too long
  //   OUT_OF_RANGE      one is not in the stream
  absl::Status Append(absl::Span<const int64_t> starts);
  // REQUIRES: all were appended. Errors as Append, of the last document.
  absl::Status Finish() const;

  int64_t num_documents() const { return options_.num_documents; }
  int64_t num_steps() const { return options_.num_steps; }
  int64_t start(uint32_t document) const { return starts_[document]; }
  int64_t length(uint32_t document) const {
    return (size_t{document} + 1 < starts_.size() ? starts_[document + 1]
                                                  : options_.num_steps) -
           starts_[document];
  }

 private:
  absl::Status CheckLength(int64_t begin, int64_t end) const;

  const Options options_;
  std::vector<int64_t> starts_;
};

struct DocumentPlan {
  // Finished when rows are filled.
  std::shared_ptr<const DocumentTable> table;
  int64_t num_documents = 0;
  int64_t num_steps = 0;
  int64_t length = 0;  // of a row, in steps
  bool shuffle = false;
  // Rows also have the places at which their sequences begin.
  bool has_sequences = false;

  int64_t num_rows() const { return (num_steps - 1) / length + 1; }
  // Entries of a row (params.h): those of its steps and of the next one; then,
  // with has_sequences, ascending numbers from 0 to the row's steps: the places
  // at which its sequences begin, and then its end, repeated.
  int64_t row_entries() const { return (has_sequences ? 2 : 1) * (length + 1); }
};

// Has the orders of two epochs in memory. Not thread-safe. Allocates only in
// the constructor.
class DocumentOrder {
 public:
  static int64_t SizeBytes(const DocumentPlan& plan);

  DocumentOrder(const DocumentPlan& plan, uint64_t seed);

  // Makes the order of an epoch, for about *nanoseconds, from which what it
  // took is deducted; returns true once it is complete. Keeps the order that
  // was used last.
  bool Prepare(uint64_t epoch, int64_t* nanoseconds);
  // About how long that takes yet.
  int64_t NanosecondsLeft(uint64_t epoch) const;
  int64_t row_nanoseconds() const;

  // Fills the entries of rows of the epoch, row_entries() for each, and
  // replaces their numbers by their first steps. REQUIRES: the order is
  // complete.
  void Fill(uint64_t epoch, absl::Span<int64_t> rows, int64_t* entries);

 private:
  struct Epoch {
    uint64_t number = 0;
    bool is_begun = false;
    size_t num_shuffled = 0;
    size_t num_ends = 0;  // that are known
    std::vector<uint32_t> documents;
    std::vector<int64_t> ends;  // in the laid out order

    bool IsOf(uint64_t epoch) const { return is_begun && number == epoch; }
    bool is_complete() const { return num_ends == ends.size(); }
  };

  void FillRow(const Epoch& epoch, int64_t row, int64_t* entries) const;
  const Epoch* Find(uint64_t epoch) const;

  const DocumentPlan plan_;
  const uint64_t seed_;
  Epoch epochs_[2];
  int used_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_DOCUMENT_ORDER_H_
