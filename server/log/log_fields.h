// What the lines of the log that a thread writes are about.

#ifndef DATASETD_SERVER_LOG_LOG_FIELDS_H_
#define DATASETD_SERVER_LOG_LOG_FIELDS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace datasetd {

// In the journal DATASET=, FEED=, UID= and PID=; uid and pid are the client's.
// Elsewhere a line has what its text says.
struct LogFields {
  std::string dataset;
  std::optional<uint64_t> feed;
  std::optional<uid_t> uid;
  std::optional<pid_t> pid;
};

// For the lines that this thread writes until the object ends; then those of
// before.
class ScopedLogFields {
 public:
  explicit ScopedLogFields(LogFields fields);
  ~ScopedLogFields();
  ScopedLogFields(const ScopedLogFields&) = delete;
  ScopedLogFields& operator=(const ScopedLogFields&) = delete;

  // Of this thread.
  static const LogFields& Current();

 private:
  const LogFields fields_;
  const LogFields* const outer_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOG_FIELDS_H_
