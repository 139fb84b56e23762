// Records durably which datasets are being read for a restore, so that the next
// daemon knows which one may have crashed this one. Thread-safe.

#ifndef DATASETD_SERVER_CACHE_RESTORE_JOURNAL_H_
#define DATASETD_SERVER_CACHE_RESTORE_JOURNAL_H_

#include <string>

namespace datasetd {

class RestoreJournal {
 public:
  virtual ~RestoreJournal() = default;

  // Call before reading the dataset's files or cache entry. Blocks until the
  // record is on disk.
  virtual void BeginRead(const std::string& name) = 0;
  // Call when reading is done. Blocks until the record is on disk.
  virtual void EndRead(const std::string& name) = 0;
  // Call when the restore has ended, successfully or not.
  virtual void EndRestore(const std::string& name) = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_RESTORE_JOURNAL_H_
