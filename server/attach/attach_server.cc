#include "server/attach/attach_server.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "server/attach/seqpacket.h"

namespace datasetd {
namespace {

constexpr absl::Duration kHandshakeTimeout = absl::Seconds(5);
constexpr int kTickMilliseconds = 1000;
constexpr int kMaxNewConnections = 64;
constexpr int kMaxEvents = 64;
// Maximum unread messages of one connection: import result, weights, closing,
// detached, end.
constexpr int64_t kMaxMessagesAtOnce = 5;
// Of one user, what waits to be closed before no more descriptors are taken.
constexpr size_t kMaxClosings = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<AttachServer>> AttachServer::Start(
    FileDescriptor listener, SessionTable* sessions, RpcGate* gate,
    FeedTable* feeds, DatasetRegistry* datasets, Observer observer,
    std::function<void()> on_tick) {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.has_value() || !wake.has_value()) {
    return absl::ErrnoToStatus(errno, "attach: epoll or eventfd");
  }
  std::unique_ptr<AttachServer> server(new AttachServer(
      std::move(listener), std::move(epoll), std::move(wake), sessions, gate,
      feeds, datasets, std::move(observer), std::move(on_tick)));
  if (!server->Watch(server->listener_.get()) ||
      !server->Watch(server->wake_.get())) {
    return absl::ErrnoToStatus(errno, "attach: epoll_ctl");
  }
  server->is_listening_ = true;
  server->thread_ = std::thread([s = server.get()] { s->Run(); });
  return server;
}

AttachServer::AttachServer(FileDescriptor listener, FileDescriptor epoll,
                           FileDescriptor wake, SessionTable* sessions,
                           RpcGate* gate, FeedTable* feeds,
                           DatasetRegistry* datasets, Observer observer,
                           std::function<void()> on_tick)
    : listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      sessions_(sessions),
      gate_(gate),
      feeds_(feeds),
      datasets_(datasets),
      observer_(std::move(observer)),
      on_tick_(std::move(on_tick)) {}

AttachServer::~AttachServer() {
  if (!thread_.joinable()) return;
  is_stopping_.store(true);
  Wake();
  thread_.join();
}

bool AttachServer::Watch(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = fd;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void AttachServer::EndLeases(std::vector<uint64_t> feed_ids,
                             attach::GoodbyeCode code, std::string reason) {
  {
    MutexLock lock(&mutex_);
    goodbyes_.push_back({.feed_ids = std::move(feed_ids),
                         .code = code,
                         .reason = std::move(reason)});
  }
  Wake();
}

void AttachServer::EndSession(uint64_t session_id, std::string reason) {
  {
    MutexLock lock(&mutex_);
    session_ends_.push_back({session_id, std::move(reason)});
  }
  Wake();
}

void AttachServer::BeginDrain(std::string reason) {
  is_draining_.store(true);
  {
    MutexLock lock(&mutex_);
    goodbyes_.push_back({.is_to_sessions = true,
                         .code = attach::GoodbyeCode::kDraining,
                         .reason = std::move(reason)});
  }
  Wake();
}

void AttachServer::Wake() { eventfd_write(wake_.get(), 1); }

void AttachServer::DrainPendingEvents(absl::Duration timeout) {
  // In this order: the thread is busy before it reads what was sent.
  pollfd pending = {.fd = epoll_.get(), .events = POLLIN, .revents = 0};
  if (poll(&pending, 1, 0) == 0 && !is_busy_.load()) return;
  const uint64_t number = barrier_.Ask();
  Wake();
  barrier_.Await(number, timeout);
}

void AttachServer::CountLeases(int change) {
  MutexLock lock(&mutex_);
  num_leases_ += change;
}

bool AttachServer::AwaitNoLeases(absl::Duration timeout) const {
  const auto is_done = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_leases_ == 0;
  };
  MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(Condition(&is_done), timeout);
}

void AttachServer::Run() {
  pthread_setname_np(pthread_self(), "attach");
  absl::Duration next_tick =
      MonotonicNow() + absl::Milliseconds(kTickMilliseconds);
  epoll_event events[kMaxEvents];
  int num_events = 0;
  while (!is_stopping_.load()) {
    const int64_t max_events =
        kMaxMessagesAtOnce *
        static_cast<int64_t>(clients_.size() + processes_.size() + 2);
    const bool is_awaited = barrier_.EndRound(num_events, max_events);
    const int timeout = is_awaited ? 0 : kTickMilliseconds;
    is_busy_.store(false);
    num_events = epoll_wait(epoll_.get(), events, kMaxEvents, timeout);
    is_busy_.store(true);
    for (int i = 0; i < num_events; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener_.get()) {
        Accept();
      } else if (fd == wake_.get()) {
        eventfd_t count;
        eventfd_read(fd, &count);
        SendGoodbyes();
        EndSessions();
        FinishReads();
      } else if (processes_.count(fd) > 0) {
        OnProcessEnd(fd);
      } else if (clients_.count(fd) > 0) {
        Receive(fd);
      }
    }
    if (MonotonicNow() >= next_tick) {
      Listen(true);
      ExpireHandshakes();
      feeds_->ExpirePending();
      if (on_tick_ != nullptr) on_tick_();
      next_tick = MonotonicNow() + absl::Milliseconds(kTickMilliseconds);
    }
  }
  // What came during the last round.
  SendGoodbyes();
  while (!clients_.empty()) Close(clients_.begin()->first);
}

