#include "cuda/kernels/host/chain_host.h"

// clang, which builds the fuzzers, has no target pragma and omits this build.
#if defined(__x86_64__) && !defined(__clang__)

// GCC 12 warns about undefined vectors in its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstdint>

// Makes GCC 12 use gather instructions; all inlined functions need equal
// tuning.
#pragma GCC target("tune=haswell")

// Headers shared by the builds are included before the target pragma, which
// must only apply to the executor's templates.
#include "base/dtype.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/chain_windows.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/host/host_team.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/interpolation.h"
#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/ops/op_rows.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

// Fused multiply-add would round differently.
#pragma GCC push_options
#pragma GCC target("avx2,avx512f,avx512bw,avx512dq,avx512vl")
#pragma GCC target("prefer-vector-width=512")

#include "cuda/kernels/host/host_vector_avx512.h"
// The vectors first.
#include "cuda/kernels/chain/chain_executor.h"
#include "cuda/kernels/chain/chain_rows.h"

namespace datasetd {

int32_t RunChainAvx512(const AugmentProgram& program, const FieldProgram& field,
                       const BatchTask& batch, const ChainMemory& memory) {
  ChainState state;
  ChainExecutor<HostTeam<HostIsa::kAvx512>> executor({}, program, field, memory,
                                                     &state);
  return RunRows(executor, batch);
}

}  // namespace datasetd

#pragma GCC pop_options

namespace datasetd {

bool HasChainAvx512() {
  static const bool has =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

}  // namespace datasetd

#else

namespace datasetd {

bool HasChainAvx512() { return false; }

int32_t RunChainAvx512(const AugmentProgram&, const FieldProgram&,
                       const BatchTask& batch, const ChainMemory&) {
  return batch.first_row;
}

}  // namespace datasetd

#endif
