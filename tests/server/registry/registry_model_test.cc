// Random events from several threads at a time, each round of which must have
// been one that the model of the registry allows, in some order.
//
// What can be seen is compared after each round, and what each call returned.
// A seed decides the events, but not the order in which the threads bring them.
// tests/testing/storm.h has the variables that set seeds and duration.

#include "tests/server/registry/registry_model.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/registry/dataset_registry.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/storm.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsFull;
using ::datasetd::testing::kModelDatasetBytes;
using ::datasetd::testing::kModelDeviceBytes;
using ::datasetd::testing::kNumModelDevices;
using ::datasetd::testing::kNumModelNames;
using ::datasetd::testing::ModelEvent;
using ::datasetd::testing::ModelResult;
using ::datasetd::testing::ModelSpec;
using ::datasetd::testing::ModelUser;
using ::datasetd::testing::ModelView;
using ::datasetd::testing::RegistryModel;
using ::datasetd::testing::Storm;

constexpr ModelUser kUsers[] = {
    {1, 1000, false}, {2, 1000, false}, {3, 1001, false}, {4, 0, true}};
constexpr int kMaxEvents = 4;  // of a round, each on its own thread
constexpr int kNumRounds = 60;
constexpr int kMaxCallsKept = 6;
constexpr absl::Duration kLong = absl::Seconds(60);

Caller CallerOf(const ModelUser& user) {
  return {.session_id = user.session,
          .uid = user.uid,
          .is_privileged = user.is_privileged};
}

// Work of the registry's threads that stands still until it is let on.
class Gate {
 public:
  struct Ticket {
    int name = 0;
    bool is_read = false;
    std::shared_ptr<SourceScan> scan;  // unless it is a read
    bool may_go = false;
    ModelEvent::Outcome outcome = ModelEvent::kFiles;
  };

  ModelEvent::Outcome Pass(int name, std::shared_ptr<SourceScan> scan) {
    std::unique_lock lock(mutex_);
    if (is_open_) return ModelEvent::kFiles;
    const bool is_read = scan == nullptr;
    const auto self = tickets_.insert(
        tickets_.end(),
        Ticket{.name = name, .is_read = is_read, .scan = std::move(scan)});
    changed_.wait(lock, [&] { return self->may_go || is_open_; });
    const ModelEvent::Outcome outcome = self->outcome;
    tickets_.erase(self);
    return outcome;
  }
  void LetGo(Ticket* ticket, ModelEvent::Outcome outcome) {
    std::lock_guard lock(mutex_);
    ticket->outcome = outcome;
    ticket->may_go = true;
    changed_.notify_all();
  }
  void Open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  // Those that stand here. They stay until they are let go.
  std::vector<Ticket*> Standing() {
    std::lock_guard lock(mutex_);
    std::vector<Ticket*> standing;
    for (Ticket& ticket : tickets_) {
      if (!ticket.may_go) standing.push_back(&ticket);
    }
    return standing;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Ticket> tickets_;
  bool is_open_ = false;
};

class GatedSource : public SampleSource {
 public:
  GatedSource(int name, bool has_other_files, Gate* gate)
      : name_(name), gate_(gate) {
    info_.num_samples = kModelDatasetBytes;
    info_.fields = {{.name = "image",
                     .dtype = Dtype::kUint8,
                     .shape = {1, 1, 1},
                     .is_image = true}};
    info_.files = {{.path = has_other_files ? "others" : "files",
                    .size_bytes = kModelDatasetBytes}};
  }
  const SourceInfo& info() const override { return info_; }
  absl::Status Read(int64_t first, int64_t,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    std::fill(fields[0].begin(), fields[0].end(), 7);
    if (first == 0 && gate_->Pass(name_, nullptr) == ModelEvent::kError) {
      return absl::DataLossError("torn");
    }
    return absl::OkStatus();
  }

