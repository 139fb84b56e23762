#include "server/attach/attach_server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/status_macros.h"

namespace datasetd {
namespace {

using attach::Header;
using attach::MessageType;

constexpr absl::Duration kHandshakeTimeout = absl::Seconds(5);
constexpr int kTickMilliseconds = 1000;
constexpr int kMaxNewConnections = 64;
constexpr int kListenBacklog = 128;
constexpr int kMaxEvents = 64;
// Of one connection, and not read yet: import result, closing, detached, end.
constexpr int64_t kMaxMessagesAtOnce = 4;

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

// The peer's process, exactly where the kernel can say (6.5), by its pid
// elsewhere. Not open if the process is gone already, or not visible.
FileDescriptor PeerProcess(int fd, const ucred& peer) {
  int pidfd = -1;
  socklen_t length = sizeof(pidfd);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
    return FileDescriptor(pidfd);
  }
  if (peer.pid <= 0) return FileDescriptor();
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

template <typename Message>
Message NewMessage(MessageType type) {
  Message message;
  std::memset(&message, 0, sizeof(message));
  message.header = {attach::kMagic, attach::kProtocolVersion, type};
  return message;
}

void CopyText(const std::string& text, char (&to)[attach::kTextBytes]) {
  const size_t size = std::min(text.size(), sizeof(to) - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

// False if the peer does not take it.
bool Send(int fd, const void* data, size_t size,
          const std::vector<int>& descriptors = {}) {
  iovec part = {const_cast<void*>(data), size};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) *
                                           attach::kMaxDescriptors)] = {};
  if (!descriptors.empty()) {
    const size_t bytes = sizeof(int) * descriptors.size();
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(size);
}

}  // namespace

absl::StatusOr<FileDescriptor> ListenSeqpacket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path ", path, " is longer than ", sizeof(address.sun_path) - 1,
        " bytes; choose a shorter directory"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  FileDescriptor fd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.has_value()) return absl::ErrnoToStatus(errno, "socket");
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("unlink ", path));
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
           sizeof(address)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("bind ", path));
  }
  if (listen(fd.get(), kListenBacklog) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("listen ", path));
  }
  return fd;
}

absl::StatusOr<std::unique_ptr<AttachServer>> AttachServer::Start(
    FileDescriptor listener, SessionTable* sessions, FeedTable* feeds,
    DatasetRegistry* datasets, Observer observer) {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.has_value() || !wake.has_value()) {
    return absl::ErrnoToStatus(errno, "attach: epoll or eventfd");
  }
  std::unique_ptr<AttachServer> server(new AttachServer(
      std::move(listener), std::move(epoll), std::move(wake), sessions, feeds,
      datasets, std::move(observer)));
  if (!server->Watch(server->listener_.get()) ||
      !server->Watch(server->wake_.get())) {
    return absl::ErrnoToStatus(errno, "attach: epoll_ctl");
  }
  server->is_listening_ = true;
  server->thread_ = std::thread([s = server.get()] { s->Run(); });
  return server;
}

AttachServer::AttachServer(FileDescriptor listener, FileDescriptor epoll, FileDescriptor wake,
                           SessionTable* sessions, FeedTable* feeds,
                           DatasetRegistry* datasets, Observer observer)
    : listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      sessions_(sessions),
      feeds_(feeds),
      datasets_(datasets),
      observer_(std::move(observer)) {}

AttachServer::~AttachServer() {
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
    farewells_.push_back({.feed_ids = std::move(feed_ids),
                          .code = code,
                          .reason = std::move(reason)});
  }
  Wake();
}

void AttachServer::BeginDrain(std::string reason) {
  is_draining_.store(true);
  {
    MutexLock lock(&mutex_);
    farewells_.push_back({.is_to_sessions = true,
                          .code = attach::GoodbyeCode::kDraining,
                          .reason = std::move(reason)});
  }
  Wake();
}