void AttachServer::Accept() {
  // Accepts one at a time: the listener is level-triggered. Without a free
  // descriptor the connection waits for the next tick.
  FileDescriptor fd(
      accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.has_value()) {
    if (errno == EMFILE || errno == ENFILE) Listen(false);
    return;
  }
  auto connection = AttachConnection::Create(std::move(fd));
  if (connection == nullptr) return;
  // Without a pidfd, the end of the process would go unnoticed, and its slab
  // would never be freed.
  if (connection->lacks_descriptor()) {
    Refuse(*connection, absl::ResourceExhaustedError(kNoDescriptorLeft));
    return;
  }
  if (num_new_ >= kMaxNewConnections) DropOldestNew();
  const int number = connection->fd();
  if (!Watch(number)) return;
  ++num_new_;
  clients_[number] = {.connection = std::move(connection),
                      .number = ++num_accepted_,
                      .deadline = MonotonicNow() + kHandshakeTimeout};
}

// One user's silent connections must not prevent others from introducing
// themselves.
void AttachServer::DropOldestNew() {
  std::map<uint32_t, int> num_by_uid;
  for (const auto& [fd, client] : clients_) {
    const AttachConnection& connection = *client.connection;
    if (connection.role() == Role::kNew) ++num_by_uid[connection.uid()];
  }
  const uint32_t uid = std::max_element(num_by_uid.begin(), num_by_uid.end(),
                                        [](const auto& a, const auto& b) {
                                          return a.second < b.second;
                                        })
                           ->first;
  int oldest = -1;
  for (const auto& [fd, client] : clients_) {
    if (client.connection->role() == Role::kNew &&
        client.connection->uid() == uid &&
        (oldest < 0 || client.number < clients_.at(oldest).number)) {
      oldest = fd;
    }
  }
  Refuse(*clients_.at(oldest).connection,
         absl::ResourceExhaustedError("too many connections wait to introduce "
                                      "themselves; try again"));
  Close(oldest);
}

void AttachServer::Listen(bool listen) {
  if (listen == is_listening_) return;
  if (listen) {
    is_listening_ = Watch(listener_.get());
  } else {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
    is_listening_ = false;
  }
}

