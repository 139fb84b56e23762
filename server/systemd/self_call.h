// Calls the daemon's own gRPC, to notice one that answers nobody.
//
// The call is of no session, so that every daemon that works refuses it; an
// answer of any kind counts. It is judged once it is kCallAge old, and then
// made again; a daemon that is busy may miss one answer. A connection that is
// closed or cannot be made counts as an answer: that is no fault of gRPC. Does
// not block.
//
//   SelfCall self_call(connect, &clock);
//   absl::Status status = self_call.Check();  // with each watchdog check
//
// Not thread-safe.

#ifndef DATASETD_SERVER_SYSTEMD_SELF_CALL_H_
#define DATASETD_SERVER_SYSTEMD_SELF_CALL_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_descriptor.h"

namespace datasetd {

class SelfCall {
 public:
  static constexpr absl::Duration kCallAge = absl::Seconds(10);
  static constexpr int kMaxMissed = 1;

  // Makes a connection to gRPC, a non-blocking stream socket.
  using Connect = std::function<FileDescriptor()>;

  // `clock` outlives the object.
  SelfCall(Connect connect, const Clock* clock)
      : connect_(std::move(connect)), clock_(clock) {}

  // Judges the last call and makes the next if one is due.
  //   DEADLINE_EXCEEDED  more than kMaxMissed calls in a row had no answer
  absl::Status Check();

 private:
  // Reads what has come. Returns whether that is an answer: a frame for the
  // call's stream, or the end of the connection.
  bool HasCome();
  // Connects and sends the call.
  void Begin();

  const Connect connect_;
  const Clock* const clock_;
  FileDescriptor connection_;  // while an answer may come
  bool is_awaited_ = false;
  std::string received_;
  absl::Duration begun_ = -absl::InfiniteDuration();  // monotonic
  int num_missed_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SELF_CALL_H_
