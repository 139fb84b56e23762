// The arrays of a feed's order, which its client sends with ATTACH_FEED as
// sealed memory (proto/attach_protocol.h): those that the feed's options call
// for.
//
// What a client sends is read by pread, not mapped: a hole of a file then costs
// the daemon no page, and no file can raise SIGBUS. Thread-compatible, except
// that any thread may call Cancel.

#ifndef DATASETD_SERVER_ORDER_ORDER_ARRAYS_H_
#define DATASETD_SERVER_ORDER_ORDER_ARRAYS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "server/dataset/memory_budget.h"

namespace datasetd {

class OrderArrays {
 public:
  // `memory` is of the tables that the arrays are copied to.
  explicit OrderArrays(Reservation memory) : memory_(std::move(memory)) {}
  OrderArrays(const OrderArrays&) = delete;
  OrderArrays& operator=(const OrderArrays&) = delete;

  // The next array: `size` numbers, at least one. `append` is called with them
  // in blocks, in their order; its error ends Read.
  template <typename T>
  void Add(const char* name, int64_t size,
           std::function<absl::Status(absl::Span<const T>)> append) {
    arrays_.push_back({.name = name,
                       .size_bytes = size * static_cast<int64_t>(sizeof(T)),
                       .append = [append = std::move(append)](
                                     const void* data, int64_t size_bytes) {
                         return append(
                             {static_cast<const T*>(data),
                              static_cast<size_t>(size_bytes) / sizeof(T)});
                       }});
  }
  // Called when all arrays were read; its error is that of Read.
  void OnRead(std::function<absl::Status()> check) {
    checks_.push_back(std::move(check));
  }

  bool is_empty() const { return arrays_.empty(); }
  bool is_read() const { return is_read_; }

  // Checks that `descriptors` are these arrays, sealed. Waits for nobody.
  //   INVALID_ARGUMENT  there are others; the message names the array
  absl::Status Check(absl::Span<const FileDescriptor> descriptors) const;

  // Copies the arrays to their tables and checks each value, which may take
  // long. REQUIRES: Check(descriptors) is OK; called once.
  //   INVALID_ARGUMENT, OUT_OF_RANGE  a value is wrong
  //   CANCELLED                       Cancel was called
  absl::Status Read(absl::Span<const FileDescriptor> descriptors);

  // Makes Read return soon.
  void Cancel() { is_cancelled_.store(true); }

 private:
  struct Array {
    const char* name;
    int64_t size_bytes;
    std::function<absl::Status(const void* data, int64_t size_bytes)> append;
  };

  // Declared first: released after the tables, which the functions hold.
  const Reservation memory_;
  std::vector<Array> arrays_;
  std::vector<std::function<absl::Status()>> checks_;
  bool is_read_ = false;
  std::atomic<bool> is_cancelled_ = false;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_ORDER_ARRAYS_H_
