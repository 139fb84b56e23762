#include "server/server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "cuda/backend/device_failure.h"
#include "proto/version.h"
#include "server/attach/attach_server.h"
#include "server/attach/ring_channel.h"
#include "server/attach/session_table.h"
#include "server/cache/dataset_cache.h"
#include "server/config/config.h"
#include "server/dataset/device_table.h"
#include "server/dataset/memory_budget.h"
#include "server/devices/device_config.h"
#include "server/devices/failure_watch.h"
#include "server/feed/feed_table.h"
#include "server/feed/producer.h"
#include "server/files/file_system.h"
#include "server/files/spool.h"
#include "server/files/store_directory.h"
#include "server/load/source_scan.h"
#include "server/log/event_log.h"
#include "server/log/logging.h"
#include "server/manifest/dataset_manifest.h"
#include "server/metrics/metrics.h"
#include "server/metrics/metrics_endpoint.h"
#include "server/pipeline/ops/transform_limits.h"
#include "server/private_daemon.h"
#include "server/readers/formats/formats.h"
#include "server/registry/dataset_registry.h"
#include "server/rpc/call_guard.h"
#include "server/rpc/request_counter.h"
#include "server/rpc/rpc_server.h"
#include "server/service/dataset_service.h"
#include "server/service/feed_service.h"
#include "server/service/request_context.h"
#include "server/service/restore_plan.h"
#include "server/service/server_service.h"
#include "server/systemd/server_socket.h"

namespace datasetd {
namespace {

// Maximum time that a client waits for the list of datasets to be saved.
constexpr absl::Duration kMaxSaveTime = absl::Seconds(5);
// Maximum time that EndProcess waits for it.
constexpr absl::Duration kMaxLastSaveTime = absl::Milliseconds(300);
// Maximum time that a request waits for earlier closes to be processed.
constexpr absl::Duration kMaxEndTime = absl::Seconds(1);

// For the gate: no sessions' numbers.
constexpr uint64_t kFirstSelfCall = uint64_t{1} << 62;

int64_t BytesOf(uint64_t mib) { return static_cast<int64_t>(mib) << 20; }

TransformLimits TransformLimitsOf(const v1::Config& config) {
  const v1::TransformLimits& limits = config.transform_limits();
  return {.max_side = limits.max_side(),
          .max_scratch_bytes = BytesOf(limits.max_scratch_mib()),
          .max_operations = static_cast<int64_t>(limits.max_operations())};
}

// No device is left: what is published stays correct, nothing more is, and
// reconnecting clients find a new process.
[[noreturn]] void EndByDeviceFailure(const absl::Status& status) {
  Log(LogSubsystem::kProducer)
      .critical("the device failed, exiting: {}: {}",
                absl::StatusCodeToString(status.code()),
                std::string(status.message()));
  Log(LogSubsystem::kProducer).flush();
  PrivateDaemon::RemoveOwn();
  std::_Exit(EXIT_FAILURE);
}

// Runs where the last device's failure is met: in a load, in a feed that is
// opened, in what frees memory.
void OnLastFailure(const absl::Status& status) {
  if (!Producer::IsThisThread()) EndByDeviceFailure(status);
}

// Lowers max_sessions to what half of the process's descriptors are enough for.
void LimitSessions(v1::Config* config) {
  constexpr uint64_t kDescriptorsPerSession = 5;
  rlimit limit = {.rlim_cur = 1024, .rlim_max = 1024};
  (void)getrlimit(RLIMIT_NOFILE, &limit);
  const uint64_t most =
      std::max<uint64_t>(1, limit.rlim_cur / 2 / kDescriptorsPerSession);
  if (config->max_sessions() <= most) return;
  Log(LogSubsystem::kServer)
      .info(
          "max_sessions is {}, but the limit of open files (LimitNOFILE=, "
          "ulimit -n) leaves room for {}",
          config->max_sessions(), most);
  config->set_max_sessions(static_cast<uint32_t>(most));
}

// One user's share of `all`: `configured`, or half.
int ShareOf(int all, uint32_t configured) {
  if (configured == 0) return std::max(1, all / 2);
  return static_cast<int>(std::min<uint32_t>(configured, all));
}

absl::Status OfDataset(const v1::DatasetSpec& spec, const absl::Status& error) {
  return absl::Status(error.code(), absl::StrCat("dataset '", spec.name(),
                                                 "': ", error.message()));
}

// Whether Await's error only says that the dataset was unloaded before it was
// loaded.
bool WasUnloaded(const LoadCall& load, const absl::Status& error) {
  return absl::IsCancelled(error) ||
         (absl::IsNotFound(error) && load.error.ok());
}

std::string ProgressText(const DatasetInfo& info) {
  return info.dataset.progress().is_scanning()
             ? absl::StrCat("scanning ", info.spec->name(), ": ",
                            info.dataset.progress().num_entries_scanned(),
                            " entries")
             : absl::StrCat("loading ", info.spec->name(), ": ",
                            info.dataset.progress().num_samples_loaded(),
                            " of ", info.dataset.num_samples(), " samples");
}

CallGuard::Options CallGuardOptions(const v1::Config& config) {
  return {.send_timeout = FromProto(config.send_timeout()),
          .receive_timeout = FromProto(config.receive_timeout())};
}

}  // namespace

class Server::Impl {
 public:
  Impl(const v1::Config& config, std::optional<ActivatedSocket> socket)
      : config_(config),
        activated_(std::move(socket)),
        sessions_(config.max_sessions(),
                  UserLimit(config.user_limits().has_max_sessions(),
                            config.user_limits().max_sessions(),
                            config.max_sessions())),
        call_guard_(CallGuardOptions(config), &sessions_, &clock_),
        context_(&sessions_, &call_guard_,
                 [this](const Caller& caller) { AwaitEnds(caller); }),
        texts_(
            config.text_budget_mib() << 20,
            {.text_bytes = UserLimit(config.user_limits().has_max_text_mib(),
                                     config.user_limits().max_text_mib() << 20,
                                     config.text_budget_mib() << 20)},
            "text_budget_mib"),
        push_spool_(config.has_cache() ? config.cache().directory() : "",
                    BytesOf(config.push_spool_mib()), "push_spool_mib") {}
  ~Impl();

