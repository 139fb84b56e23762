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
               "Memory of the device that the daemon may use.",
               {{"device", served.name()}}, served.budget->total_bytes());
    page.Gauge("datasetd_device_failed",
               "1 if the device has failed and serves no more, else 0.",
               {{"device", served.name()}}, served.health->has_failed());
    for (const MemoryKind kind :
         {MemoryKind::kDataset, MemoryKind::kSlab, MemoryKind::kScratch}) {
      page.Gauge("datasetd_device_used_bytes",
                 "Memory of the device in use: resident datasets, the slabs "
                 "that feeds share with clients, and scratch.",
                 {{"device", served.name()}, {"kind", MemoryKindName(kind)}},
                 served.budget->used_bytes_of_kind(kind));
    }
  }
}

void AddPinned(const MemoryBudget& budget, Page& page) {
  page.Gauge("datasetd_pinned_budget_bytes",
             "Host memory that the daemon may pin for samples.", {},
             budget.total_bytes());
  page.Gauge("datasetd_pinned_used_bytes",
             "Host memory that is pinned for samples.", {},
             budget.used_bytes());
}

// Once, however many devices have them.
int64_t ResidentBytes(const DatasetInfo& info) {
  switch (info.state) {
    case DatasetState::kReady:
    case DatasetState::kUnloading:
      return info.resident_bytes;
    case DatasetState::kLoading:
      return info.loaded_bytes;
    case DatasetState::kFailed:
      return 0;
  }
  return 0;
}

void AddDataset(const DatasetInfo& info, Page& page) {
  const Labels labels = {{"dataset", info.spec->name()},
                         {"device", info.device}};
  int64_t host_bytes = 0;
  for (const v1::Placement& placement : info.placements) {
    page.Gauge("datasetd_dataset_resident_bytes",
               "Device memory of the dataset's samples that are loaded; of "
               "replicas, on each device.",
               {{"dataset", info.spec->name()}, {"device", placement.device()}},
               std::min(ResidentBytes(info), placement.device_bytes()));
    host_bytes += placement.host_bytes();
  }
  page.Gauge("datasetd_dataset_host_bytes",
             "Host memory of the dataset's samples: pinned, or a mapped file.",
             labels, host_bytes);
  page.Gauge("datasetd_dataset_samples", "Samples of the dataset.", labels,
             info.num_samples);
  if (info.is_scanning) {
    page.Gauge(
        "datasetd_dataset_scanned_entries",
        "Files, directory entries and headers that a load has looked at, "
        "before it loads samples.",
        labels, info.num_entries_scanned);
  } else if (info.state != DatasetState::kFailed) {
    // Others would look like a load that stands still.
    page.Gauge(
        "datasetd_dataset_loaded_ratio",
        "Share of the dataset's samples that are loaded, from 0 to 1; none of "
        "a dataset that is scanned or failed.",
        labels,
        info.state == DatasetState::kLoading
            ? static_cast<double>(info.num_samples_loaded) /
                  static_cast<double>(std::max<int64_t>(info.num_samples, 1))
            : 1.0);
  }
  page.Gauge("datasetd_dataset_load_duration_seconds",
             "How long the load has taken, so far or in the end.", labels,
             absl::ToDoubleSeconds(info.elapsed));
  page.Gauge("datasetd_dataset_feeds", "Feeds that draw from the dataset.",
             labels, info.num_feeds);
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
        PrivateTotals& totals = private_by_device[info.device];
        ++totals.num_datasets;
        totals.num_feeds += info.num_feeds;
        for (const v1::Placement& placement : info.placements) {
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
               "Private datasets, which have no metrics of their own.", labels,
               totals.num_datasets);
    page.Gauge("datasetd_private_dataset_resident_bytes",
               "Memory of the samples of private datasets.", labels,
               totals.resident_bytes);
    page.Gauge("datasetd_private_dataset_feeds",
               "Feeds that draw from private datasets, which have no metrics "
               "of their own.",
               labels, totals.num_feeds);
  }
  for (const auto& [state, name] : kStates) {
    page.Gauge("datasetd_datasets", "Datasets by state.", {{"state", name}},
               num_by_state[state]);
  }
  const DatasetRegistry::Counters& counters = registry.counters();
  page.Counter("datasetd_dataset_loads_total", "Loads that were begun.", {},
               counters.num_loads);
  const std::pair<const char*, const std::atomic<uint64_t>*> results[] = {
      {"ready", &counters.num_ready},
      {"failed", &counters.num_failed},
      {"cancelled", &counters.num_cancelled}};
  for (const auto& [result, counter] : results) {
    page.Counter("datasetd_dataset_load_results_total",
                 "Loads that have ended, by result.", {{"result", result}},
                 *counter);
  }
  page.Counter("datasetd_dataset_loaded_bytes_total",
               "Bytes that successful loads made resident.", {},
               counters.loaded_bytes);
  page.Counter("datasetd_dataset_evictions_total",
               "Unused datasets that made room for others.", {},
               counters.num_evicted);
}

