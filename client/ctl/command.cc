#include "client/ctl/command.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/connection/error_detail.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {

absl::StatusOr<Client> Command::Connect() const {
  ClientOptions options;
  options.address = flags().address;
  auto client = Client::Connect(options);
  if (client.ok() && !flags().json) {
    std::fputs(NoticeOf(client->address()).c_str(), stderr);
  }
  if (client.ok() ||
      client::DetailOf(client.status()) != client::ErrorDetail::kDaemonGone) {
    return client;
  }
  return client::WithDetail(
      absl::Status(
          client.status().code(),
          absl::StrCat(std::string(client.status().message()),
                       " (here: --address). In Python datasetd.load and "
                       "datasetd.connect() start one, which is found here, "
                       "too; a command gets one of its own by: datasetctl run "
                       "-- COMMAND")),
      client::ErrorDetail::kDaemonGone);
}

std::string NoticeOf(const client::Address& address) {
  if (address.found.empty()) return "";
  std::string text =
      absl::StrCat("datasetctl: using your daemon at ", address.socket_path);
  if (address.found.size() > 1) {
    absl::StrAppend(
        &text, "; choose another by --address: ",
        absl::StrJoin(address.found.begin() + 1, address.found.end(), ", "));
  }
  return text + "\n";
}

int Command::Fail(const absl::Status& status) const {
  return Report(status, ExitCodeOf(status));
}

int Command::FailUsage(const std::string& message) const {
  return Report(absl::InvalidArgumentError(message), kExitUsage);
}

int Command::Report(const absl::Status& status, int exit_code) const {
  if (flags().json) {
    std::fputs(ErrorToJson(status).c_str(), stderr);
  } else {
    std::fprintf(stderr, "datasetctl: %s\n",
                 WithoutControls(status.message()).c_str());
  }
  return exit_code;
}

void Command::Warn(const std::string& text) const {
  std::fprintf(stderr, "datasetctl: warning: %s\n",
               WithoutControls(text).c_str());
}

int Command::Print(const std::string& text) const {
  const std::string& safe = flags().json ? text : WithoutControls(text);
  if (std::fwrite(safe.data(), 1, safe.size(), stdout) == safe.size() &&
      std::fflush(stdout) == 0) {
    return kExitOk;
  }
  return Report(absl::UnavailableError("standard output cannot be written"),
                kExitRefused);
}

}  // namespace datasetd::ctl
