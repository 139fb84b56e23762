// Scratch memory of a program's chains: num_teams flags, then num_teams areas.
// On the host a flag is 1 while a thread uses the team's area; on CUDA block b
// uses area b.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_SCRATCH_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_SCRATCH_H_

#include <cstdint>
#include <cstring>

#include "base/checked_math.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

inline constexpr int64_t kTeamFlagBytes = 64;
inline constexpr int64_t kScratchAlignment = 256;

DATASETD_HOST_DEVICE inline int64_t AlignScratch(int64_t size_bytes) {
  return SaturatingRoundUp(size_bytes, kScratchAlignment);
}

// Slack after each part: host loops may access a block of pixels beyond its
// end. Parts begin aligned.
inline constexpr int64_t kScratchSlackElements = 64;

// Elements that a CUDA thread may read beyond the end of an image or of the
// rows, with the last pixels of a row; it writes nothing there.
inline constexpr int64_t kReadBeyondElements = 3;
static_assert(kReadBeyondElements <= kScratchSlackElements);

DATASETD_HOST_DEVICE inline int64_t ScratchPartBytes(int64_t elements) {
  return AlignScratch(
      SaturatingMultiply(4, SaturatingAdd(elements, kScratchSlackElements)));
}

// Returns the elements between the channels of a planar row: a multiple of
// four.
DATASETD_HOST_DEVICE inline int64_t LineStride(int64_t width) {
  return (width + 35) / 4 * 4;
}

// Saturates, as all sizes in this file.
inline int64_t TeamScratchBytes(const ChainScratch& scratch) {
  const int64_t tap_bytes = ScratchPartBytes(scratch.tap_elements);
  const int64_t partner_bytes =
      scratch.partner_elements == 0
          ? 0
          : ScratchPartBytes(scratch.partner_elements);
  return SaturatingSum(ScratchPartBytes(scratch.image_elements[0]),
                       ScratchPartBytes(scratch.image_elements[1]),
                       ScratchPartBytes(scratch.row_elements),
                       ScratchPartBytes(scratch.line_elements), tap_bytes,
                       tap_bytes, ScratchPartBytes(scratch.map_elements),
                       partner_bytes);
}

// Returns 0 if the field is not a chain.
inline int64_t TeamScratchBytes(const FieldProgram& field) {
  return field.num_steps == 0 ? 0 : TeamScratchBytes(field.scratch);
}

// Returns the largest of the program's fields, which run one after another.
inline int64_t TeamScratchBytes(const AugmentProgram& program) {
  int64_t size_bytes = 0;
  for (int i = 0; i < program.num_fields; ++i) {
    const int64_t field = TeamScratchBytes(program.fields[i]);
    size_bytes = field > size_bytes ? field : size_bytes;
  }
  return size_bytes;
}

// Upper limit of the scratch memory of all teams, unless one needs more.
inline constexpr int64_t kScratchTargetBytes = int64_t{256} << 20;

struct ScratchPlan {
  int64_t team_bytes = 0;
  int num_teams = 0;
  int64_t size_bytes = 0;  // 0 without chains

  // Stores `scratch`, of size_bytes, in the program.
  void Give(uint8_t* scratch, AugmentProgram* program) const {
    program->scratch = scratch;
    program->team_scratch_bytes = team_bytes;
    program->num_teams = num_teams;
  }
};

// Plans at least one team and at most `max_teams`, the backend's limit.
inline ScratchPlan PlanScratch(int64_t team_bytes, int max_teams) {
  ScratchPlan plan;
  plan.team_bytes = team_bytes;
  if (plan.team_bytes == 0) return plan;
  const int64_t fitting = kScratchTargetBytes / plan.team_bytes;
  plan.num_teams = fitting < 1           ? 1
                   : fitting < max_teams ? static_cast<int>(fitting)
                                         : max_teams;
  plan.size_bytes =
      SaturatingAdd(AlignScratch(plan.num_teams * kTeamFlagBytes),
                    SaturatingMultiply(plan.num_teams, plan.team_bytes));
  return plan;
}

inline ScratchPlan PlanScratch(const AugmentProgram& program, int max_teams) {
  return PlanScratch(TeamScratchBytes(program), max_teams);
}

// Host only: call before the first batch of a program.
inline void ClearTeamFlags(const AugmentProgram& program) {
  for (int team = 0; team < program.num_teams; ++team) {
    memset(program.scratch + team * kTeamFlagBytes, 0, kTeamFlagBytes);
  }
}

DATASETD_HOST_DEVICE inline ChainMemory TeamMemory(
    const AugmentProgram& program, const FieldProgram& field, int team) {
  const int64_t flag_bytes = program.num_teams * kTeamFlagBytes;
  uint8_t* at = program.scratch +
                ((flag_bytes + kScratchAlignment - 1) & -kScratchAlignment) +
                team * program.team_scratch_bytes;
  const ChainScratch& scratch = field.scratch;
  // As ScratchPartBytes, of what has been allocated, so that nothing overflows.
  const auto take = [&at](int64_t elements) {
    uint8_t* const part = at;
    const int64_t size_bytes = 4 * (elements + kScratchSlackElements);
    at += (size_bytes + kScratchAlignment - 1) & -kScratchAlignment;
    return reinterpret_cast<float*>(part);
  };
  ChainMemory memory;
  memory.image[0] = take(scratch.image_elements[0]);
  memory.image[1] = take(scratch.image_elements[1]);
  memory.rows = take(scratch.row_elements);
  memory.line = take(scratch.line_elements);
  memory.weights = take(scratch.tap_elements);
  memory.indices = reinterpret_cast<int32_t*>(take(scratch.tap_elements));
  memory.map = reinterpret_cast<int32_t*>(take(scratch.map_elements));
  memory.partner = reinterpret_cast<float*>(at);
  return memory;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_SCRATCH_H_
