#include "server/load/placement.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/dataset/device_list.h"
#include "server/dataset/ragged_index.h"
#include "server/load/load_request.h"

namespace datasetd {
namespace {

// Where not all fits, AUTO leaves a part of a device's budget to feeds: a
// quarter, but no more than 2 GiB.
constexpr uint64_t kFeedShare = 4;
constexpr uint64_t kMostForFeeds = uint64_t{2} << 30;

// `all` * `part` / `whole`, rounded down.
int64_t Share(int64_t all, int64_t part, int64_t whole) {
  return static_cast<int64_t>(static_cast<__int128>(all) * part / whole);
}

int64_t FieldBytes(const FieldSpec& field, int64_t num_samples) {
  return field.is_packed()
             ? field.packed_bytes
             : SaturatingMultiply(num_samples, field.sample_bytes());
}

// Divides a field into parts of the given weights, of `whole` together.
std::vector<int64_t> DivideField(const FieldSpec& field, int64_t num_samples,
                                 absl::Span<const int64_t> weights,
                                 int64_t whole) {
  const int64_t all = FieldBytes(field, num_samples);
  std::vector<int64_t> bytes;
  int64_t done_weight = 0;
  int64_t done_bytes = 0;
  for (size_t i = 0; i + 1 < weights.size(); ++i) {
    done_weight += weights[i];
    const int64_t end =
        field.is_packed()
            ? Share(all, done_weight, whole) / kRaggedAlignmentBytes *
                  kRaggedAlignmentBytes
            : Share(num_samples, done_weight, whole) * field.sample_bytes();
    bytes.push_back(end - done_bytes);
    done_bytes = end;
  }
  bytes.push_back(all - done_bytes);
  if (!field.is_packed()) return bytes;
  // Where the sizes of samples are not known yet, any part before the last may
  // end up to one sample early.
  const int64_t largest = PaddedSampleBytes(SaturatingProduct(
      field.largest.height, field.largest.width, PixelBytes(field)));
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    if (bytes[i] > 0) bytes.back() = SaturatingAdd(bytes.back(), largest);
  }
  return bytes;
}

}  // namespace

int64_t Placement::resident_bytes() const {
  if (is_replicated) return parts.front().size_bytes;
  int64_t bytes = mapped_bytes;
  for (const Part& part : parts) bytes = SaturatingAdd(bytes, part.size_bytes);
  return bytes;
}

std::vector<v1::Placement> Placement::Describe() const {
  std::vector<v1::Placement> infos;
  for (const ServedDevice* const device : devices) {
    v1::Placement& to = infos.emplace_back();
    to.set_device(device->name());
    to.set_gpu_uuid(device->uuid());
    to.set_is_mig(device->backend->info().is_mig);
    to.set_error(PrintableUtf8(device->health->error()));
    for (const Part& part : parts) {
      if (part.device != device) continue;
      to.set_device_bytes(to.device_bytes() + part.size_bytes);
    }
  }
  int64_t host_bytes = mapped_bytes;
  for (const Part& part : parts) {
    if (part.device == nullptr) host_bytes += part.size_bytes;
  }
  infos.front().set_host_bytes(host_bytes);
  return infos;
}

