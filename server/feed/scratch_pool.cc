#include "server/feed/scratch_pool.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/checked_math.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr int64_t kSmallestBlockBytes = int64_t{2} << 20;
// A feed whose chains can use this much gets a block of at least this size, or
// is refused.
constexpr int64_t kCertainBlockBytes = int64_t{256} << 20;
// A block above the least size is made only while all blocks together stay
// within the budget divided by this.
constexpr uint64_t kBudgetShare = 4;

int64_t FlagBytes(int num_teams) {
  return AlignScratch(num_teams * kTeamFlagBytes);
}

int64_t BytesOf(int64_t team_bytes, int num_teams) {
  return SaturatingAdd(FlagBytes(num_teams),
                       SaturatingMultiply(num_teams, team_bytes));
}

int64_t PowerOfTwo(int64_t bytes) {
  if (bytes > int64_t{1} << 62) return std::numeric_limits<int64_t>::max();
  return std::max(
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))),
      kSmallestBlockBytes);
}

}  // namespace

ScratchPool::Sizes ScratchPool::SizesFor(int64_t team_bytes, int max_teams,
                                         uint64_t budget_bytes) {
  const int64_t all = PowerOfTwo(BytesOf(team_bytes, max_teams));
  Sizes sizes;
  sizes.least = std::max(PowerOfTwo(BytesOf(team_bytes, 1)),
                         std::min(all, kCertainBlockBytes));
  const auto share = static_cast<int64_t>(
      std::bit_floor(std::max<uint64_t>(budget_bytes / kBudgetShare, 1)));
  sizes.best = std::max(sizes.least, std::min(all, share));
  return sizes;
}

ScratchPlan ScratchPool::PlanBlock(int64_t team_bytes, int max_teams,
                                   int64_t block_bytes) {
  const int64_t fitting = (block_bytes - FlagBytes(max_teams)) / team_bytes;
  ScratchPlan plan;
  plan.team_bytes = team_bytes;
  plan.num_teams = static_cast<int>(std::clamp<int64_t>(fitting, 1, max_teams));
  plan.size_bytes = block_bytes;
  return plan;
}

absl::StatusOr<std::unique_ptr<ScratchPool>> ScratchPool::Create(
    Backend* backend, MemoryBudget* budget, std::function<void()> on_done) {
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                            backend->CreateStream(std::move(on_done)));
  return std::unique_ptr<ScratchPool>(
      new ScratchPool(backend, budget, std::move(stream)));
}

absl::StatusOr<ScratchPool::Lease> ScratchPool::Take(
    int64_t team_bytes, uid_t uid, absl::string_view what,
    const MemoryBudget::Terms& terms) {
  Lease lease;
  if (team_bytes == 0) return lease;
  const int max_teams = backend_->max_teams(team_bytes);
  const Sizes sizes = SizesFor(team_bytes, max_teams, budget_->total_bytes());
  // Held while memory is taken, so that no other feed takes it as well.
  MutexLock lock(&mutex_);
  int64_t size_bytes = sizes.best;
  while (true) {
    lease.block_ = Find(size_bytes);
    if (lease.block_ != nullptr) break;
    const bool is_least = size_bytes == sizes.least;
    const int64_t left =
        static_cast<int64_t>(budget_->total_bytes() / kBudgetShare) -
        UsedBytes();
    if (is_least || size_bytes <= left) {
      auto block = Make(size_bytes, uid, what, terms);
      if (block.ok()) {
        lease.block_ = *std::move(block);
        blocks_[size_bytes] = lease.block_;
        break;
      }
      if (is_least || !absl::IsResourceExhausted(block.status())) {
        return block.status();
      }
    }
    size_bytes /= 2;
  }
  lease.plan_ = PlanBlock(team_bytes, max_teams, size_bytes);
  lease.max_teams_ = max_teams;
  lease.stream_ = stream_.get();
  return lease;
}

int64_t ScratchPool::MissingBytes(int64_t team_bytes) {
  if (team_bytes == 0) return 0;
  const Sizes sizes = SizesFor(team_bytes, backend_->max_teams(team_bytes),
                               budget_->total_bytes());
  MutexLock lock(&mutex_);
  for (int64_t size_bytes = sizes.best; size_bytes > sizes.least;
       size_bytes /= 2) {
    if (Find(size_bytes) != nullptr) return 0;
  }
  return Find(sizes.least) != nullptr ? 0 : sizes.least;
}

std::shared_ptr<const ScratchPool::Block> ScratchPool::Find(
    int64_t size_bytes) {
  const auto found = blocks_.find(size_bytes);
  return found == blocks_.end() ? nullptr : found->second.lock();
}

absl::StatusOr<std::shared_ptr<const ScratchPool::Block>> ScratchPool::Make(
    int64_t size_bytes, uid_t uid, absl::string_view what,
    const MemoryBudget::Terms& terms) {
  auto block = std::make_shared<Block>();
  MemoryBudget::Terms shared = terms;
  shared.is_shared = true;
  DATASETD_ASSIGN_OR_RETURN(
      block->reservation,
      budget_->Reserve(MemoryKind::kScratch, uid,
                       static_cast<uint64_t>(size_bytes), what, shared));
  DATASETD_ASSIGN_OR_RETURN(
      block->memory, backend_->Allocate(static_cast<size_t>(size_bytes)));
  return block;
}

int64_t ScratchPool::UsedBytes() {
  int64_t bytes = 0;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (it->second.expired()) {
      it = blocks_.erase(it);
    } else {
      bytes += it->first;
      ++it;
    }
  }
  return bytes;
}

}  // namespace datasetd
