#include "tests/server/registry/registry_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace datasetd::testing {
namespace {

using absl::StatusCode;

constexpr int kFailingDevice = kNumModelDevices - 1;
constexpr int kMaxReadsPerUser = 2;

}  // namespace

std::string ModelView::Text() const {
  std::string text;
  for (const Dataset& d : datasets) {
    absl::StrAppend(&text, std::string(1, d.state));
    if (d.state != '-') {
      absl::StrAppend(&text, " uid ", d.uid, " path ", d.spec.path, " device ",
                      d.spec.device, d.spec.is_private ? " private" : "",
                      " holders ", d.num_holders, " feeds ", d.num_feeds,
                      d.is_scanning ? " scanning" : "", " error ",
                      static_cast<int>(d.error));
    }
    absl::StrAppend(&text, "\n");
  }
  for (const int64_t bytes : used_bytes) absl::StrAppend(&text, bytes, " ");
  absl::StrAppend(&text, "loads ", num_loads, " ready ", num_ready, " failed ",
                  num_failed, " cancelled ", num_cancelled, " evicted ",
                  num_evicted, "\ncalls");
  for (const auto& [id, error] : calls) {
    absl::StrAppend(
        &text, " ", id, ":",
        error.has_value() ? absl::StrCat(static_cast<int>(*error)) : "?");
  }
  return text;
}

std::string ModelView::WorkText() const {
  std::string text;
  for (const Dataset& d : datasets) {
    absl::StrAppend(&text, "scans ", d.num_scans, "+", d.num_cancelled_scans,
                    " reads ", d.num_reads, "\n");
  }
  return text;
}

bool ModelView::MayBecomeOf(const ModelView& other) const {
  for (size_t i = 0; i < datasets.size(); ++i) {
    const Dataset& to = datasets[i];
    const Dataset& from = other.datasets[i];
    if (to.num_scans < from.num_scans || to.num_reads < from.num_reads ||
        to.num_cancelled_scans < from.num_cancelled_scans) {
      return false;
    }
  }
  return Text() == other.Text();
}

bool RegistryModel::IsLoading(Stage stage) { return stage <= Stage::kEnding; }

bool RegistryModel::IsSeenBy(const Entry& entry, const ModelUser& user) {
  return !entry.spec.is_private || user.is_privileged ||
         user.uid == entry.owner.uid;
}

char RegistryModel::StateOf(Stage stage) {
  if (IsLoading(stage)) return 'L';
  if (stage == Stage::kReady) return 'R';
  return stage == Stage::kFailed ? 'F' : 'U';
}

RegistryModel::Entry* RegistryModel::Current(int name) {
  const int id = table_[static_cast<size_t>(name)];
  return id == 0 ? nullptr : &At(id);
}

RegistryModel::Entry* RegistryModel::Find(int name, const ModelUser& user) {
  Entry* const entry = Current(name);
  return entry != nullptr && IsSeenBy(*entry, user) ? entry : nullptr;
}

void RegistryModel::Note(const Entry& entry, const char* event) {
  static constexpr const char* kNames[] = {"SCANNING", "PLANNED",  "QUEUED",
                                           "READING",  "ENDING",   "READY",
                                           "FAILED",   "UNLOADING"};
  changes_.insert(
      absl::StrCat(kNames[static_cast<size_t>(entry.stage)], " ", event));
}

void RegistryModel::Settle(int id, StatusCode error) {
  Call& call = calls_.at(id);
  if (std::exchange(call.is_settled, true)) return;
  call.error = error;
}

void RegistryModel::SettleAll(int entry, StatusCode error) {
  for (const auto& [id, call] : calls_) {
    if (call.entry == entry) Settle(id, error);
  }
}

