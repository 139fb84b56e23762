#include "server/dataset/device_table.h"

#include "absl/strings/str_cat.h"

namespace datasetd {

absl::StatusOr<ServedDevice*> DeviceTable::Find(const std::string& name) {
  if (name.empty()) return &devices_.front();
  std::string names;
  for (ServedDevice& device : devices_) {
    if (device.name() == name) return &device;
    absl::StrAppend(&names, names.empty() ? "" : ", ", device.name());
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "device '", name, "' is not served by this daemon; it has: ", names,
      " (key 'devices' of its configuration)"));
}

}  // namespace datasetd
