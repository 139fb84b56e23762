#include "tests/emulated_gpu/driver/settings.h"

#include <cstdio>
#include <cstdlib>
#include <set>

namespace datasetd::emulated_driver {
namespace {

constexpr char kPrefix[] = "DATASETD_EMULATED_GPU_";

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

bool ParseNumber(const std::string& text, uint64_t* number) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  char* end = nullptr;
  *number = strtoull(text.c_str(), &end, 10);
  return *end == '\0';
}

// Reads one setting after another, and keeps the first problem.
class Reader {
 public:
  Reader(ReadVariable read, std::string* problem)
      : read_(read), problem_(problem) {}

  std::string Text(const char* name, const char* otherwise) const {
    const char* const value = read_((kPrefix + std::string(name)).c_str());
    return value == nullptr ? otherwise : value;
  }

  uint64_t Number(const char* name, uint64_t otherwise, uint64_t low,
                  uint64_t high) {
    const std::string text = Text(name, "");
    uint64_t number = otherwise;
    if (text.empty()) return number;
    if (!ParseNumber(text, &number) || number < low || number > high) {
      Refuse(name, text, std::to_string(low) + " to " + std::to_string(high));
    }
    return number;
  }

  // A value for each device; the last one given counts for the rest.
  std::vector<std::string> PerDevice(const char* name, const char* otherwise,
                                     size_t num_devices) {
    std::vector<std::string> values = Split(Text(name, otherwise), ',');
    if (values.empty() || values.size() > num_devices) {
      Refuse(name, Text(name, otherwise),
             "at most a value for each of the devices, separated by commas");
      values.assign(1, otherwise);
    }
    while (values.size() < num_devices) values.push_back(values.back());
    return values;
  }

  void Refuse(const char* name, const std::string& value,
              const std::string& allowed) {
    if (!problem_->empty()) return;
    *problem_ = std::string(kPrefix) + name + " is '" + value +
                "', allowed: " + allowed;
  }