void AttachServer::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void AttachServer::AwaitHeard(absl::Duration timeout) {
  uint64_t number;
  {
    MutexLock lock(&mutex_);
    number = ++num_asked_;
  }
  Wake();
  const auto is_heard = [this, number]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_heard_ >= number;
  };
  MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(Condition(&is_heard), timeout);
}

// Heard is what was there when epoll has nothing more to report. Where clients
// never stop to send, it is when each of them had its turn often enough: epoll
// takes them in turn.
bool AttachServer::IsAwaited(int num_events) {
  MutexLock lock(&mutex_);
  num_events_left_ -= std::max(num_events, 0);
  if (asked_ != 0 && (num_events == 0 || num_events_left_ <= 0)) {
    num_heard_ = asked_;
    asked_ = 0;
  }
  if (asked_ == 0 && num_heard_ < num_asked_) {
    asked_ = num_asked_;
    num_events_left_ =
        kMaxMessagesAtOnce *
        static_cast<int64_t>(connections_.size() + processes_.size() + 2);
  }
  return asked_ != 0;
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
  absl::Time next_tick = absl::Now() + absl::Milliseconds(kTickMilliseconds);
  epoll_event events[kMaxEvents];
  int num_events = 0;
  while (!is_stopping_.load()) {
    const int timeout = IsAwaited(num_events) ? 0 : kTickMilliseconds;
    num_events = epoll_wait(epoll_.get(), events, kMaxEvents, timeout);
    for (int i = 0; i < num_events; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener_.get()) {
        Accept();
      } else if (fd == wake_.get()) {
        uint64_t count;
        [[maybe_unused]] ssize_t n = read(fd, &count, sizeof(count));
        SayFarewells();
      } else if (processes_.count(fd) > 0) {
        OnProcessEnd(fd);
      } else if (connections_.count(fd) > 0) {
        Receive(fd);
      }
    }
    if (absl::Now() >= next_tick) {
      Listen(true);
      ExpireHandshakes();
      feeds_->ExpirePending();
      next_tick = absl::Now() + absl::Milliseconds(kTickMilliseconds);
    }
  }
  while (!connections_.empty()) Close(connections_.begin()->first);
}

void AttachServer::Accept() {
  // One at a time: the listener is level-triggered. With no descriptor left
  // the connection waits for the next tick.
  FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.has_value()) {
    if (errno == EMFILE || errno == ENFILE) Listen(false);
    return;
  }
  auto connection = std::make_unique<Connection>();
  socklen_t length = sizeof(connection->peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &connection->peer,
                 &length) != 0) {
    return;
  }
  errno = 0;
  connection->process = PeerProcess(fd.get(), connection->peer);
  // Without it, nobody would know when the process is done with a slab.
  if (!connection->process.has_value() &&
      (errno == EMFILE || errno == ENFILE)) {
    return;
  }
  connection->fd = std::move(fd);
  connection->deadline = absl::Now() + kHandshakeTimeout;
  connection->number = ++num_accepted_;
  if (num_new_ >= kMaxNewConnections) DropOldestNew();
  const int number = connection->fd.get();
  if (!Watch(number)) return;
  ++num_new_;
  connections_[number] = std::move(connection);
}

