#include "server/rpc/rpc_gate.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

constexpr size_t kTurnBytes = 64 << 10;
constexpr int kMaxEvents = 64;
constexpr int kMaxAccepts = 16;
constexpr int kTurnsPerRound = 16;
constexpr absl::Duration kGateTick = absl::Seconds(1);
// Tick while a user waits for a rate limit.
constexpr absl::Duration kShortTick = absl::Milliseconds(20);

// A client sends the preface as soon as it is connected.
constexpr absl::Duration kPrefaceTimeout = absl::Seconds(5);
// Time for the rest of a frame.
constexpr absl::Duration kFrameTimeout = absl::Seconds(10);
// Time for a client to read when the socket is full of responses.
constexpr absl::Duration kReadTimeout = absl::Seconds(60);
// Time for a client to check its connection, which gRPC's clients do every 5 s.
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(30);

constexpr int kDescriptorsPerConnection = 3;
// Descriptors passed to gRPC cycle through a range of this size, so that a
// number is not soon reused for another user's connection.
constexpr int kDescriptorRange = 16384;

constexpr uint64_t kWakeKey = 0;
constexpr uint64_t kListenerKey = 1;
constexpr uint32_t kInput = EPOLLIN | EPOLLRDHUP | EPOLLET;

uint64_t KeyOf(uint64_t id, RpcRelay::Side side) {
  return id << 1 | static_cast<uint64_t>(side);
}

int DescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

FileDescriptor OpenSpare() {
  return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

}  // namespace

int MaxRpcConnections() {
  return std::max(1, DescriptorLimit() / 2 / kDescriptorsPerConnection);
}

absl::StatusOr<std::unique_ptr<RpcGate>> RpcGate::Start(
    FileDescriptor listener, const Options& options, PeerTable* peers,
    const Clock* clock, Serve serve, Observer observer) {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  FileDescriptor spare = OpenSpare();
  if (!epoll.has_value() || !wake.has_value() || !spare.has_value()) {
    return absl::ErrnoToStatus(errno, "gRPC gate: epoll, eventfd or /dev/null");
  }
  std::unique_ptr<RpcGate> gate(new RpcGate(
      std::move(listener), std::move(epoll), std::move(wake), options, peers,
      clock, std::move(serve), std::move(observer)));
  gate->spare_ = std::move(spare);
  gate->Listen(true);
  if (!gate->is_listening_ ||
      !gate->Watch(gate->wake_.get(), kWakeKey, EPOLLIN, EPOLL_CTL_ADD)) {
    return absl::ErrnoToStatus(errno, "gRPC gate: epoll_ctl");
  }
  gate->thread_ = std::thread([g = gate.get()] { g->Run(); });
  return gate;
}

RpcGate::RpcGate(FileDescriptor listener, FileDescriptor epoll,
                 FileDescriptor wake, const Options& options, PeerTable* peers,
                 const Clock* clock, Serve serve, Observer observer)
    : listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      options_(options),
      peers_(peers),
      clock_(clock),
      serve_(std::move(serve)),
      observer_(std::move(observer)),
      now_(clock->Monotonic()),
      next_tick_(now_ + kGateTick),
      lowest_descriptor_(std::min(DescriptorLimit() / 2, kDescriptorRange)),
      next_descriptor_(lowest_descriptor_),
      buffer_(kTurnBytes) {}

RpcGate::~RpcGate() {
  if (!thread_.joinable()) return;
  is_stopping_.store(true);
  Wake();
  thread_.join();
}

void RpcGate::CloseDoor() {
  {
    MutexLock lock(&mutex_);
    is_closing_ = true;
  }
  Wake();
  MutexLock lock(&mutex_, Condition(&is_closed_));
}

void RpcGate::Wake() { eventfd_write(wake_.get(), 1); }

bool RpcGate::Watch(int fd, uint64_t key, uint32_t events, int operation) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

