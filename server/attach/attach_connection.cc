#include "server/attach/attach_connection.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/utf8.h"
#include "server/attach/seqpacket.h"

namespace datasetd {
namespace {

using attach::Header;
using attach::MessageType;

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

// Returns a pidfd of the peer's process: from the socket on kernels that
// support it (6.5), else by its pid. Not open if the process is gone or not
// visible.
FileDescriptor PeerProcess(int fd, const ucred& peer) {
  int pidfd = -1;
  socklen_t length = sizeof(pidfd);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
    return FileDescriptor(pidfd);
  }
  if (peer.pid <= 0) return FileDescriptor();
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

// SCM_MAX_FD of the kernel.
constexpr int kMaxRights = 253;

template <typename Out>
Out NewMessage(MessageType type) {
  Out message;
  std::memset(&message, 0, sizeof(message));
  message.header = {attach::kMagic, attach::kProtocolVersion, type};
  return message;
}

// Escapes `from`, which may contain client text; see base/utf8.h.
void CopyText(absl::string_view from, char (&to)[attach::kTextBytes]) {
  const std::string text = PrintableUtf8(from);
  size_t size = std::min(text.size(), sizeof(to) - 1);
  // Do not cut a character in half.
  while (size > 0 && size < text.size() && (text[size] & 0xC0) == 0x80) --size;
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

}  // namespace

std::unique_ptr<AttachConnection> AttachConnection::Create(FileDescriptor fd) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return nullptr;
  }
  errno = 0;
  FileDescriptor process = PeerProcess(fd.get(), peer);
  const bool lacks_descriptor =
      !process.has_value() && (errno == EMFILE || errno == ENFILE);
  return std::unique_ptr<AttachConnection>(new AttachConnection(
      std::move(fd), std::move(process), lacks_descriptor, peer.uid, peer.pid));
}

AttachConnection::Message AttachConnection::Receive(bool takes_descriptors) {
  // One byte more than the largest message, to detect longer ones.
  alignas(8) char buffer[sizeof(attach::ImportResult) + 8];
  iovec part = {buffer, sizeof(buffer)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Room for as many as a message can have: what the kernel has no room for it
  // closes here, which may take long.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxRights)];
  if (takes_descriptors) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  lost_descriptors_ = false;
  const auto receive = [&] {
    return recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  };
  ssize_t size = receive();
  // A client that closes with a GOODBYE unread is reported once as a reset,
  // before the DETACHED that it sent.
  if (size < 0 && errno == ECONNRESET) size = receive();
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Nothing{};
  // An empty packet may have descriptors, too.
  if (size >= 0) KeepDescriptors(message);
  if (size <= 0) return End{};
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    if (!takes_descriptors) return Violation{"descriptors"};
    lost_descriptors_ = true;
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    return Violation{"a message too long"};
  }
  Header header = {};
  if (static_cast<size_t>(size) < sizeof(header)) {
    return Violation{"a message too short"};
  }
  std::memcpy(&header, buffer, sizeof(header));
  if (header.magic != attach::kMagic) {
    return Violation{"a message of another protocol"};
  }
  if (header.version != attach::kProtocolVersion) {
    return OtherVersion{header.version};
  }
  if ((!descriptors_.empty() || lost_descriptors_) &&
      header.type != MessageType::kAttachFeed &&
      header.type != MessageType::kSetWeights) {
    return Violation{"descriptors"};
  }
  return Parse(header.type, buffer, static_cast<size_t>(size));
}

void AttachConnection::KeepDescriptors(msghdr& message) {
  descriptors_.clear();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      descriptors_.emplace_back(fd);
    }
  }
}

AttachConnection::Message AttachConnection::Parse(MessageType type,
                                                  const void* data,
                                                  size_t size_bytes) const {
  Message message = Violation{"a message out of order"};
  const auto accept = [&](auto in, MessageType of, bool is_allowed) {
    if (type != of || size_bytes != sizeof(in) || !is_allowed) return;
    std::memcpy(&in, data, sizeof(in));
    message = in;
  };
  const bool is_new = role_ == Role::kNew;
  const bool is_lease = role_ == Role::kLease || role_ == Role::kEnding;
  accept(attach::Hello(), MessageType::kHello, is_new);
  accept(attach::AttachFeed(), MessageType::kAttachFeed, is_new);
  accept(attach::Detached(), MessageType::kDetached, is_lease);
  accept(attach::Closing(), MessageType::kClosing, is_lease);
  accept(attach::ImportResult(), MessageType::kImportResult, is_lease);
  accept(attach::SetWeights(), MessageType::kSetWeights,
         is_lease && !is_setting_weights_);
  if (auto* const result = std::get_if<attach::ImportResult>(&message)) {
    result->reason[sizeof(result->reason) - 1] = '\0';
  }
  return message;
}

bool AttachConnection::BecomeSession(const SessionTable::Opened& opened,
                                     int requests) {
  role_ = Role::kSession;
  token_ = opened.token;
  session_id_ = opened.session_id;
  auto welcome = NewMessage<attach::Welcome>(MessageType::kWelcome);
  std::copy(token_.begin(), token_.end(), welcome.token);
  return SendSeqpacket(fd(), &welcome, sizeof(welcome), {&requests, 1});
}

bool AttachConnection::BecomeLease(uint64_t feed_id,
                                   absl::Span<const int> descriptors) {
  role_ = Role::kLease;
  feed_id_ = feed_id;
  auto attached = NewMessage<attach::Attached>(MessageType::kAttached);
  attached.num_descriptors = static_cast<uint32_t>(descriptors.size());
  return SendSeqpacket(fd(), &attached, sizeof(attached), descriptors);
}

bool AttachConnection::SendRefused(const absl::Status& status) {
  auto refused = NewMessage<attach::Refused>(MessageType::kRefused);
  refused.status_code = static_cast<uint32_t>(status.code());
  CopyText(status.message(), refused.reason);
  return SendSeqpacket(fd(), &refused, sizeof(refused));
}

bool AttachConnection::AnswerSetWeights(const absl::Status& status) {
  is_setting_weights_ = false;
  auto answer = NewMessage<attach::WeightsAnswer>(MessageType::kWeightsAnswer);
  answer.status_code = static_cast<uint32_t>(status.code());
  CopyText(status.message(), answer.reason);
  return SendSeqpacket(fd(), &answer, sizeof(answer));
}

bool AttachConnection::SendGoodbye(attach::GoodbyeCode code,
                                   const std::string& reason) {
  auto goodbye = NewMessage<attach::Goodbye>(MessageType::kGoodbye);
  goodbye.code = code;
  CopyText(reason, goodbye.reason);
  return SendSeqpacket(fd(), &goodbye, sizeof(goodbye));
}

}  // namespace datasetd
