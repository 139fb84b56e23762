#include "tests/testing/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file_descriptor.h"
#include "base/require.h"
#include "base/shared_mapping.h"

namespace datasetd::testing {

bool HasHugePages(size_t size_bytes) {
  const FileDescriptor file(memfd_create("huge_pages", MFD_CLOEXEC));
  Require(file.has_value(), "a memfd can be made");
  Require(ftruncate(file.get(), static_cast<off_t>(size_bytes)) == 0,
          "it gets its size");
  void* const data = MapShared(file.get(), size_bytes);
  Require(data != MAP_FAILED, "it is mapped");
  constexpr int kAdviceCollapse = 25;
  const bool has = madvise(data, size_bytes, kAdviceCollapse) == 0;
  munmap(data, size_bytes);
  return has;
}

size_t MappingBytes(const void* data, absl::string_view key) {
  const std::string begin =
      absl::StrCat(absl::Hex(reinterpret_cast<uintptr_t>(data)), "-");
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  while (std::getline(maps, line) && line.rfind(begin, 0) != 0) {
  }
  size_t kib = 0;
  bool is_found = false;
  while (!is_found && std::getline(maps, line)) {
    absl::string_view rest = line;
    is_found = absl::ConsumePrefix(&rest, key) &&
               absl::ConsumePrefix(&rest, ":") &&
               absl::ConsumeSuffix(&rest, "kB") && absl::SimpleAtoi(rest, &kib);
  }
  Require(is_found, "smaps has the mapping and the number");
  return 1024 * kib;
}

}  // namespace datasetd::testing