void AttachServer::Receive(int fd) {
  AttachConnection& connection = *clients_.at(fd).connection;
  const uint32_t uid = connection.uid();
  const AttachConnection::Message message =
      connection.Receive(closers_.num_tasks(uid) < kMaxClosings);
  if (std::holds_alternative<AttachConnection::Nothing>(message)) return;
  std::vector<FileDescriptor> descriptors = connection.TakeDescriptors();
  bool is_open = false;
  bool is_slab_unused = false;
  if (const auto* other =
          std::get_if<AttachConnection::OtherVersion>(&message)) {
    is_open = Refuse(connection,
                     absl::FailedPreconditionError(absl::StrCat(
                         "the client speaks protocol ", other->version,
                         ", this daemon speaks ", attach::kProtocolVersion,
                         "; install the same version of both")));
  } else if (const auto* violation =
                 std::get_if<AttachConnection::Violation>(&message)) {
    is_open = Violate(connection, violation->what);
  } else if (const auto* hello = std::get_if<attach::Hello>(&message)) {
    is_open = OnHello(connection, *hello);
  } else if (const auto* request = std::get_if<attach::AttachFeed>(&message)) {
    is_open = OnAttachFeed(connection, *request, descriptors);
    // It has got no descriptors.
    is_slab_unused = !is_open;
  } else if (std::holds_alternative<attach::SetWeights>(message)) {
    is_open = OnSetWeights(connection, descriptors);
  } else if (std::holds_alternative<attach::Closing>(message)) {
    connection.BecomeEnding();
    feeds_->EndLease(connection.feed_id());
    is_open = true;
  } else if (std::holds_alternative<attach::Detached>(message)) {
    is_slab_unused = true;
  } else if (const auto* result = std::get_if<attach::ImportResult>(&message)) {
    is_open = result->is_ok != 0;
    is_slab_unused = !is_open;
    if (!is_open) OnFailedImport(connection, result->reason);
  }
  if (!is_open) Close(fd, is_slab_unused);
  if (descriptors.empty()) return;
  const auto junk =
      std::make_shared<std::vector<FileDescriptor>>(std::move(descriptors));
  (void)closers_.Run(uid, [junk] { junk->clear(); });
}

bool AttachServer::OnHello(AttachConnection& connection,
                           const attach::Hello& message) {
  if (is_draining_.load()) return RefuseWhileDraining(connection);
  const auto opened =
      sessions_->Open(connection.uid(), connection.pid(), message.pid);
  if (absl::IsUnavailable(opened.status())) {
    return RefuseWhileDraining(connection);
  }
  if (!opened.ok()) return Refuse(connection, opened.status());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                 ends) != 0) {
    sessions_->Close(opened->token);
    return Refuse(connection, absl::ResourceExhaustedError(kNoDescriptorLeft));
  }
  gate_->Open({.session_id = opened->session_id,
               .uid = connection.uid(),
               .pid = connection.pid()},
              FileDescriptor(ends[0]));
  --num_new_;
  const FileDescriptor requests(ends[1]);
  return connection.BecomeSession(*opened, requests.get());
}

bool AttachServer::OnAttachFeed(AttachConnection& connection,
                                const attach::AttachFeed& message,
                                std::vector<FileDescriptor>& descriptors) {
  if (is_draining_.load()) return RefuseWhileDraining(connection);
  const auto caller = sessions_->Find(absl::string_view(
      reinterpret_cast<const char*>(message.token), sizeof(message.token)));
  if (!caller.ok()) return Refuse(connection, caller.status());
  if (caller->uid != connection.uid()) {
    return Refuse(connection,
                  absl::PermissionDeniedError(
                      "the token belongs to a session of another user"));
  }
  const uint64_t feed_id = message.feed_id;
  const uint64_t session_id = caller->session_id;
  const auto taken = feeds_->TakeArrays(feed_id, session_id);
  if (!taken.ok()) return Refuse(connection, taken.status());
  const std::shared_ptr<OrderArrays>& arrays = *taken;
  absl::Status status = connection.lost_descriptors()
                            ? absl::ResourceExhaustedError(kNoDescriptorLeft)
                            : arrays->Check(descriptors);
  if (status.ok() && arrays->is_empty()) {
    return Attach(connection, feed_id, session_id);
  }
  if (status.ok()) {
    status = BeginRead(connection, session_id, descriptors,
                       [arrays](auto sent) { return arrays->Read(sent); });
  }
  if (!status.ok()) {
    feeds_->EndLease(feed_id);
    return Refuse(connection, status);
  }
  --num_new_;
  connection.BecomeReading(feed_id);
  return true;
}

