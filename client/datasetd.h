/* The C API of libdatasetd.so: a stable ABI for other languages.
 *
 * Conventions
 *   - A function that can fail returns an int32_t: DATASETD_OK, or a
 *     datasetd_code, and then fills `error` (which may be NULL). Nothing is
 *     kept per thread.
 *   - Requests and descriptions are the messages of proto/datasetd/v1 as
 *     proto3 JSON, with the field names of the .proto files. A key that the
 *     message does not have is DATASETD_INVALID_ARGUMENT. int64 and uint64 come
 *     as decimal strings, bytes as base64.
 *   - A char** result is zero-terminated and given back by datasetd_free.
 *   - Structs that the caller allocates begin with struct_size: set it to
 *     sizeof. They only grow at their end.
 *   - Handles are for one thread at a time, but for datasetd_client (any
 *     thread) and for releasing batches and tensors (any thread).
 *   - After fork() a handle belongs to the parent: in the child calls fail with
 *     DATASETD_DETAIL_FORKED and releasing does nothing.
 *   - No C++ exception leaves the library.
 */

#ifndef DATASETD_CLIENT_DATASETD_H_
#define DATASETD_CLIENT_DATASETD_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DATASETD_API __attribute__((visibility("default")))

/* Raised when a program built against an older header would break. */
#define DATASETD_ABI_VERSION 1

/* Defined by DLPack's dlpack.h. */
struct DLManagedTensor;

typedef struct datasetd_client datasetd_client;
typedef struct datasetd_feed datasetd_feed;
typedef struct datasetd_push datasetd_push;

/* As gRPC's and Abseil's codes. */
typedef enum datasetd_code {
  DATASETD_OK = 0,
  DATASETD_CANCELLED = 1,
  DATASETD_UNKNOWN = 2,
  DATASETD_INVALID_ARGUMENT = 3,
  DATASETD_DEADLINE_EXCEEDED = 4,
  DATASETD_NOT_FOUND = 5,
  DATASETD_ALREADY_EXISTS = 6,
  DATASETD_PERMISSION_DENIED = 7,
  DATASETD_RESOURCE_EXHAUSTED = 8,
  DATASETD_FAILED_PRECONDITION = 9,
  DATASETD_ABORTED = 10,
  DATASETD_OUT_OF_RANGE = 11,
  DATASETD_UNIMPLEMENTED = 12,
  DATASETD_INTERNAL = 13,
  DATASETD_UNAVAILABLE = 14,
  DATASETD_DATA_LOSS = 15,
  DATASETD_UNAUTHENTICATED = 16
} datasetd_code;

/* What the code alone does not tell. */
typedef enum datasetd_detail {
  DATASETD_DETAIL_NONE = 0,
  DATASETD_DETAIL_DAEMON_GONE = 1,      /* UNAVAILABLE */
  DATASETD_DETAIL_DAEMON_DRAINING = 2,  /* ABORTED */
  DATASETD_DETAIL_DATASET_UNLOADED = 3, /* FAILED_PRECONDITION */
  DATASETD_DETAIL_FEED_EVICTED = 4,     /* ABORTED */
  DATASETD_DETAIL_DEVICE_FAILED = 5,    /* INTERNAL */
  DATASETD_DETAIL_ALL_SLOTS_HELD = 6,   /* FAILED_PRECONDITION */
  DATASETD_DETAIL_FORKED = 7,           /* FAILED_PRECONDITION */
  DATASETD_DETAIL_CLOSED = 8,           /* FAILED_PRECONDITION */
  DATASETD_DETAIL_VERSION_MISMATCH = 9, /* FAILED_PRECONDITION */
  DATASETD_DETAIL_NO_BATCHES = 10       /* FAILED_PRECONDITION */
} datasetd_detail;

/* Written only where a function fails. */
typedef struct datasetd_error {
  uint32_t struct_size;
  int32_t code;   /* datasetd_code */
  int32_t detail; /* datasetd_detail */
  uint32_t reserved;
  char message[4080]; /* UTF-8, zero-terminated; a longer one is cut */
} datasetd_error;

/* DATASETD_ABI_VERSION of the library. */
DATASETD_API uint32_t datasetd_abi_version(void);
DATASETD_API void datasetd_free(char* text);

/* --- Client ------------------------------------------------------------- */

typedef struct datasetd_client_options {
  uint32_t struct_size;
  uint32_t reserved;
  /* NULL or "": $DATASETD_ADDRESS, else the system's socket. */
  const char* address;
  int64_t connect_timeout_ns; /* 0: 10 s */
  int64_t call_timeout_ns;    /* 0: 60 s */
} datasetd_client_options;