StatusCode RegistryModel::Begin(int id) {
  const Call& call = calls_.at(id);
  const size_t name = static_cast<size_t>(call.spec.name);
  const Entry* const present = Current(call.spec.name);
  if (present == nullptr) {
    AddEntry(id);
    return StatusCode::kOk;
  }
  const bool is_seen = IsSeenBy(*present, call.user);
  const bool is_same = call.spec.IsSameDataset(present->spec);
  if (present->stage == Stage::kFailed &&
      (!present->kept_for.has_value() || call.user.is_privileged ||
       call.user.uid == *present->kept_for || (is_same && is_seen))) {
    AddEntry(id);
    return StatusCode::kOk;
  }
  if (!is_seen) return StatusCode::kAlreadyExists;
  if (present->stage == Stage::kEnding) {
    waiting_.push_back(id);
    return StatusCode::kOk;
  }
  if (present->stage == Stage::kUnloading) {
    return StatusCode::kFailedPrecondition;
  }
  if (present->stage == Stage::kFailed || !is_same) {
    return StatusCode::kAlreadyExists;
  }
  if (call.spec.is_private && !present->spec.is_private) {
    return StatusCode::kFailedPrecondition;
  }
  if (present->is_planned) {
    CheckFiles(table_[name], id);
  } else {
    Attach(table_[name], id);
  }
  return StatusCode::kOk;
}

void RegistryModel::AddEntry(int id) {
  Call& call = calls_.at(id);
  int& place = table_[static_cast<size_t>(call.spec.name)];
  Entry entry = {.spec = call.spec,
                 .owner = call.user,
                 .sessions = {call.user.session},
                 .last_used = round_};
  if (place != 0) {
    Entry& present = At(place);
    present.is_known = !present.feeds.empty();
    entry.kept_for = present.kept_for;
    entry.replaced = present.replaced != 0 ? present.replaced : place;
    changes_.insert("FAILED replaced");
  }
  call.entry = id;
  place = id;
  entries_[id] = std::move(entry);
}

void RegistryModel::Attach(int entry_id, int id) {
  Entry& entry = At(entry_id);
  Call& call = calls_.at(id);
  entry.sessions.insert(call.user.session);
  entry.last_used = round_;
  call.entry = entry_id;
  if (!IsLoading(entry.stage)) Settle(id, StatusCode::kOk);
}

void RegistryModel::CheckFiles(int entry, int id) {
  Check& check = At(entry).checks[calls_.at(id).user.uid];
  (check.has_begun ? waiting_ : check.calls).push_back(id);
}

void RegistryModel::EndChecks(int id) {
  Entry& entry = At(id);
  for (const auto& [uid, check] : std::exchange(entry.checks, {})) {
    if (check.has_begun) {
      orphans_.push_back({entry.spec.name, entry.spec.device, check.is_seen});
    }
    waiting_.insert(waiting_.end(), check.calls.begin(), check.calls.end());
  }
}

bool RegistryModel::CancelWaiting(int id) {
  const Call& call = calls_.at(id);
  size_t num_removed = std::erase(waiting_, id);
  Entry* const entry = Current(call.spec.name);
  const auto found = entry == nullptr ? std::map<uint32_t, Check>::iterator()
                                      : entry->checks.find(call.user.uid);
  if (entry != nullptr && found != entry->checks.end()) {
    Check& check = found->second;
    num_removed += std::erase(check.calls, id);
    if (check.calls.empty()) {
      if (check.has_begun) {
        orphans_.push_back(
            {entry->spec.name, entry->spec.device, check.is_seen});
      }
      entry->checks.erase(found);
    }
  }
  if (num_removed == 0) return false;
  Settle(id, StatusCode::kCancelled);
  return true;
}

void RegistryModel::GiveUp(int id) {
  if (CancelWaiting(id)) return;
  Call& call = calls_.at(id);
  call.is_given_up = true;
  const auto found = entries_.find(call.entry);
  if (found == entries_.end() || !found->second.is_known) return;
  bool is_held = found->second.lasting.contains(call.user.session);
  for (const auto& [other_id, other] : calls_) {
    is_held = is_held ||
              (other.entry == call.entry && other.is_kept &&
               !other.is_given_up && other.user.session == call.user.session);
  }
  if (!is_held) DropHold(call.entry, call.user.session);
}

