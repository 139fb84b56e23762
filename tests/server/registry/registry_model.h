// A model of the registry: what its contract says of calls and of work that
// ends, by the simplest means, and of what is known only to have happened at
// some moment, all possibilities.
//
// A state is a value. Apply returns the states that an event may lead to, each
// with what its caller is told; Steps those that the registry may go on to by
// itself. Every dataset here lies on one device.

#ifndef DATASETD_TESTS_SERVER_REGISTRY_REGISTRY_MODEL_H_
#define DATASETD_TESTS_SERVER_REGISTRY_REGISTRY_MODEL_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace datasetd::testing {

inline constexpr int kNumModelNames = 3;
inline constexpr int kNumModelDevices = 2;
inline constexpr int64_t kModelDatasetBytes = 100;
inline constexpr int64_t kModelDeviceBytes = 250;

struct ModelUser {
  uint64_t session = 0;
  uint32_t uid = 0;
  bool is_privileged = false;
};

// What a load asks for.
struct ModelSpec {
  int name = 0;
  int path = 0;
  int device = 0;
  bool is_private = false;

  bool IsSameDataset(const ModelSpec& other) const {
    return name == other.name && path == other.path && device == other.device;
  }
};

struct ModelEvent {
  enum Kind {
    kLoad,
    kAwait,
    kCancel,
    kHold,
    kRelease,
    kEndSession,
    kUse,
    kEndUse,
    kUnload,
    kMakeRoom,
    kFailDevice,
    kEndScan,
    kEndRead,
  };
  // What a scan finds: the files, other ones than before, or an error.
  enum Outcome { kFiles, kOtherFiles, kError };

  Kind kind = kLoad;
  ModelUser user;
  ModelSpec spec;  // its name alone, but of kLoad
  int id = 0;      // of the call or the use that begins, or that is meant
  bool is_forced = false;
  int64_t bytes = 0;
  int device = 0;
  Outcome outcome = kFiles;
  bool was_cancelled = false;  // the scan, before the event
};

struct ModelResult {
  absl::StatusCode code = absl::StatusCode::kOk;
  char state = '-';  // L, R, F, U: of the dataset that is described

  bool operator==(const ModelResult&) const = default;
};

// What can be seen of a registry.
struct ModelView {
  struct Dataset {
    char state = '-';  // -: there is none
    uint32_t uid = 0;
    ModelSpec spec;
    int num_holders = 0;
    int num_feeds = 0;
    bool is_scanning = false;
    absl::StatusCode error = absl::StatusCode::kOk;
    // Threads that look at its files, for somebody or no more, or read it.
    int num_scans = 0;
    int num_cancelled_scans = 0;
    int num_reads = 0;
  };
  std::array<Dataset, kNumModelNames> datasets;
  std::array<int64_t, kNumModelDevices> used_bytes = {};  // -1: of no interest
  // Calls that are kept, with the error of those that have ended.
  std::map<int, std::optional<absl::StatusCode>> calls;
  uint64_t num_loads = 0;
  uint64_t num_ready = 0;
  uint64_t num_failed = 0;
  uint64_t num_cancelled = 0;
  uint64_t num_evicted = 0;

  // All but the threads at work.
  std::string Text() const;
  std::string WorkText() const;
  // True if threads that are at work here, and not in `other`, are the only
  // difference: they may be on their way.
  bool MayBecomeOf(const ModelView& other) const;
};

class RegistryModel {
 public:
  struct Outcome;
  struct Step;

  std::vector<Outcome> Apply(const ModelEvent& event) const;
  std::vector<Step> Steps() const;
  ModelView View() const;
  // Ends a round. `is_seen`: whatever works was seen at work. The calls are no
  // longer kept.
  void EndRound(const std::set<int>& dropped_calls, bool is_seen);
  // The whole state, as text.
  std::string Key() const;

  // What happened to datasets in this round: stage and event.
  const std::set<std::string>& changes() const { return changes_; }

