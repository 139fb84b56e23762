// Standard streams of a process that was started without some of them.

#ifndef DATASETD_BASE_STANDARD_STREAMS_H_
#define DATASETD_BASE_STANDARD_STREAMS_H_

namespace datasetd {

// Gives the numbers of missing ones away, so that no socket or file gets them
// and is written to by who means the stream: reads and writes stay errors. Call
// it before anything is opened.
void ReserveStandardStreams();

}  // namespace datasetd

#endif  // DATASETD_BASE_STANDARD_STREAMS_H_
