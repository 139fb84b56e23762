// Input: what clients do to the attach socket. Commands, of a byte and what it
// needs: see Run. After each input a good client is served and all is given
// back.

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "cuda/host/host_backend.h"
#include "proto/attach_protocol.h"
#include "server/attach/attach_server.h"
#include "server/attach/ring_channel.h"
#include "server/attach/seqpacket.h"
#include "server/rpc/rpc_gate.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/sealed_memory.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using attach::MessageType;

constexpr int kNumConnections = 4;
constexpr int kMaxCommands = 60;
// The daemon watches the process of a client that did not say Detached, with a
// descriptor for each lease, and this one does not end.
constexpr int kInputsPerWorld = 100;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "attach_fuzz: %s (%s)\n", what, std::strerror(errno));
  abort();
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool is_empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  std::string Bytes(size_t count) {
    count = std::min(count, size_);
    const std::string bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    size_ -= count;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

template <typename Message>
std::string Packet(Message message, MessageType type) {
  message.header = {attach::kMagic, attach::kProtocolVersion, type};
  return std::string(reinterpret_cast<const char*>(&message), sizeof(message));
}

// The daemon's attach socket over a dataset of ten samples.
class World {
 public:
  World() {
    rlimit limit;
    Check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    Check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    std::vector<ServedDevice> devices(1);
    devices[0].backend = CreateHostBackend({.num_threads = 1});
    devices[0].budget = std::make_unique<MemoryBudget>(64 << 20);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    datasets_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{}, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          return std::make_unique<testing::FakeSource>(10, 1, spec.path(), 7,
                                                       &gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
    Check(testing::Load(*datasets_, testing::NamedSpec("a"),
                        {.session_id = 1u << 30})
              .ok(),
          "load");
    Check(testing::AwaitLoaded(*datasets_, "a", absl::Seconds(30))->state ==
              DatasetState::kReady,
          "dataset");
    auto feeds = FeedTable::Create(
        {}, devices_.get(), datasets_.get(), &RingChannel::Create, &clock_,
        [](const char*, const FeedInfo&) {},
        [](uint64_t, absl::Status) { Check(false, "the device failed"); });
    Check(feeds.ok(), "feeds");
    feeds_ = *std::move(feeds);
    auto gate = RpcGate::Start({.max_calls_per_user = 24,
                                .num_running = [](uint32_t) { return 0; },
                                .clock = &clock_,
                                .serve = [](uint64_t, FileDescriptor) {},
                                .on_end = [](uint64_t, const std::string&) {},
                                .observer = [](const char*, uint32_t, int32_t,
                                               const std::string&) {}});
    Check(gate.ok(), "gate");
    rpc_gate_ = *std::move(gate);
    path_ = directory_.File("datasetd.sock");
    auto listener = ListenUnix(path_, SOCK_SEQPACKET);
    Check(listener.ok(), "listen");
    auto server = AttachServer::Start(
        *std::move(listener), &sessions_, rpc_gate_.get(), feeds_.get(),
        datasets_.get(),
        [](const char*, uint32_t, int32_t, absl::FunctionRef<std::string()>) {},
        nullptr);
    Check(server.ok(), "start");
    server_ = *std::move(server);
  }

  void Run(Input& input) {
    for (int i = 0; i < kMaxCommands && !input.is_empty(); ++i) {
      const uint8_t command = input.Byte();
      int& fd = connections_[command / 16 % kNumConnections];
      if (fd < 0) fd = Connect();
      switch (command % 16) {
        case 0:
          Send(fd, input.Bytes(input.Byte()));
          break;
        case 1:
          SendWeights(fd,
                      Packet(attach::SetWeights(), MessageType::kSetWeights),
                      input);
          break;
        case 2:
          Send(fd, input.Bytes(600));
          break;
        case 3:
        case 4:
          Send(fd, Packet(attach::Hello(), MessageType::kHello));
          ReadToken(fd);
          break;
        case 5:
          Send(fd, AttachPacket(OpenFeed()));
          break;
        case 6:  // of a weighted feed
          SendWeights(fd, AttachPacket(OpenFeed(0, /*is_weighted=*/true)),
                      input);
          break;
        case 7: {  // nearly right
          attach::AttachFeed message = {};
          std::copy(token_.begin(), token_.end(), message.token);
          message.token[input.Byte() % attach::kTokenBytes] ^= input.Byte();
          message.feed_id = last_feed_id_ + input.Byte() - 1;
          Send(fd, Packet(message, MessageType::kAttachFeed));
          break;
        }
        case 8: {
          attach::ImportResult message = {};
          message.is_ok = input.Byte() % 2;
          const std::string reason = input.Bytes(input.Byte());
          std::memcpy(message.reason, reason.data(),
                      std::min(reason.size(), sizeof(message.reason)));
          Send(fd, Packet(message, MessageType::kImportResult));
          break;
        }
        case 9:
          Send(fd, Packet(attach::Closing(), MessageType::kClosing));
          break;
        case 10:
          Send(fd, Packet(attach::Detached(), MessageType::kDetached));
          break;
        case 11: {  // a right header, and more
          const auto type = static_cast<MessageType>(input.Byte() % 13);
          Send(fd, Packet(attach::Hello(), type) + input.Bytes(input.Byte()));
          break;
        }
        case 12:
          SendDescriptors(fd, Packet(attach::Hello(), MessageType::kHello),
                          std::vector<int>(input.Byte() % 8, fd));
          break;
        case 14:
          SendArrays(fd, input);
          break;
        case 13:
          Drain(fd);
          break;
        default:
          close(fd);
          fd = -1;
          break;
      }
    }
    Settle();
  }

 private:
  int Connect() const {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    Check(fd >= 0, "socket");
    Check(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
              0,
          "connect");
    return fd;
  }

  static void Send(int fd, const std::string& packet) {
    // Empty packets look like the end of the connection.
    if (packet.empty()) return;
    (void)send(fd, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  static void SendDescriptors(int fd, std::string packet,
                              const std::vector<int>& descriptors) {
    iovec part = {packet.data(), packet.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const size_t size_bytes = descriptors.size() * sizeof(int);
    if (!descriptors.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(size_bytes);
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(size_bytes);
      std::memcpy(CMSG_DATA(header), descriptors.data(), size_bytes);
    }
    (void)sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  std::string AttachPacket(uint64_t feed_id) const {
    attach::AttachFeed message = {};
    std::copy(token_.begin(), token_.end(), message.token);
    message.feed_id = feed_id;
    return Packet(message, MessageType::kAttachFeed);
  }

  // Sends the weights of ten samples, with as many numbers, seals and
  // descriptors as the input says.
  static void SendWeights(int fd, const std::string& packet, Input& input) {
    const uint8_t how = input.Byte();
    std::vector<double> weights(10 + (how & 1) - (how >> 1 & 1));
    for (double& weight : weights) weight = input.Byte() - 1;
    const FileDescriptor array = testing::SealedMemory(
        weights, (how & 4) != 0 ? F_SEAL_SHRINK : testing::kArraySeals);
    SendDescriptors(
        fd, packet,
        std::vector<int>((how & 8) != 0 ? how >> 4 & 7 : 1, array.get()));
  }

  // Attaches a feed of a subset of two samples, with as many numbers, seals and
  // descriptors as the input says.
  void SendArrays(int fd, Input& input) {
    const std::string packet = AttachPacket(OpenFeed(/*subset_size=*/2));
    const uint8_t how = input.Byte();
    std::vector<int64_t> indices(2 + (how & 1) - (how >> 1 & 1));
    for (int64_t& index : indices) index = input.Byte() % 12 - 1;
    const FileDescriptor array = testing::SealedMemory(
        indices, (how & 4) != 0 ? F_SEAL_SHRINK : testing::kArraySeals);
    SendDescriptors(
        fd, packet,
        std::vector<int>((how & 8) != 0 ? how >> 4 & 7 : 1, array.get()));
  }

  // Descriptors that come along are not taken.
  static void Drain(int fd) {
    char buffer[512];
    while (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0) {
    }
  }

  // False if the connection ends without a Welcome.
  bool ReadToken(int fd) {
    attach::Welcome welcome;
    for (;;) {
      const ssize_t size = recv(fd, &welcome, sizeof(welcome), 0);
      // The fuzzer has an alarm.
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return false;
      if (size != sizeof(welcome) ||
          welcome.header.type != MessageType::kWelcome) {
        continue;
      }
      std::copy(std::begin(welcome.token), std::end(welcome.token),
                token_.begin());
      return true;
    }
  }

  absl::StatusOr<Caller> FindSession() const {
    return sessions_.Find(absl::string_view(
        reinterpret_cast<const char*>(token_.data()), token_.size()));
  }

  // For the session of the last token, as FeedService does it; 0 if it has
  // ended.
  uint64_t OpenFeed(uint64_t subset_size = 0, bool is_weighted = false) {
    const auto caller = FindSession();
    if (!caller.ok()) return 0;
    v1::OpenFeedRequest request;
    request.mutable_options()->set_dataset("a");
    request.mutable_options()->set_batch_size(2);
    request.mutable_options()->set_prefetch(1);
    request.mutable_options()->set_subset_size(subset_size);
    if (is_weighted) {
      request.mutable_options()->mutable_weighted_order()->set_num_samples(10);
    }
    const auto opened = feeds_->Open(request, *caller);
    // The budget has room for as many as an input can open at once.
    Check(opened.ok() || absl::IsResourceExhausted(opened.status()), "open");
    if (!opened.ok()) return 0;
    if (!FindSession().ok()) feeds_->EndSession(caller->session_id);
    last_feed_id_ = opened->feed_id();
    return opened->feed_id();
  }

  void Settle() {
    for (int& fd : connections_) {
      if (fd >= 0) close(fd);
      fd = -1;
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(4);
    const MemoryBudget& budget = *devices_->devices()[0].budget;
    for (;;) {
      // The answer comes after all that was sent before.
      const int fd = Connect();
      Send(fd, Packet(attach::Hello(), MessageType::kHello));
      Check(ReadToken(fd), "a good client is not welcome");
      close(fd);
      // Processes of clients that did not say Detached end here.
      for (const FeedInfo& info : feeds_->List()) {
        if (info.phase == FeedPhase::kEnding ||
            info.phase == FeedPhase::kLingering) {
          feeds_->FreeSlab(info.feed.feed_id());
        }
      }
      // What reads the arrays of a feed that has ended returns their memory.
      if (feeds_->num_feeds() == 0 && sessions_.num_sessions() <= 1 &&
          budget.used_bytes_of_kind(MemoryKind::kScratch) == 0) {
        break;
      }
      Check(absl::Now() < deadline, "something stayed behind");
    }
    Check(budget.used_bytes_of_kind(MemoryKind::kSlab) == 0, "slab");
  }

  testing::SourceGate gate_;
  FakeClock clock_;
  testing::TempDir directory_{testing::TempDir::Place::kShortPath};
  std::string path_;
  SessionTable sessions_{64, 64};
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> datasets_;
  std::unique_ptr<FeedTable> feeds_;
  std::unique_ptr<RpcGate> rpc_gate_;
  std::unique_ptr<AttachServer> server_;
  std::array<int, kNumConnections> connections_ = {-1, -1, -1, -1};
  SessionToken token_ = {};
  uint64_t last_feed_id_ = 0;
};

}  // namespace
}  // namespace datasetd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::unique_ptr<datasetd::World> world;
  static int num_inputs = 0;
  if (num_inputs++ % datasetd::kInputsPerWorld == 0) {
    world.reset();
    world = std::make_unique<datasetd::World>();
  }
  datasetd::Input input(data, size);
  world->Run(input);
  return 0;
}