  absl::Status Start();
  absl::Status AwaitDatasets(absl::Duration timeout);
  void BeginDrain();
  bool AwaitDrained(absl::Duration timeout);
  bool WasUsed();
  bool CloseIfUnused();
  void RemoveSocket() { socket_->Remove(); }
  FileDescriptor ConnectToGrpc();
  void Stop(absl::Duration timeout, int exit_code);
  FeedTable& feeds() { return *feeds_; }

 private:
  absl::Status StartRpc();
  absl::Status StartAttach();
  absl::Status StartMetrics();
  absl::Status OpenStores();
  absl::Status BeginLoads();
  void BeginRestore();
  // For calls, which end before it does: it may be starting.
  AttachServer& attach() {
    MutexLock lock(&failure_mutex_);
    return *attach_;
  }
  void AwaitEnds(const Caller& caller);
  void EndSession(uint64_t session_id, const std::string& reason);
  void StopParts();
  [[noreturn]] void EndProcess(absl::Duration timeout, int exit_code);
  void OnDataset(DatasetEvent event, const DatasetInfo& info,
                 const Caller& caller);
  void OnProducerFailure(uint64_t feed_id, const absl::Status& status);
  void OnDeviceFailed(ServedDevice& device);

  const v1::Config config_;
  std::optional<ActivatedSocket> activated_;  // until Start
  RealClock clock_;
  std::unique_ptr<ServerSocket> socket_;
  std::unique_ptr<FileSystem> files_;
  SessionTable sessions_;
  CallGuard call_guard_;
  RequestContext context_;
  MemoryBudget texts_;
  SpoolSpace push_spool_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetManifest> manifest_;  // null: off
  std::unique_ptr<DatasetCache> cache_;        // null: off
  std::unique_ptr<DatasetRegistry> datasets_;
  // The loads of the configuration, until they are done.
  std::vector<std::shared_ptr<LoadCall>> configured_;
  std::unique_ptr<FeedTable> feeds_;
  std::unique_ptr<FailureWatch> failures_;
  std::unique_ptr<AttachServer> attach_;
  // For other threads: null while it does not serve.
  Mutex failure_mutex_;
  AttachServer* failure_attach_ ABSL_GUARDED_BY(failure_mutex_) = nullptr;
  std::unique_ptr<DatasetService> dataset_service_;
  std::unique_ptr<FeedService> feed_service_;
  std::unique_ptr<ServerService> server_service_;
  RequestCounter requests_{{v1::DatasetService::service_full_name(),
                            v1::FeedService::service_full_name(),
                            v1::ServerService::service_full_name()}};
  uint64_t num_sessions_seen_ = 0;  // by WasUsed
  uint64_t num_self_calls_ = 0;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<MetricsEndpoint> metrics_;
};

absl::Status Server::Impl::Start() {
  FeedTable::Options feed_options;
  feed_options.max_feeds = config_.max_feeds();
  feed_options.max_feeds_per_user =
      UserLimit(config_.user_limits().has_max_feeds(),
                config_.user_limits().max_feeds(), config_.max_feeds());
  feed_options.attach_timeout = FromProto(config_.attach_timeout());
  feed_options.transform_limits = TransformLimitsOf(config_);
  DATASETD_ASSIGN_OR_RETURN(feed_options.allowed_exports,
                            AllowedExports(config_));
  DATASETD_ASSIGN_OR_RETURN(socket_,
                            ServerSocket::Lock(config_, std::move(activated_)));
  DATASETD_ASSIGN_OR_RETURN(
      files_, CreateRootedFileSystem(std::vector<std::string>(
                  config_.data_roots().begin(), config_.data_roots().end())));
  DATASETD_ASSIGN_OR_RETURN(std::vector<ServedDevice> devices,
                            OpenDevices(config_));
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<MemoryBudget> pinned,
                            OpenPinnedBudget(config_, devices));
  devices_ =
      std::make_unique<DeviceTable>(std::move(devices), std::move(pinned));
  DATASETD_RETURN_IF_ERROR(OpenStores());
  const auto open_source = [files = files_.get(),
                            max_inflated_bytes =
                                BytesOf(config_.max_inflated_mib())](
                               const v1::DatasetSpec& spec,
                               std::shared_ptr<SourceScan> scan) {
    const DecodeAccount account = scan->account;
    return OpenScanned(*files, std::move(scan), [&](const FileSystem& scanned) {
      return OpenReader(spec, {.files = scanned,
                               .max_inflated_bytes = max_inflated_bytes,
                               .account = account});
    });
  };
  datasets_ = std::make_unique<DatasetRegistry>(
      DatasetRegistry::Options{
          .max_datasets = config_.max_datasets(),
          .max_datasets_per_user = UserLimit(
              config_.user_limits().has_max_datasets(),
              config_.user_limits().max_datasets(), config_.max_datasets()),
          .cache = cache_.get(),
          .texts = &texts_,
          .journal = manifest_.get(),
          .transform_limits = TransformLimitsOf(config_),
          .decode_limits = {.sample_bytes =
                                BytesOf(config_.max_sample_memory_mib()),
                            .total_bytes =
                                BytesOf(config_.decode_memory_mib())},
          .evict_unused_after = FromProto(config_.evict_unused_after()),
          .max_unused_percent = config_.max_unused_percent()},
      devices_.get(), open_source, &clock_,
      [this](DatasetEvent event, const DatasetInfo& info,
             const Caller& caller) { OnDataset(event, info, caller); });
  DATASETD_ASSIGN_OR_RETURN(
      feeds_, FeedTable::Create(std::move(feed_options), devices_.get(),
                                datasets_.get(), RingChannel::Create, &clock_,
                                LogFeedEvent,
                                [this](uint64_t feed_id, absl::Status status) {
                                  OnProducerFailure(feed_id, status);
                                }));

