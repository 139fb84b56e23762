// Counts of a launch, the same on every run.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_COUNTERS_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_COUNTERS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "tests/emulated_gpu/ptx/op_class.h"

namespace datasetd::emulated_gpu {

// Accesses of one kind. A request is one warp instruction in one space.
struct AccessCount {
  uint64_t requests = 0;
  // Lines of 128 and sectors of 32 bytes that the lanes touch, and how few
  // would hold the distinct bytes.
  uint64_t lines = 0;
  uint64_t lines_needed = 0;
  uint64_t sectors = 0;
  uint64_t sectors_needed = 0;
  // Shared memory: passes over its 32 banks of 4 bytes.
  uint64_t wavefronts = 0;
  // Words of 4 bytes a lane: of local memory, one line each in a warp.
  uint64_t words = 0;

  void Add(const AccessCount& other);
};

struct Counters {
  uint64_t blocks = 0;
  uint64_t warps = 0;
  uint64_t warp_instructions = 0;
  uint64_t thread_instructions = 0;
  uint64_t longest_block = 0;  // its warp instructions; with count_accesses
  uint64_t barriers = 0;       // by block
  std::map<int, uint64_t> barriers_by_ptx_line;  // by warp
  uint64_t divergent_branches = 0;
  std::array<uint64_t, kNumOpClasses> by_class = {};  // warp instructions
  // With LaunchConfig::count_accesses.
  AccessCount global_loads;
  AccessCount global_stores;
  AccessCount shared_loads;
  AccessCount shared_stores;
  AccessCount local_loads;
  AccessCount local_stores;
  AccessCount atomics;

  // With LaunchConfig::count_lines: warp instructions and sectors of global
  // memory by file and line of the source.
  struct Line {
    uint64_t warp_instructions = 0;
    uint64_t thread_instructions = 0;
    uint64_t sectors = 0;
  };
  std::map<std::pair<std::string, int>, Line> by_line;
  // Likewise: warp instructions by line of the PTX.
  std::map<int, uint64_t> by_ptx_line;

  // Active lanes of a warp instruction, 0..32.
  double MeanActiveLanes() const {
    return warp_instructions == 0 ? 0
                                  : static_cast<double>(thread_instructions) /
                                        static_cast<double>(warp_instructions);
  }
};

inline void AccessCount::Add(const AccessCount& other) {
  requests += other.requests;
  lines += other.lines;
  lines_needed += other.lines_needed;
  sectors += other.sectors;
  sectors_needed += other.sectors_needed;
  wavefronts += other.wavefronts;
  words += other.words;
}

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_COUNTERS_H_
