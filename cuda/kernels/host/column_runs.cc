#include "cuda/kernels/host/column_runs.h"

#include <cstdint>

#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {
namespace {

// Applies one move to a whole map. The mode is a constant to keep the loop
// branch-free.
template <PaddingMode kMode>
void UnpadMap(const AxisMove& drawn, int move_index, int32_t count,
              int32_t* map) {
  const AxisMove move = drawn;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t entry = MapBackOne(move, kMode, move_index, map[i]);
    map[i] = IsFill(map[i]) ? map[i] : entry;
  }
}

}  // namespace

void MapAxis(const FieldProgram& field, const AxisMove* drawn, int32_t first,
             int32_t count, int32_t* map) {
  for (int32_t i = 0; i < count; ++i) map[i] = first + i;
  for (int k = field.num_moves - 1; k >= 0; --k) {
    const AxisMove& move = drawn[k];
    if (!move.is_padded) {
      const int32_t origin = move.origin;
      const int32_t sign = move.is_mirrored ? -1 : 1;
      for (int32_t i = 0; i < count; ++i) {
        map[i] = IsFill(map[i]) ? map[i] : origin + sign * map[i];
      }
      continue;
    }
    switch (field.moves[k].padding_mode) {
      case PaddingMode::kConstant:
        UnpadMap<PaddingMode::kConstant>(move, k, count, map);
        break;
      case PaddingMode::kEdge:
        UnpadMap<PaddingMode::kEdge>(move, k, count, map);
        break;
      case PaddingMode::kReflect:
        UnpadMap<PaddingMode::kReflect>(move, k, count, map);
        break;
      case PaddingMode::kSymmetric:
        UnpadMap<PaddingMode::kSymmetric>(move, k, count, map);
        break;
    }
  }
}

int FindRuns(const int32_t* map, int32_t count, ColumnRun* runs) {
  int num_runs = 0;
  int32_t i = 0;
  while (i < count) {
    ColumnRun run = {i, 1, map[i], 0};
    int32_t end = i + 1;
    if (end < count && IsFill(run.entry) == IsFill(map[end])) {
      const int32_t step = map[end] - run.entry;
      if (step == 0 || (!IsFill(run.entry) && (step == 1 || step == -1))) {
        run.step = step;
        do {
          ++end;
        } while (end < count && map[end] - map[end - 1] == step &&
                 IsFill(map[end]) == IsFill(run.entry));
      }
    }
    run.length = end - i;
    runs[num_runs++] = run;
    i = end;
  }
  return num_runs;
}

}  // namespace datasetd
