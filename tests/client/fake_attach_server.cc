#include "tests/client/fake_attach_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace datasetd::testing {
namespace {

using attach::MessageType;

constexpr std::chrono::seconds kPatience(10);

attach::Header MakeHeader(MessageType type) {
  return {attach::kMagic, attach::kProtocolVersion, type};
}

template <size_t N>
void SetText(char (&target)[N], const std::string& text) {
  memcpy(target, text.data(), std::min(text.size(), N - 1));
}

attach::Goodbye MakeGoodbye(attach::GoodbyeCode code,
                            const std::string& reason) {
  attach::Goodbye goodbye = {};
  goodbye.header = MakeHeader(MessageType::kGoodbye);
  goodbye.code = code;
  SetText(goodbye.reason, reason);
  return goodbye;
}

attach::WeightsAnswer MakeWeightsAnswer(uint32_t code) {
  attach::WeightsAnswer answer = {};
  answer.header = MakeHeader(MessageType::kWeightsAnswer);
  answer.status_code = code;
  if (code != 0) SetText(answer.reason, "weights[1] is -1");
  return answer;
}

void SendDescriptors(int socket, const void* data, size_t size,
                     const std::vector<int>& descriptors) {
  iovec vector = {const_cast<void*>(data), size};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  memcpy(CMSG_DATA(header), descriptors.data(),
         descriptors.size() * sizeof(int));
  (void)!sendmsg(socket, &message, MSG_NOSIGNAL);
}

// Receives a packet, and adds what its descriptors hold, if they are sealed.
ssize_t ReceiveArrays(int socket, char* bytes, size_t size,
                      std::vector<std::string>* arrays) {
  iovec vector = {bytes, size};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (received < 0 || header == nullptr) return received;
  const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (size_t i = 0; i < count; ++i) {
    int fd;
    memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
    const FileDescriptor array(fd);
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat status = {};
    if ((fcntl(fd, F_GET_SEALS) & kSeals) == kSeals) fstat(fd, &status);
    std::string held(static_cast<size_t>(status.st_size), '\0');
    (void)!pread(fd, held.data(), held.size(), 0);
    arrays->push_back(std::move(held));
  }
  return received;
}

}  // namespace

FakeAttachServer::FakeAttachServer(std::string path)
    : path_(std::move(path)),
      listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  memcpy(name.sun_path, path_.c_str(), path_.size() + 1);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) !=
          0 ||
      listen(listener_.get(), 16) != 0) {
    std::perror("fake daemon's socket");
    std::abort();
  }
  acceptor_ = std::thread([this] { Accept(); });
}

