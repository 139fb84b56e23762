// Children of fork() use their parent's handles, at a moment when the parent's
// other threads hold locks that the child never sees released; and nothing of
// gRPC is left for them when the last client is closed.

#include <grpc/grpc.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/c_api/datasetd.h"
#include "client/client.h"
#include "client/connection/error_detail.h"
#include "client/feed/batch.h"
#include "client/feed/feed.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::FakeDaemon;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::SomeFeed;

constexpr int kNumForks = 50;
constexpr int kNumThreads = 6;
// The time limit of a child, which may hang on a lock.
constexpr unsigned kChildSeconds = 20;

// Runs `work` over and over on threads of its own until it is destroyed.
class Busy {
 public:
  Busy(int num_threads, std::function<void()> work) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this, work] {
        while (!is_done_.load(std::memory_order_relaxed)) work();
      });
    }
  }
  ~Busy() {
    is_done_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> is_done_{false};
  std::vector<std::thread> threads_;
};

// Abseil's library may keep a graph of all locks, behind a lock that every
// Mutex takes when it is locked or destroyed. These threads hold it for most of
// their time.
void LockMany() {
  std::deque<absl::Mutex> mutexes(60);
  for (absl::Mutex& mutex : mutexes) mutex.Lock();
  for (absl::Mutex& mutex : mutexes) mutex.Unlock();
}

