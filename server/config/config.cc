#include "server/config/config.h"

#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "cuda/device/backend.h"
#include "server/config/yaml_to_proto.h"
#include "server/dataset/dataset_name.h"
#include "server/dataset/device_list.h"
#include "server/log/logging.h"

namespace datasetd {
namespace {

constexpr char kDefaultSocketPath[] = "/run/datasetd/datasetd.sock";
constexpr char kAttachSocketName[] = "attach.sock";
constexpr int64_t kDefaultDrainSeconds = 5;
constexpr int64_t kDefaultAttachSeconds = 10;
constexpr absl::Duration kMaxTimeout = absl::Hours(24);
constexpr uint32_t kDefaultMaxSessions = 1024;
constexpr uint32_t kDefaultMaxFeeds = 1024;
constexpr uint32_t kDefaultMaxConnections = 4096;
constexpr uint32_t kMaxConnections = 1 << 20;
constexpr int64_t kDefaultIdleSeconds = 600;
constexpr int64_t kDefaultSendSeconds = 10;
constexpr int64_t kDefaultReceiveSeconds = 300;
constexpr uint64_t kDefaultInflatedMib = 64 << 10;
constexpr uint64_t kDefaultSpoolMib = 64 << 10;
constexpr uint64_t kDefaultMemorySpoolMib = 1 << 10;
constexpr uint32_t kDefaultMaxDatasets = 1024;
constexpr uint64_t kDefaultTextBudgetMib = 256;
constexpr uint32_t kMaxPort = 65535;
// The unit's TasksMax=4096 has room for them.
constexpr uint32_t kMaxHostThreads = 1024;
constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr uint64_t kMaxCacheMib = INT64_MAX >> 20;
constexpr uint32_t kMaxSide = 1 << 24;
constexpr uint64_t kDefaultScratchMib = 1024;
constexpr uint64_t kDefaultOperations = uint64_t{1} << 34;
constexpr uint64_t kDefaultSampleMib = 1024;
constexpr uint64_t kDefaultDecodeMib = 2048;
// Twice this, in bytes, is far from overflowing.
constexpr uint64_t kMaxMemoryMib = uint64_t{1} << 40;

const std::vector<std::string>& SlabExports() {
  static const auto* const exports =
      new std::vector<std::string>{"auto", "cuda_ipc_handle", "cuda_vmm_fd"};
  return *exports;
}

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
  const absl::Duration time =
      absl::Seconds(timeout.seconds()) + absl::Nanoseconds(timeout.nanos());
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

absl::Status CheckAtMost(absl::string_view key, uint64_t value, uint64_t most) {
  if (value <= most) return absl::OkStatus();
  return Error(key, absl::StrCat(value), "at most ", most);
}

absl::Status CheckStores(const v1::Config& config) {
  const std::string& state = config.state_directory();
  if (!state.empty()) {
    DATASETD_RETURN_IF_ERROR(CheckAbsolute("state_directory", state));
  }
  DATASETD_RETURN_IF_ERROR(CheckAtMost("user_limits.max_cache_mib",
                                       config.user_limits().max_cache_mib(),
                                       kMaxCacheMib));
  if (!config.has_cache()) return absl::OkStatus();
  const v1::Cache& cache = config.cache();
  DATASETD_RETURN_IF_ERROR(CheckAbsolute("cache.directory", cache.directory()));
  if (cache.directory() == state) {
    return Error("cache.directory", cache.directory(),
                 "another path than state_directory");
  }
  return CheckAtMost("cache.limit_mib", cache.limit_mib(), kMaxCacheMib);
}

absl::Status CheckSampleLimits(const v1::Config& config) {
  const v1::TransformLimits& limits = config.transform_limits();
  DATASETD_RETURN_IF_ERROR(
      CheckAtMost("transform_limits.max_side", limits.max_side(), kMaxSide));
  DATASETD_RETURN_IF_ERROR(CheckAtMost("transform_limits.max_scratch_mib",
                                       limits.max_scratch_mib(),
                                       kMaxMemoryMib));
  DATASETD_RETURN_IF_ERROR(CheckAtMost("transform_limits.max_operations",
                                       limits.max_operations(), INT64_MAX));
  DATASETD_RETURN_IF_ERROR(CheckAtMost(
      "max_sample_memory_mib", config.max_sample_memory_mib(), kMaxMemoryMib));
  DATASETD_RETURN_IF_ERROR(CheckAtMost(
      "decode_memory_mib", config.decode_memory_mib(), 2 * kMaxMemoryMib));
  if (config.decode_memory_mib() >= 2 * config.max_sample_memory_mib()) {
    return absl::OkStatus();
  }
  return Error("decode_memory_mib", absl::StrCat(config.decode_memory_mib()),
               "at least twice max_sample_memory_mib, ",
               2 * config.max_sample_memory_mib());
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
  if (config->socket_path().empty()) {
    config->set_socket_path(kDefaultSocketPath);
  }
  if (config->attach_socket_path().empty()) {
    const std::string& path = config->socket_path();
    const size_t slash = path.rfind('/');
    config->set_attach_socket_path(absl::StrCat(
        slash == std::string::npos ? "" : path.substr(0, slash + 1),
        kAttachSocketName));
  }
  if (config->socket_mode().empty()) config->set_socket_mode("0660");
  if (!config->has_drain_timeout()) {
    config->mutable_drain_timeout()->set_seconds(kDefaultDrainSeconds);
  }
  if (!config->has_attach_timeout()) {
    config->mutable_attach_timeout()->set_seconds(kDefaultAttachSeconds);
  }
  if (config->log_level().empty()) config->set_log_level("info");
  if (config->slab_export().empty()) config->set_slab_export("auto");
  if (config->max_sessions() == 0) {
    config->set_max_sessions(kDefaultMaxSessions);
  }
  if (config->max_feeds() == 0) config->set_max_feeds(kDefaultMaxFeeds);
  if (config->max_connections() == 0) {
    config->set_max_connections(kDefaultMaxConnections);
  }
  if (!config->has_idle_timeout()) {
    config->mutable_idle_timeout()->set_seconds(kDefaultIdleSeconds);
  }
  if (!config->has_send_timeout()) {
    config->mutable_send_timeout()->set_seconds(kDefaultSendSeconds);
  }
  if (!config->has_receive_timeout()) {
    config->mutable_receive_timeout()->set_seconds(kDefaultReceiveSeconds);
  }
  if (config->push_spool_mib() == 0) {
    config->set_push_spool_mib(config->has_cache() ? kDefaultSpoolMib
                                                   : kDefaultMemorySpoolMib);
  }
  if (config->max_inflated_mib() == 0) {
    config->set_max_inflated_mib(kDefaultInflatedMib);
  }
  v1::TransformLimits& limits = *config->mutable_transform_limits();
  if (limits.max_side() == 0) limits.set_max_side(kMaxSide);
  if (limits.max_scratch_mib() == 0) {
    limits.set_max_scratch_mib(kDefaultScratchMib);
  }
  if (limits.max_operations() == 0) {
    limits.set_max_operations(kDefaultOperations);
  }
  if (config->max_sample_memory_mib() == 0) {
    config->set_max_sample_memory_mib(kDefaultSampleMib);
  }
  if (config->decode_memory_mib() == 0) {
    const uint64_t least =
        2 * std::min(config->max_sample_memory_mib(), kMaxMemoryMib);
    config->set_decode_memory_mib(std::max(kDefaultDecodeMib, least));
  }
  if (config->max_datasets() == 0) {
    config->set_max_datasets(kDefaultMaxDatasets);
  }
  if (config->text_budget_mib() == 0) {
    config->set_text_budget_mib(kDefaultTextBudgetMib);
  }
}

absl::Status ValidateConfig(const v1::Config& config) {
  DATASETD_RETURN_IF_ERROR(
      CheckSocketPath("socket_path", config.socket_path()));
  DATASETD_RETURN_IF_ERROR(
      CheckSocketPath("attach_socket_path", config.attach_socket_path()));
  if (config.attach_socket_path() == config.socket_path()) {
    return Error("attach_socket_path", config.attach_socket_path(),
                 "another path than socket_path");
  }
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
  const v1::UserLimits& limits = config.user_limits();
  constexpr uint64_t kMaxMib = UINT64_MAX >> 20;
  for (const auto& [key, value, most] :
       std::initializer_list<std::tuple<const char*, uint64_t, uint64_t>>{
           {"user_limits.max_calls", limits.max_calls(), kMaxCalls},
           {"user_limits.max_loads", limits.max_loads(), kMaxWaitingLoads},
           {"user_limits.max_dataset_mib", limits.max_dataset_mib(), kMaxMib},
           {"user_limits.max_slab_mib", limits.max_slab_mib(), kMaxMib},
           {"user_limits.max_scratch_mib", limits.max_scratch_mib(), kMaxMib},
           {"user_limits.max_text_mib", limits.max_text_mib(), kMaxMib},
           {"host_threads", config.host_threads(), kMaxHostThreads},
           {"memory_budget_mib", config.memory_budget_mib(), kMaxMib},
           {"pinned_budget_mib", config.pinned_budget_mib(), kMaxMib},
           {"push_spool_mib", config.push_spool_mib(), kMaxCacheMib},
           {"text_budget_mib", config.text_budget_mib(), kMaxMib}}) {
    DATASETD_RETURN_IF_ERROR(CheckAtMost(key, value, most));
  }
  for (int i = 0; i < config.data_roots_size(); ++i) {
    DATASETD_RETURN_IF_ERROR(CheckAbsolute(absl::StrCat("data_roots[", i, "]"),
                                           config.data_roots(i)));
  }
  DATASETD_RETURN_IF_ERROR(CheckTimeout("drain_timeout", config.drain_timeout(),
                                        /*may_be_zero=*/true));
  DATASETD_RETURN_IF_ERROR(CheckTimeout("exit_when_idle",
                                        config.exit_when_idle(),
                                        /*may_be_zero=*/true));
  DATASETD_RETURN_IF_ERROR(CheckTimeout(
      "attach_timeout", config.attach_timeout(), /*may_be_zero=*/false));
  for (const auto& [key, timeout] :
       {std::pair("idle_timeout", config.idle_timeout()),
        std::pair("send_timeout", config.send_timeout()),
        std::pair("receive_timeout", config.receive_timeout())}) {
    DATASETD_RETURN_IF_ERROR(CheckTimeout(key, timeout, /*may_be_zero=*/false));
  }
  if (config.max_connections() > kMaxConnections) {
    return Error("max_connections", absl::StrCat(config.max_connections()),
                 "at most ", kMaxConnections);
  }
  if (config.max_inflated_mib() > kMaxCacheMib) {
    return Error("max_inflated_mib", absl::StrCat(config.max_inflated_mib()),
                 "at most ", kMaxCacheMib);
  }
  DATASETD_RETURN_IF_ERROR(CheckTimeout("device_wait", config.device_wait(),
                                        /*may_be_zero=*/true));
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
  if (std::find(SlabExports().begin(), SlabExports().end(),
                config.slab_export()) == SlabExports().end()) {
    return Error("slab_export", config.slab_export(),
                 "one of: ", absl::StrJoin(SlabExports(), ", "));
  }
  DATASETD_RETURN_IF_ERROR(CheckSampleLimits(config));
  DATASETD_RETURN_IF_ERROR(CheckStores(config));
  return CheckDatasets(config);
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) +
         absl::Nanoseconds(duration.nanos());
}

}  // namespace datasetd
