#include "server/log/log_fields.h"

#include <utility>

namespace datasetd {
namespace {

thread_local const LogFields* current = nullptr;

}  // namespace

ScopedLogFields::ScopedLogFields(LogFields fields)
    : fields_(std::move(fields)), outer_(current) {
  current = &fields_;
}

ScopedLogFields::~ScopedLogFields() { current = outer_; }

const LogFields& ScopedLogFields::Current() {
  static const auto* const none = new LogFields;
  return current == nullptr ? *none : *current;
}

}  // namespace datasetd