/* Called on the calling thread, at least every 100 ms of a wait. Anything but 0
 * ends the wait with DATASETD_CANCELLED. */
typedef int32_t (*datasetd_wait_function)(void* argument);

/* `wait` is called from now on while a call of this thread waits for the
 * daemon's answer; a call that has a `wait` of its own calls that one. NULL:
 * nothing is called, as at first. For languages that handle signals only while
 * code of theirs runs. */
DATASETD_API void datasetd_set_thread_wait(datasetd_wait_function wait,
                                           void* argument);

/* `options` may be NULL. The daemon keeps what the client loaded until
 * datasetd_client_close, which open feeds outlive. */
DATASETD_API int32_t
datasetd_client_connect(const datasetd_client_options* options,
                        datasetd_client** client, datasetd_error* error);
DATASETD_API void datasetd_client_close(datasetd_client* client);
/* The absolute path of the daemon's socket; lives as long as the client. */
DATASETD_API const char* datasetd_client_address(const datasetd_client* client);

/* Called with a Dataset while it loads, or with what the function says, on the
 * calling thread, and at least every 100 ms. Anything but 0 ends the wait with
 * DATASETD_CANCELLED. */
typedef int32_t (*datasetd_progress_function)(const char* json, void* argument);

/* `spec_json` is a DatasetSpec; `dataset_json` receives a Dataset. */
DATASETD_API int32_t datasetd_load_dataset(datasetd_client* client,
                                           const char* spec_json,
                                           datasetd_progress_function progress,
                                           void* argument, char** dataset_json,
                                           datasetd_error* error);

/* Begins a dataset of samples that the caller sends; `header_json` is a
 * PushHeader. Waits until the daemon has checked it and reserved the memory: a
 * name that is taken and a budget that is too small are errors here. `wait` may
 * be NULL; where it ends a wait, it ends the push. The client outlives the
 * push. */
DATASETD_API int32_t datasetd_push_begin(datasetd_client* client,
                                         const char* header_json,
                                         datasetd_wait_function wait,
                                         void* argument, datasetd_push** push,
                                         datasetd_error* error);
/* The next bytes, as PushDatasetRequest.block says, cut anywhere. Waits while
 * the daemon is behind. */
DATASETD_API int32_t datasetd_push_write(datasetd_push* push, const void* data,
                                         uint64_t size_bytes,
                                         datasetd_error* error);
/* Waits until the dataset is ready; `dataset_json` receives it. */
DATASETD_API int32_t datasetd_push_finish(datasetd_push* push,
                                          char** dataset_json,
                                          datasetd_error* error);
/* Owed once, in any case; breaks the push off if it is not finished. */
DATASETD_API void datasetd_push_close(datasetd_push* push);

/* A dry run: `estimate_json` receives a LoadEstimate, and nothing is loaded.
 * `progress` gets EstimateLoadResponses. */
DATASETD_API int32_t datasetd_estimate_load(datasetd_client* client,
                                            const char* spec_json,
                                            datasetd_progress_function progress,
                                            void* argument,
                                            char** estimate_json,
                                            datasetd_error* error);
DATASETD_API int32_t datasetd_get_dataset(datasetd_client* client,
                                          const char* name, char** dataset_json,
                                          datasetd_error* error);
/* Receives a ListDatasetsResponse: all pages of the daemon's in one. */
DATASETD_API int32_t datasetd_list_datasets(datasetd_client* client,
                                            char** response_json,
                                            datasetd_error* error);
DATASETD_API int32_t datasetd_unload_dataset(datasetd_client* client,
                                             const char* name, int32_t force,
                                             datasetd_error* error);
DATASETD_API int32_t datasetd_release_dataset(datasetd_client* client,
                                              const char* name,
                                              datasetd_error* error);
/* Receives a ListFeedsResponse, likewise. */
DATASETD_API int32_t datasetd_list_feeds(datasetd_client* client,
                                         char** response_json,
                                         datasetd_error* error);
/* What ops draw for samples: `request_json` is an ExplainTransformsRequest,
 * `response_json` receives an ExplainTransformsResponse. */
DATASETD_API int32_t datasetd_explain_transforms(datasetd_client* client,
                                                 const char* request_json,
                                                 char** response_json,
                                                 datasetd_error* error);
/* Receives a GetStatusResponse. */
DATASETD_API int32_t datasetd_get_status(datasetd_client* client,
                                         char** response_json,
                                         datasetd_error* error);

