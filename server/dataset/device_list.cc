#include "server/dataset/device_list.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/gpu_uuid.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr char kEach[] = "each";
constexpr char kShard[] = "shard";

bool IsDeviceName(absl::string_view name) {
  if (name == "cpu") return true;
  if (IsGpuUuidName(name)) {
    name.remove_prefix(4);
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == '-';
    });
  }
  return absl::ConsumePrefix(&name, "cuda:") && !name.empty() &&
         name.size() <= 3 && std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c));
         });
}

}  // namespace

absl::StatusOr<DeviceList> ParseDeviceList(absl::string_view text) {
  DeviceList list;
  if (text.empty()) return list;
  if (text == kEach) {
    list.kind = PlacementKind::kEach;
    return list;
  }
  absl::string_view names = text;
  if (absl::ConsumePrefix(&names, kShard)) {
    list.kind = PlacementKind::kShard;
    if (names.empty()) return list;
    if (!absl::ConsumePrefix(&names, ":")) names = "";
  }
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    if (!IsDeviceName(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "device: '", text,
          "' is none of cpu, cuda:N, GPU-UUID, a list of these such as "
          "cuda:0,cuda:1, each, shard, shard:LIST"));
    }
    list.names.emplace_back(name);
  }
  if (list.kind == PlacementKind::kOne && list.names.size() > 1) {
    list.kind = PlacementKind::kEach;
  }
  return list;
}

std::string DevicePlacement::Text() const {
  const std::string names = absl::StrJoin(
      devices, ",",
      [](std::string* out, const ServedDevice* d) { out->append(d->name()); });
  return kind == PlacementKind::kShard ? absl::StrCat(kShard, ":", names)
                                       : names;
}

absl::StatusOr<DevicePlacement> FindDevices(DeviceTable& table,
                                            absl::string_view text) {
  DATASETD_ASSIGN_OR_RETURN(const DeviceList list, ParseDeviceList(text));
  DevicePlacement placement;
  std::vector<ServedDevice*>& devices = placement.devices;
  if (!list.names.empty()) {
    for (const std::string& name : list.names) {
      DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device, table.Find(name));
      if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("device: '", text, "' names ", device->name(),
                         " twice; name each device once"));
      }
      devices.push_back(device);
    }
    // All elements are of the table's one array.
    std::sort(devices.begin(), devices.end());
  } else if (list.kind == PlacementKind::kOne) {
    devices = {&table.first()};
  } else {
    devices = table.Gpus();
  }
  for (const ServedDevice* const device : devices) {
    DATASETD_RETURN_IF_ERROR(table.CheckServes(*device));
  }
  placement.kind = devices.size() == 1 ? PlacementKind::kOne : list.kind;
  return placement;
}

}  // namespace datasetd
