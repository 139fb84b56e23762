#include "server/server.h"

#include <fcntl.h>
#include <grp.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cuda/backends.h"
#include "cuda/cuda_backend.h"
#include "cuda/file_descriptor.h"
#include "cuda/status_macros.h"
#include "proto/version.h"
#include "server/attach/attach_server.h"
#include "server/attach/ring_channel.h"
#include "server/attach/seqpacket.h"
#include "server/attach/session_table.h"
#include "server/core/clock.h"
#include "server/core/dataset_cache.h"
#include "server/core/dataset_registry.h"
#include "server/core/device_table.h"
#include "server/core/feed_table.h"
#include "server/core/file_system.h"
#include "server/core/source_scan.h"
#include "server/core/store_directory.h"
#include "server/dataset_manifest.h"
#include "server/grpc_acceptor.h"
#include "server/log_fields.h"
#include "server/logging.h"
#include "server/metrics.h"
#include "server/metrics_endpoint.h"
#include "server/readers/reader.h"
#include "server/service/dataset_service.h"
#include "server/service/feed_service.h"
#include "server/service/proto_convert.h"
#include "server/service/request_context.h"
#include "server/service/request_counter.h"
#include "server/service/server_service.h"

namespace datasetd {
namespace {

constexpr int kMaxRpcThreads = 64;
constexpr size_t kMaxRpcMemoryBytes = 256 << 20;
constexpr int kMaxConcurrentStreams = 64;
// Of what is free at start, where the configuration names no budget.
constexpr double kDefaultBudgetShare = 0.9;
// How long a client may wait for the list of datasets to be on the disk.
constexpr absl::Duration kMaxSaveTime = absl::Seconds(5);
// How long a request that would be refused waits for what was closed before it.
constexpr absl::Duration kMaxEndTime = absl::Seconds(1);

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) +
         absl::Nanoseconds(duration.nanos());
}

// The configured devices; without any, every GPU, or the host where there is
// none.
absl::StatusOr<std::vector<std::string>> DeviceNames(const v1::Config& config) {
  std::vector<std::string> names(config.devices().begin(),
                                 config.devices().end());
  if (!names.empty()) return names;
  const absl::StatusOr<int> num_gpus = CountCudaDevices();
  if (!num_gpus.ok()) {
    Log(LogSubsystem::kServer).warn("no GPU ({}): serving from host memory",
                             std::string(num_gpus.status().message()));
    return std::vector<std::string>{"cpu"};
  }
  for (int i = 0; i < *num_gpus; ++i) {
    names.push_back(absl::StrCat("cuda:", i));
  }
  return names;
}

absl::StatusOr<std::vector<ServedDevice>> OpenDevices(
    const v1::Config& config) {
  DATASETD_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            DeviceNames(config));
  std::vector<ServedDevice> devices;
  for (const std::string& name : names) {
    ServedDevice device;
    DATASETD_ASSIGN_OR_RETURN(
        device.backend,
        CreateBackend(
            name, {.host = {.num_threads =
                                static_cast<int>(config.host_threads())},
                   .max_batches_per_launch =
                       config.max_batches_per_launch() == 0
                           ? kMaxBatchesPerLaunch
                           : static_cast<int>(
                                 config.max_batches_per_launch())}));
    const DeviceInfo& info = device.backend->info();
    const uint64_t budget =
        config.memory_budget_mib() != 0
            ? config.memory_budget_mib() << 20
            : static_cast<uint64_t>(kDefaultBudgetShare *
                                    static_cast<double>(info.free_bytes));
    device.budget = std::make_unique<MemoryBudget>(
        budget, MemoryBudget::UserLimits{
                    .dataset_bytes = config.user_limits().max_dataset_mib()
                                     << 20,
                    .slab_bytes = config.user_limits().max_slab_mib() << 20});
    Log(LogSubsystem::kServer).info("device {}: {}, memory budget {} MiB", info.name,
                             info.description, budget >> 20);
    devices.push_back(std::move(device));
  }
  return devices;
}

// One daemon for each socket: held as long as the process lives.
absl::StatusOr<FileDescriptor> LockSocket(const std::string& socket_path) {
  const std::string path = socket_path + ".lock";
  FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.has_value()) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot open ", path,
                            " (does the directory of 'socket_path' exist?)"));
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "another datasetd serves ", socket_path,
        "; stop it, or choose another socket_path"));
  }
  return fd;
}

