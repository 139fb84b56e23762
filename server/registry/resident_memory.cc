#include "server/registry/resident_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// For messages; names the memory where not all is in one device's.
std::string NameIn(const v1::DatasetSpec& spec, const Placement& placement,
                   const Placement::Part& part) {
  std::string name = absl::StrCat("dataset '", spec.name(), "'");
  if (part.device == nullptr) {
    absl::StrAppend(&name, " in pinned host memory");
  } else if (placement.parts.size() > 1) {
    absl::StrAppend(&name, " on ", part.device->name());
  }
  return name;
}

}  // namespace

ResidentMemory::ResidentMemory(
    EventThread* owner, DatasetTable* table, DatasetCache* cache,
    std::function<void(const DatasetTable::EntryPtr&)> evict,
    std::function<void()> on_freed)
    : owner_(owner),
      table_(table),
      cache_(cache),
      evict_(std::move(evict)),
      on_freed_(std::move(on_freed)) {}

absl::StatusOr<PlacedMemory> ResidentMemory::Reserve(
    const v1::DatasetSpec& spec, const PlacementRequest& request,
    const LoadPlan& plan, const Caller& caller) {
  const MemoryBudget::Terms terms = TermsOf(spec, caller);
  PlacedMemory memory;
  memory.placement =
      PlanPlacement(request, plan, RoomsOf(request, plan, caller.uid, terms));
  const auto reserve = [&](const Placement::Part& part) {
    return request.BudgetOf(part.device)
        ->Reserve(MemoryKind::kDataset, caller.uid,
                  static_cast<uint64_t>(part.size_bytes),
                  NameIn(spec, memory.placement, part), terms);
  };
  // The error is that of a memory where no eviction helps.
  for (const Placement::Part& part : memory.placement.parts) {
    const MemoryBudget& budget = *request.BudgetOf(part.device);
    if (part.size_bytes - static_cast<int64_t>(budget.free_bytes()) <=
        table_->UnusedBytes(budget, /*for_restored=*/false)) {
      continue;
    }
    DATASETD_RETURN_IF_ERROR(reserve(part).status());
  }
  for (const Placement::Part& part : memory.placement.parts) {
    DATASETD_ASSIGN_OR_RETURN(memory.reservations.emplace_back(),
                              reserve(part));
  }
  return memory;
}

bool ResidentMemory::MakeRoom(const v1::DatasetSpec& spec,
                              const PlacementRequest& request,
                              const LoadPlan& plan, const Caller& caller,
                              bool for_restored) {
  bool is_possible = false;
  // AUTO takes the place of others on the device if all of it fits then.
  if (MakeRoom(spec, request, PlanPlacement(request, plan, {}), caller,
               for_restored, &is_possible)) {
    return true;
  }
  if (is_possible || request.residency != v1::RESIDENCY_AUTO) return false;
  const std::vector<int64_t> rooms =
      RoomsOf(request, plan, caller.uid, TermsOf(spec, caller));
  return MakeRoom(spec, request, PlanPlacement(request, plan, rooms), caller,
                  for_restored, &is_possible);
}

bool ResidentMemory::MakeRoom(const v1::DatasetSpec& spec,
                              const PlacementRequest& request,
                              const Placement& placement, const Caller& caller,
                              bool for_restored, bool* is_possible) {
  for (const Placement::Part& part : placement.parts) {
    // No other dataset goes for what the user may not have: Reserve says so.
    if (!request.BudgetOf(part.device)
             ->CheckUser(MemoryKind::kDataset, caller.uid,
                         static_cast<uint64_t>(part.size_bytes), spec.name(),
                         TermsOf(spec, caller))
             .ok()) {
      return false;
    }
  }
  for (const Placement::Part& part : placement.parts) {
    const MemoryBudget& budget = *request.BudgetOf(part.device);
    const int64_t missing =
        part.size_bytes - static_cast<int64_t>(budget.free_bytes());
    if (num_freeing_ == 0 &&
        missing > table_->UnusedBytes(budget, for_restored)) {
      return false;
    }
  }
  *is_possible = true;
  return std::any_of(placement.parts.begin(), placement.parts.end(),
                     [&](const Placement::Part& part) {
                       return MakeRoom(*request.BudgetOf(part.device),
                                       part.size_bytes, for_restored);
                     });
}

bool ResidentMemory::MakeRoom(const MemoryBudget& budget, int64_t bytes,
                              bool for_restored) {
  const int64_t missing = bytes - static_cast<int64_t>(budget.free_bytes());
  if (missing <= 0) return false;
  // What is being freed may be enough.
  if (num_freeing_ > 0) return true;
  if (table_->UnusedBytes(budget, for_restored) < missing) return false;
  Evict(table_->TakeUnused(budget, missing, for_restored));
  return true;
}

void ResidentMemory::Trim(const MemoryBudget& budget, int64_t bytes) {
  const int64_t excess =
      table_->UnusedBytes(budget, /*for_restored=*/false) - bytes;
  Evict(table_->TakeUnused(budget, excess, /*for_restored=*/false));
}

void ResidentMemory::EvictUnusedSince(absl::Duration time) {
  Evict(table_->TakeUnusedSince(time));
}

void ResidentMemory::Evict(const std::vector<DatasetTable::EntryPtr>& entries) {
  for (const auto& entry : entries) evict_(entry);
}

void ResidentMemory::Free(Garbage garbage, std::function<void()> then) {
  ++num_freeing_;
  freeing_.Run(
      [this, garbage = std::move(garbage), then = std::move(then)]() mutable {
        garbage.clear();
        if (cache_ != nullptr) cache_->AwaitReleased();
        owner_->Post([this, then = std::move(then)] {
          --num_freeing_;
          if (then) then();
          on_freed_();
        });
      });
}

void ResidentMemory::AwaitFreed() {
  freeing_.Await(absl::InfiniteDuration());
  owner_->Call([] { return true; });
}

}  // namespace datasetd
