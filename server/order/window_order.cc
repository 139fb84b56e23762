#include "server/order/window_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cuda/kernels/math/random.h"
#include "server/order/uniform_int64.h"

namespace datasetd {
namespace {

constexpr uint32_t kStartOpIndex = kReservedOpIndex + 5;
constexpr uint32_t kPhaseOpIndex = kReservedOpIndex + 6;
constexpr uint64_t kMaxBlocks = 0xFFFFFFFF;

uint64_t DrawStart(uint64_t seed, uint64_t epoch, uint32_t op_index,
                   uint64_t number, uint64_t bound) {
  const Words4 words =
      Draw(seed, static_cast<uint32_t>(number / 2), op_index,
           static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32));
  return UniformInt64(HalfOf(words, number % 2), bound);
}

}  // namespace

absl::StatusOr<WindowPlan> PlanWindows(const v1::WindowOrder& order,
                                       bool shuffle, int64_t largest_shift,
                                       int64_t stream_steps,
                                       const std::string& dataset) {
  const auto steps = static_cast<uint64_t>(stream_steps);
  const auto shift = static_cast<uint64_t>(largest_shift);
  const uint64_t length = order.length();
  if (length < 1 || length > steps || shift > steps - length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: length is ", length,
        shift == 0
            ? ""
            : absl::StrCat(", and a field begins ", shift, " later (targets)"),
        "; dataset '", dataset, "' has ", steps,
        " steps, so that the length must be within 1..",
        steps > shift ? steps - shift : 0));
  }
  WindowPlan plan;
  plan.num_steps = static_cast<int64_t>(length + shift);
  plan.num_starts = steps - length - shift + 1;
  if (order.has_random()) {
    plan.is_random = true;
    plan.num_windows = order.random().has_num_windows()
                           ? order.random().num_windows()
                           : std::max<uint64_t>(1, (steps - shift) / length);
    return plan;
  }
  if (!order.has_blocks()) return plan;
  const v1::BlockOrder& blocks = order.blocks();
  plan.stride = blocks.stride() == 0 ? length : blocks.stride();
  plan.phase = blocks.phase();
  if (plan.phase >= plan.num_starts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: phase is ", plan.phase, "; the last step of dataset '",
        dataset, "' at which a window can begin is ", plan.num_starts - 1));
  }
  if (shuffle && !blocks.has_phase()) {
    plan.num_phases = std::min(plan.stride, plan.num_starts);
    plan.num_windows = std::max<uint64_t>(1, plan.num_starts / plan.stride);
  } else {
    plan.num_windows = (plan.num_starts - 1 - plan.phase) / plan.stride + 1;
  }
  if (plan.num_windows > kMaxBlocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: with the stride ", plan.stride, " dataset '", dataset,
        "' has ", plan.num_windows, " windows; at most ", kMaxBlocks,
        " are possible: use a larger stride, or random windows"));
  }
  return plan;
}

void PlaceBlocks(const WindowPlan& plan, uint64_t seed, uint64_t epoch,
                 absl::Span<int64_t> windows) {
  uint64_t phase = plan.phase;
  if (plan.num_phases > 1) {
    phase = DrawStart(seed, epoch, kPhaseOpIndex, 0, plan.num_phases);
  }
  for (int64_t& window : windows) {
    window = static_cast<int64_t>(phase +
                                  static_cast<uint64_t>(window) * plan.stride);
  }
}

void DrawStarts(const WindowPlan& plan, uint64_t seed, uint64_t epoch,
                uint64_t first, uint64_t step, absl::Span<int64_t> starts) {
  for (int64_t& start : starts) {
    start = static_cast<int64_t>(
        DrawStart(seed, epoch, kStartOpIndex, first, plan.num_starts));
    first += step;
  }
}

}  // namespace datasetd
