// A connection to a daemon.
//
//   absl::StatusOr<Client> client = datasetd::Client::Connect({});
//   v1::DatasetSpec spec;
//   spec.set_name("cifar10-train");
//   spec.set_format("cifar10");
//   spec.set_path("/data/cifar-10-batches-bin");
//   absl::StatusOr<v1::Dataset> dataset = client->LoadDataset(spec);
//   v1::FeedOptions options;
//   options.set_dataset("cifar10-train");
//   options.set_batch_size(512);
//   options.set_shuffle(true);
//   absl::StatusOr<Feed> feed = client->OpenFeed(options);
//
// The daemon holds the datasets that a client loaded or got until the client
// releases them or is destroyed. An open feed also holds its dataset; with
// client_order it holds all datasets of its client until it is closed.
// Thread-safe, except for moving. In a child of fork() every call fails, also
// Connect if there was a client at the fork: gRPC does not survive it. Errors
// are those of the daemon, see proto/datasetd/v1; UNAVAILABLE if it is gone.

#ifndef DATASETD_CLIENT_CLIENT_H_
#define DATASETD_CLIENT_CLIENT_H_

#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/address.h"
#include "client/connection/call_limits.h"
#include "client/feed/feed.h"
#include "client/feed/feed_arrays.h"
#include "client/push.h"
#include "datasetd/v1/dataset.pb.h"
#include "datasetd/v1/feed.pb.h"
#include "datasetd/v1/server.pb.h"

namespace datasetd::client {

class Session;

// Copies of samples, as v1::ReadInfo says where they lie.
struct Samples {
  v1::ReadInfo info;
  std::string data;
};

struct ClientOptions {
  // "unix:/path/datasetd.sock" or the path. Empty: $DATASETD_ADDRESS, or if
  // that is unset the system's daemon, or the one that this user's jobs share:
  // see ResolveAddress.
  std::string address;
  absl::Duration connect_timeout = absl::Seconds(10);
  // Timeout of every call except LoadDataset, EstimateLoad and PushDataset,
  // which have none.
  absl::Duration call_timeout = absl::Seconds(60);
  // Called while connecting and during every call. Feeds with client_order keep
  // a copy.
  WaitFunction on_wait = nullptr;
};

class Client {
 public:
  // Called with every progress message, and at least every 100 ms with the
  // latest one. Returning false gives up the call; the daemon cancels a load
  // that no session waits for or holds.
  using ProgressFunction = std::function<bool(const v1::Dataset&)>;
  using EstimateFunction = std::function<bool(const v1::EstimateLoadResponse&)>;

  //   UNAVAILABLE          no daemon is listening
  //   ABORTED              the daemon is draining
  //   PERMISSION_DENIED    this user may not connect
  //   FAILED_PRECONDITION  another protocol version
  static absl::StatusOr<Client> Connect(const ClientOptions& options);

  // Loads a dataset, or attaches to one that another client loaded with an
  // equal spec, and returns it when READY. Makes a relative path absolute.
  // CANCELLED if on_progress returned false.
  absl::StatusOr<v1::Dataset> LoadDataset(
      v1::DatasetSpec spec, const ProgressFunction& on_progress = nullptr);
  // Creates a dataset from samples that the caller sends: see client/push.h.
  // This client must outlive the push. A null `on_wait` means the client's.
  absl::StatusOr<Push> PushDataset(const v1::PushHeader& header,
                                   WaitFunction on_wait = nullptr);
  // Dry run of LoadDataset: estimates its result and memory, loads nothing.
  // CANCELLED if on_progress returned false.
  absl::StatusOr<v1::LoadEstimate> EstimateLoad(
      v1::DatasetSpec spec, const EstimateFunction& on_progress = nullptr);
  absl::StatusOr<v1::Dataset> GetDataset(const std::string& name);
  absl::StatusOr<std::vector<v1::Dataset>> ListDatasets();
  absl::Status UnloadDataset(const std::string& name, bool force = false);
  absl::Status ReleaseDataset(const std::string& name);

  // options.device is a GPU's number in this process, "cuda:1", or its UUID. If
  // it is empty and the dataset has several replicas, that of the GPU which is
  // current in this thread is taken, or else the first.
  //
  // `arrays` restrict the feed to a subset, weight its order or group it.
  // subset_size, num_samples and lists_samples are set from their sizes; the
  // caller may set num_draws of weighted_order, and sets group_order.
  absl::StatusOr<Feed> OpenFeed(const v1::FeedOptions& options,
                                const FeedArrays& arrays = {});
  absl::StatusOr<std::vector<v1::Feed>> ListFeeds();
  absl::StatusOr<v1::GetFeedTransformsResponse> GetFeedTransforms(
      uint64_t feed_id);
  // Takes at most as many samples as the daemon accepts in one call.
  absl::StatusOr<v1::ExplainTransformsResponse> ExplainTransforms(
      const v1::ExplainTransformsRequest& request);

  // Copies samples, without a feed. `timeout` is that of the call; nullopt: the
  // client's.
  absl::StatusOr<Samples> ReadSamples(
      const v1::ReadSamplesRequest& request,
      std::optional<absl::Duration> timeout = std::nullopt);

  absl::StatusOr<v1::GetStatusResponse> GetStatus();

  // Calls the method that takes messages of `request`'s type, for which there
  // need not be a function here. `response` has all pages of a list.
  //
  // REQUIRES: the method is unary and not one of those that only Feed calls;
  // `response` is of the type of its response.
  absl::Status Call(const google::protobuf::Message& request,
                    google::protobuf::Message* response);

  // FAILED_PRECONDITION(kForked) in a child of fork(). Takes no lock.
  absl::Status CheckProcess() const;

  const Address& address() const;

 private:
  Client(std::shared_ptr<Session> session, const ClientOptions& options)
      : session_(std::move(session)),
        limits_{.timeout = options.call_timeout, .on_wait = options.on_wait} {}

  // Shared with the feeds that have client_order.
  std::shared_ptr<Session> session_;
  CallLimits limits_;  // of calls
};

}  // namespace datasetd::client

namespace datasetd {
using client::Client;         // NOLINT: the public names
using client::ClientOptions;  // NOLINT
using client::Push;           // NOLINT
}  // namespace datasetd

#endif  // DATASETD_CLIENT_CLIENT_H_
