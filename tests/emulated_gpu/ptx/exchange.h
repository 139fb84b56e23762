// The handlers of what the lanes of a warp do together, and of special
// registers.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_EXCHANGE_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_EXCHANGE_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

enum class ShuffleMode : uint8_t { kUp, kDown, kButterfly, kIndex };
enum class VoteMode : uint8_t { kAll, kAny, kUniform, kBallot };

// d: the value, e: the predicate or kNoOperand; a, b, c: operands; variant:
// the ShuffleMode; target: the member mask's operand.
bool RunShuffle(WarpState& warp, const MicroOp& op, uint32_t mask);
// d: a predicate, of kBallot a word; a: a predicate, is_signed: negated; b: the
// member mask; variant: the VoteMode.
bool RunVote(WarpState& warp, const MicroOp& op, uint32_t mask);
// d: the active lanes.
bool RunActiveMask(WarpState& warp, const MicroOp& op, uint32_t mask);
// d, a; b: the member mask; variant: the BinaryOp; is_signed: compared so.
bool RunReduce(WarpState& warp, const MicroOp& op, uint32_t mask);
// bar.warp.sync. b: the member mask.
bool RunWarpSync(WarpState& warp, const MicroOp& op, uint32_t mask);

enum class SpecialRegister : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kLaneMaskEq,
  kLaneMaskLt,
  kLaneMaskLe,
  kLaneMaskGt,
  kLaneMaskGe,
};

// "%tid.x". Registers that depend on time or place, as %clock and %smid, are
// not known.
std::optional<SpecialRegister> FindSpecialRegister(absl::string_view name);
// d; variant: the SpecialRegister.
bool RunSpecial(WarpState& warp, const MicroOp& op, uint32_t mask);

// Begins a segment of accesses; false if there are too many.
bool BeginSegment(WarpState& warp);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_EXCHANGE_H_