void RegistryModel::DropHold(int id, uint64_t session) {
  Entry& entry = At(id);
  if (entry.sessions.erase(session) == 0) return;
  entry.lasting.erase(session);
  entry.last_used = round_;
  if (entry.sessions.empty() && IsLoading(entry.stage)) Cancel(id, "cancelled");
}

// A load ends: at once if it waits, else when its worker does.
void RegistryModel::Cancel(int id, const char* event) {
  Entry& entry = At(id);
  Note(entry, event);
  if (entry.stage == Stage::kEnding) return;
  EndChecks(id);
  entry.stage = Stage::kEnding;
}

void RegistryModel::End(int id) {
  Entry& entry = At(id);
  if (has_failed_ && entry.spec.device == kFailingDevice) {
    entry.error = StatusCode::kFailedPrecondition;
  } else if (entry.error == StatusCode::kOk) {
    entry.error = StatusCode::kCancelled;
  }
  EndChecks(id);
  const bool is_cancelled = entry.error == StatusCode::kCancelled;
  const bool stays = entry.is_planned && !is_cancelled;
  Note(entry, stays ? "failed" : "ended");
  entry.last_used = round_;
  entry.work = Work::kNone;
  entry.is_seen = false;
  entry.has_memory = false;
  if (entry.is_planned) ++(is_cancelled ? num_cancelled_ : num_failed_);
  SettleAll(id, entry.is_planned ? StatusCode::kOk : entry.error);
  const int replaced = std::exchange(entry.replaced, 0);
  if (!stays) {
    Remove(id);
    if (replaced != 0) PutBack(replaced);
    return;
  }
  entry.stage = Stage::kFailed;
  const bool is_kept =
      entry.kept_for.has_value() && *entry.kept_for != entry.owner.uid;
  if (is_kept) entry.replaced = replaced;
}

void RegistryModel::Remove(int id) {
  int& place = table_[static_cast<size_t>(At(id).spec.name)];
  At(id).is_known = false;
  if (place == id) place = 0;
}

void RegistryModel::PutBack(int id) {
  At(id).is_known = true;
  table_[static_cast<size_t>(At(id).spec.name)] = id;
}

void RegistryModel::BecomeReady(int id) {
  Entry& entry = At(id);
  Note(entry, "read");
  entry.stage = Stage::kReady;
  entry.work = Work::kNone;
  entry.is_seen = false;
  entry.last_used = round_;
  entry.replaced = 0;
  entry.kept_for = entry.owner.uid;
  ++num_ready_;
  SettleAll(id, StatusCode::kOk);
}

void RegistryModel::EndUse(int id) {
  const Use use = uses_.at(id);
  uses_.erase(id);
  const auto found = entries_.find(use.entry);
  if (found == entries_.end() || !found->second.is_known) return;
  Entry& entry = found->second;
  if (--entry.feeds[use.uid] == 0) entry.feeds.erase(use.uid);
  entry.last_used = round_;
  if (!entry.feeds.empty()) return;
  if (table_[static_cast<size_t>(entry.spec.name)] != use.entry) {
    entry.is_known = false;
  } else if (entry.stage == Stage::kUnloading) {
    Note(entry, "feeds ended");
    entry.has_memory = false;
    Remove(use.entry);
  }
}

void RegistryModel::LoseDevice() {
  is_failure_told_ = true;
  for (const int id : table_) {
    if (id == 0 || At(id).spec.device != kFailingDevice) continue;
    Entry& entry = At(id);
    if (IsLoading(entry.stage)) {
      Cancel(id, "device lost");
    } else if (entry.stage == Stage::kReady) {
      Note(entry, "device lost");
      EndChecks(id);
      entry.stage = Stage::kFailed;
      entry.error = StatusCode::kFailedPrecondition;
      entry.has_memory = false;
    }
  }
}