  failures_ = std::make_unique<FailureWatch>(
      devices_.get(), [this](ServedDevice& device) { OnDeviceFailed(device); },
      OnLastFailure);
  SetDeviceFailureHandler(
      [this](const absl::Status& status) { failures_->Report(status); });

  // Before clients can take these names.
  DATASETD_RETURN_IF_ERROR(BeginLoads());
  BeginRestore();
  DATASETD_RETURN_IF_ERROR(StartRpc());
  DATASETD_RETURN_IF_ERROR(StartAttach());
  Log(LogSubsystem::kServer)
      .info("datasetd {} serves {}", kVersion, config_.socket_path());
  return StartMetrics();
}

absl::Status Server::Impl::OpenStores() {
  if (!config_.state_directory().empty()) {
    DATASETD_ASSIGN_OR_RETURN(auto directory,
                              OpenStoreDirectory(config_.state_directory()));
    DATASETD_ASSIGN_OR_RETURN(
        manifest_,
        DatasetManifest::Open(std::move(directory), LogManifestEvent));
  }
  if (!config_.has_cache()) return absl::OkStatus();
  DATASETD_ASSIGN_OR_RETURN(auto directory,
                            OpenStoreDirectory(config_.cache().directory()));
  CacheIndex::Limits limits = {
      .total_bytes = BytesOf(config_.cache().limit_mib()),
      .daemon_uid = geteuid()};
  if (config_.user_limits().has_max_cache_mib()) {
    limits.user_bytes = BytesOf(config_.user_limits().max_cache_mib());
  }
  DATASETD_ASSIGN_OR_RETURN(
      cache_, DatasetCache::Open(std::move(directory), limits, LogCacheEvent));
  Log(LogSubsystem::kServer)
      .info("cache {}: {} datasets, {} of {} MiB", config_.cache().directory(),
            cache_->num_entries(), cache_->used_bytes() >> 20,
            cache_->limit_bytes() >> 20);
  return absl::OkStatus();
}