 private:
  enum class Stage {
    kScanning,
    kPlanned,
    kQueued,
    kReading,
    kEnding,
    kReady,
    kFailed,
    kUnloading,
  };
  enum class Work { kNone, kScan, kRead };
  struct Check {
    bool has_begun = false;
    bool is_seen = false;
    std::vector<int> calls;
  };
  // Named by the call that began it.
  struct Entry {
    ModelSpec spec;
    ModelUser owner;
    Stage stage = Stage::kScanning;
    Work work = Work::kScan;
    bool is_seen = false;     // its worker was seen at work
    int files = -1;           // -1: not known
    bool is_planned = false;  // clients know its files
    bool has_memory = false;
    std::set<uint64_t> sessions;
    std::set<uint64_t> lasting;
    std::map<uint32_t, int> feeds;
    std::optional<uint32_t> kept_for;
    int replaced = 0;
    absl::StatusCode error = absl::StatusCode::kOk;
    int last_used = 0;
    int turn = 0;  // while QUEUED; the lowest is first
    // Feeds and calls that have it find it.
    bool is_known = true;
    std::map<uint32_t, Check> checks;
  };
  struct Call {
    ModelUser user;
    ModelSpec spec;
    int entry = 0;
    bool is_settled = false;
    absl::StatusCode error = absl::StatusCode::kOk;
    bool is_kept = true;
    bool is_given_up = false;
  };
  struct Use {
    int entry = 0;
    uint32_t uid = 0;
  };
  // A look at files that nobody waits for any more.
  struct Orphan {
    int name = 0;
    int device = 0;
    bool is_seen = false;
  };
  struct Room {
    int device = 0;
    int64_t bytes = 0;
  };

  static bool IsLoading(Stage stage);
  static bool IsSeenBy(const Entry& entry, const ModelUser& user);
  static char StateOf(Stage stage);

  Entry& At(int id) { return entries_.at(id); }
  Entry* Current(int name);
  Entry* Find(int name, const ModelUser& user);
  void Note(const Entry& entry, const char* event);
  void Settle(int id, absl::StatusCode error);
  void SettleAll(int entry, absl::StatusCode error);
  absl::StatusCode Begin(int call);
  void AddEntry(int call);
  void Attach(int entry, int call);
  void CheckFiles(int entry, int call);
  void EndChecks(int entry);
  bool CancelWaiting(int call);
  void GiveUp(int call);
  void DropHold(int entry, uint64_t session);
  void Cancel(int entry, const char* event);
  void End(int entry);
  void Remove(int entry);
  void PutBack(int entry);
  void BecomeReady(int entry);
  void EndUse(int use);
  void LoseDevice();
  ModelResult Unload(const ModelEvent& event);
  ModelResult AwaitCall(int call);
  int64_t FreeBytes(int device) const;
  // Evicts until the bytes are free, if that is possible. Several states if it
  // may choose.
  std::vector<RegistryModel> MakeRoom(const Room& room) const;
  void AddScanEnds(const ModelEvent& event, std::vector<Outcome>& to) const;
  void AddReadEnds(const ModelEvent& event, std::vector<Outcome>& to) const;
  void EndCheck(int entry, uint32_t uid, absl::StatusCode error, int files);

  std::map<int, Entry> entries_;
  std::array<int, kNumModelNames> table_ = {};  // ids of entries; 0: none
  std::map<int, Call> calls_;
  std::vector<int> waiting_;
  std::map<int, Use> uses_;
  std::vector<Orphan> orphans_;
  std::vector<Room> rooms_;  // may be made again
  int round_ = 1;
  bool has_failed_ = false;  // the last device
  bool is_new_failure_ = false;
  bool is_failure_told_ = false;
  uint64_t num_loads_ = 0;
  uint64_t num_ready_ = 0;
  uint64_t num_failed_ = 0;
  uint64_t num_cancelled_ = 0;
  uint64_t num_evicted_ = 0;
  std::set<std::string> changes_;
};

struct RegistryModel::Outcome {
  RegistryModel next;
  ModelResult result;
};
struct RegistryModel::Step {
  RegistryModel next;
  bool is_certain = true;  // it happens before anything stands still
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_SERVER_REGISTRY_REGISTRY_MODEL_H_