FakeAttachServer::~FakeAttachServer() {
  Die();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void FakeAttachServer::Die() {
  if (acceptor_.joinable()) {
    shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    listener_.Reset();
    unlink(path_.c_str());
  }
  const std::lock_guard lock(mutex_);
  for (auto& [id, connection] : connections_) {
    shutdown(connection.fd.get(), SHUT_RDWR);
  }
}

void FakeAttachServer::ForgetSessions() {
  const std::lock_guard lock(mutex_);
  knows_token_ = false;
  for (auto& [id, connection] : connections_) {
    if (connection.is_session) shutdown(connection.fd.get(), SHUT_RDWR);
  }
}

void FakeAttachServer::Accept() {
  for (int id = 0;; ++id) {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const std::lock_guard lock(mutex_);
    connections_[id].fd = FileDescriptor(fd);
    threads_.emplace_back([this, id, fd] { Serve(id, fd); });
  }
}

std::string FakeAttachServer::token() { return "0123456789abcdef"; }

void FakeAttachServer::SendLocked(int fd, const void* data, size_t size) {
  (void)!send(fd, data, size, MSG_NOSIGNAL);
}

void FakeAttachServer::Serve(int id, int fd) {
  char bytes[512];
  for (;;) {
    std::vector<std::string> arrays;
    const ssize_t size = ReceiveArrays(fd, bytes, sizeof(bytes), &arrays);
    if (size < static_cast<ssize_t>(sizeof(attach::Header))) return Close(id);
    attach::Header header;
    memcpy(&header, bytes, sizeof(header));
    const std::lock_guard lock(mutex_);
    switch (header.type) {
      case MessageType::kHello: {
        attach::Welcome welcome = {};
        welcome.header = MakeHeader(MessageType::kWelcome);
        memcpy(welcome.token, token().data(), attach::kTokenBytes);
        switch (answer_) {
          case HelloAnswer::kWelcome: {
            connections_[id].is_session = true;
            int ends[2] = {-1, -1};
            (void)socketpair(
                AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends);
            const FileDescriptor client(ends[0]);
            FileDescriptor server(ends[1]);
            SendDescriptors(fd, &welcome, sizeof(welcome), {client.get()});
            if (serve_ != nullptr) serve_(std::move(server));
            break;
          }
          case HelloAnswer::kNoConnection:
            SendLocked(fd, &welcome, sizeof(welcome));
            break;
          case HelloAnswer::kRefuse: {
            attach::Refused refused = {};
            refused.header = MakeHeader(MessageType::kRefused);
            refused.status_code = 8;  // RESOURCE_EXHAUSTED
            SetText(refused.reason, "max_sessions is 1024");
            SendLocked(fd, &refused, sizeof(refused));
            break;
          }
          case HelloAnswer::kOtherVersion:
            welcome.header.version = 7;
            SendLocked(fd, &welcome, sizeof(welcome));
            break;
          case HelloAnswer::kGarbage:
            SendLocked(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
            break;
          case HelloAnswer::kShortPacket:
            SendLocked(fd, &welcome, sizeof(welcome) - 4);
            break;
          case HelloAnswer::kGoodbye: {
            const attach::Goodbye goodbye =
                MakeGoodbye(attach::GoodbyeCode::kDraining, "SIGTERM");
            SendLocked(fd, &goodbye, sizeof(goodbye));
            break;
          }
          case HelloAnswer::kClose:
            shutdown(fd, SHUT_RDWR);
            break;
          case HelloAnswer::kSilence:
            break;
        }
        break;
      }
      case MessageType::kAttachFeed: {
        memcpy(&attach_request_, bytes, sizeof(attach_request_));
        attach_arrays_ = std::move(arrays);
        if (answer_ == HelloAnswer::kSilence) break;
        if (feed_ == nullptr || !knows_token_) {
          attach::Refused refused = {};
          refused.header = MakeHeader(MessageType::kRefused);
          // UNAUTHENTICATED or NOT_FOUND.
          refused.status_code = knows_token_ ? 5 : 16;
          SetText(refused.reason,
                  knows_token_ ? "no such feed" : "no session has this token");
          SendLocked(fd, &refused, sizeof(refused));
          break;
        }
        connections_[id].is_lease = true;
        std::vector<int> descriptors = {feed_->daemon_page_fd(),
                                        feed_->client_page_fd(),
                                        feed_->event_fd()};
        if (sends_slab_) descriptors.push_back(feed_->slab_fd());
        attach::Attached attached = {};
        attached.header = MakeHeader(MessageType::kAttached);
        attached.num_descriptors = static_cast<uint32_t>(descriptors.size());
        SendDescriptors(fd, &attached, sizeof(attached), descriptors);
        break;
      }
      case MessageType::kSetWeights:
        attach_arrays_ = std::move(arrays);
        if (weights_answer_.has_value()) {
          const attach::WeightsAnswer answer =
              MakeWeightsAnswer(*weights_answer_);
          SendLocked(fd, &answer, sizeof(answer));
        }
        break;
      case MessageType::kImportResult: {
        attach::ImportResult result;
        memcpy(&result, bytes, sizeof(result));
        import_results_.push_back(result);
        changed_.notify_all();
        break;
      }
      case MessageType::kDetached:
        ++num_detached_;
        changed_.notify_all();
        break;
      default:
        break;
    }
  }
}

void FakeAttachServer::Close(int id) {
  const std::lock_guard lock(mutex_);
  connections_.erase(id);
  changed_.notify_all();
}

void FakeAttachServer::SetHelloAnswer(HelloAnswer answer) {
  const std::lock_guard lock(mutex_);
  answer_ = answer;
}

void FakeAttachServer::SetServe(std::function<void(FileDescriptor)> serve) {
  const std::lock_guard lock(mutex_);
  serve_ = std::move(serve);
}

void FakeAttachServer::SetFeed(FakeFeed* feed, bool sends_slab) {
  const std::lock_guard lock(mutex_);
  feed_ = feed;
  sends_slab_ = sends_slab;
}

void FakeAttachServer::SendGoodbye(attach::GoodbyeCode code,
                                   const std::string& reason, bool close) {
  const attach::Goodbye goodbye = MakeGoodbye(code, reason);
  const std::lock_guard lock(mutex_);
  for (auto& [id, connection] : connections_) {
    if (!connection.is_lease) continue;
    SendLocked(connection.fd.get(), &goodbye, sizeof(goodbye));
    if (close) shutdown(connection.fd.get(), SHUT_RDWR);
  }
}

void FakeAttachServer::SetWeightsAnswer(std::optional<uint32_t> code) {
  const std::lock_guard lock(mutex_);
  weights_answer_ = code;
}

void FakeAttachServer::SendWeightsAnswer(uint32_t code) {
  const attach::WeightsAnswer answer = MakeWeightsAnswer(code);
  const std::lock_guard lock(mutex_);
  for (auto& [id, connection] : connections_) {
    if (connection.is_lease) {
      SendLocked(connection.fd.get(), &answer, sizeof(answer));
    }
  }
}

void FakeAttachServer::SendSessionGoodbye(attach::GoodbyeCode code,
                                          const std::string& reason) {
  const attach::Goodbye goodbye = MakeGoodbye(code, reason);
  const std::lock_guard lock(mutex_);
  for (auto& [id, connection] : connections_) {
    if (connection.is_session) {
      SendLocked(connection.fd.get(), &goodbye, sizeof(goodbye));
    }
  }
}

void FakeAttachServer::SendGarbageOnLeases() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, connection] : connections_) {
    if (connection.is_lease) {
      SendLocked(connection.fd.get(), "garbage, not a packet", 21);
    }
  }
}

bool FakeAttachServer::Await(const std::function<bool()>& is_done) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, is_done);
}

bool FakeAttachServer::AwaitDetached(int count) {
  return Await([this, count] { return num_detached_ >= count; });
}

bool FakeAttachServer::AwaitImportResult(int count) {
  return Await([this, count] {
    return import_results_.size() >= static_cast<size_t>(count);
  });
}

bool FakeAttachServer::AwaitNoLeases() {
  return Await([this] {
    return std::none_of(connections_.begin(), connections_.end(),
                        [](const auto& item) { return item.second.is_lease; });
  });
}

int FakeAttachServer::num_sessions() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(
      std::count_if(connections_.begin(), connections_.end(),
                    [](const auto& item) { return item.second.is_session; }));
}

std::vector<attach::ImportResult> FakeAttachServer::import_results() {
  const std::lock_guard lock(mutex_);
  return import_results_;
}

attach::AttachFeed FakeAttachServer::attach_request() {
  const std::lock_guard lock(mutex_);
  return attach_request_;
}

std::vector<std::string> FakeAttachServer::attach_arrays() {
  const std::lock_guard lock(mutex_);
  return attach_arrays_;
}

}  // namespace datasetd::testing