ModelResult RegistryModel::Unload(const ModelEvent& event) {
  const ModelUser& user = event.user;
  Entry* const found = Find(event.spec.name, user);
  if (found == nullptr) return {StatusCode::kNotFound};
  const int id = table_[static_cast<size_t>(event.spec.name)];
  Entry& entry = *found;
  for (const auto& [uid, count] : entry.feeds) {
    if (event.is_forced && !user.is_privileged && uid != user.uid) {
      return {StatusCode::kPermissionDenied};
    }
  }
  const bool is_for_user =
      user.is_privileged ||
      (entry.stage == Stage::kFailed && entry.kept_for == user.uid);
  if (!is_for_user && user.uid != entry.owner.uid) {
    return {StatusCode::kPermissionDenied};
  }
  if (!entry.feeds.empty() && !event.is_forced) {
    return {StatusCode::kFailedPrecondition};
  }
  if (IsLoading(entry.stage)) {
    entry.sessions.clear();
    entry.lasting.clear();
    if (entry.kept_for == entry.owner.uid) {
      entry.kept_for.reset();
      entry.replaced = 0;
    }
    Cancel(id, "cancelled");
    return {};
  }
  if (!entry.feeds.empty()) {
    Note(entry, "forced");
    EndChecks(id);
    entry.sessions.clear();
    entry.lasting.clear();
    entry.stage = Stage::kUnloading;
    return {};
  }
  Note(entry, "unloaded");
  EndChecks(id);
  entry.has_memory = false;
  const int replaced = std::exchange(entry.replaced, 0);
  Remove(id);
  if (replaced != 0 && !is_for_user) PutBack(replaced);
  return {};
}

ModelResult RegistryModel::AwaitCall(int id) {
  const Call& call = calls_.at(id);
  if (call.is_settled && call.error != StatusCode::kOk) return {call.error};
  if (call.entry == 0) return {StatusCode::kOk, 'L'};
  const auto found = entries_.find(call.entry);
  if (found == entries_.end() || !found->second.is_known) {
    return {StatusCode::kNotFound};
  }
  Entry& entry = found->second;
  if (entry.stage == Stage::kReady &&
      entry.sessions.contains(call.user.session)) {
    entry.lasting.insert(call.user.session);
  }
  return {StatusCode::kOk, StateOf(entry.stage)};
}

int64_t RegistryModel::FreeBytes(int device) const {
  int64_t bytes = kModelDeviceBytes;
  for (const auto& [id, entry] : entries_) {
    if (entry.has_memory && entry.spec.device == device) {
      bytes -= kModelDatasetBytes;
    }
  }
  return bytes;
}

std::vector<RegistryModel> RegistryModel::MakeRoom(const Room& room) const {
  std::vector<int> unused;
  for (const int id : table_) {
    if (id == 0) continue;
    const Entry& entry = entries_.at(id);
    if (entry.stage == Stage::kReady && entry.sessions.empty() &&
        entry.feeds.empty() && entry.spec.device == room.device) {
      unused.push_back(id);
    }
  }
  const int64_t missing = room.bytes - FreeBytes(room.device);
  if (missing <= 0 ||
      static_cast<int64_t>(unused.size()) * kModelDatasetBytes < missing) {
    return {*this};
  }
  int oldest = round_;
  for (const int id : unused) {
    oldest = std::min(oldest, entries_.at(id).last_used);
  }
  std::vector<RegistryModel> all;
  for (const int id : unused) {
    if (entries_.at(id).last_used != oldest) continue;
    RegistryModel next = *this;
    next.Note(next.At(id), "evicted");
    next.EndChecks(id);
    next.At(id).has_memory = false;
    next.Remove(id);
    ++next.num_evicted_;
    for (RegistryModel& last : next.MakeRoom(room)) {
      all.push_back(std::move(last));
    }
  }
  return all;
}

