#include "server/config/config.h"

#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "cuda/backend/backend.h"
#include "server/config/yaml_to_proto.h"
#include "server/dataset/dataset_limits.h"
#include "server/dataset/device_list.h"
#include "server/log/logging.h"

namespace datasetd {
namespace {

constexpr absl::Duration kMaxTimeout = absl::Hours(24);
constexpr uint32_t kMaxPort = 65535;
// The unit's TasksMax=4096 has room for them.
constexpr uint32_t kMaxHostThreads = 1024;
constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr uint64_t kMaxCacheMib = INT64_MAX >> 20;
constexpr uint32_t kMaxSide = 1 << 24;
// Twice this, in bytes, is far from overflowing.
constexpr uint64_t kMaxMemoryMib = uint64_t{1} << 40;

constexpr const char* kSlabExports[] = {"auto", "cuda_ipc_handle",
                                        "cuda_vmm_fd"};

template <typename... Parts>
absl::Status Error(absl::string_view key, absl::string_view value,
                   const Parts&... expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is '", absl::Utf8SafeCHexEscape(value),
                   "', expected ", expected...));
}

absl::Status CheckAbsolute(absl::string_view key, const std::string& path) {
  if (absl::StartsWith(path, "/")) return absl::OkStatus();
  return Error(key, path, "an absolute path");
}

absl::Status CheckSocketPath(absl::string_view key, const std::string& path) {
  DATASETD_RETURN_IF_ERROR(CheckAbsolute(key, path));
  constexpr size_t kMaxBytes = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() <= kMaxBytes) return absl::OkStatus();
  return Error(key, path, "at most ", kMaxBytes,
               " bytes, as Linux has it for Unix sockets");
}

absl::Status CheckSocketMode(const std::string& mode) {
  const bool is_octal = mode.size() >= 3 && mode.size() <= 4 &&
                        std::all_of(mode.begin(), mode.end(), [](char c) {
                          return c >= '0' && c <= '7';
                        });
  if (is_octal && (mode.size() == 3 || mode[0] == '0')) {
    return absl::OkStatus();
  }
  return Error("socket_mode", mode, "an octal mode from 000 to 0777, as 0660");
}

// `is_list` allows more than one, as a dataset's device does.
absl::Status CheckDevice(const std::string& key, const std::string& device,
                         bool is_list) {
  const absl::StatusOr<DeviceList> list = ParseDeviceList(device);
  if (list.ok() && !device.empty() &&
      (is_list ||
       (list->kind == PlacementKind::kOne && !list->names.empty()))) {
    return absl::OkStatus();
  }
  return Error(key, device,
               is_list ? "cpu, cuda:N, GPU-UUID, a list of these, each, shard "
                         "or shard:LIST"
                       : "cpu, cuda:N or GPU-UUID");
}

absl::Status CheckTimeout(absl::string_view key,
                          const google::protobuf::Duration& timeout,
                          bool may_be_zero) {
  const absl::Duration time = FromProto(timeout);
  const absl::Duration zero = absl::ZeroDuration();
  if (time <= kMaxTimeout && (may_be_zero ? time >= zero : time > zero)) {
    return absl::OkStatus();
  }
  return Error(key, absl::FormatDuration(time),
               may_be_zero ? "0s" : "more than 0s", " and at most 24h");
}