// One user's silent connections must not keep another's from introducing
// themselves.
void AttachServer::DropOldestNew() {
  std::map<uint32_t, int> num_by_uid;
  for (const auto& [fd, connection] : connections_) {
    if (connection->role == Role::kNew) ++num_by_uid[connection->peer.uid];
  }
  const uint32_t uid =
      std::max_element(num_by_uid.begin(), num_by_uid.end(),
                       [](const auto& a, const auto& b) {
                         return a.second < b.second;
                       })
          ->first;
  int oldest = -1;
  for (const auto& [fd, connection] : connections_) {
    if (connection->role == Role::kNew && connection->peer.uid == uid &&
        (oldest < 0 ||
         connection->number < connections_.at(oldest)->number)) {
      oldest = fd;
    }
  }
  Refuse(*connections_.at(oldest),
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
  Connection& connection = *connections_.at(fd);
  // Room for the largest message and one byte more.
  alignas(8) char buffer[sizeof(attach::ImportResult) + 8];
  iovec part = {buffer, sizeof(buffer)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t size = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    Close(fd);
    return;
  }
  bool is_ok = false;
  Header header = {};
  if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    is_ok = Violation(connection, "descriptors, or a message too long");
  } else if (static_cast<size_t>(size) < sizeof(header)) {
    is_ok = Violation(connection, "a message too short");
  } else {
    std::memcpy(&header, buffer, sizeof(header));
    if (header.magic != attach::kMagic) {
      is_ok = Violation(connection, "a message of another protocol");
    } else if (header.version != attach::kProtocolVersion) {
      is_ok = Refuse(
          connection,
          absl::FailedPreconditionError(absl::StrCat(
              "the client speaks protocol ", header.version,
              ", this daemon speaks ", attach::kProtocolVersion,
              "; install the same version of both")));
    } else if (connection.role == Role::kNew &&
               header.type == MessageType::kHello &&
               size == sizeof(attach::Hello)) {
      is_ok = OnHello(connection, header);
    } else if (connection.role == Role::kNew &&
               header.type == MessageType::kAttachFeed &&
               size == sizeof(attach::AttachFeed)) {
      attach::AttachFeed request;
      std::memcpy(&request, buffer, sizeof(request));
      is_ok = OnAttachFeed(connection, request);
    } else if (connection.role == Role::kLease ||
               connection.role == Role::kFarewell) {
      is_ok = OnLeaseMessage(connection, buffer, static_cast<size_t>(size));
    } else {
      is_ok = Violation(connection, "a message out of order");
    }
  }
  if (!is_ok) Close(fd);
}

bool AttachServer::OnHello(Connection& connection, const Header&) {
  if (is_draining_.load()) {
    return Refuse(connection,
                  absl::UnavailableError("the daemon is shutting down"));
  }
  auto opened = sessions_->Open(connection.peer.uid, connection.peer.pid);
  if (!opened.ok()) return Refuse(connection, opened.status());
  --num_new_;
  connection.role = Role::kSession;
  connection.token = opened->token;
  connection.session_id = opened->session_id;
  auto welcome = NewMessage<attach::Welcome>(MessageType::kWelcome);
  std::copy(opened->token.begin(), opened->token.end(), welcome.token);
  return Send(connection.fd.get(), &welcome, sizeof(welcome));
}

bool AttachServer::OnAttachFeed(Connection& connection,
                                const attach::AttachFeed& message) {
  if (is_draining_.load()) {
    return Refuse(connection,
                  absl::UnavailableError("the daemon is shutting down"));
  }
  const auto caller = sessions_->Find(
      absl::string_view(reinterpret_cast<const char*>(message.token),
                        sizeof(message.token)));
  if (!caller.ok()) return Refuse(connection, caller.status());
  if (caller->uid != connection.peer.uid) {
    return Refuse(connection,
                  absl::PermissionDeniedError(
                      "the token belongs to a session of another user"));
  }
  auto descriptors = feeds_->Attach(message.feed_id, caller->session_id);
  if (!descriptors.ok()) return Refuse(connection, descriptors.status());
  --num_new_;
  connection.role = Role::kLease;
  connection.feed_id = message.feed_id;
  CountLeases(1);
  auto attached = NewMessage<attach::Attached>(MessageType::kAttached);
  attached.num_descriptors = static_cast<uint32_t>(descriptors->size());
  return Send(connection.fd.get(), &attached, sizeof(attached), *descriptors);
}