absl::Status SetSocketRights(const std::string& path,
                             const v1::Config& config) {
  if (!config.socket_group().empty()) {
    const group* const entry = getgrnam(config.socket_group().c_str());
    if (entry == nullptr) {
      return absl::NotFoundError(absl::StrCat(
          "socket_group: there is no group '", config.socket_group(), "'"));
    }
    if (chown(path.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("chown ", path));
    }
  }
  const mode_t mode = static_cast<mode_t>(
      std::strtoul(config.socket_mode().c_str(), nullptr, 8));
  if (chmod(path.c_str(), mode) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("chmod ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ExportKind>> AllowedExports(
    const v1::Config& config) {
  if (config.slab_export() == "auto") return std::vector<ExportKind>{};
  for (const ExportKind kind :
       {ExportKind::kCudaIpcHandle, ExportKind::kCudaVmmFd}) {
    if (config.slab_export() == ExportKindName(kind)) {
      return std::vector<ExportKind>{kind};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "slab_export: '", config.slab_export(),
      "' is none of auto, cuda_ipc_handle, cuda_vmm_fd"));
}

void LogDataset(const char* event, const DatasetInfo& info,
                const Caller& caller) {
  const ScopedLogFields fields({.dataset = info.spec.name,
                                .uid = caller.uid,
                                .pid = caller.pid});
  if (info.state == DatasetState::kFailed) {
    Log(LogSubsystem::kLoad).error("dataset={} {}: uid={} pid={}: {}",
                                     info.spec.name, event, caller.uid,
                                     caller.pid,
                            std::string(info.error.message()));
    return;
  }
  Log(LogSubsystem::kLoad).info("dataset={} {}: uid={} pid={} samples={} bytes={} device={}",
                                  info.spec.name, event, caller.uid, caller.pid,
                                  info.num_samples, info.resident_bytes,
                                  info.spec.device);
}

void LogCache(const char* event, const std::string& name,
              const absl::Status& status) {
  if (status.ok()) {
    Log(LogSubsystem::kLoad).info("cache: {}: {}", name, event);
  } else {
    Log(LogSubsystem::kLoad).warn("cache: {}: {}: {}", name, event,
                                  std::string(status.message()));
  }
}

void LogManifest(const char* event, const absl::Status& status) {
  Log(LogSubsystem::kServer).error("list of loaded datasets: {}: {}", event,
                                   std::string(status.message()));
}

void LogFeed(const char* event, const FeedInfo& info) {
  const ScopedLogFields fields({.dataset = info.dataset,
                                .feed = info.id,
                                .uid = info.owner.uid,
                                .pid = info.owner.pid});
  Log(LogSubsystem::kProducer).info(
      "feed={} dataset={} {}: uid={} pid={} slab_bytes={} batches={}", info.id,
      info.dataset, event, info.owner.uid, info.owner.pid, info.slab_bytes,
      info.num_batches);
}

void LogAttach(const char* event, uint32_t uid, int32_t pid,
               const std::string& detail) {
  const ScopedLogFields fields({.uid = uid, .pid = pid});
  Log(LogSubsystem::kAttach).warn("{}: uid={} pid={}: {}", event, uid, pid, detail);
}

// The device is beyond repair: what is published stays correct, nothing more
// is, and reconnecting clients find a new process.
[[noreturn]] void OnDeviceFailure(const absl::Status& status) {
  Log(LogSubsystem::kProducer).critical("the device failed, exiting: {}",
                                 status.ToString());
  Log(LogSubsystem::kProducer).flush();
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

class Server::Impl {
 public:
  Impl(const v1::Config& config, std::optional<ActivatedSockets> sockets)
      : config_(config),
        is_activated_(sockets.has_value()),
        sockets_(std::move(sockets)),
        sessions_(config.max_sessions(), config.user_limits().max_sessions()),
        context_(&sessions_) {}
  ~Impl();

  absl::Status Start();
  absl::Status AwaitDatasets(absl::Duration timeout);
  void BeginDrain();
  bool AwaitDrained(absl::Duration timeout) {
    return attach_->AwaitNoLeases(timeout);
  }
  FeedTable& feeds() { return *feeds_; }

 private:
  // The sockets that were given are those of the configuration.
  absl::Status CheckSockets() const;
  absl::Status OpenSockets();
  absl::Status StartGrpc();
  absl::Status StartMetrics();
  absl::Status OpenStores();
  absl::Status BeginLoads();
  void BeginRestore();
  void AwaitEnds();
  void OnDataset(const char* event, const DatasetInfo& info,
                 const Caller& caller);

  const v1::Config config_;
  // The sockets are the service manager's.
  const bool is_activated_;
  std::optional<ActivatedSockets> sockets_;  // until they are in use
  RealClock clock_;
  FileDescriptor lock_;
  FileDescriptor attach_lock_;
  std::unique_ptr<FileSystem> files_;
  SessionTable sessions_;
  RequestContext context_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetManifest> manifest_;  // null: off
  std::unique_ptr<DatasetCache> cache_;        // null: off
  std::unique_ptr<DatasetRegistry> datasets_;
  std::unique_ptr<FeedTable> feeds_;
  std::unique_ptr<AttachServer> attach_;
  std::unique_ptr<DatasetService> dataset_service_;
  std::unique_ptr<FeedService> feed_service_;
  std::unique_ptr<ServerService> server_service_;
  RequestCounter requests_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<GrpcAcceptor> acceptor_;
  std::unique_ptr<MetricsEndpoint> metrics_;
};

absl::Status Server::Impl::Start() {
  DATASETD_ASSIGN_OR_RETURN(FeedTable::Options feed_options,
                            [&]() -> absl::StatusOr<FeedTable::Options> {
                              FeedTable::Options options;
                              options.max_feeds = config_.max_feeds();
                              options.max_feeds_per_user =
                                  config_.user_limits().max_feeds();
                              options.attach_timeout =
                                  FromProto(config_.attach_timeout());
                              DATASETD_ASSIGN_OR_RETURN(
                                  options.allowed_exports,
                                  AllowedExports(config_));
                              return options;
                            }());
  DATASETD_RETURN_IF_ERROR(CheckSockets());
  DATASETD_ASSIGN_OR_RETURN(lock_, LockSocket(config_.socket_path()));
  DATASETD_ASSIGN_OR_RETURN(attach_lock_,
                            LockSocket(config_.attach_socket_path()));
  DATASETD_ASSIGN_OR_RETURN(
      files_, CreateRootedFileSystem(std::vector<std::string>(
                  config_.data_roots().begin(), config_.data_roots().end())));
  DATASETD_ASSIGN_OR_RETURN(std::vector<ServedDevice> devices,
                            OpenDevices(config_));
  devices_ = std::make_unique<DeviceTable>(std::move(devices));
  DATASETD_RETURN_IF_ERROR(OpenStores());
  const auto open_source = [files = files_.get()](
                               const DatasetSpec& spec,
                               std::shared_ptr<SourceScan> scan) {
    return OpenScanned(
        *files, std::move(scan), [&spec](const FileSystem& scanned) {
          return OpenReader({.format = spec.format,
                             .path = spec.path,
                             .split = spec.split,
                             .options = spec.options},
                            scanned);
        });
  };
  datasets_ = std::make_unique<DatasetRegistry>(
      DatasetRegistry::Options{
          .max_datasets_per_user =
              static_cast<int>(config_.user_limits().max_datasets()),
          .cache = cache_.get()},
      devices_.get(), open_source, &clock_,
      [this](const char* event, const DatasetInfo& info, const Caller& caller) {
        OnDataset(event, info, caller);
      });
  DATASETD_ASSIGN_OR_RETURN(
      feeds_, FeedTable::Create(std::move(feed_options), devices_.get(),
                                datasets_.get(), RingChannel::Create, &clock_,
                                LogFeed, OnDeviceFailure));

  // Before a client can take their names.
  DATASETD_RETURN_IF_ERROR(BeginLoads());
  BeginRestore();
  DATASETD_RETURN_IF_ERROR(OpenSockets());
  Log(LogSubsystem::kServer).info("datasetd {} serves {}", kVersion,
                           config_.socket_path());
  return StartMetrics();
}

absl::Status Server::Impl::OpenStores() {
  if (!config_.state_directory().empty()) {
    DATASETD_ASSIGN_OR_RETURN(auto directory,
                              OpenStoreDirectory(config_.state_directory()));
    DATASETD_ASSIGN_OR_RETURN(
        manifest_, DatasetManifest::Open(std::move(directory), LogManifest));
  }
  if (!config_.has_cache()) return absl::OkStatus();
  DATASETD_ASSIGN_OR_RETURN(auto directory,
                            OpenStoreDirectory(config_.cache().directory()));
  DATASETD_ASSIGN_OR_RETURN(
      cache_,
      DatasetCache::Open(std::move(directory),
                         static_cast<int64_t>(config_.cache().limit_mib())
                             << 20,
                         LogCache));
  Log(LogSubsystem::kServer).info(
      "cache {}: {} datasets, {} of {} MiB", config_.cache().directory(),
      cache_->num_entries(), cache_->used_bytes() >> 20,
      cache_->limit_bytes() >> 20);
  return absl::OkStatus();
}

// Called while the registry is locked.
void Server::Impl::OnDataset(const char* event, const DatasetInfo& info,
                             const Caller& caller) {
  LogDataset(event, info, caller);
  if (manifest_ == nullptr || info.owner.session_id == 0) return;
  const absl::string_view name = event;
  if (name == "ready") manifest_->Add(info);
  if (name == "unload" || name == "evicted") manifest_->Remove(info.spec.name);
}

absl::Status Server::Impl::CheckSockets() const {
  if (!is_activated_) return absl::OkStatus();
  const std::pair<const char*, std::pair<std::string, std::string>> paths[] = {
      {"socket_path", {config_.socket_path(), sockets_->grpc_path}},
      {"attach_socket_path",
       {config_.attach_socket_path(), sockets_->attach_path}}};
  for (const auto& [key, path] : paths) {
    if (path.first == path.second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        key, " is ", path.first, ", but the service manager passed ",
        path.second, "; make datasetd.socket and the configuration agree"));
  }
  return absl::OkStatus();
}

absl::Status Server::Impl::OpenSockets() {
  // Nobody may connect before the rights are set.
  const mode_t previous_mask = umask(0177);
  absl::Status status = [&]() -> absl::Status {
    FileDescriptor listener;
    if (is_activated_) {
      listener = std::move(sockets_->attach);
    } else {
      DATASETD_ASSIGN_OR_RETURN(listener,
                                ListenSeqpacket(config_.attach_socket_path()));
    }
    DATASETD_ASSIGN_OR_RETURN(
        attach_, AttachServer::Start(std::move(listener), &sessions_,
                                     feeds_.get(), datasets_.get(), LogAttach));
    return StartGrpc();
  }();
  umask(previous_mask);
  DATASETD_RETURN_IF_ERROR(status);
  if (is_activated_) {
    DATASETD_ASSIGN_OR_RETURN(
        acceptor_, GrpcAcceptor::Start(std::move(sockets_->grpc), grpc_.get()));
    return absl::OkStatus();
  }
  DATASETD_RETURN_IF_ERROR(SetSocketRights(config_.socket_path(), config_));
  return SetSocketRights(config_.attach_socket_path(), config_);
}

absl::Status Server::Impl::StartMetrics() {
  if (config_.metrics_port() == 0) return absl::OkStatus();
  DATASETD_ASSIGN_OR_RETURN(
      metrics_,
      MetricsEndpoint::Start(
          config_.metrics_port(),
          std::make_shared<Metrics>(Metrics::Parts{.devices = devices_.get(),
                                                   .cache = cache_.get(),
                                                   .datasets = datasets_.get(),
                                                   .feeds = feeds_.get(),
                                                   .sessions = &sessions_,
                                                   .attach = attach_.get(),
                                                   .context = &context_,
                                                   .requests = &requests_,
                                                   .clock = &clock_,
                                                   .version = kVersion})));
  return absl::OkStatus();
}

absl::Status Server::Impl::StartGrpc() {
  dataset_service_ = std::make_unique<DatasetService>(
      &context_, datasets_.get(), feeds_.get(),
      [this](const Dataset& dataset) {
        attach_->EndLeases(feeds_->DropPending(&dataset),
                           attach::GoodbyeCode::kUnloaded,
                           absl::StrCat("dataset '", dataset.name(),
                                        "' was unloaded by force"));
      },
      [this] {
        if (manifest_ != nullptr) manifest_->AwaitWritten(kMaxSaveTime);
      },
      [this] { AwaitEnds(); });
  feed_service_ = std::make_unique<FeedService>(&context_, feeds_.get(),
                                                [this] { AwaitEnds(); });
  server_service_ = std::make_unique<ServerService>(
      ServerService::Parts{.context = &context_,
                           .sessions = &sessions_,
                           .devices = devices_.get(),
                           .datasets = datasets_.get(),
                           .feeds = feeds_.get(),
                           .clock = &clock_,
                           .version = kVersion,
                           .formats = ReaderFormats()});

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ResourceQuota quota("datasetd");
  quota.SetMaxThreads(kMaxRpcThreads);
  quota.Resize(kMaxRpcMemoryBytes);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             kMaxConcurrentStreams);
  if (!is_activated_) {
    builder.AddListeningPort("unix:" + config_.socket_path(),
                             grpc::InsecureServerCredentials());
  }
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(requests_.MakeInterceptorFactory());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  builder.RegisterService(dataset_service_.get());
  builder.RegisterService(feed_service_.get());
  builder.RegisterService(server_service_.get());
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) {
    return absl::InternalError(absl::StrCat(
        "gRPC cannot listen on ", config_.socket_path(),
        "; is the directory writable, and the path at most 107 bytes long?"));
  }
  return absl::OkStatus();
}

