// For a process that was started with a standard stream closed.

#ifndef DATASETD_BASE_STANDARD_STREAMS_H_
#define DATASETD_BASE_STANDARD_STREAMS_H_

namespace datasetd {

// Opens /dev/null for each of stdin, stdout and stderr that is closed, so that
// no socket or file gets its number. Reading and writing it still fails. Call
// this before anything else is opened.
void ReserveStandardStreams();

}  // namespace datasetd

#endif  // DATASETD_BASE_STANDARD_STREAMS_H_
