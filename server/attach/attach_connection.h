// One client's connection to the attach socket: the peer's identity, the
// connection's role, and the messages allowed in that role.
//
//   new -> session            the client sent Hello
//   new -> reading -> lease -> ending
//                             the client named a token and a feed; in reading
//                             its arrays are checked, and a feed without any
//                             skips that; in ending the lease is over, but the
//                             slab may be in use. A lease sets other weights
//                             one after another
//
// Owns the connection and the pidfd of its process. Not thread-safe; no call
// blocks.

#ifndef DATASETD_SERVER_ATTACH_ATTACH_CONNECTION_H_
#define DATASETD_SERVER_ATTACH_ATTACH_CONNECTION_H_

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "proto/attach_protocol.h"
#include "server/attach/session_table.h"

namespace datasetd {

class AttachConnection {
 public:
  enum class Role : uint8_t { kNew, kSession, kReading, kLease, kEnding };

  // The results of Receive. A returned message is allowed in the connection's
  // role and has the right size.
  struct Nothing {};
  struct End {};
  struct OtherVersion {
    uint32_t version;
  };
  struct Violation {
    const char* what;
  };
  using Message =
      std::variant<Nothing, End, OtherVersion, Violation, attach::Hello,
                   attach::AttachFeed, attach::Closing, attach::Detached,
                   attach::ImportResult, attach::SetWeights>;

  // Takes an accepted socket. Null if the peer cannot be identified.
  static std::unique_ptr<AttachConnection> Create(FileDescriptor fd);

  int fd() const { return fd_.get(); }
  // True if the daemon had none left to watch the process with.
  bool lacks_descriptor() const { return lacks_descriptor_; }
  uint32_t uid() const { return uid_; }
  int32_t pid() const { return pid_; }
  Role role() const { return role_; }
  // REQUIRES: a session.
  const SessionToken& token() const { return token_; }
  uint64_t session_id() const { return session_id_; }
  // REQUIRES: reading, or a lease, which may be ending.
  uint64_t feed_id() const { return feed_id_; }

  // Only AttachFeed and SetWeights may come with descriptors, and none may
  // without `takes_descriptors`.
  Message Receive(bool takes_descriptors = true);
  // Those of the last message, also of one that is a Violation. Closing one may
  // take as long as its client likes.
  std::vector<FileDescriptor> TakeDescriptors() {
    return std::exchange(descriptors_, {});
  }
  // True if the daemon had none left for some of them.
  bool lost_descriptors() const { return lost_descriptors_; }
  // Ends the connection for the client. The destructor may take as long as the
  // client likes: it closes the descriptors of messages that were not received.
  void ShutDown() const { shutdown(fd_.get(), SHUT_RDWR); }

  // REQUIRES: new.
  void BecomeReading(uint64_t feed_id) {
    role_ = Role::kReading;
    feed_id_ = feed_id;
  }
  // Each returns false if the client does not take the message. The first
  // REQUIRES: new; the second: new or reading.
  // `requests` is the client's end of its gRPC connection, which is copied.
  bool BecomeSession(const SessionTable::Opened& opened, int requests);
  bool BecomeLease(uint64_t feed_id, absl::Span<const int> descriptors);
  bool SendRefused(const absl::Status& status);
  bool SendGoodbye(attach::GoodbyeCode code, const std::string& reason);
  // REQUIRES: a lease, which may be ending.
  void BecomeEnding() { role_ = Role::kEnding; }
  // SetWeights was received: until it is answered, no further one is allowed.
  void BeginSetWeights() { is_setting_weights_ = true; }
  // Returns false if the client does not take the message.
  bool AnswerSetWeights(const absl::Status& status);

  // The pidfd of the client's process; not open if the process is gone or
  // invisible.
  FileDescriptor TakeProcess() { return std::move(process_); }

 private:
  AttachConnection(FileDescriptor fd, FileDescriptor process,
                   bool lacks_descriptor, uint32_t uid, int32_t pid)
      : fd_(std::move(fd)),
        process_(std::move(process)),
        lacks_descriptor_(lacks_descriptor),
        uid_(uid),
        pid_(pid) {}
  Message Parse(attach::MessageType type, const void* data,
                size_t size_bytes) const;
  // Takes the descriptors of a message that was received.
  void KeepDescriptors(msghdr& message);

  const FileDescriptor fd_;
  FileDescriptor process_;  // pidfd
  std::vector<FileDescriptor> descriptors_;
  bool lost_descriptors_ = false;
  const bool lacks_descriptor_;
  const uint32_t uid_;
  const int32_t pid_;
  Role role_ = Role::kNew;
  bool is_setting_weights_ = false;
  SessionToken token_ = {};
  uint64_t session_id_ = 0;
  uint64_t feed_id_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_ATTACH_CONNECTION_H_