void RpcGate::Run() {
  pthread_setname_np(pthread_self(), "rpc_gate");
  epoll_event events[kMaxEvents];
  while (!is_stopping_.load()) {
    const int num_events =
        epoll_wait(epoll_.get(), events, kMaxEvents, TimeoutMilliseconds());
    now_ = clock_->Monotonic();
    for (int i = 0; i < num_events; ++i) {
      OnEvent(events[i].data.u64, events[i].events);
    }
    for (int i = 0; i < kTurnsPerRound && !ready_users_.empty(); ++i) {
      TakeTurn();
    }
    if (now_ >= next_tick_) Tick();
  }
  for (auto& [id, relay] : relays_) {
    if (!relay->is_connected()) continue;
    while (relay->Move(Side::kServer, /*may_open=*/true,
                       absl::MakeSpan(buffer_), now_) == Result::kMore) {
    }
  }
  while (!relays_.empty()) Close(relays_.begin()->first);
}

int RpcGate::TimeoutMilliseconds() const {
  if (!ready_users_.empty()) return 0;
  const absl::Duration left = std::max(next_tick_ - now_, absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
}

void RpcGate::OnEvent(uint64_t key, uint32_t events) {
  if (key == kListenerKey) {
    for (int i = 0; i < kMaxAccepts && Accept(); ++i) {
    }
    return;
  }
  if (key == kWakeKey) {
    eventfd_t count;
    eventfd_read(wake_.get(), &count);
    MutexLock lock(&mutex_);
    if (is_closing_ && !is_closed_) {
      is_door_open_ = false;
      Listen(false);
      is_closed_ = true;
    }
    return;
  }
  const uint64_t id = key >> 1;
  const auto side = static_cast<Side>(key & 1);
  const auto found = relays_.find(id);
  if (found == relays_.end()) return;
  RpcRelay& relay = *found->second;
  // Bytes that such a client sent before are dropped, like an abandoned call.
  if (side == Side::kClient && (events & (EPOLLRDHUP | EPOLLHUP)) != 0) {
    Close(id);
    return;
  }
  if ((events & EPOLLOUT) != 0) {
    Watch(relay.fd(side), key, kInput, EPOLL_CTL_MOD);
    relay.is_readable[1 - static_cast<int>(side)] = true;
  }
  if ((events & ~EPOLLOUT) != 0) {
    relay.is_readable[static_cast<int>(side)] = true;
  }
  Enqueue(id, relay);
}

bool RpcGate::Accept() {
  FileDescriptor fd(
      accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.has_value()) {
    if (IsShortage(errno)) TurnAway();
    return false;
  }
  ucred client = {};
  socklen_t size = sizeof(client);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &client, &size) != 0) {
    return true;
  }
  auto& user = users_[client.uid];
  if (user == nullptr) user = std::make_unique<RpcUser>(client.uid, now_);
  const bool is_too_many =
      user->num_connections >= options_.max_connections_per_user;
  if (is_too_many ||
      static_cast<int>(relays_.size()) >= options_.max_connections) {
    counters_.num_refused.fetch_add(1, std::memory_order_relaxed);
    Report(*user, "connection refused", client.pid,
           is_too_many ? "the user has as many as user_limits.max_connections "
                         "allows"
                       : "there are as many as max_connections allows");
    return true;
  }
  const uint64_t id = ++num_accepted_;
  const int descriptor = fd.get();
  auto relay =
      std::make_unique<RpcRelay>(std::move(fd), client.uid, client.pid, now_);
  relay->last_stream = now_;
  if (!Watch(descriptor, KeyOf(id, Side::kClient), kInput, EPOLL_CTL_ADD)) {
    return true;
  }
  ++user->num_connections;
  counters_.num_connections.fetch_add(1, std::memory_order_relaxed);
  Enqueue(id, *relay);
  relays_[id] = std::move(relay);
  return true;
}

void RpcGate::TurnAway() {
  spare_ = FileDescriptor();
  const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) {
    counters_.num_refused.fetch_add(1, std::memory_order_relaxed);
    close(fd);
  } else if (IsShortage(errno)) {
    Listen(false);
  }
  spare_ = OpenSpare();
}

void RpcGate::Listen(bool listen) {
  if (listen == is_listening_) return;
  if (listen) {
    is_listening_ =
        Watch(listener_.get(), kListenerKey, EPOLLIN, EPOLL_CTL_ADD);
  } else {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
    is_listening_ = false;
    next_tick_ = std::min(next_tick_, now_ + kShortTick);
  }
}