bool AttachServer::OnSetWeights(AttachConnection& connection,
                                std::vector<FileDescriptor>& descriptors) {
  // The client has closed the feed, or a goodbye is on its way to it.
  if (connection.role() == Role::kEnding) return true;
  const uint64_t feed_id = connection.feed_id();
  connection.BeginSetWeights();
  absl::Status status = connection.lost_descriptors()
                            ? absl::ResourceExhaustedError(kNoDescriptorLeft)
                            : feeds_->CheckWeights(feed_id, descriptors);
  if (status.ok()) {
    status = BeginRead(connection, /*session_id=*/0, descriptors,
                       [this, feed_id](auto sent) {
                         return feeds_->SetWeights(feed_id, sent);
                       });
  }
  return status.ok() || connection.AnswerSetWeights(status);
}

absl::Status AttachServer::BeginRead(
    const AttachConnection& connection, uint64_t session_id,
    std::vector<FileDescriptor>& descriptors,
    std::function<absl::Status(absl::Span<const FileDescriptor>)> read) {
  const auto sent = std::make_shared<std::vector<FileDescriptor>>(
      std::exchange(descriptors, {}));
  ReadResult result = {.fd = connection.fd(),
                       .number = clients_.at(connection.fd()).number,
                       .session_id = session_id};
  return readers_.Run(connection.uid(),
                      [this, sent, result, read = std::move(read)] {
                        ReadResult done = result;
                        done.status = read(*sent);
                        sent->clear();
                        {
                          MutexLock lock(&mutex_);
                          read_results_.push_back(std::move(done));
                        }
                        Wake();
                      });
}

void AttachServer::FinishReads() {
  std::vector<ReadResult> results;
  {
    MutexLock lock(&mutex_);
    results.swap(read_results_);
  }
  for (const ReadResult& result : results) {
    const auto found = clients_.find(result.fd);
    // Close() has ended the feed of a connection that is gone.
    if (found == clients_.end() || found->second.number != result.number) {
      continue;
    }
    AttachConnection& connection = *found->second.connection;
    if (connection.role() != Role::kReading) {
      // A lease that is ending gets no answer, as in OnSetWeights.
      if (connection.role() == Role::kLease &&
          !connection.AnswerSetWeights(result.status)) {
        Close(result.fd);
      }
      continue;
    }
    // It is cancelled if the feed has ended, which Attach says, too.
    const bool is_open =
        is_draining_.load() ? RefuseWhileDraining(connection)
        : result.status.ok() || absl::IsCancelled(result.status)
            ? Attach(connection, connection.feed_id(), result.session_id)
            : Refuse(connection, result.status);
    if (!is_open) Close(result.fd, /*is_slab_unused=*/true);
  }
}

bool AttachServer::Attach(AttachConnection& connection, uint64_t feed_id,
                          uint64_t session_id) {
  const auto descriptors = feeds_->Attach(feed_id, session_id);
  if (!descriptors.ok()) return Refuse(connection, descriptors.status());
  if (connection.role() == Role::kNew) --num_new_;
  CountLeases(1);
  return connection.BecomeLease(feed_id, *descriptors);
}

bool AttachServer::Violate(const AttachConnection& connection,
                           const char* what) {
  counters_.num_violations.fetch_add(1, std::memory_order_relaxed);
  observer_("protocol violation", connection.uid(), connection.pid(),
            [what] { return std::string(what); });
  return false;
}

bool AttachServer::Refuse(AttachConnection& connection,
                          const absl::Status& status) {
  NoteRefusal(connection, status);
  connection.SendRefused(status);
  return false;
}

bool AttachServer::RefuseWhileDraining(AttachConnection& connection) {
  const std::string reason = "the daemon is shutting down";
  NoteRefusal(connection, absl::AbortedError(reason));
  connection.SendGoodbye(attach::GoodbyeCode::kDraining, reason);
  return false;
}

void AttachServer::NoteRefusal(const AttachConnection& connection,
                               const absl::Status& status) {
  counters_.num_refused.fetch_add(1, std::memory_order_relaxed);
  observer_("refused", connection.uid(), connection.pid(),
            [&status] { return status.ToString(); });
}