 private:
  const int name_;
  Gate* const gate_;
  SourceInfo info_;
};

class World {
 public:
  explicit World(uint32_t seed) : random_(seed), fails_device_(seed % 3 == 0) {
    std::vector<ServedDevice> devices(kNumModelDevices);
    for (size_t i = 0; i < devices.size(); ++i) {
      devices[i].backend = std::make_unique<FakeBackend>(FakeBackendOptions{
          .is_host = false, .name = absl::StrCat("cuda:", i)});
      devices[i].budget = std::make_unique<MemoryBudget>(kModelDeviceBytes);
    }
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{}, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan> scan)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          const int name = spec.name()[0] - '0';
          const ModelEvent::Outcome outcome = gate_.Pass(name, std::move(scan));
          if (outcome == ModelEvent::kError) {
            return absl::NotFoundError("no such file");
          }
          return std::make_unique<GatedSource>(
              name, outcome == ModelEvent::kOtherFiles, &gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
    models_.emplace_back();
  }
  ~World() {
    // Work ends before, or as the registry does.
    if (Draw(2) == 0) gate_.Open();
    uses_.clear();
    std::thread opener([&] { gate_.Open(); });
    registry_.reset();
    opener.join();
    for (const ServedDevice& device : devices_->devices()) {
      EXPECT_EQ(device.budget->used_bytes(), 0u);
    }
  }

  void Run() {
    for (int round = 0; round < kNumRounds; ++round) {
      SCOPED_TRACE(absl::StrCat("round ", round));
      RunRound();
      if (::testing::Test::HasFailure()) return;
      clock_.Advance(absl::Seconds(1));
    }
  }

  int num_events() const { return num_events_; }
  size_t most_models() const { return most_models_; }
  const std::set<std::string>& changes() const { return changes_; }

 private:
  struct Played {
    ModelEvent event;
    ModelResult result;
    Gate::Ticket* ticket = nullptr;
    // What the event brings.
    std::shared_ptr<LoadCall> call;
    DatasetUse use;
  };

  int Draw(int end) { return static_cast<int>(random_() % uint32_t(end)); }
  template <typename Items>
  auto DrawFrom(const Items& items) {
    return std::next(items.begin(), Draw(static_cast<int>(items.size())));
  }