// On a producer's thread. Any other error is that of one feed.
void Server::Impl::OnProducerFailure(uint64_t feed_id,
                                     const absl::Status& status) {
  const std::string reason(status.message());
  if (IsDeviceFailure(status)) {
    if (!devices_->IsServing()) EndByDeviceFailure(status);
    Log(LogSubsystem::kProducer)
        .critical("{}: the device failed: {}", FailedDevice(status), reason);
    return;
  }
  Log(LogSubsystem::kProducer)
      .error("{}: feed {} is stopped: {}",
             absl::StatusCodeToString(status.code()), feed_id, reason);
  MutexLock lock(&failure_mutex_);
  if (failure_attach_ == nullptr) return;
  failure_attach_->EndLeases({feed_id}, attach::GoodbyeCode::kFeedFailed,
                             reason);
}

// Another device serves on. What comes to the failed one later is refused by
// its health, which says so already.
void Server::Impl::OnDeviceFailed(ServedDevice& device) {
  const std::string reason(devices_->CheckServes(device).message());
  Log(LogSubsystem::kProducer)
      .critical("{}; its feeds end, and the datasets that are nowhere else",
                reason);
  const auto end = [&](std::vector<uint64_t> feeds) {
    MutexLock lock(&failure_mutex_);
    if (failure_attach_ == nullptr) return;
    failure_attach_->EndLeases(std::move(feeds),
                               attach::GoodbyeCode::kFeedFailed, reason);
  };
  end(feeds_->DropDevice(device.name()));
  // Feeds on other devices read parts of these.
  for (const auto& dataset : datasets_->FailDevice(device)) {
    end(feeds_->DropPending(dataset.get()));
  }
}

// Called on the registry's thread.
void Server::Impl::OnDataset(DatasetEvent event, const DatasetInfo& info,
                             const Caller& caller) {
  LogDatasetEvent(DatasetEventName(event), info, caller);
  if (manifest_ == nullptr || info.owner.session_id == 0) return;
  if (event == DatasetEvent::kReady) manifest_->Add(info);
  if (event == DatasetEvent::kUnloadAsked || event == DatasetEvent::kEvicted) {
    manifest_->Remove(info.spec->name(), info.owner.uid);
  }
}

absl::Status Server::Impl::StartAttach() {
  DATASETD_ASSIGN_OR_RETURN(FileDescriptor listener, socket_->Listen());
  const auto on_tick = [this] {
    LogLeftOut();
    call_guard_.EndStalled();
  };
  // A session may call, and end, at once.
  MutexLock lock(&failure_mutex_);
  DATASETD_ASSIGN_OR_RETURN(
      attach_, AttachServer::Start(std::move(listener), &sessions_,
                                   rpc_->gate(), feeds_.get(), datasets_.get(),
                                   LogAttachEvent, on_tick));
  failure_attach_ = attach_.get();
  return absl::OkStatus();
}

// On the gate's thread.
void Server::Impl::EndSession(uint64_t session_id, const std::string& reason) {
  MutexLock lock(&failure_mutex_);
  if (failure_attach_ != nullptr) {
    failure_attach_->EndSession(session_id, reason);
  }
}

