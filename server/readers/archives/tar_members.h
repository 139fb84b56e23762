// Lists the regular files in a tar archive with the positions of their
// contents, by libarchive. Extracts nothing.
//
// Reads v7, ustar, GNU and pax archives. Stricter than libarchive: the archive
// has its two blocks of zeros and nothing after them, members are complete, and
// no member is sparse. Skips directories and links. Not thread-safe. The
// headers of one member have at most 72 KiB, so that memory and time are
// bounded.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_TAR_MEMBERS_H_
#define DATASETD_SERVER_READERS_ARCHIVES_TAR_MEMBERS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/files/random_access_file.h"

// libarchive's.
struct archive;
struct archive_entry;

namespace datasetd {

struct TarMember {
  std::string name;
  int64_t offset = 0;
  int64_t size_bytes = 0;
};

class TarMembers {
 public:
  // `file` outlives this object. Reads it forwards only.
  explicit TarMembers(const RandomAccessFile* file);
  ~TarMembers();

  // Returns the next file; false at the end. Not to be called after an error.
  // Errors name path and offset:
  //   INVALID_ARGUMENT    not a tar archive; an unsupported kind of member; a
  //                       name that is absolute or contains ".."
  //   DATA_LOSS           truncated or damaged
  //   RESOURCE_EXHAUSTED  libarchive got no memory
  absl::StatusOr<bool> Next(TarMember* member);

 private:
  class Stream;
  struct FreeArchive {
    void operator()(struct archive* archive) const;
  };

  template <typename... Parts>
  absl::Status Damaged(const Parts&... parts) const;
  template <typename... Parts>
  absl::Status Invalid(const Parts&... parts) const;
  absl::Status Open();
  // Reads the headers of the next entry; false at the end.
  absl::StatusOr<bool> NextEntry();
  // Sets the member to the entry; false if the entry is passed over.
  absl::StatusOr<bool> Take(TarMember* member);
  absl::Status CheckEnd();

  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<struct archive, FreeArchive> archive_;
  struct archive_entry* entry_ = nullptr;  // owned by archive_
  bool is_open_ = false;
  int64_t header_offset_ = 0;  // of the entry's first header
  int64_t next_offset_ = -1;   // of the next one; -1: unknown
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_TAR_MEMBERS_H_
