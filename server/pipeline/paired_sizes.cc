#include "server/pipeline/paired_sizes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/ops/op_table.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd {
namespace {

// A draw that depends on the image's size, and is shared between fields.
struct SharedDraw {
  uint32_t op_index;
  SampleSize size;      // of the image that the op gets, if that is fixed
  int num_sized_steps;  // that come before, if each sample has its own; else -1
};

// Returns what the op's DrawsBySize says; false without one.
template <typename Params>
bool ParamsDrawBySize(const Params& params) {
  if constexpr (requires { DrawsBySize(params); }) return DrawsBySize(params);
  return false;
}

bool StepDrawsBySize(const Step& step) {
  switch (step.kind) {
    case StepKind::kMove:
      return ParamsAs<Move>(step).kind == MoveKind::kRandomCrop;
#define DATASETD_ROW(Name) \
  case StepKind::k##Name:  \
    return ParamsDrawBySize(ParamsAs<Name##Params>(step));
      DATASETD_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      return false;
  }
}

std::vector<SharedDraw> SharedDrawsOf(const FieldProgram& program) {
  std::vector<SharedDraw> draws;
  const auto add = [&](uint32_t op_index, SampleSize size, int sized) {
    if ((op_index & kSharedOpIndex) != 0) {
      draws.push_back({op_index, size, sized});
    }
  };
  for (const Move* move = program.moves;
       move != program.moves + program.num_moves; ++move) {
    if (move->kind != MoveKind::kRandomCrop) continue;
    add(move->op_index, {move->in_height, move->in_width}, -1);
  }
  for (int s = 0; s < program.num_steps; ++s) {
    const Step& step = program.steps[s];
    if (!StepDrawsBySize(step)) continue;
    add(step.op_index, {step.in_height, step.in_width},
        s < program.num_sized_steps ? s : -1);
  }
  return draws;
}

// The size of the image that the op gets, of sample `i`.
SampleSize SizeOf(const SharedDraw& draw, const FieldProgram& program,
                  const RaggedIndex* index, int64_t i) {
  if (draw.num_sized_steps < 0) return draw.size;
  const ImageSize own = index->size(i);
  SampleSize size = {static_cast<int32_t>(own.height),
                     static_cast<int32_t>(own.width)};
  for (int s = 0; s < draw.num_sized_steps; ++s) {
    size = SizeAfter(program.steps[s], size);
  }
  return size;
}

// Samples that stand for all: one for each pair of sizes that a sample has in
// both fields. An index is null if the field's samples have one size.
std::vector<int64_t> OneOfEachSize(const RaggedIndex* first,
                                   const RaggedIndex* second,
                                   int64_t num_samples) {
  const auto key_of = [](const RaggedIndex* index, int64_t i) -> uint64_t {
    if (index == nullptr) return 0;
    const RaggedSample& place = index->samples()[static_cast<size_t>(i)];
    return uint64_t{static_cast<uint32_t>(place.height)} << 32 |
           static_cast<uint32_t>(place.width);
  };
  using Key = std::pair<uint64_t, uint64_t>;
  absl::flat_hash_set<Key> found;
  std::vector<int64_t> samples;
  Key last;
  for (int64_t i = 0; i < num_samples; ++i) {
    const Key key = {key_of(first, i), key_of(second, i)};
    if (i > 0 && key == last) continue;
    last = key;
    if (found.insert(key).second) samples.push_back(i);
  }
  return samples;
}

std::string Text(const SampleSize& size) {
  return absl::StrCat(size.height, "x", size.width);
}

}  // namespace

absl::Status CheckPairedSizes(const Dataset& dataset,
                              absl::Span<const size_t> sources,
                              absl::Span<const FieldSpec> fields,
                              absl::Span<const FieldProgram> programs) {
  for (const auto& part : dataset.parts()) {
    DATASETD_RETURN_IF_ERROR(
        CheckPairedSizes(*part, sources, fields, programs));
  }
  if (!dataset.parts().empty()) return absl::OkStatus();
  std::vector<std::vector<SharedDraw>> draws;
  for (const FieldProgram& program : programs) {
    draws.push_back(SharedDrawsOf(program));
  }
  // By the fields of the dataset, of which a batch may have one several times.
  std::map<std::pair<size_t, size_t>, std::vector<int64_t>> representatives;
  const auto samples_of = [&](size_t f, size_t g) -> const auto& {
    std::vector<int64_t>& samples = representatives[{sources[f], sources[g]}];
    if (samples.empty()) {
      samples =
          OneOfEachSize(dataset.field_index(sources[f]),
                        dataset.field_index(sources[g]), dataset.num_samples());
    }
    return samples;
  };
  const auto check = [&](size_t f, const SharedDraw& first, size_t g,
                         const SharedDraw& second) -> absl::Status {
    const bool is_fixed =
        first.num_sized_steps < 0 && second.num_sized_steps < 0;
    const std::vector<int64_t> any = {0};
    for (const int64_t i : is_fixed ? any : samples_of(f, g)) {
      const SampleSize a =
          SizeOf(first, programs[f], dataset.field_index(sources[f]), i);
      const SampleSize b =
          SizeOf(second, programs[g], dataset.field_index(sources[g]), i);
      if (a.height == b.height && a.width == b.width) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "transforms: fields '", fields[f].name, "' and '", fields[g].name,
          "' share an op that draws by the image's size, but ",
          is_fixed ? "the image"
                   : absl::StrCat("sample ", i, " of dataset '", dataset.name(),
                                  "'"),
          " is ", Text(a), " in the one and ", Text(b),
          " in the other (height x width): put an op with a size of its own "
          "before it in each, such as Resize with height and width"));
    }
    return absl::OkStatus();
  };
  for (size_t f = 0; f < programs.size(); ++f) {
    for (size_t g = f + 1; g < programs.size(); ++g) {
      // Ops with one draw_id correspond in their order.
      std::vector<SharedDraw> others = draws[g];
      for (const SharedDraw& draw : draws[f]) {
        const auto other = std::find_if(
            others.begin(), others.end(),
            [&](const SharedDraw& o) { return o.op_index == draw.op_index; });
        if (other == others.end()) continue;
        DATASETD_RETURN_IF_ERROR(check(f, draw, g, *other));
        others.erase(other);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace datasetd