  // An event that is possible; none is drawn that needs what another of the
  // round takes.
  void AddEvent(std::vector<Played>& round) {
    Played played;
    ModelEvent& event = played.event;
    event.user = kUsers[Draw(std::size(kUsers))];
    event.spec.name = Draw(kNumModelNames);
    event.id = ++last_id_;
    const auto is_taken = [&](auto predicate) {
      return std::any_of(round.begin(), round.end(), predicate);
    };
    std::vector<Gate::Ticket*> standing;
    for (Gate::Ticket* const ticket : standing_) {
      if (!is_taken([&](const Played& p) { return p.ticket == ticket; })) {
        standing.push_back(ticket);
      }
    }
    if (!standing.empty() && (standing_.size() > 6 || Draw(5) < 2)) {
      played.ticket = *DrawFrom(standing);
      event.spec.name = played.ticket->name;
      event.kind =
          played.ticket->is_read ? ModelEvent::kEndRead : ModelEvent::kEndScan;
      event.was_cancelled =
          !played.ticket->is_read && played.ticket->scan->is_cancelled;
      const int outcome = Draw(8);
      event.outcome = outcome == 0 ? ModelEvent::kError : ModelEvent::kFiles;
      if (outcome == 1) event.outcome = ModelEvent::kOtherFiles;
      round.push_back(std::move(played));
      return;
    }
    switch (Draw(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        if (calls_.size() + round.size() >= kMaxCallsKept) return;
        event.kind = ModelEvent::kLoad;
        event.spec.path = Draw(6) == 0;
        event.spec.device = Draw(3) == 0;
        event.spec.is_private = Draw(6) == 0;
        break;
      case 4:
      case 5:
      case 6: {
        if (calls_.empty()) return;
        const int id = DrawFrom(calls_)->first;
        if (is_taken([&](const Played& p) { return p.event.id == id; })) return;
        event.kind = Draw(3) == 0 ? ModelEvent::kCancel : ModelEvent::kAwait;
        event.id = id;
        break;
      }
      case 7:
        event.kind = ModelEvent::kHold;
        break;
      case 8:
        event.kind = ModelEvent::kRelease;
        break;
      case 9:
        event.kind = ModelEvent::kEndSession;
        break;
      case 10:
        if (uses_.size() > 4) return;
        event.kind = ModelEvent::kUse;
        break;
      case 11:
      case 12: {
        if (uses_.empty()) return;
        const int id = DrawFrom(uses_)->first;
        if (is_taken([&](const Played& p) { return p.event.id == id; })) return;
        event.kind = ModelEvent::kEndUse;
        event.id = id;
        break;
      }
      case 13:
        event.kind = ModelEvent::kUnload;
        event.is_forced = Draw(2) == 0;
        break;
      case 14:
        event.kind = ModelEvent::kMakeRoom;
        event.device = Draw(kNumModelDevices);
        event.bytes = 100 + Draw(150);
        break;
      case 15:
        if (!fails_device_ || Draw(8) != 0) return;
        fails_device_ = false;
        event.kind = ModelEvent::kFailDevice;
        break;
    }
    round.push_back(std::move(played));
  }

  // Does to the registry what the event says. On any thread.
  void Play(Played& played) {
    const ModelEvent& event = played.event;
    ModelResult& result = played.result;
    const std::string name = absl::StrCat(event.spec.name);
    const Caller caller = CallerOf(event.user);
    const auto set = [&](const absl::StatusOr<DatasetInfo>& info) {
      result.code = info.status().code();
      if (info.ok()) result.state = StateOf(info->state);
    };
    switch (event.kind) {
      case ModelEvent::kLoad: {
        v1::DatasetSpec spec = testing::NamedSpec(name);
        spec.set_path(absl::StrCat("/data/", event.spec.path));
        spec.set_device(absl::StrCat("cuda:", event.spec.device));
        spec.set_private_(event.spec.is_private);
        auto call = registry_->BeginLoad(std::move(spec), caller);
        result.code = call.status().code();
        if (call.ok()) played.call = *std::move(call);
        break;
      }
      case ModelEvent::kAwait:
        set(calls_.at(event.id)->Await(absl::ZeroDuration()));
        break;
      case ModelEvent::kCancel:
        calls_.at(event.id)->Cancel();
        break;
      case ModelEvent::kHold:
        set(registry_->Hold(name, caller));
        break;
      case ModelEvent::kRelease:
        result.code = registry_->Release(name, caller).code();
        break;
      case ModelEvent::kEndSession:
        registry_->ReleaseSession(caller.session_id);
        break;
      case ModelEvent::kUse: {
        auto use = registry_->Use(name, caller);
        result.code = use.status().code();
        if (use.ok()) played.use = *std::move(use);
        break;
      }
      case ModelEvent::kEndUse:
        uses_.at(event.id).Reset();
        break;
      case ModelEvent::kUnload:
        result.code =
            registry_->Unload(name, event.is_forced, caller).status().code();
        break;
      case ModelEvent::kMakeRoom:
        registry_->MakeRoom(absl::StrCat("cuda:", event.device), event.bytes);
        break;
      case ModelEvent::kFailDevice: {
        const ServedDevice& device = devices_->devices().back();
        device.health->Fail("it broke");
        registry_->FailDevice(device);
        break;
      }
      case ModelEvent::kEndScan:
      case ModelEvent::kEndRead:
        gate_.LetGo(played.ticket, event.outcome);
        break;
    }
  }

  static char StateOf(DatasetState state) {
    switch (state) {
      case DatasetState::kLoading:
        return 'L';
      case DatasetState::kReady:
        return 'R';
      case DatasetState::kFailed:
        return 'F';
      default:
        return 'U';
    }
  }

  ModelView See() {
    ModelView view;
    for (const DatasetInfo& info : registry_->List()) {
      const v1::DatasetSpec& spec = *info.spec;
      const int name = spec.name()[0] - '0';
      auto& to = view.datasets[static_cast<size_t>(name)];
      to.state = StateOf(info.state);
      to.uid = info.owner.uid;
      to.spec = {.name = name,
                 .path = spec.path().back() - '0',
                 .device = spec.device().back() - '0',
                 .is_private = spec.private_()};
      to.num_holders = info.dataset.num_holders();
      to.num_feeds = info.dataset.num_feeds();
      to.is_scanning = info.dataset.progress().is_scanning();
      if (info.state == DatasetState::kFailed) to.error = info.error.code();
    }
    standing_ = gate_.Standing();
    for (const Gate::Ticket* const ticket : standing_) {
      auto& to = view.datasets[static_cast<size_t>(ticket->name)];
      ++(ticket->is_read              ? to.num_reads
         : ticket->scan->is_cancelled ? to.num_cancelled_scans
                                      : to.num_scans);
    }
    for (size_t i = 0; i < view.used_bytes.size(); ++i) {
      const ServedDevice& device = devices_->devices()[i];
      view.used_bytes[i] =
          device.health->has_failed()
              ? -1
              : static_cast<int64_t>(device.budget->used_bytes());
    }
    for (const auto& [id, call] : calls_) {
      auto& to = view.calls[id];
      if (call->settled.Await(absl::ZeroDuration())) to = call->error.code();
    }
    const DatasetRegistry::Totals totals = registry_->Summarize().totals;
    view.num_loads = totals.num_loads;
    view.num_ready = totals.num_ready;
    view.num_failed = totals.num_failed;
    view.num_cancelled = totals.num_cancelled;
    view.num_evicted = totals.num_evicted;
    return view;
  }

  // Adds the states in which the model stands still after the round's events,
  // in any order in which they were told what they were told.
  static void Explore(const RegistryModel& model,
                      const std::vector<Played>& round, uint32_t played,
                      std::set<std::string>& seen,
                      std::map<std::string, RegistryModel>& ends) {
    std::string key = model.Key();
    if (!seen.insert(absl::StrCat(played, key)).second) return;
    bool moves = false;
    for (const RegistryModel::Step& step : model.Steps()) {
      moves = moves || step.is_certain;
      Explore(step.next, round, played, seen, ends);
    }
    const uint32_t all = (1u << round.size()) - 1;
    if (played == all && !moves) ends.emplace(std::move(key), model);
    for (size_t i = 0; i < round.size(); ++i) {
      if (played & (1u << i)) continue;
      for (const RegistryModel::Outcome& outcome :
           model.Apply(round[i].event)) {
        if (!(outcome.result == round[i].result)) continue;
        Explore(outcome.next, round, played | (1u << i), seen, ends);
      }
    }
  }

  void RunRound() {
    std::vector<Played> round;
    const int num_wanted = 1 + Draw(kMaxEvents);
    for (int i = 0; i < num_wanted; ++i) AddEvent(round);
    num_events_ += static_cast<int>(round.size());
    std::vector<std::thread> threads;
    for (Played& played : round) {
      threads.emplace_back([this, &played] { Play(played); });
    }
    for (std::thread& thread : threads) thread.join();
    std::map<std::string, RegistryModel> ends;
    std::set<std::string> seen;
    for (const RegistryModel& model : models_) {
      Explore(model, round, 0, seen, ends);
    }
    std::set<int> dropped;
    for (Played& played : round) {
      const ModelEvent& event = played.event;
      if (played.call != nullptr) calls_[event.id] = std::move(played.call);
      if (event.kind == ModelEvent::kUse && played.use.dataset() != nullptr) {
        uses_[event.id] = std::move(played.use);
      }
      if (event.kind == ModelEvent::kEndUse) uses_.erase(event.id);
      if (event.kind == ModelEvent::kCancel ||
          (event.kind == ModelEvent::kAwait && played.result.state != 'L')) {
        dropped.insert(event.id);
      }
    }
    // It may look like one state and yet be on its way to another, in which one
    // more thread is at work.
    const absl::Duration deadline = MonotonicNow() + kLong;
    ModelView view;
    std::map<std::string, RegistryModel> found;
    std::set<std::string> changes;
    bool stands_still = false;
    while (!stands_still && MonotonicNow() < deadline) {
      std::this_thread::yield();
      view = See();
      if (const ModelView again = See();
          again.Text() != view.Text() || again.WorkText() != view.WorkText()) {
        continue;
      }
      found.clear();
      for (const auto& [key, end] : ends) {
        if (!end.View().MayBecomeOf(view)) continue;
        const bool is_it = end.View().WorkText() == view.WorkText();
        stands_still |= is_it;
        if (is_it) changes = end.changes();
        RegistryModel next = end;
        next.EndRound(dropped, /*is_seen=*/is_it);
        std::string next_key = next.Key();
        found.emplace(std::move(next_key), std::move(next));
      }
    }
    const std::string text = view.Text() + "\n" + view.WorkText();
    if (!stands_still) return Complain(round, text, ends);
    absl::StrAppend(&history_, Describe(round), text, "\n");
    changes_.insert(changes.begin(), changes.end());
    for (const int id : dropped) calls_.erase(id);
    models_.clear();
    for (auto& [key, model] : found) models_.push_back(std::move(model));
    most_models_ = std::max(most_models_, models_.size());
  }

  static std::string Describe(const std::vector<Played>& round) {
    std::string events;
    for (const Played& played : round) {
      const ModelEvent& e = played.event;
      absl::StrAppend(&events, "kind ", static_cast<int>(e.kind), " session ",
                      e.user.session, " name ", e.spec.name, " path ",
                      e.spec.path, " device ", e.spec.device, "/", e.device,
                      e.spec.is_private ? " private" : "", " id ", e.id,
                      e.is_forced ? " forced" : "", " bytes ", e.bytes,
                      " outcome ", static_cast<int>(e.outcome),
                      e.was_cancelled ? " cancelled" : "", " -> ",
                      static_cast<int>(played.result.code), " ",
                      std::string(1, played.result.state), "\n");
    }
    return events;
  }

  void Complain(const std::vector<Played>& round, const std::string& text,
                const std::map<std::string, RegistryModel>& ends) {
    std::string expected;
    int num = 0;
    for (const auto& [key, end] : ends) {
      if (++num > 4) break;
      absl::StrAppend(&expected, end.View().Text(), "\n", end.View().WorkText(),
                      "\n");
    }
    ADD_FAILURE() << "no order of the events\n"
                  << Describe(round) << "in the state\n"
                  << models_[0].View().Text() << "\n"
                  << models_[0].View().WorkText() << models_[0].Key()
                  << "\nleads to\n"
                  << text << "\nbut to one of " << ends.size() << ":\n"
                  << expected << "The rounds before:\n"
                  << history_;
  }

  std::mt19937 random_;
  bool fails_device_;
  Gate gate_;
  FakeClock clock_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
  std::map<int, std::shared_ptr<LoadCall>> calls_;
  std::map<int, DatasetUse> uses_;
  std::vector<Gate::Ticket*> standing_;
  std::vector<RegistryModel> models_;  // that it may be like
  std::string history_;
  int last_id_ = 0;
  int num_events_ = 0;
  size_t most_models_ = 0;
  std::set<std::string> changes_;
};

TEST(RegistryModelTest, EveryRoundIsOneThatTheModelAllows) {
  const Storm storm =
      Storm::FromEnvironment(/*num_seeds=*/IsFull() ? 1000 : 16);
  int64_t num_events = 0;
  size_t most_models = 0;
  std::set<std::string> changes;
  const uint32_t num_seeds = storm.Run([&](uint32_t seed) {
    World world(seed);
    world.Run();
    num_events += world.num_events();
    most_models = std::max(most_models, world.most_models());
    changes.insert(world.changes().begin(), world.changes().end());
  });
  std::printf("%s: %lld events, at most %zu models, %zu changes:\n",
              storm.Describe(num_seeds).c_str(),
              static_cast<long long>(num_events), most_models, changes.size());
  for (const std::string& change : changes) std::printf("%s\n", change.c_str());
}

}  // namespace
}  // namespace datasetd