void AttachServer::OnFailedImport(const AttachConnection& connection,
                                  const char* reason) {
  counters_.num_failed_imports.fetch_add(1, std::memory_order_relaxed);
  observer_("import failed", connection.uid(), connection.pid(),
            [&connection, reason] {
              return absl::StrCat("feed ", connection.feed_id(), ": ", reason);
            });
}

void AttachServer::Close(int fd, bool is_slab_unused) {
  const auto found = clients_.find(fd);
  std::shared_ptr<AttachConnection> connection =
      std::move(found->second.connection);
  clients_.erase(found);
  switch (connection->role()) {
    case Role::kNew:
      --num_new_;
      break;
    case Role::kSession:
      sessions_->Close(connection->token());
      gate_->Close(connection->session_id());
      feeds_->EndSession(connection->session_id());
      datasets_->ReleaseSession(connection->session_id());
      break;
    case Role::kReading:
      feeds_->EndLease(connection->feed_id());
      break;
    case Role::kLease:
    case Role::kEnding: {
      const uint64_t feed_id = connection->feed_id();
      feeds_->EndLease(feed_id);
      FileDescriptor process = connection->TakeProcess();
      const int pidfd = process.get();
      if (!is_slab_unused && process.has_value() && Watch(pidfd)) {
        processes_[pidfd] = {std::move(process), feed_id};
      } else if (is_slab_unused || !is_stopping_.load()) {
        // If the process cannot be watched, it is gone or not visible: free the
        // slab with the connection, except at shutdown, when the daemon itself
        // closes the connection.
        feeds_->FreeSlab(feed_id);
      }
      CountLeases(-1);
      break;
    }
  }
  connection->ShutDown();
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const uint32_t uid = connection->uid();
  if (closers_.num_tasks(uid) < kMaxClosings) {
    (void)closers_.Run(uid, [last = std::move(connection)] {});
  }
}

void AttachServer::OnProcessEnd(int pidfd) {
  const auto found = processes_.find(pidfd);
  feeds_->FreeSlab(found->second.feed_id);
  processes_.erase(found);
}

void AttachServer::SendGoodbyes() {
  std::vector<Goodbye> goodbyes;
  {
    MutexLock lock(&mutex_);
    goodbyes.swap(goodbyes_);
  }
  for (const Goodbye& goodbye : goodbyes) {
    for (const auto& [fd, client] : clients_) {
      AttachConnection& connection = *client.connection;
      const bool is_receiver =
          goodbye.is_to_sessions
              ? connection.role() == Role::kSession
              : connection.role() == Role::kLease &&
                    std::find(goodbye.feed_ids.begin(), goodbye.feed_ids.end(),
                              connection.feed_id()) != goodbye.feed_ids.end();
      if (!is_receiver) continue;
      // The connection stays open for Detached.
      connection.SendGoodbye(goodbye.code, goodbye.reason);
      if (goodbye.is_to_sessions) continue;
      connection.BecomeEnding();
      feeds_->EndLease(connection.feed_id());
    }
  }
}

void AttachServer::EndSessions() {
  std::vector<SessionEnd> ends;
  {
    MutexLock lock(&mutex_);
    ends.swap(session_ends_);
  }
  for (const SessionEnd& end : ends) {
    const auto found = std::find_if(
        clients_.begin(), clients_.end(), [&end](const auto& client) {
          const AttachConnection& connection = *client.second.connection;
          return connection.role() == Role::kSession &&
                 connection.session_id() == end.session_id;
        });
    if (found == clients_.end()) continue;
    if (!end.reason.empty()) {
      found->second.connection->SendGoodbye(attach::GoodbyeCode::kSessionEnded,
                                            end.reason);
    }
    Close(found->first);
  }
}

void AttachServer::ExpireHandshakes() {
  if (num_new_ == 0) return;
  const absl::Duration now = MonotonicNow();
  std::vector<int> expired;
  for (const auto& [fd, client] : clients_) {
    if (client.connection->role() == Role::kNew && client.deadline <= now) {
      expired.push_back(fd);
    }
  }
  for (const int fd : expired) {
    Violate(*clients_.at(fd).connection, "nothing within 5 s");
    Close(fd);
  }
}

}  // namespace datasetd
