// The subject of log lines: journal fields set per thread.

#ifndef DATASETD_SERVER_LOG_LOG_FIELDS_H_
#define DATASETD_SERVER_LOG_LOG_FIELDS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace datasetd {

// Written to the journal as DATASET=, FEED=, UID= and PID= (the client's).
// Other outputs have only the text of the line.
struct LogFields {
  std::string dataset;
  std::optional<uint64_t> feed;
  std::optional<uid_t> uid;
  std::optional<pid_t> pid;
};

// Sets this thread's fields while in scope; restores the old ones.
class ScopedLogFields {
 public:
  explicit ScopedLogFields(LogFields fields);
  ~ScopedLogFields();
  ScopedLogFields(const ScopedLogFields&) = delete;
  ScopedLogFields& operator=(const ScopedLogFields&) = delete;

  // The fields of this thread.
  static const LogFields& Current();

 private:
  const LogFields fields_;
  const LogFields* const outer_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOG_FIELDS_H_
