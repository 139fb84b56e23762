// The flow of control of a function, and what is live and written where.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_FLOW_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_FLOW_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/emulated_gpu/ptx/syntax.h"

namespace datasetd::emulated_gpu {

// A set of registers.
class BitSet {
 public:
  explicit BitSet(size_t size = 0) : words_((size + 63) / 64) {}

  bool Has(size_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void Add(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void Remove(size_t i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  void Fill() { words_.assign(words_.size(), ~uint64_t{0}); }
  // Whether this changed.
  bool Intersect(const BitSet& other);
  bool Unite(const BitSet& other);
  size_t num_words() const { return words_.size(); }
  uint64_t word(size_t i) const { return words_[i]; }

 private:
  std::vector<uint64_t> words_;
};

struct Accesses {
  std::vector<int> reads;
  std::vector<int> writes;
};

// The registers of a statement, the guard's among its reads.
Accesses FindAccesses(const Statement& statement);

struct BasicBlock {
  int first = 0;
  int last = 0;  // behind the last statement
  std::vector<int> successors;
  std::vector<int> predecessors;
  // For a conditional branch at the end: the statement where all ways meet
  // again, the first of the immediate post-dominator; -1: the end of the
  // function.
  int reconverge = -1;
};

struct Flow {
  std::vector<BasicBlock> blocks;
  std::vector<int> block_of;  // by statement
  // From the first to the last statement at which each register holds a value
  // that is needed; first > last: never.
  std::vector<int> live_first;
  std::vector<int> live_last;
  // Registers that a statement may read before they are written.
  BitSet maybe_unwritten;
};

// INVALID_ARGUMENT: a branch to what is no label.
absl::StatusOr<Flow> AnalyseFlow(const FunctionSyntax& function);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_FLOW_H_
