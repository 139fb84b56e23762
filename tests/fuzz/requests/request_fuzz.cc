// Input: a request as it comes over gRPC, and what it makes the daemon do. The
// first byte says which one, the rest is the message: see Run. After each input
// all is given back.

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "cuda/host/host_backend.h"
#include "datasetd/v1/dataset.pb.h"
#include "datasetd/v1/feed.pb.h"
#include "server/feed/feed_table.h"
#include "server/readers/pushed_source.h"
#include "server/registry/dataset_registry.h"
#include "server/service/proto_convert.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/memory_channel.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/sealed_memory.h"

namespace datasetd {
namespace {

constexpr int64_t kNumSamples = 12;
constexpr uint64_t kBudgetBytes = 48 << 20;
constexpr uint64_t kMaxSlabBytes = 8 << 20;
constexpr uint64_t kSession = 7;
constexpr size_t kMaxExplained = 4;
constexpr char kSequences[] = "s";
constexpr absl::Duration kTimeout = absl::Seconds(20);
const Caller kCaller = {.session_id = kSession, .uid = 1000, .pid = 1};

void Check(bool condition, const char* what, const absl::Status& status = {}) {
  if (condition) return;
  std::fprintf(stderr, "request_fuzz: %s (%s)\n", what,
               status.ToString().c_str());
  abort();
}

// An image, a mask, a label and a float array; sample i differs from others.
class Samples : public SampleSource {
 public:
  Samples() {
    info_.num_samples = kNumSamples;
    info_.fields = {
        {.name = "image",
         .dtype = Dtype::kUint8,
         .shape = {7, 5, 3},
         .is_image = true},
        {.name = "mask",
         .dtype = Dtype::kUint8,
         .shape = {7, 5, 1},
         .is_image = true,
         .is_mask = true},
        {.name = "label", .dtype = Dtype::kInt64, .shape = {}},
        {.name = "extra", .dtype = Dtype::kFloat32, .shape = {3}},
    };
    info_.class_names = {"a", "b", "c"};
    info_.files = {{.path = "f", .size_bytes = 1}};
  }
  const SourceInfo& info() const override { return info_; }
  absl::Status Read(int64_t index, int64_t,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    for (size_t f = 0; f < fields.size(); ++f) {
      const bool is_image = info_.fields[f].is_image;
      for (size_t i = 0; i < fields[f].size(); ++i) {
        fields[f][i] = is_image ? static_cast<uint8_t>(i * 37 + index) : 0;
      }
    }
    fields[2][0] = static_cast<uint8_t>(index % 3);
    return absl::OkStatus();
  }

 private:
  SourceInfo info_;
};

// Sequences of 0 to 11 steps, and a label. Read once, from the first sample on.
class Sequences : public SampleSource {
 public:
  Sequences() {
    info_.num_samples = kNumSamples;
    info_.is_sequential = true;
    info_.fields = {
        {.name = "sound", .dtype = Dtype::kFloat32, .shape = {kAnyExtent}},
        {.name = "words", .dtype = Dtype::kUint16, .shape = {kAnyExtent, 2}},
        {.name = "label", .dtype = Dtype::kInt64, .shape = {}},
    };
    for (size_t f = 0; f < 2; ++f) Index(f).Describe(&info_.fields[f]);
    info_.files = {{.path = "s", .size_bytes = 1}};
  }
  const SourceInfo& info() const override { return info_; }
  absl::StatusOr<RaggedIndex> ReadIndex(size_t field) override {
    return Index(field);
  }
  absl::Status Read(int64_t, int64_t,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    for (const absl::Span<uint8_t> field : fields) {
      std::fill(field.begin(), field.end(), uint8_t{0});
    }
    return absl::OkStatus();
  }

 private:
  RaggedIndex Index(size_t field) const {
    RaggedIndex index(PixelBytes(info_.fields[field]));
    for (int64_t i = 0; i < kNumSamples; ++i) index.Add({i, 1});
    return index;
  }

