#include "server/metrics/metrics.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/feed/latency_histogram.h"

namespace datasetd {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Families in the order of their first use.
class Page {
 public:
  template <typename Number>
  void Gauge(const char* name, const char* help, Labels labels,
             const Number& value) {
    Add(name, help, MetricType::Gauge, std::move(labels)).gauge.value =
        static_cast<double>(value);
  }
  template <typename Number>
  void Counter(const char* name, const char* help, Labels labels,
               const Number& value) {
    Add(name, help, MetricType::Counter, std::move(labels)).counter.value =
        static_cast<double>(value);
  }
  void Histogram(const char* name, const char* help, Labels labels,
                 const LatencyHistogram::Snapshot& snapshot) {
    ClientMetric::Histogram& histogram =
        Add(name, help, MetricType::Histogram, std::move(labels)).histogram;
    uint64_t count = 0;
    for (size_t i = 0; i < LatencyHistogram::kBoundsNanoseconds.size(); ++i) {
      count += snapshot.counts[i];
      histogram.bucket.push_back(
          {.cumulative_count = count,
           .upper_bound = 1e-9 * static_cast<double>(
                                     LatencyHistogram::kBoundsNanoseconds[i])});
    }
    // The serializer adds the infinity bucket.
    histogram.sample_count = count + snapshot.counts.back();
    histogram.sample_sum = 1e-9 * static_cast<double>(snapshot.sum_nanoseconds);
  }

  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  ClientMetric& Add(const char* name, const char* help, MetricType type,
                    Labels labels) {
    const auto [found, is_new] = indices_.emplace(name, families_.size());
    if (is_new) {
      families_.push_back({.name = name, .help = help, .type = type});
    }
    MetricFamily& family = families_[found->second];
    family.metric.emplace_back();
    family.metric.back().label = std::move(labels);
    return family.metric.back();
  }

