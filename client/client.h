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
// The daemon keeps the datasets that a client loaded or got until the client
// releases them or is destroyed; an open feed keeps its own, too, and one with
// client_order keeps all that its client had until it is closed. Thread-safe,
// but for moving. Every call fails in a child of fork(). Errors are the
// daemon's, see proto/datasetd/v1; UNAVAILABLE if it is gone.

#ifndef DATASETD_CLIENT_CLIENT_H_
#define DATASETD_CLIENT_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/call_limits.h"
#include "client/connection/session.h"
#include "client/device/cuda_driver.h"
#include "client/feed/feed.h"
#include "client/push.h"
#include "datasetd/v1/dataset.pb.h"
#include "datasetd/v1/feed.pb.h"
#include "datasetd/v1/server.pb.h"

namespace datasetd::client {

struct ClientOptions {
  // "unix:/path/datasetd.sock" or the path; empty means $DATASETD_ADDRESS, and
  // without that /run/datasetd/datasetd.sock.
  std::string address;
  absl::Duration connect_timeout = absl::Seconds(10);
  // Of every call but LoadDataset, which takes as long as it takes.
  absl::Duration call_timeout = absl::Seconds(60);
  // Of every call, and of connecting. Feeds with client_order keep it.
  WaitFunction on_wait = nullptr;
  // Where the CUDA driver is found.
  std::string cuda_library = kCudaLibrary;
};

class Client {
 public:
  // Called with every progress message, and at least every 100 ms with the last
  // one; false cancels this process's wait (the daemon goes on loading), as
  // on_wait of the options does.
  using ProgressFunction = std::function<bool(const v1::Dataset&)>;
  using EstimateFunction = std::function<bool(const v1::EstimateLoadResponse&)>;

  //   UNAVAILABLE          no daemon there
  //   PERMISSION_DENIED    this user may not connect
  //   FAILED_PRECONDITION  another protocol version
  static absl::StatusOr<Client> Connect(const ClientOptions& options);

  // Loads, or attaches to what another client loaded by the same spec, and
  // returns the READY dataset. A relative path is made absolute here.
  // CANCELLED if on_progress returned false.
  absl::StatusOr<v1::Dataset> LoadDataset(
      v1::DatasetSpec spec, const ProgressFunction& on_progress = nullptr);
  // Makes a dataset of samples that the caller sends: see client/push.h. This
  // client outlives the push. `on_wait` is the client's unless it is given.
  absl::StatusOr<Push> PushDataset(const v1::PushHeader& header,
                                   WaitFunction on_wait = nullptr);
  // A dry run of LoadDataset: what it would find and need. Loads nothing.
  // CANCELLED if on_progress returned false.
  absl::StatusOr<v1::LoadEstimate> EstimateLoad(
      v1::DatasetSpec spec, const EstimateFunction& on_progress = nullptr);
  absl::StatusOr<v1::Dataset> GetDataset(const std::string& name);
  absl::StatusOr<std::vector<v1::Dataset>> ListDatasets();
  absl::Status UnloadDataset(const std::string& name, bool force = false);
  absl::Status ReleaseDataset(const std::string& name);

  absl::StatusOr<Feed> OpenFeed(const v1::FeedOptions& options);
  absl::StatusOr<std::vector<v1::Feed>> ListFeeds();
  // As many samples as the daemon takes at a time.
  absl::StatusOr<v1::ExplainTransformsResponse> ExplainTransforms(
      const v1::ExplainTransformsRequest& request);

  absl::StatusOr<v1::GetStatusResponse> GetStatus();

  // FAILED_PRECONDITION(kForked) in a child of fork(). Takes no lock.
  absl::Status CheckProcess() const { return session_->CheckProcess(); }

  const Address& address() const { return session_->address(); }

 private:
  Client(std::shared_ptr<Session> session, const ClientOptions& options)
      : session_(std::move(session)),
        limits_{.timeout = options.call_timeout, .on_wait = options.on_wait},
        cuda_library_(options.cuda_library) {}

  // Shared with the feeds whose order this process makes.
  std::shared_ptr<Session> session_;
  CallLimits limits_;  // of calls
  std::string cuda_library_;
};

}  // namespace datasetd::client

namespace datasetd {
using client::Client;         // NOLINT: the public names
using client::ClientOptions;  // NOLINT
using client::Push;           // NOLINT
}  // namespace datasetd

#endif  // DATASETD_CLIENT_CLIENT_H_
