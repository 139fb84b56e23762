// The regular files in a tar archive: names and where their bytes lie. Nothing
// is unpacked.
//
// Strict: ustar with GNU's long names and pax headers, checksums right, every
// member whole, two blocks of zeros at the end and nothing but zeros after
// them. Directories and links are passed over. Not thread-safe. Holds one name.

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

  // The next file; false at the end. Errors name path and offset:
  //   INVALID_ARGUMENT  no tar archive; a kind of member that is not read; a
  //                     name that is absolute or holds ".."
  //   DATA_LOSS         truncated or damaged
  absl::StatusOr<bool> Next(TarMember* member);

 private:
  template <typename... Parts>
  absl::Status Damaged(const Parts&... parts) const;
  absl::Status Invalid(absl::string_view what) const;
  absl::Status ExpectZeros();
  // Reads the content of a header that says something about the next one.
  absl::StatusOr<std::string> ReadExtension(int64_t size_bytes);
  absl::Status ParsePax(absl::string_view records);

  const RandomAccessFile* const file_;
  int64_t offset_ = 0;  // of the next header
  // What extensions said about the next member.
  std::string long_name_;
  int64_t pax_size_bytes_ = -1;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_TAR_WALKER_H_
