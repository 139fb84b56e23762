// One client's connection to the attach socket: who is at its other end, what
// it has become, and which messages may come and go.
//
//   new -> session                 it said Hello
//   new -> lease -> farewell       it showed a token and a feed; the lease is
//                                  over, and the slab may still be in use
//
// Owns the connection and the pidfd of its process. Not thread-safe; no call
// waits.

#ifndef DATASETD_SERVER_ATTACH_ATTACH_CONNECTION_H_
#define DATASETD_SERVER_ATTACH_ATTACH_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "proto/attach_protocol.h"
#include "server/attach/session_table.h"

namespace datasetd {

class AttachConnection {
 public:
  enum class Role : uint8_t { kNew, kSession, kLease, kFarewell };

  // What Receive found. Messages of the protocol are those that may come in the
  // connection's role, and have their size.
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
                   attach::ImportResult>;

  // `fd` was accepted. Null if it cannot be known who is there, or when the
  // daemon has no descriptor left to watch the process.
  static std::unique_ptr<AttachConnection> Create(FileDescriptor fd);

  int fd() const { return fd_.get(); }
  uint32_t uid() const { return uid_; }
  int32_t pid() const { return pid_; }
  Role role() const { return role_; }
  // REQUIRES: a session.
  const SessionToken& token() const { return token_; }
  uint64_t session_id() const { return session_id_; }
  // REQUIRES: a lease or a farewell.
  uint64_t feed_id() const { return feed_id_; }

  Message Receive();

  // False if the client does not take it. The first two REQUIRE: new.
  bool BecomeSession(const SessionTable::Opened& opened);
  bool BecomeLease(uint64_t feed_id, absl::Span<const int> descriptors);
  bool SendRefused(const absl::Status& status);
  bool SendGoodbye(attach::GoodbyeCode code, const std::string& reason);
  // REQUIRES: a lease or a farewell.
  void BecomeFarewell() { role_ = Role::kFarewell; }

  // Of the client's process: may not be open, where it is gone or not visible.
  FileDescriptor TakeProcess() { return std::move(process_); }

 private:
  AttachConnection(FileDescriptor fd, FileDescriptor process, uint32_t uid,
                   int32_t pid)
      : fd_(std::move(fd)),
        process_(std::move(process)),
        uid_(uid),
        pid_(pid) {}
  Message Parse(attach::MessageType type, const void* data,
                size_t size_bytes) const;

  const FileDescriptor fd_;
  FileDescriptor process_;  // pidfd
  const uint32_t uid_;
  const int32_t pid_;
  Role role_ = Role::kNew;
  SessionToken token_ = {};
  uint64_t session_id_ = 0;
  uint64_t feed_id_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_ATTACH_CONNECTION_H_
