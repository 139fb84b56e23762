// Maps gRPC's name of a connection ("fd:7") to its user. Thread-safe.

#ifndef DATASETD_SERVER_RPC_PEER_TABLE_H_
#define DATASETD_SERVER_RPC_PEER_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/mutex.h"

namespace datasetd {

class PeerTable {
 public:
  // Adds a connection by the descriptor that gRPC has for it. The descriptor
  // number must not be reused while a call of this connection may still run.
  void Add(int descriptor, uint32_t uid) {
    MutexLock lock(&mutex_);
    uids_[descriptor] = uid;
  }
  void Remove(int descriptor) {
    MutexLock lock(&mutex_);
    uids_.erase(descriptor);
  }

  // Looks up a value of grpc::ServerContext::peer(). Empty once the connection
  // has ended.
  std::optional<uint32_t> Find(absl::string_view peer) const {
    int descriptor = 0;
    if (!absl::ConsumePrefix(&peer, "fd:") ||
        !absl::SimpleAtoi(peer, &descriptor)) {
      return std::nullopt;
    }
    MutexLock lock(&mutex_);
    const auto found = uids_.find(descriptor);
    if (found == uids_.end()) return std::nullopt;
    return found->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<int, uint32_t> uids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_PEER_TABLE_H_
