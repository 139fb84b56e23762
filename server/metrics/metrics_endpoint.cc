#include "server/metrics/metrics_endpoint.h"

#include <netinet/in.h>
#include <poll.h>
#include <prometheus/text_serializer.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/background_thread.h"

namespace datasetd {
namespace {

constexpr size_t kMaxConnections = 512;
constexpr size_t kMaxRequestBytes = 8 << 10;
constexpr int kBacklog = 1024;
constexpr absl::Duration kRequestTimeout = absl::Seconds(1);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(2);
constexpr int kTickMilliseconds = 100;
// The rate at which pages are made. Requests beyond it get the last page.
constexpr double kPageBurst = 200;
constexpr double kPagesPerSecond = 20;
constexpr char kEndOfRequest[] = "\r\n\r\n";

std::string Http(const char* status, absl::string_view body) {
  return absl::StrCat(
      "HTTP/1.1 ", status,
      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
      "\r\nContent-Length: ",
      body.size(), "\r\nConnection: close\r\n\r\n", body);
}

absl::StatusOr<FileDescriptor> ListenLocally(uint32_t port) {
  FileDescriptor fd(
      socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd.has_value() &&
      setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
           sizeof(address)) == 0 &&
      listen(fd.get(), kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  return absl::UnavailableError(
      absl::StrCat("metrics_port: cannot listen on 127.0.0.1:", port,
                   "; is the port taken? choose another, or 0 for no metrics (",
                   strerror(error), ")"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    uint32_t port, std::shared_ptr<prometheus::Collectable> metrics,
    const Clock* clock) {
  auto listener = ListenLocally(port);
  if (!listener.ok()) return listener.status();
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.has_value()) {
    return absl::ErrnoToStatus(errno, "metrics: eventfd");
  }
  std::unique_ptr<MetricsEndpoint> endpoint(new MetricsEndpoint(
      *std::move(listener), std::move(stop), std::move(metrics), clock));
  endpoint->thread_ = std::thread([e = endpoint.get()] { e->Run(); });
  return endpoint;
}

MetricsEndpoint::MetricsEndpoint(
    FileDescriptor listener, FileDescriptor stop,
    std::shared_ptr<prometheus::Collectable> metrics, const Clock* clock)
    : listener_(std::move(listener)),
      stop_(std::move(stop)),
      metrics_(std::move(metrics)),
      clock_(clock),
      pages_(kPageBurst, kPagesPerSecond, clock->Monotonic()) {}

MetricsEndpoint::~MetricsEndpoint() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void MetricsEndpoint::Run() {
  BecomeBackgroundThread("metrics");
  std::vector<pollfd> waits;
  while (true) {
    waits.assign({{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
    for (const Connection& connection : connections_) {
      waits.push_back(
          {connection.fd.get(),
           static_cast<short>(connection.answer == nullptr ? POLLIN : POLLOUT),
           0});
    }
    poll(waits.data(), waits.size(),
         connections_.empty() ? -1 : kTickMilliseconds);
    if (waits[0].revents != 0) return;
    const absl::Duration now = clock_->Monotonic();
    is_page_current_ = false;
    auto wait = waits.begin() + 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++wait) {
      const bool is_open =
          wait->revents == 0
              ? now < it->deadline
              : (it->answer == nullptr ? Read(*it, now) : Write(*it));
      it = is_open ? std::next(it) : connections_.erase(it);
    }
    if (waits[1].revents != 0) Accept(now);
  }
}

void MetricsEndpoint::Accept(absl::Duration now) {
  FileDescriptor fd(
      accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.has_value()) {
    // Out of descriptors: close the oldest connection, or wait.
    if (!connections_.empty()) connections_.pop_front();
    pollfd stop = {stop_.get(), POLLIN, 0};
    poll(&stop, 1, kTickMilliseconds);
    return;
  }
  if (connections_.size() >= kMaxConnections) connections_.pop_front();
  connections_.push_back(
      {.fd = std::move(fd), .deadline = now + kRequestTimeout});
  // A scraper's request usually arrives with the connection.
  if (!Read(connections_.back(), now)) connections_.pop_back();
}

bool MetricsEndpoint::Read(Connection& connection, absl::Duration now) {
  char bytes[2048];
  const ssize_t size = recv(connection.fd.get(), bytes, sizeof(bytes), 0);
  if (size < 0) return errno == EAGAIN && now < connection.deadline;
  std::string& request = connection.request;
  request.append(bytes, static_cast<size_t>(size));
  if (size == 0 || request.size() > kMaxRequestBytes) return false;
  if (request.find(kEndOfRequest) == std::string::npos) {
    return now < connection.deadline;
  }
  connection.answer = Answer(request);
  connection.deadline = now + kAnswerTimeout;
  return Write(connection);
}

bool MetricsEndpoint::Write(Connection& connection) const {
  const absl::string_view rest =
      absl::string_view(*connection.answer).substr(connection.sent_bytes);
  const ssize_t size = send(connection.fd.get(), rest.data(), rest.size(),
                            MSG_NOSIGNAL | MSG_DONTWAIT);
  if (size < 0) return errno == EAGAIN;
  connection.sent_bytes += static_cast<size_t>(size);
  return connection.sent_bytes < connection.answer->size();
}

std::shared_ptr<const std::string> MetricsEndpoint::Answer(
    const std::string& request) {
  if (absl::StartsWith(request, "GET /metrics ") ||
      absl::StartsWith(request, "GET /metrics?")) {
    return Page();
  }
  return std::make_shared<const std::string>(
      absl::StartsWith(request, "GET ")
          ? Http("404 Not Found", "the metrics are at /metrics\n")
          : Http("405 Method Not Allowed", "GET /metrics\n"));
}

std::shared_ptr<const std::string> MetricsEndpoint::Page() {
  const absl::Duration now = clock_->Monotonic();
  if (page_ == nullptr ||
      (!is_page_current_ && pages_.TimeToPay(now) == absl::ZeroDuration())) {
    pages_.Take(1, now);
    is_page_current_ = true;
    page_ = std::make_shared<const std::string>(Http(
        "200 OK", prometheus::TextSerializer().Serialize(metrics_->Collect())));
  }
  return page_;
}

}  // namespace datasetd