void AddCache(const DatasetCache& cache, Page& page) {
  page.Gauge("datasetd_cache_limit_bytes", "What the cache may take on disk.",
             {}, cache.limit_bytes());
  page.Gauge("datasetd_cache_used_bytes", "What the cache takes on disk.", {},
             cache.used_bytes());
  page.Gauge("datasetd_cache_entries", "Datasets in the cache.", {},
             cache.num_entries());
  const DatasetCache::Counters& counters = cache.counters();
  page.Counter("datasetd_cache_hits_total",
               "Loads that took their samples from the cache.", {},
               counters.num_hits);
  page.Counter("datasetd_cache_misses_total",
               "Loads whose samples were not in the cache, or damaged.", {},
               counters.num_misses);
  page.Counter("datasetd_cache_read_bytes_total",
               "Bytes of the entries that loads took their samples from.", {},
               counters.read_bytes);
  page.Counter("datasetd_cache_written_bytes_total",
               "Bytes of the entries that were stored.", {},
               counters.written_bytes);
  page.Counter("datasetd_cache_evictions_total",
               "Entries that made room for others.", {}, counters.num_evicted);
  page.Counter("datasetd_cache_errors_total",
               "Entries that were damaged or could not be written.", {},
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
                 "Batches handed to the client of this feed.", labels,
                 info.feed.num_batches());
    page.Counter("datasetd_feed_samples_total",
                 "Samples handed to the client of this feed.", labels,
                 info.feed.num_samples());
    page.Counter("datasetd_feed_client_wait_seconds_total",
                 "Time that the client of this feed has waited for batches.",
                 labels, info.feed.client_wait_seconds());
    page.Counter("datasetd_feed_daemon_wait_seconds_total",
                 "Time in which the client of this feed held every slot, so "
                 "that the daemon waited.",
                 labels, info.feed.daemon_wait_seconds());
    page.Gauge("datasetd_feed_slots", "Batches that the feed has room for.",
               labels, info.feed.num_slots());
    page.Gauge("datasetd_feed_held_slots",
               "Batches that are published and not released.", labels,
               info.feed.num_slots_held());
    page.Gauge("datasetd_feed_slab_bytes",
               "Device memory that the feed shares with its client.", labels,
               info.feed.slab_bytes());
  }
  for (const auto& [phase, name] : kPhases) {
    page.Gauge("datasetd_feeds", "Feeds by phase.", {{"phase", name}},
               num_by_phase[phase]);
  }
  for (const auto& [device, totals] : table.Totals()) {
    const Labels labels = {{"device", device}};
    page.Counter("datasetd_feeds_opened_total", "Feeds that were opened.",
                 labels, totals.num_opened);
    page.Counter("datasetd_batches_total", "Batches handed to clients.", labels,
                 totals.num_batches);
    page.Counter("datasetd_samples_total", "Samples handed to clients.", labels,
                 totals.num_samples);
    page.Counter("datasetd_client_wait_seconds_total",
                 "Time that clients have waited for batches, as they say.",
                 labels, totals.client_wait_seconds);
    page.Counter("datasetd_daemon_wait_seconds_total",
                 "Time in which a client held every slot of its feed, so that "
                 "the daemon waited, over all feeds.",
                 labels, totals.daemon_wait_seconds);
    page.Counter("datasetd_ignored_releases_total",
                 "Releases by clients that named no batch of theirs.", labels,
                 totals.num_ignored_releases);
    page.Counter("datasetd_ignored_seeks_total",
                 "Seeks by clients that made no sense.", labels,
                 totals.num_ignored_seeks);
    page.Counter("datasetd_throttled_wakes_total",
                 "Times that a client which woke the producer for nothing was "
                 "not listened to for a while.",
                 labels, totals.num_throttled_wakes);
    page.Histogram("datasetd_hand_over_seconds",
                   "From the start of a batch's launch to its publication to "
                   "the client.",
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
                 "Requests that were answered, by status; not OK is refused.",
                 {{"method", ShortMethod(key.first)},
                  {"code", absl::StatusCodeToString(
                               static_cast<absl::StatusCode>(key.second))}},
                 count);
  }
  const AttachServer::Counters& counters = attach.counters();
  page.Counter("datasetd_refused_connections_total",
               "Attach connections that were refused with a reason.", {},
               counters.num_refused);
  page.Counter("datasetd_protocol_violations_total",
               "Attach connections that were closed because their client broke "
               "the protocol.",
               {}, counters.num_violations);
  page.Counter("datasetd_failed_imports_total",
               "Slabs that a client could not import.", {},
               counters.num_failed_imports);
}

void AddConnections(const RpcGate::Counters& counters, const CallGuard& calls,
                    Page& page) {
  page.Gauge("datasetd_rpc_connections", "Connections to the gRPC socket.", {},
             counters.num_connections);
  page.Counter("datasetd_rpc_refused_connections_total",
               "gRPC connections beyond a user's or the daemon's share.", {},
               counters.num_refused);
  page.Counter("datasetd_rpc_abusive_connections_total",
               "gRPC connections that were closed because their client gave up "
               "too many calls or sent too many frames without a call.",
               {}, counters.num_abusive);
  page.Counter("datasetd_rpc_expired_connections_total",
               "gRPC connections that were closed because their client said "
               "nothing, or did not read.",
               {}, counters.num_expired);
  page.Counter("datasetd_stalled_calls_total",
               "Requests that were ended because their client did not read or "
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
  page.Gauge("datasetd_build_info", "1, with the daemon's version.",
             {{"version", parts_.version}}, 1);
  page.Gauge("datasetd_start_time_seconds",
             "When the daemon started, in Unix time.", {}, start_time_seconds_);
  page.Gauge("datasetd_draining", "1 while the daemon shuts down.", {},
             parts_.context->is_draining() ? 1 : 0);
  page.Gauge("datasetd_sessions", "Clients that are connected.", {},
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
