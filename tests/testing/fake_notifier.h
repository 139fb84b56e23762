// A thread that makes calls, in the order they were posted. Thread-safe.

#ifndef DATASETD_TESTS_TESTING_FAKE_NOTIFIER_H_
#define DATASETD_TESTS_TESTING_FAKE_NOTIFIER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace datasetd {

class FakeNotifier {
 public:
  FakeNotifier();
  // Makes the posted calls first.
  ~FakeNotifier();
  FakeNotifier(const FakeNotifier&) = delete;
  FakeNotifier& operator=(const FakeNotifier&) = delete;

  void Post(std::function<void()> call);
  // Waits until the calls posted so far have returned.
  void Drain();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  uint64_t num_posted_ = 0;
  uint64_t num_returned_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_TESTS_TESTING_FAKE_NOTIFIER_H_