  std::vector<MetricFamily> families_;
  std::map<std::string, size_t> indices_;
};

constexpr std::pair<DatasetState, const char*> kStates[] = {
    {DatasetState::kLoading, "loading"},
    {DatasetState::kReady, "ready"},
    {DatasetState::kFailed, "failed"},
    {DatasetState::kUnloading, "unloading"}};

constexpr std::pair<FeedPhase, const char*> kPhases[] = {
    {FeedPhase::kPending, "pending"},
    {FeedPhase::kAttached, "attached"},
    {FeedPhase::kEnding, "ending"},
    {FeedPhase::kLingering, "lingering"}};

void AddDevices(const DeviceTable& table, Page& page) {
  for (const ServedDevice& served : table.devices()) {
    page.Gauge("datasetd_device_budget_bytes",
               "Device memory that the daemon is allowed to use.",
               {{"device", served.name()}}, served.budget->total_bytes());
    page.Gauge("datasetd_device_failed",
               "1 if the device has failed and is out of service, else 0.",
               {{"device", served.name()}}, served.health->has_failed());
    for (const MemoryKind kind :
         {MemoryKind::kDataset, MemoryKind::kSlab, MemoryKind::kScratch}) {
      page.Gauge("datasetd_device_used_bytes",
                 "Device memory in use, by kind: datasets, the batches that "
                 "feeds share with clients, and scratch.",
                 {{"device", served.name()}, {"kind", MemoryKindName(kind)}},
                 served.budget->used_bytes_of_kind(kind));
    }
  }
}

void AddPinned(const MemoryBudget& budget, Page& page) {
  page.Gauge("datasetd_pinned_budget_bytes",
             "Host memory that the daemon is allowed to pin for samples.", {},
             budget.total_bytes());
  page.Gauge("datasetd_pinned_used_bytes",
             "Pinned host memory that holds samples.", {}, budget.used_bytes());
}

// Once, however many devices have them.
int64_t ResidentBytes(const DatasetInfo& info) {
  switch (info.state) {
    case DatasetState::kReady:
    case DatasetState::kUnloading:
      return info.dataset.resident_bytes();
    case DatasetState::kLoading:
      return info.dataset.progress().loaded_bytes();
    case DatasetState::kFailed:
      return 0;
  }
  return 0;
}

void AddDataset(const DatasetInfo& info, Page& page) {
  const Labels labels = {{"dataset", info.spec->name()},
                         {"device", info.dataset.device()}};
  int64_t host_bytes = 0;
  for (const v1::Placement& placement : info.dataset.placements()) {
    page.Gauge("datasetd_dataset_resident_bytes",
               "Device memory that the loaded samples of the dataset occupy, "
               "for each device that has a replica.",
               {{"dataset", info.spec->name()}, {"device", placement.device()}},
               std::min(ResidentBytes(info), placement.device_bytes()));
    host_bytes += placement.host_bytes();
  }
  page.Gauge("datasetd_dataset_host_bytes",
             "Host memory that the samples occupy: pinned or mapped.", labels,
             host_bytes);
  page.Gauge("datasetd_dataset_samples", "Number of samples in the dataset.",
             labels, info.dataset.num_samples());
  if (info.dataset.progress().is_scanning()) {
    page.Gauge(
        "datasetd_dataset_scanned_entries",
        "Files, directory entries and headers that the load has scanned, "
        "before it reads samples.",
        labels, info.dataset.progress().num_entries_scanned());
  } else if (info.state != DatasetState::kFailed) {
    // Others would look like a load that stands still.
    page.Gauge(
        "datasetd_dataset_loaded_ratio",
        "Fraction of the samples that are loaded, from 0 to 1. Absent while "
        "the "
        "source is scanned and after a failure.",
        labels,
        info.state == DatasetState::kLoading
            ? static_cast<double>(
                  info.dataset.progress().num_samples_loaded()) /
                  static_cast<double>(
                      std::max<int64_t>(info.dataset.num_samples(), 1))
            : 1.0);
  }
  page.Gauge("datasetd_dataset_load_duration_seconds",
             "Duration of the load, so far or in total.", labels,
             info.dataset.progress().elapsed_seconds());
  page.Gauge("datasetd_dataset_feeds", "Number of open feeds of the dataset.",
             labels, info.dataset.num_feeds());
}

// The page has no authentication, so private datasets are shown as totals only.
struct PrivateTotals {
  int num_datasets = 0;
  int64_t resident_bytes = 0;
  int num_feeds = 0;
};

void AddDatasets(const DatasetRegistry& registry, Page& page) {
  constexpr size_t kDatasetsAtOnce = 256;
  std::map<DatasetState, int> num_by_state;
  std::map<std::string, PrivateTotals> private_by_device;
  std::string after;
  while (true) {
    const std::vector<DatasetInfo> infos =
        registry.List(Caller(), after, kDatasetsAtOnce);
    for (const DatasetInfo& info : infos) {
      ++num_by_state[info.state];
      if (info.spec->private_()) {
        PrivateTotals& totals = private_by_device[info.dataset.device()];
        ++totals.num_datasets;
        totals.num_feeds += info.dataset.num_feeds();
        for (const v1::Placement& placement : info.dataset.placements()) {
          private_by_device[placement.device()].resident_bytes +=
              std::min(ResidentBytes(info), placement.device_bytes());
        }
      } else {
        AddDataset(info, page);
      }
    }
    if (infos.size() < kDatasetsAtOnce) break;
    after = infos.back().spec->name();
  }
  for (const auto& [device, totals] : private_by_device) {
    const Labels labels = {{"device", device}};
    page.Gauge("datasetd_private_datasets",
               "Number of private datasets, which have no other metrics.",
               labels, totals.num_datasets);
    page.Gauge("datasetd_private_dataset_resident_bytes",
               "Memory that the samples of private datasets occupy.", labels,
               totals.resident_bytes);
    page.Gauge("datasetd_private_dataset_feeds",
               "Number of feeds of private datasets, which have no other "
               "metrics.",
               labels, totals.num_feeds);
  }
  for (const auto& [state, name] : kStates) {
    page.Gauge("datasetd_datasets", "Number of datasets, by state.",
               {{"state", name}}, num_by_state[state]);
  }
  const DatasetRegistry::Totals totals = registry.Summarize().totals;
  page.Counter("datasetd_dataset_loads_total", "Number of loads started.", {},
               totals.num_loads);
  const std::pair<const char*, uint64_t> results[] = {
      {"ready", totals.num_ready},
      {"failed", totals.num_failed},
      {"cancelled", totals.num_cancelled}};
  for (const auto& [result, total] : results) {
    page.Counter("datasetd_dataset_load_results_total",
                 "Number of loads finished, by result.", {{"result", result}},
                 total);
  }
  page.Counter("datasetd_dataset_loaded_bytes_total",
               "Bytes made resident by successful loads.", {},
               totals.loaded_bytes);
  page.Counter("datasetd_dataset_evictions_total",
               "Number of unused datasets evicted to make room.", {},
               totals.num_evicted);
}

void AddCache(const DatasetCache& cache, Page& page) {
  page.Gauge("datasetd_cache_limit_bytes",
             "Disk space that the cache is allowed to use.", {},
             cache.limit_bytes());
  page.Gauge("datasetd_cache_used_bytes", "Disk space that the cache uses.", {},
             cache.used_bytes());
  page.Gauge("datasetd_cache_entries", "Number of datasets in the cache.", {},
             cache.num_entries());
  const DatasetCache::Counters& counters = cache.counters();
  page.Counter("datasetd_cache_hits_total",
               "Number of loads that read their samples from the cache.", {},
               counters.num_hits);
  page.Counter("datasetd_cache_misses_total",
               "Number of loads whose cache entry was missing or damaged.", {},
               counters.num_misses);
  page.Counter("datasetd_cache_read_bytes_total",
               "Bytes of cache entries read by loads.", {},
               counters.read_bytes);
  page.Counter("datasetd_cache_written_bytes_total",
               "Bytes of cache entries written.", {}, counters.written_bytes);
  page.Counter("datasetd_cache_evictions_total",
               "Number of cache entries evicted to make room.", {},
               counters.num_evicted);
  page.Counter("datasetd_cache_errors_total",
               "Number of cache entries that were damaged or not written.", {},
               counters.num_errors);
}

void AddFeeds(const FeedTable& table, Page& page) {
  std::map<FeedPhase, int> num_by_phase;
  for (const FeedInfo& info : table.List()) {
    ++num_by_phase[info.phase];
    if (info.phase != FeedPhase::kAttached || info.visibility.is_private) {
      continue;
    }
    const Labels labels = {{"feed", absl::StrCat(info.feed.feed_id())},
                           {"name", info.feed.name()},
                           {"dataset", info.feed.dataset()},
                           {"device", info.device},
                           {"uid", absl::StrCat(info.owner.uid)}};
    page.Counter("datasetd_feed_batches_total",
                 "Number of batches delivered to the client of the feed.",
                 labels, info.feed.num_batches());
    page.Counter("datasetd_feed_samples_total",
                 "Number of samples delivered to the client of the feed.",
                 labels, info.feed.num_samples());
    page.Counter("datasetd_feed_client_wait_seconds_total",
                 "Time that the client spent waiting for batches.", labels,
                 info.feed.client_wait_seconds());
    page.Counter("datasetd_feed_daemon_wait_seconds_total",
                 "Time that the daemon spent waiting because the client held "
                 "every slot.",
                 labels, info.feed.daemon_wait_seconds());
    page.Gauge("datasetd_feed_slots",
               "Number of slots of the feed, each for one batch.", labels,
               info.feed.num_slots());
    page.Gauge("datasetd_feed_held_slots",
               "Number of slots with a published batch not yet released.",
               labels, info.feed.num_slots_held());
    page.Gauge("datasetd_feed_slab_bytes",
               "Device memory that the feed shares with its client.", labels,
               info.feed.slab_bytes());
  }
  for (const auto& [phase, name] : kPhases) {
    page.Gauge("datasetd_feeds", "Number of feeds, by phase.",
               {{"phase", name}}, num_by_phase[phase]);
  }
  for (const auto& [device, totals] : table.Totals()) {
    const Labels labels = {{"device", device}};
    page.Counter("datasetd_feeds_opened_total", "Number of feeds opened.",
                 labels, totals.num_opened);
    page.Counter("datasetd_batches_total",
                 "Number of batches delivered to clients.", labels,
                 totals.num_batches);
    page.Counter("datasetd_samples_total",
                 "Number of samples delivered to clients.", labels,
                 totals.num_samples);
    page.Counter("datasetd_client_wait_seconds_total",
                 "Time that clients report waiting for batches.", labels,
                 totals.client_wait_seconds);
    page.Counter("datasetd_daemon_wait_seconds_total",
                 "Time that the daemon spent waiting because a client held "
                 "every slot, over all feeds.",
                 labels, totals.daemon_wait_seconds);
    page.Counter("datasetd_ignored_releases_total",
                 "Number of releases ignored because they named no batch.",
                 labels, totals.num_ignored_releases);
    page.Counter("datasetd_ignored_seeks_total",
                 "Number of seeks ignored because the position was invalid.",
                 labels, totals.num_ignored_seeks);
    page.Counter("datasetd_throttled_wakes_total",
                 "Number of times a client was throttled for waking the "
                 "producer without work.",
                 labels, totals.num_throttled_wakes);
    page.Histogram("datasetd_hand_over_seconds",
                   "Time from the start of a batch's launch until the client "
                   "can take it.",
                   labels, totals.hand_over);
  }
}

// "FeedService/OpenFeed".
std::string ShortMethod(const std::string& method) {
  constexpr char kPrefix[] = "/datasetd.v1.";
  return method.rfind(kPrefix, 0) == 0 ? method.substr(sizeof(kPrefix) - 1)
                                       : method.substr(method.find('/') + 1);
}

void AddRequests(const RequestCounter& requests, const AttachServer& attach,
                 Page& page) {
  for (const auto& [key, count] : requests.Read()) {
    page.Counter("datasetd_requests_total",
                 "Number of requests answered, by method and status code.",
                 {{"method", ShortMethod(key.first)},
                  {"code", absl::StatusCodeToString(
                               static_cast<absl::StatusCode>(key.second))}},
                 count);
  }
  const AttachServer::Counters& counters = attach.counters();
  page.Counter("datasetd_refused_connections_total",
               "Number of attach connections refused.", {},
               counters.num_refused);
  page.Counter("datasetd_protocol_violations_total",
               "Number of attach connections closed after a protocol "
               "violation.",
               {}, counters.num_violations);
  page.Counter("datasetd_failed_imports_total",
               "Number of slabs that a client failed to import.", {},
               counters.num_failed_imports);
}

void AddConnections(const RpcGate::Counters& counters, const CallGuard& calls,
                    Page& page) {
  page.Counter("datasetd_rpc_abusive_connections_total",
               "Number of gRPC connections closed because the client cancelled "
               "too many calls or sent too many frames outside of calls.",
               {}, counters.num_abusive);
  page.Counter("datasetd_rpc_expired_connections_total",
               "Number of gRPC connections closed because the client was idle "
               "or did not read.",
               {}, counters.num_expired);
  page.Counter("datasetd_stalled_calls_total",
               "Number of requests ended because the client did not read or "
               "write in time.",
               {}, calls.num_stalled());
}

}  // namespace

