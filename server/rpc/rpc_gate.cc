#include "server/rpc/rpc_gate.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

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
constexpr int kTurnsPerRound = 16;
constexpr absl::Duration kGateTick = absl::Seconds(1);
// Tick while a user waits for a rate limit.
constexpr absl::Duration kShortTick = absl::Milliseconds(20);

// Time for the rest of a frame.
constexpr absl::Duration kFrameTimeout = absl::Seconds(10);
// Time for a client to read when the socket is full of responses.
constexpr absl::Duration kReadTimeout = absl::Seconds(60);
// No session's.
constexpr uint64_t kWakeKey = UINT64_MAX;
constexpr uint32_t kInput = EPOLLIN | EPOLLRDHUP | EPOLLET;

uint64_t KeyOf(uint64_t id, RpcRelay::Side side) {
  return id << 1 | static_cast<uint64_t>(side);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcGate>> RpcGate::Start(Parts parts) {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.has_value() || !wake.has_value()) {
    return absl::ErrnoToStatus(errno, "gRPC gate: epoll or eventfd");
  }
  std::unique_ptr<RpcGate> gate(
      new RpcGate(std::move(epoll), std::move(wake), std::move(parts)));
  if (!gate->Watch(gate->wake_.get(), kWakeKey, EPOLLIN, EPOLL_CTL_ADD)) {
    return absl::ErrnoToStatus(errno, "gRPC gate: epoll_ctl");
  }
  gate->thread_ = std::thread([g = gate.get()] { g->Run(); });
  return gate;
}

RpcGate::RpcGate(FileDescriptor epoll, FileDescriptor wake, Parts parts)
    : epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      parts_(std::move(parts)),
      now_(parts_.clock->Monotonic()),
      next_tick_(now_ + kGateTick),
      buffer_(kTurnBytes) {}

RpcGate::~RpcGate() {
  if (!thread_.joinable()) return;
  is_stopping_.store(true);
  Wake();
  thread_.join();
}

void RpcGate::Open(const Caller& session, FileDescriptor connection) {
  Give({session, std::move(connection)});
}

void RpcGate::Close(uint64_t session_id) {
  Give({{.session_id = session_id}, FileDescriptor()});
}

void RpcGate::Give(Order order) {
  {
    MutexLock lock(&mutex_);
    orders_.push_back(std::move(order));
  }
  Wake();
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
    now_ = parts_.clock->Monotonic();
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
    while (relay->Move(Side::kServer, /*max_calls=*/0, absl::MakeSpan(buffer_),
                       now_) == Result::kMore) {
    }
  }
  while (!relays_.empty()) Drop(relays_.begin()->first);
}

