// Notes, safe from the daemon's end, which datasets it is reading for a restore
// at this moment: so that the next daemon knows what may have ended this one.
// Thread-safe.

#ifndef DATASETD_SERVER_CACHE_RESTORE_JOURNAL_H_
#define DATASETD_SERVER_CACHE_RESTORE_JOURNAL_H_

#include <string>

namespace datasetd {

class RestoreJournal {
 public:
  virtual ~RestoreJournal() = default;

  // The dataset's files or its cache entry are about to be read. Blocks until
  // that is on the disk.
  virtual void BeginRead(const std::string& name) = 0;
  // They are not read now. Blocks likewise.
  virtual void EndRead(const std::string& name) = 0;
  // The restore has ended, well or not, and the daemon has not.
  virtual void EndRestore(const std::string& name) = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_RESTORE_JOURNAL_H_
