// The format of a log line; see logging.h.

#ifndef DATASETD_SERVER_LOG_LOG_FORMATTER_H_
#define DATASETD_SERVER_LOG_LOG_FORMATTER_H_

#include <memory>
#include <string>

#include "spdlog/common.h"
#include "spdlog/formatter.h"

namespace datasetd {

// The level as in sd-daemon(3): 2 is critical, 7 is debug.
int JournalPriority(spdlog::level::level_enum level);

// Not thread-safe: the owning sink locks.
class LogFormatter : public spdlog::formatter {
 public:
  explicit LogFormatter(bool for_journal) : for_journal_(for_journal) {}

  void format(const spdlog::details::log_msg& message,
              spdlog::memory_buf_t& line) override;
  std::unique_ptr<spdlog::formatter> clone() const override;

 private:
  const bool for_journal_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOG_FORMATTER_H_