void RpcGate::Enqueue(uint64_t id, RpcRelay& relay) {
  if (relay.is_queued) return;
  relay.is_queued = true;
  RpcUser& user = *users_.at(relay.uid);
  user.ready.push_back(id);
  if (user.is_ready) return;
  user.is_ready = true;
  ready_users_.push_back(&user);
}

void RpcGate::TakeTurn() {
  RpcUser& user = *ready_users_.front();
  ready_users_.pop_front();
  user.is_ready = false;
  const uint64_t id = user.ready.front();
  user.ready.pop_front();
  const auto found = relays_.find(id);
  if (found != relays_.end()) {
    RpcRelay& relay = *found->second;
    relay.is_queued = false;
    if (Run(id, relay, user)) Enqueue(id, relay);
  }
  if (user.ready.empty() || user.is_ready) return;
  user.is_ready = true;
  ready_users_.push_back(&user);
}

bool RpcGate::Run(uint64_t id, RpcRelay& relay, RpcUser& user) {
  if (!relay.is_connected()) return Admit(id, relay, user);
  bool has_more = false;
  for (const Side from : {Side::kServer, Side::kClient}) {
    if (!relay.is_readable[static_cast<int>(from)]) continue;
    if (from == Side::kClient && user.IsPaused(now_)) {
      Hold(id, relay, user);
      continue;
    }
    has_more |= Move(id, relay, user, from);
    if (relays_.count(id) == 0) return false;
  }
  return has_more;
}

void RpcGate::Hold(uint64_t id, RpcRelay& relay, RpcUser& user) {
  next_tick_ = std::min(next_tick_, now_ + kShortTick);
  if (relay.is_held) return;
  relay.is_held = true;
  user.held.push_back(id);
}

void RpcGate::Unhold(RpcUser& user) {
  if (!user.IsHeld(now_)) LookAgain(user);
}

void RpcGate::EndExemption(RpcUser& user) {
  user.exempt = 0;
  if (!user.IsPaused(now_)) LookAgain(user);
}

void RpcGate::LookAgain(RpcUser& user) {
  std::vector<uint64_t> held;
  held.swap(user.held);
  for (const uint64_t id : held) {
    const auto found = relays_.find(id);
    if (found == relays_.end()) continue;
    found->second->is_held = false;
    Enqueue(id, *found->second);
  }
}

bool RpcGate::Admit(uint64_t id, RpcRelay& relay, RpcUser& user) {
  switch (relay.LookForPreface()) {
    case RpcRelay::Preface::kPartial:
      return false;
    case RpcRelay::Preface::kWrong:
      Close(id);
      return false;
    case RpcRelay::Preface::kComplete:
      break;
  }
  if (!is_door_open_) return false;
  if (user.IsPaused(now_)) {
    Hold(id, relay, user);
    return false;
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                 ends) != 0) {
    counters_.num_refused.fetch_add(1, std::memory_order_relaxed);
    Report(user, "connection refused", relay.pid, "no descriptor is left");
    Close(id);
    return false;
  }
  relay.Connect(FileDescriptor(ends[0]));
  FileDescriptor server = MoveUp(FileDescriptor(ends[1]));
  if (!Watch(ends[0], KeyOf(id, Side::kServer), kInput, EPOLL_CTL_ADD)) {
    Close(id);
    return false;
  }
  relay.server_descriptor = server.get();
  peers_->Add(server.get(), relay.uid);
  serve_(std::move(server));
  user.ChargeArrival(now_);
  return true;
}

FileDescriptor RpcGate::MoveUp(FileDescriptor fd) {
  const int moved = fcntl(fd.get(), F_DUPFD_CLOEXEC, next_descriptor_);
  // The descriptor limit may have been lowered, or all higher numbers are in
  // use.
  if (moved < 0) {
    next_descriptor_ = lowest_descriptor_;
    return fd;
  }
  next_descriptor_ = moved + 1 < lowest_descriptor_ + kDescriptorRange
                         ? moved + 1
                         : lowest_descriptor_;
  return FileDescriptor(moved);
}