void RegistryModel::EndCheck(int id, uint32_t uid, StatusCode error,
                             int files) {
  Entry& entry = At(id);
  const Check check = entry.checks.at(uid);
  entry.checks.erase(uid);
  if (error == StatusCode::kOk && files != entry.files) {
    error = StatusCode::kAlreadyExists;
  }
  for (const int call : check.calls) {
    if (error == StatusCode::kOk) {
      Attach(id, call);
    } else {
      Settle(call, error);
    }
  }
}

void RegistryModel::AddScanEnds(const ModelEvent& event,
                                std::vector<Outcome>& to) const {
  const bool is_ok = event.outcome != ModelEvent::kError;
  const int files = event.outcome == ModelEvent::kOtherFiles ? 1 : 0;
  const StatusCode error = is_ok ? StatusCode::kOk : StatusCode::kNotFound;
  for (size_t i = 0; i < orphans_.size(); ++i) {
    if (orphans_[i].name != event.spec.name) continue;
    RegistryModel next = *this;
    next.orphans_.erase(next.orphans_.begin() + static_cast<ptrdiff_t>(i));
    to.push_back({std::move(next), {}});
  }
  const int id = table_[static_cast<size_t>(event.spec.name)];
  if (id == 0) return;
  const Entry& entry = entries_.at(id);
  if (entry.work == Work::kScan &&
      (!event.was_cancelled || entry.stage == Stage::kEnding)) {
    RegistryModel next = *this;
    Entry& changed = next.At(id);
    if (entry.stage == Stage::kEnding) {
      next.End(id);
    } else if (!is_ok) {
      changed.error = error;
      next.End(id);
    } else {
      next.Note(changed, "scanned");
      changed.stage = Stage::kPlanned;
      changed.work = Work::kNone;
      changed.is_seen = false;
      changed.files = files;
    }
    to.push_back({std::move(next), {}});
  }
  if (event.was_cancelled) return;
  for (const auto& [uid, check] : entry.checks) {
    if (!check.has_begun) continue;
    RegistryModel next = *this;
    next.EndCheck(id, uid, error, files);
    to.push_back({std::move(next), {}});
  }
}

void RegistryModel::AddReadEnds(const ModelEvent& event,
                                std::vector<Outcome>& to) const {
  const int id = table_[static_cast<size_t>(event.spec.name)];
  if (id == 0) return;
  const Entry& entry = entries_.at(id);
  if (entry.work != Work::kRead) return;
  const bool is_ok = event.outcome != ModelEvent::kError;
  RegistryModel next = *this;
  const bool is_lost = has_failed_ && entry.spec.device == kFailingDevice;
  if (entry.stage == Stage::kReading && is_ok && !is_lost) {
    next.BecomeReady(id);
    to.push_back({std::move(next), {}});
    return;
  }
  if (entry.stage == Stage::kEnding) {
    RegistryModel other = *this;
    other.End(id);
    to.push_back({std::move(other), {}});
    if (is_ok) return;
  }
  // An error that the cancelled load meets, or does not hear of any more.
  if (!is_ok) next.At(id).error = StatusCode::kDataLoss;
  next.End(id);
  to.push_back({std::move(next), {}});
}