absl::Status CheckLogLevels(const v1::Config& config) {
  if (!IsLogLevel(config.log_level())) {
    return Error("log_level", config.log_level(),
                 "one of: ", absl::StrJoin(LogLevelNames(), ", "));
  }
  const std::map<std::string, std::string> levels(config.log_levels().begin(),
                                                  config.log_levels().end());
  for (const auto& [subsystem, level] : levels) {
    if (!LogSubsystemOf(subsystem).ok()) {
      return Error("a key of log_levels", subsystem,
                   "one of: ", absl::StrJoin(LogSubsystemNames(), ", "));
    }
    if (!IsLogLevel(level)) {
      return Error(absl::StrCat("log_levels.", subsystem), level,
                   "one of: ", absl::StrJoin(LogLevelNames(), ", "));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const v1::Config& config) {
  const v1::UserLimits& user = config.user_limits();
  const v1::TransformLimits& transform = config.transform_limits();
  constexpr uint64_t kMaxMib = UINT64_MAX >> 20;
  for (const auto& [key, value, most] :
       std::initializer_list<std::tuple<const char*, uint64_t, uint64_t>>{
           {"user_limits.max_calls", user.max_calls(), kMaxCalls},
           {"user_limits.max_loads", user.max_loads(), kMaxWaitingLoads},
           {"user_limits.max_dataset_mib", user.max_dataset_mib(), kMaxMib},
           {"user_limits.max_slab_mib", user.max_slab_mib(), kMaxMib},
           {"user_limits.max_scratch_mib", user.max_scratch_mib(), kMaxMib},
           {"user_limits.max_text_mib", user.max_text_mib(), kMaxMib},
           {"user_limits.max_cache_mib", user.max_cache_mib(), kMaxCacheMib},
           {"host_threads", config.host_threads(), kMaxHostThreads},
           {"memory_budget_mib", config.memory_budget_mib(), kMaxMib},
           {"pinned_budget_mib", config.pinned_budget_mib(), kMaxMib},
           {"push_spool_mib", config.push_spool_mib(), kMaxCacheMib},
           {"max_unused_percent", config.max_unused_percent(), 100},
           {"text_budget_mib", config.text_budget_mib(), kMaxMib},
           {"max_inflated_mib", config.max_inflated_mib(), kMaxCacheMib},
           {"transform_limits.max_side", transform.max_side(), kMaxSide},
           {"transform_limits.max_scratch_mib", transform.max_scratch_mib(),
            kMaxMemoryMib},
           {"transform_limits.max_operations", transform.max_operations(),
            INT64_MAX},
           {"max_sample_memory_mib", config.max_sample_memory_mib(),
            kMaxMemoryMib},
           {"decode_memory_mib", config.decode_memory_mib(), 2 * kMaxMemoryMib},
           {"cache.limit_mib", config.cache().limit_mib(), kMaxCacheMib}}) {
    if (value > most) {
      return Error(key, absl::StrCat(value), "at most ", most);
    }
  }
  if (config.decode_memory_mib() >= 2 * config.max_sample_memory_mib()) {
    return absl::OkStatus();
  }
  return Error("decode_memory_mib", absl::StrCat(config.decode_memory_mib()),
               "at least twice max_sample_memory_mib, ",
               2 * config.max_sample_memory_mib());
}

absl::Status CheckStores(const v1::Config& config) {
  const std::string& state = config.state_directory();
  if (!state.empty()) {
    DATASETD_RETURN_IF_ERROR(CheckAbsolute("state_directory", state));
  }
  if (!config.has_cache()) return absl::OkStatus();
  const v1::Cache& cache = config.cache();
  DATASETD_RETURN_IF_ERROR(CheckAbsolute("cache.directory", cache.directory()));
  if (cache.directory() == state) {
    return Error("cache.directory", cache.directory(),
                 "another path than state_directory");
  }
  return absl::OkStatus();
}

absl::Status CheckDatasets(const v1::Config& config) {
  std::map<std::string, int> indices;
  for (int i = 0; i < config.datasets_size(); ++i) {
    const v1::DatasetSpec& spec = config.datasets(i);
    const std::string key = absl::StrCat("datasets[", i, "]");
    if (!IsDatasetName(spec.name())) {
      return Error(absl::StrCat(key, ".name"), spec.name(),
                   "1 to 128 letters, digits, '.', '_' or '-', beginning with "
                   "a letter or digit");
    }
    const auto [other, is_new] = indices.emplace(spec.name(), i);
    if (!is_new) {
      return Error(absl::StrCat(key, ".name"), spec.name(),
                   "another name than that of datasets[", other->second, "]");
    }
    if (spec.format().empty()) {
      return Error(absl::StrCat(key, ".format"), "", "the name of a format");
    }
    DATASETD_RETURN_IF_ERROR(
        CheckAbsolute(absl::StrCat(key, ".path"), spec.path()));
    if (!spec.device().empty()) {
      DATASETD_RETURN_IF_ERROR(CheckDevice(absl::StrCat(key, ".device"),
                                           spec.device(),
                                           /*is_list=*/true));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Config> LoadConfig(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() && !file.good()) {
    const int error = errno == 0 ? EIO : errno;
    return absl::Status(
        absl::ErrnoToStatusCode(error),
        absl::StrCat("configuration file ", path, ": ", strerror(error)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return ParseConfig(text, path);
}

absl::StatusOr<v1::Config> ParseConfig(absl::string_view yaml_text,
                                       absl::string_view source_name) {
  v1::Config config;
  DATASETD_RETURN_IF_ERROR(YamlToProto(yaml_text, source_name, &config));
  return config;
}

void ApplyDefaults(v1::Config* config) {
  v1::Config complete;
  complete.set_socket_path("/run/datasetd/datasetd.sock");
  complete.set_socket_mode("0660");
  complete.set_log_level("info");
  complete.set_slab_export("auto");
  complete.set_max_sessions(1024);
  complete.set_max_feeds(1024);
  complete.set_max_inflated_mib(64 << 10);
  complete.set_push_spool_mib(config->has_cache() ? 64 << 10 : 1 << 10);
  complete.set_max_datasets(1024);
  complete.set_text_budget_mib(256);
  complete.set_max_sample_memory_mib(1024);
  complete.set_max_unused_percent(100);
  v1::TransformLimits& limits = *complete.mutable_transform_limits();
  limits.set_max_side(kMaxSide);
  limits.set_max_scratch_mib(1024);
  limits.set_max_operations(uint64_t{1} << 34);
  // MergeFrom leaves a default where the given value is 0 or empty.
  complete.MergeFrom(*config);
  *config = std::move(complete);

  if (config->decode_memory_mib() == 0) {
    constexpr uint64_t kDefaultDecodeMib = 2048;
    const uint64_t least =
        2 * std::min(config->max_sample_memory_mib(), kMaxMemoryMib);
    config->set_decode_memory_mib(std::max(kDefaultDecodeMib, least));
  }
  // A time of 0 is one that is set.
  if (!config->has_drain_timeout()) {
    config->mutable_drain_timeout()->set_seconds(5);
  }
  if (!config->has_attach_timeout()) {
    config->mutable_attach_timeout()->set_seconds(10);
  }
  if (!config->has_send_timeout()) {
    config->mutable_send_timeout()->set_seconds(10);
  }
  if (!config->has_receive_timeout()) {
    config->mutable_receive_timeout()->set_seconds(300);
  }
}

absl::Status ValidateConfig(const v1::Config& config) {
  DATASETD_RETURN_IF_ERROR(
      CheckSocketPath("socket_path", config.socket_path()));
  DATASETD_RETURN_IF_ERROR(CheckSocketMode(config.socket_mode()));
  std::set<std::string> devices;
  for (int i = 0; i < config.devices_size(); ++i) {
    const std::string key = absl::StrCat("devices[", i, "]");
    DATASETD_RETURN_IF_ERROR(
        CheckDevice(key, config.devices(i), /*is_list=*/false));
    if (!devices.insert(config.devices(i)).second) {
      return Error(key, config.devices(i), "each device once");
    }
  }
  DATASETD_RETURN_IF_ERROR(CheckNumbers(config));
  for (int i = 0; i < config.data_roots_size(); ++i) {
    DATASETD_RETURN_IF_ERROR(CheckAbsolute(absl::StrCat("data_roots[", i, "]"),
                                           config.data_roots(i)));
  }
  for (const auto& [key, timeout, may_be_zero] :
       {std::tuple("drain_timeout", config.drain_timeout(), true),
        std::tuple("exit_when_idle", config.exit_when_idle(), true),
        std::tuple("evict_unused_after", config.evict_unused_after(), true),
        std::tuple("device_wait", config.device_wait(), true),
        std::tuple("attach_timeout", config.attach_timeout(), false),
        std::tuple("send_timeout", config.send_timeout(), false),
        std::tuple("receive_timeout", config.receive_timeout(), false)}) {
    DATASETD_RETURN_IF_ERROR(CheckTimeout(key, timeout, may_be_zero));
  }
  if (config.metrics_port() > kMaxPort) {
    return Error("metrics_port", absl::StrCat(config.metrics_port()),
                 "a port from 1 to ", kMaxPort, ", or 0 for none");
  }
  if (config.max_batches_per_launch() > kMaxBatchesPerLaunch) {
    return Error("max_batches_per_launch",
                 absl::StrCat(config.max_batches_per_launch()), "from 1 to ",
                 kMaxBatchesPerLaunch, ", or 0 for as many as there can be");
  }
  DATASETD_RETURN_IF_ERROR(CheckLogLevels(config));
  if (std::find(std::begin(kSlabExports), std::end(kSlabExports),
                config.slab_export()) == std::end(kSlabExports)) {
    return Error("slab_export", config.slab_export(),
                 "one of: ", absl::StrJoin(kSlabExports, ", "));
  }
  DATASETD_RETURN_IF_ERROR(CheckStores(config));
  return CheckDatasets(config);
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) +
         absl::Nanoseconds(duration.nanos());
}

PerUserLimit UserLimit(bool is_set, uint64_t limit, uint64_t total) {
  if (is_set) return PerUserLimit(limit);
  return PerUserLimit(std::max<uint64_t>(total / 2, 1), 0);
}

}  // namespace datasetd
