#include "server/pipeline/paired_sizes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/kernels/ops/op_table.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd {
namespace {

// True if the step draws by the sample's size and shares its draws between
// fields.
bool DrawsBySize(const Step& step) {
  if ((step.op_index & kSharedOpIndex) == 0) return false;
  if (step.kind == StepKind::kMove) {
    return ParamsAs<Move>(step).kind == MoveKind::kRandomCrop;
  }
  return step.kind == StepKind::kResize &&
         ParamsAs<ResizeParams>(step).is_random;
}

bool SharesWindow(const FieldProgram& a, const FieldProgram& b) {
  return std::any_of(a.steps, a.steps + a.num_sized_steps, [&](const Step& s) {
    return DrawsBySize(s) &&
           std::any_of(b.steps, b.steps + b.num_sized_steps,
                       [&](const Step& t) { return t.op_index == s.op_index; });
  });
}

}  // namespace

absl::Status CheckPairedSizes(const Dataset& dataset,
                              absl::Span<const size_t> sources,
                              absl::Span<const FieldProgram> programs) {
  for (size_t f = 0; f < programs.size(); ++f) {
    for (size_t g = f + 1; g < programs.size(); ++g) {
      if (!SharesWindow(programs[f], programs[g])) continue;
      const RaggedIndex& first = *dataset.field_index(sources[f]);
      const RaggedIndex& second = *dataset.field_index(sources[g]);
      for (int64_t i = 0; i < dataset.num_samples(); ++i) {
        const ImageSize a = first.size(i);
        const ImageSize b = second.size(i);
        if (a == b) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "transforms: fields '", dataset.fields()[sources[f]].name,
            "' and '", dataset.fields()[sources[g]].name,
            "' share a crop, but sample ", i, " is ", a.height, "x", a.width,
            " in the one and ", b.height, "x", b.width,
            " in the other (height x width): put an op with a size of its own "
            "before it in each, such as Resize with height and width"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace datasetd
