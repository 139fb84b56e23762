#include "cuda/kernels/program/chain_plan.h"

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {
namespace {

// True if samples have one pass, or may have: a block of threads warps resident
// bytes of three channels without a pass before.
bool HasOnePass(const FieldProgram& field) {
  if (field.num_passes == 1) return true;
  // A strip of an image that is mixed needs another one of its partner.
  return field.num_passes == 2 && field.passes[1].source == PassSource::kWarp &&
         field.in_dtype == Dtype::kUint8 && field.channels == 3 &&
         field.mix.kind == MixKind::kNone;
}

int32_t NumStrips(const FieldProgram& field, int64_t most) {
  if (!HasOnePass(field)) return 1;
  const int32_t height = field.out_height;
  const auto strips = static_cast<int32_t>(std::clamp<int64_t>(
      std::min(most, field.operations / kMinStripOperations), 1, height));
  // As many rows in each, so that none is empty.
  const int32_t rows = (height + strips - 1) / strips;
  return (height + rows - 1) / rows;
}

}  // namespace

int64_t MakeChainPlan(const AugmentProgram* device_program,
                      const AugmentProgram& host_program,
                      const BatchTask* batches, int num_batches,
                      ChainPlan* plan) {
  *plan = {};
  plan->program = device_program;
  plan->num_batches = num_batches;
  int64_t num_samples = 0;
  for (int b = 0; b < num_batches; ++b) {
    plan->batches[b] = batches[b];
    num_samples += NumRows(batches[b]);
  }
  if (num_samples == 0) return 0;
  int64_t num_blocks = 0;
  for (int f = 0; f < host_program.num_fields; ++f) {
    const FieldProgram& field = host_program.fields[f];
    if (field.num_steps == 0) continue;
    plan->num_strips[f] =
        NumStrips(field, host_program.num_teams / num_samples);
    num_blocks = std::max(num_blocks, num_samples * plan->num_strips[f]);
  }
  return std::min<int64_t>(num_blocks, host_program.num_teams);
}

}  // namespace datasetd
