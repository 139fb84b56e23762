// Confines a process that reads hostile input to memory, time and the
// descriptors 0, 1 and 2.

#ifndef DATASETD_SERVER_READERS_HDF5_WORKER_SANDBOX_H_
#define DATASETD_SERVER_READERS_HDF5_WORKER_SANDBOX_H_

#include "absl/status/status.h"

namespace datasetd {

// From now on this process, which has one thread, has no access to files, and
// any system call ends it but these: to read descriptor 0 and write to 0, 1 and
// 2; to take, change and give back memory, none of it executable; to ask for
// the time; to wait; to return from a signal; to end. Other processes of its
// user cannot look into it, nor can it look into them. It cannot be undone.
//
// Call it when libraries are loaded and initialised.
//   UNIMPLEMENTED  the kernel has no such filter; names the call
absl::Status EnterSandbox();

// The part of it that is Landlock's: no file and no directory can be opened,
// made or removed. False where the kernel has none; EnterSandbox does without
// then, since its filter forbids the calls.
bool DenyAllFiles();

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_HDF5_WORKER_SANDBOX_H_