bool AttachServer::OnLeaseMessage(Connection& connection, const void* data,
                                  size_t size) {
  Header header;
  std::memcpy(&header, data, sizeof(header));
  if (header.type == MessageType::kDetached &&
      size == sizeof(attach::Detached)) {
    connection.is_detached = true;
    return false;
  }
  if (header.type == MessageType::kClosing &&
      size == sizeof(attach::Closing)) {
    connection.role = Role::kFarewell;
    feeds_->EndLease(connection.feed_id);
    return true;
  }
  if (header.type == MessageType::kImportResult &&
      size == sizeof(attach::ImportResult)) {
    attach::ImportResult result;
    std::memcpy(&result, data, sizeof(result));
    if (result.is_ok != 0) return true;
    result.reason[sizeof(result.reason) - 1] = '\0';
    counters_.num_failed_imports.fetch_add(1, std::memory_order_relaxed);
    observer_("import failed", connection.peer.uid, connection.peer.pid,
              absl::StrCat("feed ", connection.feed_id, ": ", result.reason));
    connection.is_detached = true;
    return false;
  }
  return Violation(connection, "a message out of order");
}

bool AttachServer::Violation(const Connection& connection, const char* what) {
  counters_.num_violations.fetch_add(1, std::memory_order_relaxed);
  observer_("protocol violation", connection.peer.uid, connection.peer.pid,
            what);
  return false;
}

bool AttachServer::Refuse(const Connection& connection,
                          const absl::Status& status) {
  counters_.num_refused.fetch_add(1, std::memory_order_relaxed);
  observer_("refused", connection.peer.uid, connection.peer.pid,
            status.ToString());
  auto refused = NewMessage<attach::Refused>(MessageType::kRefused);
  refused.status_code = static_cast<uint32_t>(status.code());
  CopyText(std::string(status.message()), refused.reason);
  Send(connection.fd.get(), &refused, sizeof(refused));
  return false;
}

void AttachServer::Close(int fd) {
  const auto found = connections_.find(fd);
  std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  switch (connection->role) {
    case Role::kNew:
      --num_new_;
      break;
    case Role::kSession:
      sessions_->Close(connection->token);
      feeds_->EndSession(connection->session_id);
      datasets_->ReleaseSession(connection->session_id);
      break;
    case Role::kLease:
    case Role::kFarewell: {
      feeds_->EndLease(connection->feed_id);
      const int pidfd = connection->process.get();
      if (!connection->is_detached && pidfd >= 0 && Watch(pidfd)) {
        processes_[pidfd] = {std::move(connection->process),
                             connection->feed_id};
      } else {
        // Or else the process is gone, or out of sight: the connection's end
        // is all there is to know.
        feeds_->FreeSlab(connection->feed_id);
      }
      CountLeases(-1);
      break;
    }
  }
}

void AttachServer::OnProcessEnd(int pidfd) {
  const auto found = processes_.find(pidfd);
  feeds_->FreeSlab(found->second.feed_id);
  processes_.erase(found);
}

void AttachServer::SayFarewells() {
  std::vector<Farewell> farewells;
  {
    MutexLock lock(&mutex_);
    farewells.swap(farewells_);
  }
  for (const Farewell& farewell : farewells) {
    for (auto& [fd, connection] : connections_) {
      const bool is_meant =
          farewell.is_to_sessions
              ? connection->role == Role::kSession
              : connection->role == Role::kLease &&
                    std::find(farewell.feed_ids.begin(),
                              farewell.feed_ids.end(),
                              connection->feed_id) != farewell.feed_ids.end();
      if (!is_meant) continue;
      auto goodbye = NewMessage<attach::Goodbye>(MessageType::kGoodbye);
      goodbye.code = farewell.code;
      CopyText(farewell.reason, goodbye.reason);
      // The connection stays open for Detached.
      Send(fd, &goodbye, sizeof(goodbye));
      if (farewell.is_to_sessions) continue;
      connection->role = Role::kFarewell;
      feeds_->EndLease(connection->feed_id);
    }
  }
}

void AttachServer::ExpireHandshakes() {
  if (num_new_ == 0) return;
  const absl::Time now = absl::Now();
  std::vector<int> expired;
  for (const auto& [fd, connection] : connections_) {
    if (connection->role == Role::kNew && connection->deadline <= now) {
      expired.push_back(fd);
    }
  }
  for (const int fd : expired) {
    Violation(*connections_.at(fd), "nothing within 5 s");
    Close(fd);
  }
}

}  // namespace datasetd