absl::Status Server::Impl::StartMetrics() {
  if (config_.metrics_port() == 0) return absl::OkStatus();
  DATASETD_ASSIGN_OR_RETURN(
      metrics_, MetricsEndpoint::Start(config_.metrics_port(),
                                       std::make_shared<Metrics>(Metrics::Parts{
                                           .devices = devices_.get(),
                                           .cache = cache_.get(),
                                           .datasets = datasets_.get(),
                                           .feeds = feeds_.get(),
                                           .sessions = &sessions_,
                                           .attach = attach_.get(),
                                           .context = &context_,
                                           .requests = &requests_,
                                           .rpc = &rpc_->gate()->counters(),
                                           .calls = &call_guard_,
                                           .clock = &clock_,
                                           .version = kVersion}),
                                       &clock_));
  return absl::OkStatus();
}

absl::Status Server::Impl::StartRpc() {
  dataset_service_ = std::make_unique<DatasetService>(
      DatasetService::Limits{
          .max_loads = kMaxWaitingLoads,
          .max_loads_per_user =
              ShareOf(kMaxWaitingLoads, config_.user_limits().max_loads())},
      &context_, datasets_.get(), &push_spool_,
      [this](const Dataset& dataset) {
        attach().EndLeases(feeds_->DropPending(&dataset),
                           attach::GoodbyeCode::kUnloaded,
                           absl::StrCat("dataset '", dataset.name(),
                                        "' was unloaded by force"));
      },
      [this] {
        if (manifest_ != nullptr) manifest_->AwaitWritten(kMaxSaveTime);
      });
  feed_service_ = std::make_unique<FeedService>(&context_, feeds_.get());
  server_service_ = std::make_unique<ServerService>(
      ServerService::Parts{.context = &context_,
                           .sessions = &sessions_,
                           .devices = devices_.get(),
                           .datasets = datasets_.get(),
                           .feeds = feeds_.get(),
                           .clock = &clock_,
                           .version = kVersion,
                           .formats = ReaderFormats()});

  DATASETD_ASSIGN_OR_RETURN(
      rpc_, RpcServer::Start(
                {.sessions = &sessions_,
                 .guard = &call_guard_,
                 .requests = &requests_,
                 .services = {dataset_service_.get(), feed_service_.get(),
                              server_service_.get()}},
                {.max_calls_per_user =
                     ShareOf(kMaxCalls, config_.user_limits().max_calls()),
                 .clock = &clock_,
                 .on_end =
                     [this](uint64_t session_id, const std::string& reason) {
                       EndSession(session_id, reason);
                     },
                 .observer = LogRpcEvent}));
  return absl::OkStatus();
}

FileDescriptor Server::Impl::ConnectToGrpc() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                 ends) != 0) {
    return FileDescriptor();
  }
  rpc_->gate()->Open({.session_id = kFirstSelfCall + num_self_calls_++,
                      .uid = geteuid(),
                      .pid = getpid()},
                     FileDescriptor(ends[0]));
  return FileDescriptor(ends[1]);
}

// A client that closes a feed and then asks for its memory uses two
// connections: process the ends before the request.
void Server::Impl::AwaitEnds(const Caller& caller) {
  const absl::Duration begin = clock_.Monotonic();
  attach().DrainPendingEvents(kMaxEndTime);
  feeds_->AwaitEnded(kMaxEndTime - (clock_.Monotonic() - begin),
                     caller.is_privileged
                         ? std::nullopt
                         : std::optional<uint32_t>(caller.uid));
}

absl::Status Server::Impl::BeginLoads() {
  for (const v1::DatasetSpec& spec : config_.datasets()) {
    auto load = datasets_->BeginLoad(spec, Caller());
    if (!load.ok()) return OfDataset(spec, load.status());
    configured_.push_back(*std::move(load));
  }
  return absl::OkStatus();
}

void Server::Impl::BeginRestore() {
  if (manifest_ == nullptr) return;
  std::vector<RestoredDataset> restored =
      PlanRestore(manifest_->Entries(), geteuid());
  if (!restored.empty()) datasets_->Restore(std::move(restored));
}