/* --- Feed --------------------------------------------------------------- */

/* `options_json` is a FeedOptions; `info_json`, which may be NULL, receives an
 * OpenFeedResponse. */
DATASETD_API int32_t datasetd_feed_open(datasetd_client* client,
                                        const char* options_json,
                                        datasetd_feed** feed, char** info_json,
                                        datasetd_error* error);
/* Batches and tensors that are still held stay valid. */
DATASETD_API void datasetd_feed_close(datasetd_feed* feed);

/* As in DLPack: 1 is the CPU, 2 a CUDA GPU in this process's numbering. */
DATASETD_API void datasetd_feed_device(const datasetd_feed* feed,
                                       int32_t* device_type,
                                       int32_t* device_id);
/* Time spent in datasetd_feed_next, waiting. */
DATASETD_API int64_t datasetd_feed_waited_ns(const datasetd_feed* feed);

/* A batch that the caller holds. */
typedef struct datasetd_batch {
  uint32_t struct_size;
  uint32_t num_samples;
  uint32_t num_padding; /* the last rows */
  uint32_t slot;        /* the library's */
  uint64_t epoch;
  uint64_t index;    /* within the epoch */
  uint64_t sequence; /* the library's */
  void* core;        /* the library's; NULL when released */
} datasetd_batch;

/* Takes the next batch. `stream` is the CUstream that will use it, as an
 * integer; 0 is the default stream. A negative timeout waits without end.
 * Release the batch once. Errors as Feed::Next in client/feed/feed.h. */
DATASETD_API int32_t datasetd_feed_next(datasetd_feed* feed, uint64_t stream,
                                        int64_t timeout_ns,
                                        datasetd_batch* batch,
                                        datasetd_error* error);
/* The same, and one tensor of each of the first `num_tensors` fields. */
DATASETD_API int32_t datasetd_feed_next_tensors(
    datasetd_feed* feed, uint64_t stream, int64_t timeout_ns,
    datasetd_batch* batch, struct DLManagedTensor** tensors,
    uint32_t num_tensors, datasetd_error* error);
DATASETD_API int32_t datasetd_feed_seek(datasetd_feed* feed, uint64_t epoch,
                                        uint64_t index, datasetd_error* error);

/* Batches of a feed whose options have client_order: what comes next, in this
 * order. `first_row` is the number of rows of the epoch before them, where a
 * seek went into an epoch whose batches were not all full; negative: as many as
 * there must be. If `ends_epoch` is not 0 the next call begins the next epoch.
 * Errors as Feed::SendIndices in client/feed/feed.h. */
DATASETD_API int32_t datasetd_feed_send_indices(
    datasetd_feed* feed, const int64_t* indices, uint64_t num_indices,
    const uint32_t* batch_sizes, uint64_t num_batches, int64_t first_row,
    int32_t ends_epoch, datasetd_error* error);
/* The same, but waits at most `timeout_ns` for the daemon (negative: without
 * end) instead of the client's call_timeout, and calls `wait`, which may be
 * NULL, every 100 ms: another answer than 0 breaks it off. */
DATASETD_API int32_t datasetd_feed_send_indices_within(
    datasetd_feed* feed, const int64_t* indices, uint64_t num_indices,
    const uint32_t* batch_sizes, uint64_t num_batches, int64_t first_row,
    int32_t ends_epoch, int64_t timeout_ns, datasetd_wait_function wait,
    void* argument, datasetd_error* error);

/* For datasetd_batch_dlpack: the sample indices, int64 [num_samples]. */
#define DATASETD_INDICES 0xffffffffu

/* A writable tensor that shares the batch's memory and holds it until its
 * deleter is called, which the caller owes once. Fields are numbered as in
 * OpenFeedResponse.layout. */
DATASETD_API int32_t datasetd_batch_dlpack(const datasetd_batch* batch,
                                           uint32_t field,
                                           struct DLManagedTensor** tensor,
                                           datasetd_error* error);
/* The slot is not reused before what `stream` was given until the release has
 * completed. */
DATASETD_API int32_t datasetd_batch_record_stream(const datasetd_batch* batch,
                                                  uint64_t stream,
                                                  datasetd_error* error);
/* A released batch is left alone. */
DATASETD_API void datasetd_batch_release(datasetd_batch* batch);
/* Calls the tensor's deleter. */
DATASETD_API void datasetd_tensor_delete(struct DLManagedTensor* tensor);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DATASETD_CLIENT_DATASETD_H_ */