int RpcGate::TimeoutMilliseconds() const {
  if (!ready_users_.empty()) return 0;
  const absl::Duration left = std::max(next_tick_ - now_, absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
}

void RpcGate::OnEvent(uint64_t key, uint32_t events) {
  if (key == kWakeKey) {
    eventfd_t count;
    eventfd_read(wake_.get(), &count);
    TakeOrders();
    return;
  }
  const uint64_t id = key >> 1;
  const auto side = static_cast<Side>(key & 1);
  const auto found = relays_.find(id);
  if (found == relays_.end()) return;
  RpcRelay& relay = *found->second;
  // Bytes that such a client sent before are dropped, like an abandoned call.
  if (side == Side::kClient && (events & (EPOLLRDHUP | EPOLLHUP)) != 0) {
    End(id, "");
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

void RpcGate::TakeOrders() {
  std::vector<Order> orders;
  {
    MutexLock lock(&mutex_);
    orders.swap(orders_);
    is_door_open_ = !is_closing_;
    is_closed_ = is_closing_;
  }
  for (Order& order : orders) {
    const uint64_t id = order.session.session_id;
    if (relays_.count(id) > 0) Drop(id);
    if (order.connection.has_value()) {
      Accept(order.session, std::move(order.connection));
    }
  }
}

void RpcGate::Accept(const Caller& session, FileDescriptor connection) {
  const uint64_t id = session.session_id;
  auto& user = users_[session.uid];
  if (user == nullptr) user = std::make_unique<RpcUser>(session.uid, now_);
  ++user->num_connections;
  const int fd = connection.get();
  auto& relay = relays_[id];
  relay = std::make_unique<RpcRelay>(std::move(connection), session.uid,
                                     session.pid, now_);
  if (!Watch(fd, KeyOf(id, Side::kClient), kInput, EPOLL_CTL_ADD)) {
    End(id, "the daemon cannot watch another connection");
    return;
  }
  Enqueue(id, *relay);
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

int RpcGate::NumAllowed(const RpcUser& user) const {
  const int max_calls = parts_.max_calls_per_user;
  if (user.IsPaused(now_) || parts_.num_running(user.uid) >= 2 * max_calls) {
    return 0;
  }
  return std::max(0, max_calls - user.num_streams);
}

void RpcGate::Unhold(RpcUser& user) {
  if (!user.held.empty() && NumAllowed(user) > 0) EnqueueHeld(user);
}

void RpcGate::EndExemption(RpcUser& user) {
  user.exempt = RpcUser::kNobody;
  if (!user.IsPaused(now_)) EnqueueHeld(user);
}

void RpcGate::EnqueueHeld(RpcUser& user) {
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
      End(id, "it speaks another protocol than HTTP/2");
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
    End(id, "the daemon has no file descriptor left");
    return false;
  }
  relay.Connect(FileDescriptor(ends[0]));
  FileDescriptor server(ends[1]);
  if (!Watch(ends[0], KeyOf(id, Side::kServer), kInput, EPOLL_CTL_ADD)) {
    End(id, "the daemon cannot watch another connection");
    return false;
  }
  parts_.serve(id, std::move(server));
  user.ChargeArrival(now_);
  return true;
}

bool RpcGate::Move(uint64_t id, RpcRelay& relay, RpcUser& user, Side from) {
  const auto move = [&] {
    const int max_calls =
        user.exempt == id ? RpcLeash::kMaxStreams : NumAllowed(user);
    return relay.Move(from, max_calls, absl::MakeSpan(buffer_), now_);
  };
  Result result = move();
  if (result == Result::kHeld && user.exempt == RpcUser::kNobody &&
      relay.leash().has_unsent()) {
    user.exempt = id;
    result = move();
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
      End(id, relay.reason());
      return false;
    case Result::kClientClosed:
      End(id, "");
      return false;
    case Result::kGrpcClosed:
      End(id, "gRPC closed its connection");
      return false;
  }
  return false;
}

void RpcGate::CountStreams(RpcRelay& relay, RpcUser& user) {
  const int num_streams = relay.leash().num_streams();
  if (num_streams == relay.num_streams) return;
  user.num_streams += num_streams - relay.num_streams;
  relay.num_streams = num_streams;
  Unhold(user);
}

void RpcGate::End(uint64_t id, const std::string& reason) {
  Drop(id);
  parts_.on_end(id, reason);
}

void RpcGate::Drop(uint64_t id) {
  const auto found = relays_.find(id);
  const std::unique_ptr<RpcRelay> relay = std::move(found->second);
  relays_.erase(found);
  RpcUser& user = *users_.at(relay->uid);
  --user.num_connections;
  user.num_streams -= relay->num_streams;
  user.ChargeAbandoned(
      relay->leash().TakeAbandoned() + relay->leash().num_streams(), now_);
  if (user.exempt == id) EndExemption(user);
  Unhold(user);
}

void RpcGate::Tick() {
  next_tick_ = now_ + kGateTick;
  std::map<uint64_t, const char*> expired;
  for (const auto& [id, relay] : relays_) {
    if (now_ - relay->leash().partial_since() > kFrameTimeout) {
      expired[id] = "a frame of its requests was not sent to the end in time";
    } else if (now_ - relay->blocked_since(Side::kServer) > kReadTimeout) {
      expired[id] = "answers to its requests were not read in time";
    }
  }
  counters_.num_expired.fetch_add(expired.size(), std::memory_order_relaxed);
  for (const auto& [id, reason] : expired) End(id, reason);
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
  parts_.observer(event, user.uid, pid, text);
}

}  // namespace datasetd