// Ends come by the attach socket, requests by gRPC: who closes something and
// then asks for its memory is heard in this order, too.
void Server::Impl::AwaitEnds() {
  attach_->AwaitHeard(kMaxEndTime);
  feeds_->AwaitEnded(kMaxEndTime);
}

absl::Status Server::Impl::BeginLoads() {
  for (const v1::DatasetSpec& proto : config_.datasets()) {
    DATASETD_ASSIGN_OR_RETURN(DatasetSpec spec, DatasetSpecFromProto(proto));
    const std::string name = spec.name;
    const absl::Status status = datasets_->Load(std::move(spec), Caller());
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("dataset '", name, "': ",
                                                      status.message()));
    }
  }
  return absl::OkStatus();
}

void Server::Impl::BeginRestore() {
  if (manifest_ == nullptr) return;
  std::vector<RestoredDataset> restored;
  for (const v1::Manifest::Entry& entry : manifest_->Entries()) {
    auto spec = DatasetSpecFromProto(entry.spec());
    if (!spec.ok()) {
      Log(LogSubsystem::kLoad).error(
          "dataset={} not loaded again: {}", entry.spec().name(),
          std::string(spec.status().message()));
      continue;
    }
    restored.push_back(
        {.spec = *std::move(spec),
         .owner = {.session_id = Caller::kEarlierSession,
                   .uid = entry.owner_uid(),
                   .is_privileged = entry.owner_uid() == 0 ||
                                    entry.owner_uid() == geteuid()},
         .content_hash = entry.content_hash()});
  }
  if (!restored.empty()) datasets_->Restore(std::move(restored));
}

