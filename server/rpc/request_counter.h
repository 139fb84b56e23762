// A gRPC interceptor that counts answered RPCs by method and status code. What
// is asked for and not served is one method, kUnknownMethod, since clients
// choose its name. Thread-safe.

#ifndef DATASETD_SERVER_RPC_REQUEST_COUNTER_H_
#define DATASETD_SERVER_RPC_REQUEST_COUNTER_H_

#include <grpcpp/support/server_interceptor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace datasetd {

class RequestCounter {
 public:
  // For example "/datasetd.v1.FeedService/OpenFeed" and a grpc::StatusCode.
  using Key = std::pair<std::string, int>;

  static constexpr char kUnknownMethod[] = "unknown";

  // Counts the methods of these services of the linked protos, by full name,
  // and of gRPC's that the server has.
  explicit RequestCounter(const std::vector<std::string>& services);

  void Count(const char* method, int code);
  std::map<Key, uint64_t> Read() const;

  // For grpc::ServerBuilder. REQUIRES: the counter outlives the gRPC server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  MakeInterceptorFactory();

 private:
  std::set<std::string, std::less<>> methods_;
  mutable Mutex mutex_;
  std::map<Key, uint64_t> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_REQUEST_COUNTER_H_
