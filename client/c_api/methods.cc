#include "client/c_api/methods.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "datasetd/v1/dataset.pb.h"
#include "datasetd/v1/feed.pb.h"
#include "datasetd/v1/server.pb.h"

namespace datasetd::client {

using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

std::vector<const MethodDescriptor*> CallableMethods() {
  const std::set<std::string> of_feeds = {"OpenFeed", "SendIndices"};
  std::vector<const MethodDescriptor*> methods;
  for (const FileDescriptor* const file :
       {v1::Dataset::descriptor()->file(), v1::Feed::descriptor()->file(),
        v1::Device::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const ServiceDescriptor* const service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        const MethodDescriptor* const method = service->method(j);
        if (!method->client_streaming() && !method->server_streaming() &&
            of_feeds.count(method->name()) == 0) {
          methods.push_back(method);
        }
      }
    }
  }
  return methods;
}

absl::StatusOr<const MethodDescriptor*> FindMethod(const std::string& name) {
  const std::vector<const MethodDescriptor*> methods = CallableMethods();
  for (const MethodDescriptor* const method : methods) {
    if (method->name() == name) return method;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "method '", name, "': datasetd_call calls ",
      absl::StrJoin(methods, ", ",
                    [](std::string* text, const MethodDescriptor* method) {
                      text->append(method->name());
                    }),
      "; loads, pushes and feeds have functions of their own"));
}

}  // namespace datasetd::client