absl::Status Server::Impl::AwaitDatasets(absl::Duration timeout) {
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  for (const v1::DatasetSpec& spec : config_.datasets()) {
    DATASETD_ASSIGN_OR_RETURN(
        const DatasetInfo info,
        datasets_->Await(spec.name(), deadline - clock_.Monotonic()));
    if (info.state == DatasetState::kFailed) {
      return absl::Status(info.error.code(),
                          absl::StrCat("dataset '", spec.name(),
                                       "': ", info.error.message()));
    }
    if (info.state == DatasetState::kLoading) {
      return absl::DeadlineExceededError(absl::StrCat(
          "loading ", spec.name(), ": ", info.num_samples_loaded, " of ",
          info.num_samples, " samples"));
    }
  }
  return absl::OkStatus();
}

void Server::Impl::BeginDrain() {
  context_.BeginDrain();
  attach_->BeginDrain("the daemon is shutting down");
  grpc_->GetHealthCheckService()->SetServingStatus(false);
  attach_->EndLeases(feeds_->DropPending(nullptr),
                     attach::GoodbyeCode::kDraining,
                     "the daemon is shutting down");
}

Server::Impl::~Impl() {
  metrics_.reset();
  acceptor_.reset();
  if (grpc_ != nullptr) {
    grpc_->Shutdown(std::chrono::system_clock::now());
    grpc_->Wait();
  }
  attach_.reset();
  feeds_.reset();
  datasets_.reset();
  cache_.reset();
  if (attach_lock_.has_value() && !is_activated_) {
    unlink(config_.attach_socket_path().c_str());
    unlink(config_.socket_path().c_str());
  }
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const v1::Config& config, std::optional<ActivatedSockets> sockets) {
  auto impl = std::make_unique<Impl>(config, std::move(sockets));
  DATASETD_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::Status Server::AwaitDatasets(absl::Duration timeout) {
  return impl_->AwaitDatasets(timeout);
}

void Server::BeginDrain() { impl_->BeginDrain(); }

bool Server::AwaitDrained(absl::Duration timeout) {
  return impl_->AwaitDrained(timeout);
}

void Server::PingProducers() { impl_->feeds().PingProducers(); }

std::map<std::string, ProducerProgress> Server::ProducersProgress() const {
  return impl_->feeds().ProducersProgress();
}

}  // namespace datasetd