bool RpcGate::Move(uint64_t id, RpcRelay& relay, RpcUser& user, Side from) {
  const bool may_open = !user.IsHeld(now_) || user.exempt == id;
  Result result = relay.Move(from, may_open, absl::MakeSpan(buffer_), now_);
  if (result == Result::kHeld && user.MayExempt() &&
      relay.leash().has_unsent()) {
    user.exempt = id;
    result = relay.Move(from, true, absl::MakeSpan(buffer_), now_);
  }
  CountStreams(relay, user);
  if (user.exempt == id && !relay.leash().has_unsent()) EndExemption(user);
  user.ChargeAbandoned(relay.leash().TakeAbandoned(), now_);
  bool& is_readable = relay.is_readable[static_cast<int>(from)];
  switch (result) {
    case Result::kMore:
      return true;
    case Result::kIdle:
      is_readable = false;
      return false;
    case Result::kBlocked: {
      is_readable = false;  // until there is room
      const Side to = from == Side::kClient ? Side::kServer : Side::kClient;
      Watch(relay.fd(to), KeyOf(id, to), kInput | EPOLLOUT, EPOLL_CTL_MOD);
      return false;
    }
    case Result::kHeld:
      Hold(id, relay, user);
      return false;
    case Result::kAbusive:
      counters_.num_abusive.fetch_add(1, std::memory_order_relaxed);
      Report(user, "connection closed", relay.pid, relay.reason());
      relay.SayEnhanceYourCalm();
      Close(id);
      return false;
    case Result::kClosed:
      Close(id);
      return false;
  }
  return false;
}

void RpcGate::CountStreams(RpcRelay& relay, RpcUser& user) {
  const int num_streams = relay.leash().num_streams();
  if (num_streams == relay.num_streams) return;
  user.num_streams += num_streams - relay.num_streams;
  relay.num_streams = num_streams;
  relay.last_stream = now_;
  Unhold(user);
}

void RpcGate::Close(uint64_t id) {
  const auto found = relays_.find(id);
  const std::unique_ptr<RpcRelay> relay = std::move(found->second);
  relays_.erase(found);
  RpcUser& user = *users_.at(relay->uid);
  --user.num_connections;
  user.num_streams -= relay->num_streams;
  user.ChargeAbandoned(
      relay->leash().TakeAbandoned() + relay->leash().num_streams(), now_);
  if (relay->server_descriptor >= 0) peers_->Remove(relay->server_descriptor);
  counters_.num_connections.fetch_sub(1, std::memory_order_relaxed);
  if (user.exempt == id) EndExemption(user);
  Unhold(user);
}

void RpcGate::Tick() {
  next_tick_ = now_ + kGateTick;
  if (!spare_.has_value()) spare_ = OpenSpare();
  if (is_door_open_) Listen(true);
  std::vector<uint64_t> expired;
  for (const auto& [id, relay] : relays_) {
    if (relay->num_streams > 0) relay->last_stream = now_;
    const bool is_silent =
        !relay->is_connected() && now_ - relay->accepted > kPrefaceTimeout;
    const bool is_slow = now_ - relay->leash().partial_since() > kFrameTimeout;
    const bool is_unread =
        now_ - relay->blocked_since(Side::kServer) > kReadTimeout;
    const absl::Duration idle = now_ - relay->last_stream;
    if (idle > options_.idle_timeout && relay->is_connected() &&
        !relay->is_told_goodbye) {
      relay->is_told_goodbye = relay->SayGoodbye();
    }
    const bool is_idle =
        idle > options_.idle_timeout +
                   std::max(options_.idle_timeout, kGoodbyeTimeout);
    if (is_silent || is_slow || is_unread || is_idle) expired.push_back(id);
  }
  counters_.num_expired.fetch_add(expired.size(), std::memory_order_relaxed);
  for (const uint64_t id : expired) Close(id);
  for (auto it = users_.begin(); it != users_.end();) {
    RpcUser& user = *it->second;
    Unhold(user);
    if (!user.held.empty()) {
      next_tick_ = std::min(next_tick_, now_ + kShortTick);
    }
    it = user.IsForgotten(now_) ? users_.erase(it) : std::next(it);
  }
}

void RpcGate::Report(RpcUser& user, const char* event, pid_t pid,
                     const char* detail) {
  const std::optional<uint64_t> num_left_out = user.TakeLogLine(event, now_);
  if (!num_left_out.has_value()) return;
  std::string text = detail;
  if (*num_left_out > 0) {
    absl::StrAppend(&text, " (and ", *num_left_out, " times before)");
  }
  observer_(event, user.uid, pid, text);
}

}  // namespace datasetd