absl::Status CheckPlacement(const PlacementRequest& request) {
  const v1::Residency residency = request.residency;
  const std::vector<ServedDevice*>& devices = request.devices.devices;
  const bool is_host = devices.front()->backend->info().is_host;
  if (residency == v1::RESIDENCY_SPLIT ? request.device_bytes <= 0
                                       : request.device_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device_bytes: is ", request.device_bytes, " with residency '",
        ResidencyName(residency),
        "'; 'split' needs it, as the most bytes of samples on a device, and "
        "it belongs to no other"));
  }
  const bool is_known = is_host ? residency == v1::RESIDENCY_DEVICE ||
                                      residency == v1::RESIDENCY_AUTO ||
                                      residency == v1::RESIDENCY_MAPPED
                                : residency != v1::RESIDENCY_MAPPED;
  if (!is_known) {
    return absl::InvalidArgumentError(absl::StrCat(
        "residency: '", ResidencyName(residency), "' is not for ",
        devices.front()->name(),
        is_host ? ", whose samples are in host memory: use 'device', 'auto' or "
                  "'mapped'"
                : ": use 'device', 'pinned', 'split' or 'auto'"));
  }
  if (residency == v1::RESIDENCY_MAPPED && !request.has_cache) {
    return absl::FailedPreconditionError(
        "residency: 'mapped' needs the cache, which is off: set "
        "cache.directory in the daemon's configuration");
  }
  if (!is_host && residency != v1::RESIDENCY_DEVICE &&
      request.pinned == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("residency: '", ResidencyName(residency),
                     "' needs a budget for pinned host memory"));
  }
  if (request.devices.kind == PlacementKind::kEach &&
      residency == v1::RESIDENCY_SPLIT) {
    return absl::InvalidArgumentError(absl::StrCat(
        "residency: 'split' is not for replicas on ", request.devices.Text(),
        ": use 'device', 'pinned' or 'auto', or device 'shard'"));
  }
  if (request.devices.kind != PlacementKind::kShard) return absl::OkStatus();
  for (ServedDevice* const device : devices) {
    for (ServedDevice* const peer : devices) {
      if (device == peer) continue;
      const absl::Status status = device->backend->ReadPeer(*peer->backend);
      if (absl::IsFailedPrecondition(status)) {
        return absl::FailedPreconditionError(absl::StrCat(
            "device: '", request.devices.Text(), "': ", status.message(),
            ". Name devices that have it, or use residency 'split' on one"));
      }
      DATASETD_RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

Placement PlanPlacement(const PlacementRequest& request, const LoadPlan& plan,
                        absl::Span<const int64_t> rooms) {
  std::vector<ServedDevice*> devices = request.devices.devices;
  Placement placement;
  placement.devices = devices;
  if (request.residency == v1::RESIDENCY_MAPPED) {
    placement.residency = v1::RESIDENCY_MAPPED;
    placement.mapped_bytes = plan.resident_bytes - plan.index_bytes;
    placement.parts.push_back(
        {.device = devices[0], .size_bytes = plan.index_bytes});
    return placement;
  }
  if (request.devices.kind == PlacementKind::kEach) {
    const bool is_auto = request.residency == v1::RESIDENCY_AUTO;
    placement.is_replicated =
        request.residency != v1::RESIDENCY_PINNED &&
        (!is_auto || std::all_of(rooms.begin(), rooms.end(), [&](int64_t room) {
          return plan.resident_bytes <= room;
        }));
    if (placement.is_replicated) {
      for (ServedDevice* const device : devices) {
        placement.parts.push_back(
            {.device = device, .size_bytes = plan.resident_bytes});
      }
      return placement;
    }
    devices.resize(1);
  }
  const auto num_devices = static_cast<int64_t>(devices.size());
  int64_t whole = 0;
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    whole = SaturatingAdd(whole, FieldBytes(field.resident, plan.num_samples));
  }
  const bool is_each = request.devices.kind == PlacementKind::kEach;
  const auto room_of = [&](size_t device) -> int64_t {
    if (is_each) return 0;  // pinned memory, which all share
    switch (request.residency) {
      case v1::RESIDENCY_PINNED:
        return 0;
      case v1::RESIDENCY_SPLIT:
        return request.device_bytes;
      case v1::RESIDENCY_AUTO:
        if (device < rooms.size()) return rooms[device];
        break;
      default:
        break;
    }
    return std::numeric_limits<int64_t>::max();
  };
  // While no size is known yet, there is nothing to divide.
  if (whole == 0 || (num_devices == 1 && (devices[0]->backend->info().is_host ||
                                          plan.resident_bytes <= room_of(0)))) {
    placement.parts.push_back(
        {.device = devices[0], .size_bytes = plan.resident_bytes});
    return placement;
  }
  std::vector<int64_t> weights;
  int64_t left = whole;
  for (size_t d = 0; d < devices.size(); ++d) {
    const int64_t rest = d + 1 == devices.size() ? whole % num_devices : 0;
    weights.push_back(std::min(room_of(d), whole / num_devices + rest));
    left -= weights.back();
  }
  std::vector<ServedDevice*> targets = devices;
  if (left > 0) {
    weights.push_back(left);
    targets.push_back(nullptr);
  }
  std::vector<Placement::Part> parts(targets.size());
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    const std::vector<int64_t> bytes =
        DivideField(field.resident, plan.num_samples, weights, whole);
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].device = targets[i];
      parts[i].field_bytes.push_back(bytes[i]);
      parts[i].size_bytes = SaturatingAdd(parts[i].size_bytes, bytes[i]);
    }
  }
  for (Placement::Part& part : parts) {
    if (part.size_bytes > 0) placement.parts.push_back(std::move(part));
  }
  // A weight of less than a sample leaves a part empty.
  if (placement.parts.front().device == nullptr) {
    placement.residency = v1::RESIDENCY_PINNED;
  } else if (placement.parts.back().device == nullptr) {
    placement.residency = v1::RESIDENCY_SPLIT;
  }
  return placement;
}

std::vector<int64_t> RoomsOf(const PlacementRequest& request,
                             const LoadPlan& plan, uid_t uid,
                             const MemoryBudget::Terms& terms) {
  std::vector<int64_t> rooms;
  if (request.residency != v1::RESIDENCY_AUTO) return rooms;
  const std::vector<ServedDevice*>& devices = request.devices.devices;
  for (const ServedDevice* const device : devices) {
    rooms.push_back(static_cast<int64_t>(
        device->budget->FreeBytesFor(MemoryKind::kDataset, uid, terms)));
  }
  const Placement placement = PlanPlacement(request, plan, rooms);
  if (std::all_of(
          placement.parts.begin(), placement.parts.end(),
          [](const Placement::Part& part) { return part.device != nullptr; })) {
    return rooms;
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    const auto kept = static_cast<int64_t>(std::min(
        devices[d]->budget->total_bytes() / kFeedShare, kMostForFeeds));
    rooms[d] -= std::min(rooms[d], kept);
  }
  return rooms;
}

std::vector<Reservation> PlacedMemory::TakeReplicas() {
  std::vector<Reservation> replicas;
  if (!placement.is_replicated) return replicas;
  for (size_t i = 1; i < reservations.size(); ++i) {
    replicas.push_back(std::move(reservations[i]));
  }
  reservations.resize(1);
  placement.devices.resize(1);
  placement.parts.resize(1);
  placement.is_replicated = false;
  return replicas;
}

}  // namespace datasetd
