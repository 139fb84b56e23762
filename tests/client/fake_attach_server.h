// A daemon's socket that answers as the test says. One thread a connection.

#ifndef DATASETD_TESTS_CLIENT_FAKE_ATTACH_SERVER_H_
#define DATASETD_TESTS_CLIENT_FAKE_ATTACH_SERVER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/file_descriptor.h"
#include "proto/attach_protocol.h"
#include "tests/client/fake_feed.h"

namespace datasetd::testing {

class FakeAttachServer {
 public:
  // How HELLO is answered; with silence ATTACH_FEED, too.
  enum class HelloAnswer {
    kWelcome,
    kRefuse,
    kOtherVersion,
    kGarbage,
    kShortPacket,
    kNoConnection,
    kGoodbye,
    kClose,
    kSilence,
  };

  explicit FakeAttachServer(std::string path);
  ~FakeAttachServer();

  void SetHelloAnswer(HelloAnswer answer);
  // Takes the daemon's end of each session's gRPC connection; without it they
  // are closed.
  void SetServe(std::function<void(FileDescriptor)> serve);
  // Sets the feed that ATTACH_FEED gets; null refuses with NOT_FOUND. The feed
  // outlives the server's use of it: SetFeed(nullptr) or the server's end.
  void SetFeed(FakeFeed* feed, bool sends_slab = true);

  // How SET_WEIGHTS is answered: by an absl code, 0 is success; nullopt: not.
  void SetWeightsAnswer(std::optional<uint32_t> code);
  // Sends such an answer to every lease.
  void SendWeightsAnswer(uint32_t code);

  // Sends GOODBYE to every lease, and then closes it if `close`.
  void SendGoodbye(attach::GoodbyeCode code, const std::string& reason,
                   bool close = true);
  // Sends GOODBYE to every session.
  void SendSessionGoodbye(attach::GoodbyeCode code, const std::string& reason);
  void SendGarbageOnLeases();
  // Closes all connections and the listener, as a dying process does.
  void Die();
  // Closes all sessions, and refuses ATTACH_FEED with UNAUTHENTICATED, as the
  // next daemon on the same listener does.
  void ForgetSessions();

  static std::string token();
  // Waits; false after 10 s.
  bool AwaitDetached(int count);
  bool AwaitImportResult(int count);
  bool AwaitNoLeases();
  int num_sessions();
  std::vector<attach::ImportResult> import_results();
  // The last ATTACH_FEED, and what its descriptors hold, or those of the last
  // SET_WEIGHTS.
  attach::AttachFeed attach_request();
  std::vector<std::string> attach_arrays();

 private:
  void Accept();
  void Serve(int id, int fd);
  void Close(int id);
  void SendLocked(int fd, const void* data, size_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Await(const std::function<bool()>& is_done);

  const std::string path_;
  FileDescriptor listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  HelloAnswer answer_ ABSL_GUARDED_BY(mutex_) = HelloAnswer::kWelcome;
  std::function<void(FileDescriptor)> serve_ ABSL_GUARDED_BY(mutex_);
  FakeFeed* feed_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool sends_slab_ ABSL_GUARDED_BY(mutex_) = true;
  bool knows_token_ ABSL_GUARDED_BY(mutex_) = true;
  std::optional<uint32_t> weights_answer_ ABSL_GUARDED_BY(mutex_) = 0;
  struct Connection {
    FileDescriptor fd;
    bool is_session = false;
    bool is_lease = false;
  };
  std::map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::vector<attach::ImportResult> import_results_ ABSL_GUARDED_BY(mutex_);
  attach::AttachFeed attach_request_ ABSL_GUARDED_BY(mutex_) = {};
  std::vector<std::string> attach_arrays_ ABSL_GUARDED_BY(mutex_);
  int num_detached_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread acceptor_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CLIENT_FAKE_ATTACH_SERVER_H_
