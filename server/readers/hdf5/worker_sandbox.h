// Confines a process that reads hostile input to memory, time and descriptors 0
// to 2.

#ifndef DATASETD_SERVER_READERS_HDF5_WORKER_SANDBOX_H_
#define DATASETD_SERVER_READERS_HDF5_WORKER_SANDBOX_H_

#include "absl/status/status.h"

namespace datasetd {

// Enters the sandbox, irrevocably. The process must have one thread. It loses
// access to files, and any system call kills it except: reading descriptor 0;
// writing 0, 1 and 2; allocating, protecting and freeing memory, never
// executable; getting the time; waiting; returning from a signal; exiting. It
// cannot inspect other processes of its user, nor can they inspect it.
//
// Call it after libraries are loaded and initialised.
//   UNIMPLEMENTED  the kernel lacks the filter; names the call
absl::Status EnterSandbox();

// The Landlock part: no file or directory can be opened, created or removed.
// False if the kernel lacks Landlock; EnterSandbox then relies on its filter,
// which forbids the calls.
bool DenyAllFiles();

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_HDF5_WORKER_SANDBOX_H_