absl::Status Server::Impl::AwaitDatasets(absl::Duration timeout) {
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  std::string progress;  // of the first that is still loading
  for (auto it = configured_.begin(); it != configured_.end();) {
    LoadCall& load = **it;
    // Waits for the first alone: a failure of another is told at once.
    const auto info =
        load.Await(progress.empty() ? deadline - clock_.Monotonic()
                                    : absl::ZeroDuration());
    if (!info.ok() && !WasUnloaded(load, info.status())) {
      return OfDataset(*load.request.spec, info.status());
    }
    if (info.ok() && info->state == DatasetState::kFailed) {
      return OfDataset(*load.request.spec, info->error);
    }
    if (info.ok() && info->state == DatasetState::kLoading) {
      if (progress.empty()) progress = ProgressText(*info);
      ++it;
    } else {
      it = configured_.erase(it);
    }
  }
  return progress.empty() ? absl::OkStatus()
                          : absl::DeadlineExceededError(progress);
}

void Server::Impl::BeginDrain() {
  context_.BeginDrain();
  attach_->BeginDrain("the daemon is shutting down");
  attach_->EndLeases(feeds_->DropPending(nullptr),
                     attach::GoodbyeCode::kDraining,
                     "the daemon is shutting down");
}

bool Server::Impl::AwaitDrained(absl::Duration timeout) {
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  return attach_->AwaitNoLeases(timeout) &&
         (cache_ == nullptr ||
          cache_->AwaitPushes(deadline - clock_.Monotonic()));
}

bool Server::Impl::WasUsed() {
  const uint64_t num_opened = sessions_.num_opened();
  const bool is_new = num_opened != num_sessions_seen_;
  num_sessions_seen_ = num_opened;
  return is_new || sessions_.num_sessions() > 0 ||
         !attach_->AwaitNoLeases(absl::ZeroDuration());
}

bool Server::Impl::CloseIfUnused() {
  attach_->DrainPendingEvents(kMaxEndTime);
  if (!sessions_.CloseIfEmpty()) return false;
  // Without a session no lease comes.
  if (attach_->AwaitNoLeases(absl::ZeroDuration())) return true;
  sessions_.Reopen();
  return false;
}

// Loads first, so that no request waits for one.
void Server::Impl::StopParts() {
  if (datasets_ != nullptr) datasets_->CancelLoads();
  metrics_.reset();
  if (rpc_ != nullptr) rpc_->Shutdown();
  {
    MutexLock lock(&failure_mutex_);
    failure_attach_ = nullptr;
  }
  // The end of the process gives back what fails from here on.
  SetDeviceFailureHandler(nullptr);
  failures_.reset();
  attach_.reset();
  rpc_.reset();
  feeds_.reset();
  datasets_.reset();
  cache_.reset();
}

Server::Impl::~Impl() { StopParts(); }

void Server::Impl::Stop(absl::Duration timeout, int exit_code) {
  Mutex mutex;
  bool has_stopped = false;
  std::thread guard([&] {
    MutexLock lock(&mutex);
    if (!mutex.AwaitWithTimeout(Condition(&has_stopped), timeout)) {
      EndProcess(timeout, exit_code);
    }
  });
  StopParts();
  if (manifest_ != nullptr) manifest_->AwaitWritten(timeout);
  {
    MutexLock lock(&mutex);
    has_stopped = true;
  }
  guard.join();
}

void Server::Impl::EndProcess(absl::Duration timeout, int exit_code) {
  Log(LogSubsystem::kServer)
      .warn("what runs has not ended within {}; ending it with the process",
            absl::FormatDuration(timeout));
  if (manifest_ != nullptr) {
    manifest_->ForgetReading();
    manifest_->AwaitWritten(kMaxLastSaveTime);
  }
  socket_->Remove();
  Log(LogSubsystem::kServer).flush();
  PrivateDaemon::RemoveOwn();
  std::_Exit(exit_code);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const v1::Config& config, std::optional<ActivatedSocket> socket) {
  v1::Config named = config;
  DATASETD_RETURN_IF_ERROR(NameSocket(&named));
  LimitSessions(&named);
  auto impl = std::make_unique<Impl>(named, std::move(socket));
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

void Server::Stop(absl::Duration timeout, int exit_code) {
  impl_->Stop(timeout, exit_code);
}

FileDescriptor Server::ConnectToGrpc() { return impl_->ConnectToGrpc(); }

bool Server::WasUsed() { return impl_->WasUsed(); }

bool Server::CloseIfUnused() { return impl_->CloseIfUnused(); }

void Server::RemoveSocket() { impl_->RemoveSocket(); }

void Server::PingProducers() { impl_->feeds().PingProducers(); }

std::map<std::string, ProducerProgress> Server::ProducersProgress() const {
  return impl_->feeds().ProducersProgress();
}

}  // namespace datasetd