// True if a child in which `is_refused` runs ended as it should.
::testing::AssertionResult InChild(const std::function<bool()>& is_refused) {
  const pid_t child = fork();
  if (child < 0) return ::testing::AssertionFailure() << strerror(errno);
  if (child == 0) {
    alarm(kChildSeconds);
    _exit(is_refused() ? 0 : 1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) {
    return ::testing::AssertionFailure() << strerror(errno);
  }
  if (WIFSIGNALED(status)) {
    return ::testing::AssertionFailure()
           << "the child ended by signal " << WTERMSIG(status)
           << (WTERMSIG(status) == SIGALRM ? ": it waited for a lock" : "");
  }
  if (WEXITSTATUS(status) != 0) {
    return ::testing::AssertionFailure() << "a call was not refused";
  }
  return ::testing::AssertionSuccess();
}

bool IsForked(const absl::Status& status) {
  return DetailOf(status) == ErrorDetail::kForked;
}

// The first of the tests: gRPC was not started here, and the daemon starts its
// own in a child.
TEST(ForkTest, TheEndOfTheLastClientIsTheEndOfGrpc) {
  ASSERT_FALSE(grpc_is_initialized());
  int addresses[2];
  int ends[2];
  ASSERT_EQ(pipe(addresses), 0);
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(ends[1]);
    {
      const FakeDaemon daemon;
      const std::string address = daemon.address();
      char end;
      if (write(addresses[1], address.data(), address.size()) < 0 ||
          read(ends[0], &end, 1) != 0) {
        _exit(1);
      }
    }
    _exit(0);
  }
  close(addresses[1]);
  char address[256];
  const ssize_t size = read(addresses[0], address, sizeof(address));
  ASSERT_GT(size, 0);
  ClientOptions options;
  options.address = std::string(address, size);
  auto client = Client::Connect(options);
  ASSERT_THAT(client, IsOk());
  ASSERT_THAT(client->GetStatus(), IsOk());

  // Stands for a call whose last reference a thread of gRPC's has.
  grpc_init();
  absl::Notification is_closed;
  std::thread closer([&] {
    { const Client gone = *std::move(client); }
    is_closed.Notify();
    EXPECT_FALSE(grpc_is_initialized());
  });
  EXPECT_FALSE(
      is_closed.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
  grpc_shutdown();
  closer.join();

  close(ends[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int fd : {addresses[0], ends[0]}) close(fd);
}

TEST(ForkTest, ChildIsRefusedWhateverLocksItsParentHeld) {
  FakeDaemon daemon;
  ClientOptions options;
  options.address = daemon.address();
  auto client = Client::Connect(options);
  ASSERT_THAT(client, IsOk());
  ASSERT_THAT(client->GetStatus(), IsOk());
  {
    const Busy busy(kNumThreads, LockMany);
    for (int i = 0; i < kNumForks; ++i) {
      ASSERT_TRUE(InChild([&client] {
        const bool is_refused =
            IsForked(client->GetStatus().status()) &&
            IsForked(client->OpenFeed(SomeFeed()).status()) &&
            IsForked(client->LoadDataset({}).status()) &&
            IsForked(client->EstimateLoad({}).status()) &&
            IsForked(client->PushDataset({}, nullptr).status()) &&
            IsForked(client->UnloadDataset("fake", false));
        { const Client gone = *std::move(client); }
        return is_refused;
      })) << "fork "
          << i;
    }
  }
  // The parent goes on, with its session.
  EXPECT_THAT(client->GetStatus(), IsOk());
  EXPECT_EQ(daemon.attach().num_sessions(), 1);
}

TEST(ForkTest, ChildsFeedAndBatchAreInert) {
  FakeDaemon daemon;
  ClientOptions options;
  options.address = daemon.address();
  auto client = Client::Connect(options);
  ASSERT_THAT(client, IsOk());
  auto feed = client->OpenFeed(SomeFeed());
  ASSERT_THAT(feed, IsOk());
  ASSERT_TRUE(daemon.feed().PublishRows(3, 1));
  auto batch = feed->Next(0, absl::ZeroDuration());
  ASSERT_THAT(batch, IsOk());
  const Busy busy(kNumThreads, LockMany);
  for (int i = 0; i < kNumForks; ++i) {
    ASSERT_TRUE(InChild([&] {
      const bool is_refused =
          IsForked(feed->Next(0, absl::ZeroDuration()).status()) &&
          IsForked(feed->Seek(1, 0)) && IsForked(feed->SendIndices({})) &&
          IsForked(batch->RecordStream(7));
      { const Batch gone = *std::move(batch); }
      { const Feed gone = *std::move(feed); }
      return is_refused;
    })) << "fork "
        << i;
  }
  EXPECT_EQ(daemon.feed().num_held(), 1u);
  batch = absl::CancelledError("dropped");
  EXPECT_EQ(daemon.feed().num_held(), 0u);
}

TEST(ForkTest, ChildsCApiReadsNoJson) {
  FakeDaemon daemon;
  datasetd_client_options options = {};
  options.struct_size = sizeof(options);
  const std::string address = daemon.address();
  options.address = address.c_str();
  datasetd_error error = {};
  error.struct_size = sizeof(error);
  datasetd_client* client = nullptr;
  ASSERT_EQ(datasetd_client_connect(&options, &client, &error), DATASETD_OK)
      << error.message;
  // Reading JSON takes the lock of protobuf's descriptors.
  auto busy = std::make_unique<Busy>(kNumThreads, [client] {
    EXPECT_EQ(datasetd_call(client, "ExplainTransforms", R"({"no_such": 1})",
                            nullptr, nullptr),
              DATASETD_INVALID_ARGUMENT);
  });
  for (int i = 0; i < kNumForks; ++i) {
    ASSERT_TRUE(InChild([client] {
      datasetd_error error = {};
      error.struct_size = sizeof(error);
      char* json = nullptr;
      datasetd_feed* feed = nullptr;
      datasetd_push* push = nullptr;
      const std::function<int32_t()> calls[] = {
          [&] {
            return datasetd_load_dataset(client, "{}", nullptr, nullptr, &json,
                                         &error);
          },
          [&] {
            return datasetd_estimate_load(client, "{}", nullptr, nullptr, &json,
                                          &error);
          },
          [&] {
            return datasetd_push_begin(client, "{}", nullptr, nullptr, &push,
                                       &error);
          },
          [&] {
            return datasetd_call(client, "GetStatus", "{}", &json, &error);
          },
          [&] {
            return datasetd_feed_open(client, "{}", nullptr, &feed, &json,
                                      &error);
          },
      };
      for (const auto& call : calls) {
        error.detail = 0;
        if (call() != DATASETD_FAILED_PRECONDITION ||
            error.detail != DATASETD_DETAIL_FORKED) {
          return false;
        }
      }
      datasetd_client_close(client);
      return true;
    })) << "fork "
        << i;
  }
  busy.reset();  // its threads use the client
  datasetd_client_close(client);
}

}  // namespace
}  // namespace datasetd::client
