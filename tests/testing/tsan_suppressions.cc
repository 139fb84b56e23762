// What ThreadSanitizer reports and is no race.
//
// absl::Status counts its references with atomics, of which some are in
// Debian's library, which ThreadSanitizer does not see: where threads share an
// error, the thread that frees it seems to race with those before.

extern "C" const char* __tsan_default_suppressions();   // NOLINT
extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "race:absl::*Status::Unref\n";
}
