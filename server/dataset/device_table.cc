#include "server/dataset/device_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/gpu_uuid.h"

namespace datasetd {

bool DeviceHealth::Fail(absl::string_view reason) {
  MutexLock lock(&mutex_);
  if (has_failed_.load()) return false;
  error_ = std::string(reason);
  has_failed_.store(true);
  return true;
}

std::string DeviceHealth::error() const {
  MutexLock lock(&mutex_);
  return error_;
}

std::string ServedDevice::uuid() const {
  const DeviceInfo& info = backend->info();
  if (info.is_host) return "";
  return std::string(info.uuid.begin(), info.uuid.end());
}

std::string ServedDevice::uuid_text() const {
  return GpuUuidText(uuid(), backend->info().is_mig);
}

std::string ServedDevice::Description() const {
  const std::string uuid = uuid_text();
  return uuid.empty() ? name() : absl::StrCat(name(), " (", uuid, ")");
}

absl::StatusOr<ServedDevice*> DeviceTable::Find(absl::string_view name) {
  if (name.empty()) return &devices_.front();
  const bool is_uuid = IsGpuUuidName(name);
  ServedDevice* found = nullptr;
  std::string names;
  for (ServedDevice& device : devices_) {
    if (is_uuid ? GpuUuidHasPrefix(device.uuid_text(), name)
                : device.name() == name) {
      if (found != nullptr) {
        return absl::InvalidArgumentError(absl::StrCat(
            "device '", name, "' is the beginning of several UUIDs, of ",
            found->Description(), " and ", device.Description(),
            "; write more of it"));
      }
      found = &device;
    }
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    is_uuid ? device.Description() : device.name());
  }
  if (found != nullptr) return found;
  return absl::InvalidArgumentError(absl::StrCat(
      "device '", name, "' is not served by this daemon; it has: ", names,
      " (key 'devices' of its configuration)"));
}

std::vector<ServedDevice*> DeviceTable::Gpus() {
  std::vector<ServedDevice*> all;
  std::vector<ServedDevice*> gpus;
  std::vector<ServedDevice*> serving;
  for (ServedDevice& device : devices_) {
    all.push_back(&device);
    if (device.backend->info().is_host) continue;
    gpus.push_back(&device);
    if (!device.health->has_failed()) serving.push_back(&device);
  }
  if (gpus.empty()) return all;
  return serving.empty() ? gpus : serving;
}

bool DeviceTable::IsServing() const {
  return std::any_of(
      devices_.begin(), devices_.end(),
      [](const ServedDevice& device) { return !device.health->has_failed(); });
}

absl::Status DeviceTable::CheckServes(const ServedDevice& device) const {
  if (!device.health->has_failed()) return absl::OkStatus();
  std::string others;
  for (const ServedDevice& other : devices_) {
    if (other.health->has_failed()) continue;
    absl::StrAppend(&others, others.empty() ? "use " : " or ", other.name());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "device ", device.Description(), " has failed: ", device.health->error(),
      ". To use it again restart the daemon; till then ",
      others.empty() ? "nothing is served" : others));
}

}  // namespace datasetd