std::vector<RegistryModel::Outcome> RegistryModel::Apply(
    const ModelEvent& event) const {
  std::vector<Outcome> outcomes;
  RegistryModel next = *this;
  ModelResult result;
  const size_t name = static_cast<size_t>(event.spec.name);
  switch (event.kind) {
    case ModelEvent::kLoad: {
      if (has_failed_ && event.spec.device == kFailingDevice) {
        outcomes.push_back({next, {StatusCode::kFailedPrecondition}});
        // The device was looked at before it failed.
        if (!is_new_failure_) return outcomes;
      }
      next.calls_[event.id] = {.user = event.user, .spec = event.spec};
      result.code = next.Begin(event.id);
      if (result.code != StatusCode::kOk) next.calls_.erase(event.id);
      break;
    }
    case ModelEvent::kAwait:
      result = next.AwaitCall(event.id);
      break;
    case ModelEvent::kCancel:
      next.GiveUp(event.id);
      break;
    case ModelEvent::kHold:
      if (Entry* const entry = next.Find(event.spec.name, event.user)) {
        if (IsLoading(entry->stage) || entry->stage == Stage::kReady) {
          entry->sessions.insert(event.user.session);
          entry->lasting.insert(event.user.session);
          entry->last_used = round_;
        }
        result.state = StateOf(entry->stage);
      } else {
        result.code = StatusCode::kNotFound;
      }
      break;
    case ModelEvent::kRelease:
      if (next.Find(event.spec.name, event.user) != nullptr) {
        next.DropHold(table_[name], event.user.session);
      } else {
        result.code = StatusCode::kNotFound;
      }
      break;
    case ModelEvent::kEndSession: {
      std::vector<int> waiting;
      for (const auto& [id, call] : calls_) {
        if (call.user.session == event.user.session) waiting.push_back(id);
      }
      for (const int id : waiting) next.CancelWaiting(id);
      for (const auto& [id, entry] : entries_) {
        next.DropHold(id, event.user.session);
      }
      break;
    }
    case ModelEvent::kUse: {
      Entry* const entry = next.Find(event.spec.name, event.user);
      if (entry == nullptr) {
        result.code = StatusCode::kNotFound;
      } else if (entry->stage != Stage::kReady ||
                 (has_failed_ && entry->spec.device == kFailingDevice)) {
        result.code = StatusCode::kFailedPrecondition;
      } else {
        ++entry->feeds[event.user.uid];
        entry->last_used = round_;
        next.uses_[event.id] = {table_[name], event.user.uid};
      }
      break;
    }
    case ModelEvent::kEndUse:
      next.EndUse(event.id);
      break;
    case ModelEvent::kUnload:
      result = next.Unload(event);
      break;
    case ModelEvent::kMakeRoom:
      for (RegistryModel& room : MakeRoom({event.device, event.bytes})) {
        room.rooms_.push_back({event.device, event.bytes});
        outcomes.push_back({std::move(room), {}});
      }
      return outcomes;
    case ModelEvent::kFailDevice:
      next.has_failed_ = true;
      next.is_new_failure_ = true;
      break;
    case ModelEvent::kEndScan:
      AddScanEnds(event, outcomes);
      return outcomes;
    case ModelEvent::kEndRead:
      AddReadEnds(event, outcomes);
      return outcomes;
  }
  outcomes.push_back({std::move(next), result});
  return outcomes;
}

