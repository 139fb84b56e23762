// Lists the regular files in a tar archive with the positions of their
// contents. Extracts nothing.
//
// Strict: ustar with GNU long names and pax headers, correct checksums,
// complete members, two zero blocks at the end and only zeros after them. Skips
// directories and links. Not thread-safe. Buffers one name.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_TAR_WALKER_H_
#define DATASETD_SERVER_READERS_ARCHIVES_TAR_WALKER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/files/random_access_file.h"

namespace datasetd {

struct TarMember {
  std::string name;
  int64_t offset = 0;
  int64_t size_bytes = 0;
};

class TarWalker {
 public:
  // `file` outlives the walker.
  explicit TarWalker(const RandomAccessFile* file) : file_(file) {}

  // Returns the next file; false at the end. Errors name path and offset:
  //   INVALID_ARGUMENT  not a tar archive; an unsupported kind of member; a
  //                     name that is absolute or contains ".."
  //   DATA_LOSS         truncated or damaged
  absl::StatusOr<bool> Next(TarMember* member);

 private:
  template <typename... Parts>
  absl::Status Damaged(const Parts&... parts) const;
  absl::Status Invalid(absl::string_view what) const;
  absl::Status ExpectZeros();
  // Reads the content of an extension header, which applies to the next header.
  absl::StatusOr<std::string> ReadExtension(int64_t size_bytes);
  absl::Status ParsePax(absl::string_view records);

  const RandomAccessFile* const file_;
  int64_t offset_ = 0;  // of the next header
  // Values from extension headers for the next member.
  std::string long_name_;
  int64_t pax_size_bytes_ = -1;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_TAR_WALKER_H_