Metrics::Metrics(Parts parts)
    : parts_(std::move(parts)),
      start_time_seconds_(
          absl::ToDoubleSeconds(parts_.clock->Now() - absl::UnixEpoch())) {}

std::vector<MetricFamily> Metrics::Collect() const {
  Page page;
  page.Gauge("datasetd_build_info",
             "Always 1; the label has the version of the daemon.",
             {{"version", parts_.version}}, 1);
  page.Gauge("datasetd_start_time_seconds",
             "Start time of the daemon, in seconds since the epoch.", {},
             start_time_seconds_);
  page.Gauge("datasetd_draining",
             "1 while the daemon is shutting down, else 0.", {},
             parts_.context->is_draining() ? 1 : 0);
  page.Gauge("datasetd_sessions", "Number of connected clients.", {},
             parts_.sessions->num_sessions());
  AddDevices(*parts_.devices, page);
  if (parts_.devices->pinned() != nullptr) {
    AddPinned(*parts_.devices->pinned(), page);
  }
  AddDatasets(*parts_.datasets, page);
  if (parts_.cache != nullptr) AddCache(*parts_.cache, page);
  AddFeeds(*parts_.feeds, page);
  AddRequests(*parts_.requests, *parts_.attach, page);
  AddConnections(*parts_.rpc, *parts_.calls, page);
  return page.Take();
}

}  // namespace datasetd