std::vector<RegistryModel::Step> RegistryModel::Steps() const {
  std::vector<Step> steps;
  const auto add = [&](RegistryModel next, bool is_certain = true) {
    steps.push_back({std::move(next), is_certain});
  };
  if (has_failed_ && !is_failure_told_) {
    RegistryModel next = *this;
    next.LoseDevice();
    add(std::move(next));
  }
  const auto is_lost = [&](int device) {
    return has_failed_ && device == kFailingDevice;
  };
  for (const int id : table_) {
    if (id == 0) continue;
    const Entry& entry = entries_.at(id);
    for (const auto& [uid, check] : entry.checks) {
      RegistryModel next = *this;
      if (!check.has_begun) {
        next.At(id).checks.at(uid).has_begun = true;
        add(std::move(next));
      } else if (!check.is_seen && is_lost(entry.spec.device)) {
        next.EndCheck(id, uid, StatusCode::kFailedPrecondition, 0);
        add(std::move(next), false);
      }
    }
    RegistryModel next = *this;
    Entry& changed = next.At(id);
    switch (entry.stage) {
      case Stage::kScanning:
        if (!entry.is_seen && is_lost(entry.spec.device)) {
          next.End(id);
          add(std::move(next), false);
        }
        break;
      case Stage::kPlanned: {
        const bool has_device = !is_lost(entry.spec.device);
        bool may_evict = false;
        if (has_device) {
          for (RegistryModel& room :
               MakeRoom({entry.spec.device, kModelDatasetBytes})) {
            if (room.num_evicted_ == num_evicted_) continue;
            may_evict = true;
            add(std::move(room));
          }
        }
        if (may_evict) break;
        if (has_device && FreeBytes(entry.spec.device) >= kModelDatasetBytes) {
          next.Note(changed, "reserved");
          changed.stage = Stage::kQueued;
          changed.is_planned = true;
          changed.has_memory = true;
          for (const auto& [other_id, other] : entries_) {
            changed.turn = std::max(changed.turn, other.turn + 1);
          }
          ++next.num_loads_;
        } else {
          changed.error = has_device ? StatusCode::kResourceExhausted
                                     : StatusCode::kFailedPrecondition;
          next.Cancel(id, "cancelled");
        }
        add(std::move(next));
        break;
      }
      case Stage::kQueued: {
        int num_reading = 0;
        bool is_first = true;
        for (const int other_id : table_) {
          if (other_id == 0) continue;
          const Entry& other = entries_.at(other_id);
          if (other.owner.uid != entry.owner.uid) continue;
          num_reading += other.work == Work::kRead;
          is_first = is_first && (other.stage != Stage::kQueued ||
                                  other.turn >= entry.turn);
        }
        if (!is_first || num_reading >= kMaxReadsPerUser) break;
        next.Note(changed, "read begun");
        changed.stage = Stage::kReading;
        changed.work = Work::kRead;
        changed.turn = 0;
        add(std::move(next));
        break;
      }
      case Stage::kEnding:
        if (entry.work != Work::kNone && entry.is_seen) break;
        // A worker that was late does not begin.
        next.End(id);
        add(std::move(next), entry.work == Work::kNone);
        break;
      default:
        break;
    }
  }
  for (size_t i = 0; i < orphans_.size(); ++i) {
    if (orphans_[i].is_seen) continue;
    RegistryModel next = *this;
    next.orphans_.erase(next.orphans_.begin() + static_cast<ptrdiff_t>(i));
    add(std::move(next), false);
  }
  if (!waiting_.empty()) {
    RegistryModel next = *this;
    for (const int id : std::exchange(next.waiting_, {})) {
      const StatusCode error = next.Begin(id);
      if (error != StatusCode::kOk) next.Settle(id, error);
    }
    if (next.Key() != Key()) add(std::move(next));
  }
  for (size_t i = 0; i < rooms_.size(); ++i) {
    RegistryModel rest = *this;
    rest.rooms_.erase(rest.rooms_.begin() + static_cast<ptrdiff_t>(i));
    for (RegistryModel& next : rest.MakeRoom(rooms_[i])) {
      if (next.num_evicted_ != num_evicted_) add(std::move(next), false);
    }
  }
  return steps;
}

ModelView RegistryModel::View() const {
  ModelView view;
  for (size_t i = 0; i < table_.size(); ++i) {
    if (table_[i] == 0) continue;
    const Entry& entry = entries_.at(table_[i]);
    ModelView::Dataset& to = view.datasets[i];
    to.state = StateOf(entry.stage);
    to.uid = entry.owner.uid;
    to.spec = entry.spec;
    to.num_holders = static_cast<int>(entry.sessions.size());
    for (const auto& [uid, count] : entry.feeds) to.num_feeds += count;
    to.is_scanning = IsLoading(entry.stage) && !entry.is_planned;
    if (entry.stage == Stage::kFailed) to.error = entry.error;
    if (entry.work == Work::kScan) {
      ++(entry.stage == Stage::kEnding ? to.num_cancelled_scans : to.num_scans);
    }
    to.num_reads = entry.work == Work::kRead;
    to.num_scans += static_cast<int>(entry.checks.size());
  }
  for (const Orphan& orphan : orphans_) {
    ++view.datasets[static_cast<size_t>(orphan.name)].num_cancelled_scans;
  }
  for (int i = 0; i < kNumModelDevices; ++i) {
    view.used_bytes[static_cast<size_t>(i)] =
        has_failed_ && i == kFailingDevice ? -1
                                           : kModelDeviceBytes - FreeBytes(i);
  }
  for (const auto& [id, call] : calls_) {
    if (!call.is_kept) continue;
    auto& to = view.calls[id];
    if (call.is_settled) to = call.error;
  }
  view.num_loads = num_loads_;
  view.num_ready = num_ready_;
  view.num_failed = num_failed_;
  view.num_cancelled = num_cancelled_;
  view.num_evicted = num_evicted_;
  return view;
}

