// The modifiers of one opcode, taken one by one.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_MODIFIERS_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_MODIFIERS_H_

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

// The caller refuses modifiers that are left in the end.
class Modifiers {
 public:
  explicit Modifiers(const std::vector<absl::string_view>& all) : left_(all) {}

  bool Take(absl::string_view name) {
    const auto found = std::find(left_.begin(), left_.end(), name);
    if (found == left_.end()) return false;
    left_.erase(found);
    return true;
  }

  std::optional<Type> TakeType() {
    for (auto it = left_.begin(); it != left_.end(); ++it) {
      const auto type = ParseType(*it);
      if (!type.has_value()) continue;
      left_.erase(it);
      return type;
    }
    return std::nullopt;
  }

  // The first that starts so; empty: none.
  absl::string_view TakePrefix(absl::string_view prefix) {
    for (auto it = left_.begin(); it != left_.end(); ++it) {
      if (!absl::StartsWith(*it, prefix)) continue;
      const absl::string_view text = *it;
      left_.erase(it);
      return text;
    }
    return {};
  }

  const std::vector<absl::string_view>& left() const { return left_; }

 private:
  std::vector<absl::string_view> left_;
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_MODIFIERS_H_