  SourceInfo info_;
};

class World {
 public:
  World() {
    // It reports every string that is not UTF-8.
    google::protobuf::SetLogHandler(nullptr);
    std::vector<ServedDevice> devices(1);
    devices[0].backend = CreateHostBackend({.num_threads = 1});
    devices[0].budget = std::make_unique<MemoryBudget>(
        kBudgetBytes, MemoryBudget::UserLimits{.slab_bytes = kMaxSlabBytes});
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    datasets_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{}, devices_.get(),
        [](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          if (spec.name() == kSequences) return std::make_unique<Sequences>();
          return std::make_unique<Samples>();
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
    for (const char* const name : {"a", "c", kSequences}) {
      Check(testing::Load(*datasets_, testing::NamedSpec(name), Caller()).ok(),
            "load");
      const auto loaded = testing::AwaitLoaded(*datasets_, name, kTimeout);
      Check(loaded.ok() && loaded->state == DatasetState::kReady, "dataset");
    }
    auto feeds = FeedTable::Create(
        {}, devices_.get(), datasets_.get(),
        [](uint32_t num_slots) -> absl::StatusOr<std::unique_ptr<FeedChannel>> {
          return std::make_unique<testing::MemoryChannel>(num_slots);
        },
        &clock_, [](const char*, const FeedInfo&) {},
        [](uint64_t, absl::Status) { Check(false, "the device failed"); });
    Check(feeds.ok(), "feeds", feeds.status());
    feeds_ = *std::move(feeds);
    const MemoryBudget& budget = *devices_->devices()[0].budget;
    idle_bytes_ = budget.used_bytes();
  }

  void Run(const uint8_t* data, size_t size) {
    if (size == 0) return;
    const uint8_t kind = data[0] % 7;
    const std::string message(reinterpret_cast<const char*>(data + 1),
                              size - 1);
    switch (kind) {
      case 0:
        OpenFeed(message);
        break;
      case 1:
        Explain(message);
        break;
      case 2:
        Load(message);
        break;
      case 3:
        Push(message);
        break;
      case 4:
        SendIndices(message);
        break;
      case 5:
        ReadArrays(message);
        break;
      case 6:
        Read(message);
        break;
    }
    Settle();
  }

 private:
  static v1::OpenFeedRequest SmallFeed() {
    v1::OpenFeedRequest request;
    request.mutable_options()->set_dataset("a");
    request.mutable_options()->set_batch_size(3);
    request.mutable_options()->set_prefetch(1);
    return request;
  }

  static const char* DatasetOf(const std::string& name) {
    return name == kSequences ? kSequences : "a";
  }

  void OpenFeed(const std::string& message) {
    v1::OpenFeedRequest request;
    if (!request.ParseFromString(message)) return;
    const v1::FeedOptions& options = request.options();
    request.mutable_options()->set_dataset(
        options.has_mixture() ? "" : DatasetOf(options.dataset()));
    const auto opened = feeds_->Open(request, kCaller);
    if (!opened.ok()) return;
    Check(opened->slab().size_bytes() <= kMaxSlabBytes,
          "a slab beyond the limit");
    if (options.has_weighted_order() || options.subset_size() != 0) {
      const auto arrays = feeds_->TakeArrays(opened->feed_id(), kSession);
      Check(arrays.ok() && !(*arrays)->Check({}).ok(), "without arrays");
      return;
    }
    Check(feeds_->Attach(opened->feed_id(), kSession).ok(), "attach");
    if (!options.has_client_order() && opened->batches_per_epoch() > 0) {
      AwaitBatch();
    }
  }

  void AwaitBatch() {
    const absl::Time deadline = absl::Now() + kTimeout;
    while (feeds_->List()[0].feed.num_batches() == 0) {
      Check(absl::Now() < deadline, "no batch comes");
      std::this_thread::yield();
    }
  }

  void Explain(const std::string& message) {
    v1::ExplainTransformsRequest request;
    if (!request.ParseFromString(message)) return;
    request.set_dataset(DatasetOf(request.dataset()));
    if (request.indices_size() > static_cast<int>(kMaxExplained)) {
      request.mutable_indices()->Truncate(kMaxExplained);
    }
    const auto explanation = feeds_->Explain(request, kCaller);
    if (!explanation.ok()) return;
    Check(explanation->samples_size() == request.indices_size(), "explanation");
  }

  void Read(const std::string& message) {
    v1::ReadSamplesRequest request;
    if (!request.ParseFromString(message)) return;
    request.set_dataset(DatasetOf(request.dataset()));
    request.clear_content_hash();
    uint64_t announced = 0;
    uint64_t sent = 0;
    const absl::Status read =
        feeds_->Read(request, kCaller,
                     {.send =
                          [&](const v1::ReadSamplesResponse& answer) {
                            if (answer.has_info())
                              announced = answer.info().size_bytes();
                            sent += answer.data().size();
                            return absl::OkStatus();
                          },
                      .is_cancelled = [] { return false; }});
    Check(!read.ok() || sent == announced, "the data of a read");
  }

  void Load(const std::string& message) {
    v1::LoadDatasetRequest request;
    if (!request.ParseFromString(message)) return;
    request.mutable_spec()->set_name("b");
    if (!testing::Load(*datasets_, request.spec(), kCaller).ok()) return;
    const auto info = testing::AwaitLoaded(*datasets_, "b", kTimeout);
    Check(info.ok() && info->state != DatasetState::kLoading, "a load hangs",
          info.status());
  }

  // The length of the header in two bytes, the header, blocks. What can be
  // pushed is the same when it is pushed again.
  void Push(const std::string& message) {
    if (message.size() < 2) return;
    const size_t header_size =
        std::min<size_t>(static_cast<uint8_t>(message[0]) * 256 +
                             static_cast<uint8_t>(message[1]),
                         message.size() - 2);
    v1::PushHeader header;
    if (!header.ParseFromString(message.substr(2, header_size))) return;
    header.set_name("b");
    auto spec = PushSpecFromProto(header);
    if (!spec.ok() || !CheckPushedInfo(&spec->info).ok()) return;
    const auto push = [&](const DatasetRegistry::DigestReceiver& digests) {
      std::string blocks = message.substr(2 + header_size);
      return datasets_->Push(
          spec->spec,
          std::make_unique<PushedSource>(
              spec->info,
              [&blocks](std::string* block) -> absl::StatusOr<bool> {
                if (blocks.empty()) return false;
                const size_t size = std::min<size_t>(
                    1 + static_cast<uint8_t>(blocks[0]), blocks.size());
                *block = blocks.substr(0, size);
                blocks.erase(0, size);
                return true;
              }),
          kCaller, {.cancel = [] {}, .receive_digests = digests});
    };
    const absl::StatusOr<DatasetInfo> pushed = push(nullptr);
    if (!pushed.ok()) return;
    const absl::StatusOr<DatasetInfo> same =
        push([] { return std::vector<Digest>(); });
    Check(same.ok() && same->dataset.spec_id() == pushed->dataset.spec_id(),
          "the same push again", same.status());
  }

  void SendIndices(const std::string& message) {
    v1::SendIndicesRequest request;
    if (!request.ParseFromString(message)) return;
    v1::OpenFeedRequest open = SmallFeed();
    open.mutable_options()->mutable_client_order();
    const auto opened = feeds_->Open(open, kCaller);
    Check(opened.ok(), "open", opened.status());
    Check(feeds_->Attach(opened->feed_id(), kSession).ok(), "attach");
    const ClientOrder::Block block = {
        .generation = request.generation(),
        .start = {request.start().epoch(), request.start().batch()},
        .first_row = request.first_row(),
        .batch_sizes = request.batch_sizes(),
        .indices = request.indices()};
    const absl::Status status =
        feeds_->SendIndices(opened->feed_id(), kSession, block);
    // Batches of another generation than the client asked for are not made.
    if (status.ok() && request.generation() == 0) AwaitBatch();
  }

  // What a client sends as the arrays of a feed: of weights, of their samples,
  // of a subset, of documents, or of rows of whole ones.
  void ReadArrays(const std::string& message) {
    if (message.empty()) return;
    const std::string numbers = message.substr(1);
    const auto size = static_cast<int64_t>(numbers.size() / 8);
    if (size == 0) return;
    const int kind = static_cast<uint8_t>(message[0]) % 5;
    v1::OpenFeedRequest open = SmallFeed();
    v1::FeedOptions& options = *open.mutable_options();
    if (kind < 2) {
      options.mutable_weighted_order()->set_num_samples(kind == 0 ? kNumSamples
                                                                  : size);
      options.mutable_weighted_order()->set_lists_samples(kind == 1);
    } else {
      options.set_subset_size(static_cast<uint64_t>(size));
    }
    if (kind >= 3) {
      options.add_field_names("label");
      options.set_shuffle(true);
      options.mutable_window_order()->set_length(5);
      v1::DocumentOrder& documents =
          *options.mutable_window_order()->mutable_documents();
      if (kind == 4) {
        documents.set_max_document(2);
        documents.set_num_rows(static_cast<uint64_t>((size + 1) / 2));
      }
    }
    const auto opened = feeds_->Open(open, kCaller);
    if (kind >= 2 && size > kNumSamples) {
      Check(!opened.ok(), "a subset larger than the dataset");
      return;
    }
    Check(opened.ok(), "open", opened.status());
    const auto arrays = feeds_->TakeArrays(opened->feed_id(), kSession);
    Check(arrays.ok(), "arrays", arrays.status());
    std::vector<FileDescriptor> sent;
    if (kind == 1) {
      sent.push_back(
          testing::SealedMemory(std::vector<double>(size_t(size), 1)));
    }
    sent.push_back(testing::SealedMemory(
        std::vector<char>(numbers.begin(), numbers.begin() + 8 * size)));
    if ((*arrays)->Check(sent).ok() && (*arrays)->Read(sent).ok()) {
      Check(feeds_->Attach(opened->feed_id(), kSession).ok(), "attach");
      AwaitBatch();
    }
  }

  void Settle() {
    for (const FeedInfo& info : feeds_->List()) {
      feeds_->EndLease(info.feed.feed_id());
      feeds_->FreeSlab(info.feed.feed_id());
    }
    feeds_->AwaitEnded(kTimeout);
    Check(feeds_->num_feeds() == 0, "a feed stayed behind");
    // A failed load has left nothing behind but its name.
    (void)datasets_->Unload("b", false, Caller{.is_privileged = true});
    const MemoryBudget& budget = *devices_->devices()[0].budget;
    Check(budget.used_bytes() == idle_bytes_, "memory stayed behind");
  }

  FakeClock clock_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> datasets_;
  std::unique_ptr<FeedTable> feeds_;
  uint64_t idle_bytes_ = 0;
};

}  // namespace
}  // namespace datasetd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static datasetd::World* const world = new datasetd::World();
  world->Run(data, size);
  return 0;
}