void RegistryModel::EndRound(const std::set<int>& dropped_calls, bool is_seen) {
  ++round_;
  rooms_.clear();
  changes_.clear();
  is_new_failure_ = false;
  for (auto& [id, entry] : entries_) {
    entry.is_seen |= is_seen && entry.work != Work::kNone;
    for (auto& [uid, check] : entry.checks) check.is_seen |= is_seen;
  }
  for (Orphan& orphan : orphans_) orphan.is_seen |= is_seen;
  for (const int id : dropped_calls) {
    const auto found = calls_.find(id);
    if (found != calls_.end()) found->second.is_kept = false;
  }
  // What nothing refers to is forgotten.
  std::set<int> known(table_.begin(), table_.end());
  for (const int id : table_) {
    if (id != 0) known.insert(At(id).replaced);
  }
  std::erase_if(entries_, [&](const auto& item) {
    return !known.contains(item.first) && !item.second.is_known;
  });
  std::set<int> waiting(waiting_.begin(), waiting_.end());
  for (const auto& [id, entry] : entries_) {
    for (const auto& [uid, check] : entry.checks) {
      waiting.insert(check.calls.begin(), check.calls.end());
    }
  }
  std::erase_if(calls_, [&](const auto& item) {
    return !item.second.is_kept && !waiting.contains(item.first);
  });
}

std::string RegistryModel::Key() const {
  std::string key;
  const auto add = [&](auto... parts) { absl::StrAppend(&key, parts..., ","); };
  for (const auto& [id, e] : entries_) {
    add("E", id, " ", static_cast<int>(e.stage), static_cast<int>(e.work),
        e.is_seen ? 1 : 0, e.files, e.is_planned ? 1 : 0);
    add(e.has_memory ? 1 : 0, " ", e.kept_for.value_or(1), " ", e.replaced, " ",
        static_cast<int>(e.error), " ", e.last_used, " ", e.turn);
    add(e.is_known ? 1 : 0);
    for (const uint64_t session : e.sessions) add("s", session);
    for (const uint64_t session : e.lasting) add("l", session);
    for (const auto& [uid, count] : e.feeds) add("f", uid, ":", count);
    for (const auto& [uid, check] : e.checks) {
      add("c", uid, check.has_begun ? "b" : "", check.is_seen ? "s" : "");
      for (const int call : check.calls) add(call);
    }
  }
  for (const int id : table_) add("T", id);
  for (const auto& [id, c] : calls_) {
    add("C", id, " ", c.entry, c.is_settled ? " s" : " ",
        static_cast<int>(c.error), c.is_kept ? "k" : "",
        c.is_given_up ? "g" : "");
  }
  for (const int id : waiting_) add("w", id);
  for (const auto& [id, use] : uses_) add("u", id, " ", use.entry);
  std::vector<std::string> orphans;
  for (const Orphan& o : orphans_) {
    orphans.push_back(absl::StrCat("o", o.name, o.device, o.is_seen ? 1 : 0));
  }
  std::sort(orphans.begin(), orphans.end());
  for (const std::string& orphan : orphans) add(orphan);
  for (const Room& room : rooms_) add("r", room.device, ":", room.bytes);
  add("D", has_failed_ ? 1 : 0, is_failure_told_ ? 1 : 0);
  add(num_loads_, " ", num_ready_, " ", num_failed_, " ", num_cancelled_, " ",
      num_evicted_);
  return key;
}

}  // namespace datasetd::testing
