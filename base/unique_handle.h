// UniqueHandle owns a handle of a C API (a stream, an event, a file
// descriptor), stored by value and destroyed once.
//
//   struct FileTraits {
//     using Handle = int;
//     static constexpr Handle kNull = -1;
//     static void Destroy(Handle fd) { close(fd); }
//   };
//   UniqueHandle<FileTraits> file(open(...));
//
// Moved-from and released objects hold kNull, which is never destroyed.
// Thread-compatible.

#ifndef DATASETD_BASE_UNIQUE_HANDLE_H_
#define DATASETD_BASE_UNIQUE_HANDLE_H_

#include <utility>

namespace datasetd {

template <typename Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  ~UniqueHandle() { Reset(); }

  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.Release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }

  bool has_value() const { return handle_ != Traits::kNull; }

  // Deleted for temporaries, whose handle would be destroyed at once.
  Handle get() const& { return handle_; }
  Handle get() && = delete;

  // Passes ownership to the caller.
  [[nodiscard]] Handle Release() {
    return std::exchange(handle_, Handle{Traits::kNull});
  }

  void Reset(Handle handle = Traits::kNull) {
    const Handle old = std::exchange(handle_, handle);
    if (old != Traits::kNull) Traits::Destroy(old);
  }

 private:
  Handle handle_ = Traits::kNull;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_UNIQUE_HANDLE_H_
