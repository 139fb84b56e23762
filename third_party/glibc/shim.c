// What glibc 2.28 lacks or has under another name, for what is linked with the
// stubs of this folder. All is hidden: a newer glibc's own is never replaced.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

// --- 2.32 --------------------------------------------------------------------

// libstdc++ leaves atomic operations out where it is true. There are threads.
HIDDEN char __libc_single_threaded = 0;

// --- 2.36 --------------------------------------------------------------------

// For std::random_device. Without it, as glibc's own does, the process ends.
HIDDEN uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
    if (errno != EINTR) __builtin_trap();
  }
  return value;
}

// --- 2.35 --------------------------------------------------------------------

// Linux 5.11; callers take epoll_pwait where it is not there.
HIDDEN int epoll_pwait2(int epoll, struct epoll_event* events, int max_events,
                        const struct timespec* timeout, const sigset_t* mask) {
  return (int)syscall(441, epoll, events, max_events, timeout, mask, 8);
}

// For the unwinder in libgcc.
struct Search {
  uintptr_t address;
  struct dl_find_object* found;
};

static int IsObject(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  const struct Search* search = data;
  uintptr_t start = UINTPTR_MAX;
  uintptr_t end = 0;
  int has_address = 0;
  void* eh_frame = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t first = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_LOAD) {
      const uintptr_t last = first + header->p_memsz;
      if (first < start) start = first;
      if (last > end) end = last;
      if (search->address >= first && search->address < last) has_address = 1;
    } else if (header->p_type == PT_GNU_EH_FRAME) {
      eh_frame = (void*)first;
    }
  }
  if (!has_address || eh_frame == NULL) return 0;
  *search->found = (struct dl_find_object){.dlfo_map_start = (void*)start,
                                           .dlfo_map_end = (void*)end,
                                           .dlfo_eh_frame = eh_frame};
  return 1;
}

HIDDEN int _dl_find_object(void* address, struct dl_find_object* found) {
  typedef int Function(void*, struct dl_find_object*);
  static Function* real;
  static char is_known;
  if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&real, (Function*)dlsym(RTLD_DEFAULT, "_dl_find_object"),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
  }
  Function* const function = __atomic_load_n(&real, __ATOMIC_RELAXED);
  if (function != NULL) return function(address, found);
  struct Search search = {(uintptr_t)address, found};
  return dl_iterate_phdr(IsObject, &search) == 1 ? 0 : -1;
}

// --- 2.30 --------------------------------------------------------------------

// For std::condition_variable. Where glibc has none a wait for the steady clock
// becomes one for the other, which ends early or late if that is set meanwhile.
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition,
                                  pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* end) {
  typedef int Function(pthread_cond_t*, pthread_mutex_t*, clockid_t,
                       const struct timespec*);
  static Function* real;
  static char is_known;
  if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&real,
                     (Function*)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
  }
  Function* const function = __atomic_load_n(&real, __ATOMIC_RELAXED);
  if (function != NULL) return function(condition, mutex, clock, end);
  struct timespec now;
  struct timespec converted;
  if (clock_gettime(clock, &now) != 0) return EINVAL;
  clock_gettime(CLOCK_REALTIME, &converted);
  converted.tv_sec += end->tv_sec - now.tv_sec;
  converted.tv_nsec += end->tv_nsec - now.tv_nsec;
  if (converted.tv_nsec < 0) {
    converted.tv_nsec += 1000000000;
    --converted.tv_sec;
  } else if (converted.tv_nsec >= 1000000000) {
    converted.tv_nsec -= 1000000000;
    ++converted.tv_sec;
  }
  if (converted.tv_sec < 0) return ETIMEDOUT;
  return pthread_cond_timedwait(condition, mutex, &converted);
}

// --- 2.33: functions that were inline before, over these ---------------------

#ifdef __aarch64__
#define STAT_VERSION 0
#define FIRST_VERSION "GLIBC_2.17"
#else
#define STAT_VERSION 1
#define FIRST_VERSION "GLIBC_2.2.5"
#endif
extern int __xstat(int version, const char* path, struct stat* out);
extern int __lxstat(int version, const char* path, struct stat* out);
extern int __fxstat(int version, int file, struct stat* out);
extern int __fxstatat(int version, int folder, const char* path,
                      struct stat* out, int flags);

HIDDEN int stat(const char* path, struct stat* out) {
  return __xstat(STAT_VERSION, path, out);
}

HIDDEN int lstat(const char* path, struct stat* out) {
  return __lxstat(STAT_VERSION, path, out);
}

HIDDEN int fstat(int file, struct stat* out) {
  return __fxstat(STAT_VERSION, file, out);
}

HIDDEN int fstatat(int folder, const char* path, struct stat* out, int flags) {
  return __fxstatat(STAT_VERSION, folder, path, out, flags);
}

// struct stat64 is struct stat where addresses have 64 bits.
HIDDEN int fstat64(int file, struct stat64* out) {
  return __fxstat(STAT_VERSION, file, (struct stat*)out);
}

HIDDEN int stat64(const char* path, struct stat64* out) {
  return __xstat(STAT_VERSION, path, (struct stat*)out);
}

// --- 2.34: __libc_start_main, which runs a program's constructors ------------

#ifdef DATASETD_PROGRAM
typedef void Initializer(int, char**, char**);
extern Initializer* __preinit_array_start[] HIDDEN;
extern Initializer* __preinit_array_end[] HIDDEN;
extern Initializer* __init_array_start[] HIDDEN;
extern Initializer* __init_array_end[] HIDDEN;
extern void _init(void);

// The older one leaves that to the program.
static void RunConstructors(int argc, char** argv, char** environment) {
  for (Initializer** f = __preinit_array_start; f < __preinit_array_end; ++f) {
    (*f)(argc, argv, environment);
  }
  _init();
  for (Initializer** f = __init_array_start; f < __init_array_end; ++f) {
    (*f)(argc, argv, environment);
  }
}

typedef int Main(int, char**, char**);
extern int StartMain(Main* main, int argc, char** argv, Initializer* init,
                     void (*fini)(void), void (*rtld_fini)(void), void* stack);
__asm__(".symver StartMain, __libc_start_main@" FIRST_VERSION);

HIDDEN int __libc_start_main(Main* main, int argc, char** argv,
                             Initializer* init, void (*fini)(void),
                             void (*rtld_fini)(void), void* stack) {
  (void)init;
  (void)fini;
  return StartMain(main, argc, argv, RunConstructors, NULL, rtld_fini, stack);
}
#endif  // DATASETD_PROGRAM

// --- Not of glibc: what another gRPC or Abseil in the process could define ---

// Before each use of a thread-local variable a program calls its initialiser,
// if there is one. Debian's gRPC and Abseil have none for these.
#define NO_INITIALIZER(name) \
  HIDDEN __attribute__((weak)) void name(void) {}
NO_INITIALIZER(_ZTHN4absl7debian313cord_internal17cordz_next_sampleE)
NO_INITIALIZER(_ZTHN9grpc_core26ApplicationCallbackExecCtx18callback_exec_ctx_E)
NO_INITIALIZER(_ZTHN9grpc_core7ExecCtx9exec_ctx_E)
NO_INITIALIZER(_ZTHN9grpc_core8Activity19g_current_activity_E)