 private:
  const ReadVariable read_;
  std::string* const problem_;
};

bool ParseUuid(const std::string& text, const std::string& prefix, Uuid* uuid) {
  if (text.compare(0, prefix.size(), prefix) != 0) return false;
  size_t digits = 0;
  for (const char c : text.substr(prefix.size())) {
    int value;
    if (c == '-') continue;
    if (c >= '0' && c <= '9') {
      value = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      value = c - 'a' + 10;
    } else {
      return false;
    }
    if (digits == 32) return false;
    uint8_t& byte = (*uuid)[digits / 2];
    byte = static_cast<uint8_t>(byte << 4 | value);
    ++digits;
  }
  return digits == 32;
}

// "GPU-..." or, for an instance of a divided GPU, "MIG-...@GPU-...".
bool ParseDeviceUuid(const std::string& text, DeviceSettings* device) {
  if (ParseUuid(text, "GPU-", &device->gpu_uuid)) {
    device->uuid = device->gpu_uuid;
    return true;
  }
  const size_t at = text.find('@');
  if (at == std::string::npos) return false;
  device->is_mig = true;
  return ParseUuid(text.substr(0, at), "MIG-", &device->uuid) &&
         ParseUuid(text.substr(at + 1), "GPU-", &device->gpu_uuid);
}

Uuid DefaultUuid(int index) {
  Uuid uuid;
  for (size_t i = 0; i < uuid.size(); ++i) {
    uuid[i] = static_cast<uint8_t>(0xe0 + index * 16 + i);
  }
  return uuid;
}

void ReadDevices(Reader& reader, Settings* settings) {
  const std::string uuids = reader.Text("UUIDS", "");
  const std::vector<std::string> uuid_texts = Split(uuids, ',');
  const auto count = static_cast<size_t>(reader.Number(
      "DEVICES", uuid_texts.empty() ? 1 : uuid_texts.size(), 1, kMaxDevices));
  settings->devices.resize(count);
  if (!uuid_texts.empty() && uuid_texts.size() != count) {
    reader.Refuse("UUIDS", uuids, "one UUID for each of the devices");
    return;
  }
  const auto memory = reader.PerDevice("MEMORY_MIB", "4096", count);
  const auto capability = reader.PerDevice("COMPUTE_CAPABILITY", "9.0", count);
  for (size_t i = 0; i < count; ++i) {
    DeviceSettings& device = settings->devices[i];
    device.gpu_uuid = device.uuid = DefaultUuid(static_cast<int>(i));
    if (!uuid_texts.empty() && !ParseDeviceUuid(uuid_texts[i], &device)) {
      reader.Refuse("UUIDS", uuid_texts[i],
                    "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, or "
                    "MIG-...@GPU-... for an instance of a GPU");
    }
    uint64_t mebibytes = 0;
    if (!ParseNumber(memory[i], &mebibytes) || mebibytes < 64 ||
        mebibytes > 1 << 20) {
      reader.Refuse("MEMORY_MIB", memory[i], "64 to 1048576");
    }
    device.memory_bytes = mebibytes << 20;
    if (sscanf(capability[i].c_str(), "%d.%d", &device.compute_major,
               &device.compute_minor) != 2) {
      reader.Refuse("COMPUTE_CAPABILITY", capability[i],
                    "MAJOR.MINOR, such as 9.0");
    }
  }
}

void ReadAttributes(Reader& reader, Settings* settings) {
  for (const std::string& item : Split(reader.Text("ATTRIBUTES", ""), ',')) {
    int attribute = 0;
    int value = 0;
    if (sscanf(item.c_str(), "%d=%d", &attribute, &value) == 2) {
      settings->attributes[attribute] = value;
    } else {
      reader.Refuse("ATTRIBUTES", item,
                    "NUMBER=VALUE, with the numbers of CUdevice_attribute");
    }
  }
}

// The one device that the text names: an index, or the start of a UUID.
int FindDevice(const Settings& settings, const std::string& text) {
  const int count = static_cast<int>(settings.devices.size());
  uint64_t index = 0;
  if (ParseNumber(text, &index)) {
    return index < static_cast<uint64_t>(count) ? static_cast<int>(index) : -1;
  }
  int found = -1;
  for (int i = 0; i < count; ++i) {
    const DeviceSettings& device = settings.devices[i];
    const std::string uuid = UuidText(device.uuid, device.is_mig);
    if (text.size() <= 4 || uuid.compare(0, text.size(), text) != 0) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

// CUDA Programming Guide, "CUDA Environment Variables": a device that does not
// exist hides itself and what stands behind it.
void ReadVisible(ReadVariable read, Settings* settings) {
  const char* const text = read("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (size_t i = 0; i < settings->devices.size(); ++i) {
      settings->visible.push_back(static_cast<int>(i));
    }
  } else {
    std::set<int> seen;
    for (const std::string& item : Split(text, ',')) {
      const int device = FindDevice(*settings, item);
      if (device < 0 || !seen.insert(device).second) break;
      settings->visible.push_back(device);
    }
  }
  // MIG User Guide, "CUDA Device Enumeration": a process sees one instance.
  if (!settings->visible.empty() &&
      settings->devices[settings->visible[0]].is_mig) {
    settings->visible.resize(1);
  }
}

}  // namespace

Settings ReadSettings(ReadVariable read, std::string* problem) {
  problem->clear();
  Settings settings;
  Reader reader(read, problem);
  ReadDevices(reader, &settings);
  ReadAttributes(reader, &settings);
  if (problem->empty()) ReadVisible(read, &settings);
  settings.name = reader.Text("NAME", "Emulated GPU");
  settings.driver_version =
      static_cast<int>(reader.Number("DRIVER_VERSION", 13000, 11000, 99990));
  settings.num_multiprocessors =
      static_cast<int>(reader.Number("MULTIPROCESSORS", 4, 1, 1024));
  settings.has_peers = reader.Number("PEERS", 1, 0, 1) == 1;
  settings.seed = reader.Number("SEED", 1, 0, UINT64_MAX);
  settings.max_delay_us =
      static_cast<int>(reader.Number("MAX_DELAY_US", 200, 0, 10'000'000));
  settings.fill_bytes = reader.Number("FILL_MIB", 64, 0, 1 << 20) << 20;
  settings.kernels_use_host = reader.Number("KERNELS_USE_HOST", 0, 0, 1) == 1;
  settings.log_path = reader.Text("LOG", "");
  settings.shared_memory_path = reader.Text("SHARED_MEMORY", "");
  settings.faults = reader.Text("FAULTS", "");
  settings.aborts_on_finding = reader.Number("ABORT", 0, 0, 1) == 1;
  return settings;
}

std::string UuidText(const Uuid& uuid, bool is_mig) {
  std::string text = is_mig ? "MIG" : "GPU";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char hex[3];
    snprintf(hex, sizeof(hex), "%02x", uuid[i]);
    text += hex;
  }
  return text;
}

}  // namespace datasetd::emulated_driver
