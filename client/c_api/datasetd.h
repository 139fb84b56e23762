/* The C API of libdatasetd.so: a stable ABI for other languages.
 *
 * Conventions
 *   - A function that can fail returns an int32_t: DATASETD_OK, or a
 *     datasetd_code after filling `error` (which may be NULL). There is no
 *     per-thread error state.
 *   - Requests and descriptions are the messages of proto/datasetd/v1 as
 *     proto3 JSON, with the field names of the .proto files. An unknown key is
 *     DATASETD_INVALID_ARGUMENT. int64 and uint64 are decimal strings, bytes
 *     are base64.
 *   - A char** result is zero-terminated; free it by datasetd_free.
 *   - Structs that the caller allocates begin with struct_size: set it to
 *     sizeof. They only grow at their end.
 *   - Handles are for one thread at a time, except that datasetd_client, and
 *     releasing batches and tensors, are thread-safe.
 *   - After fork() a handle belongs to the parent: in the child calls fail with
 *     DATASETD_DETAIL_FORKED and releasing does nothing. Nor can the child
 *     connect while the parent had a client at the fork.
 *   - Errors are return values. When memory runs out, a call may throw
 *     std::bad_alloc, and a thread of gRPC may end the process.
 */

#ifndef DATASETD_CLIENT_C_API_DATASETD_H_
#define DATASETD_CLIENT_C_API_DATASETD_H_

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
typedef struct datasetd_samples datasetd_samples;

/* The codes of gRPC and Abseil. */
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

/* Details beyond the code. */
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
  DATASETD_DETAIL_NO_BATCHES = 10,      /* FAILED_PRECONDITION */
  DATASETD_DETAIL_CONTEXT_FAILED = 11,  /* INTERNAL */
  DATASETD_DETAIL_FEED_FAILED = 12      /* INTERNAL */
} datasetd_detail;

/* Written only if a function fails. */
typedef struct datasetd_error {
  uint32_t struct_size;
  int32_t code;   /* datasetd_code */
  int32_t detail; /* datasetd_detail */
  uint32_t reserved;
  char message[4080]; /* UTF-8, zero-terminated, truncated */
} datasetd_error;

/* Returns the library's DATASETD_ABI_VERSION. */
DATASETD_API uint32_t datasetd_abi_version(void);
DATASETD_API void datasetd_free(char* text);
/* Returns why there is nothing at a path, as this process sees it, and what to
 * give instead; an empty text if something is there. */
DATASETD_API char* datasetd_path_advice(const char* path);

/* --- Client ------------------------------------------------------------- */

typedef struct datasetd_client_options {
  uint32_t struct_size;
  uint32_t reserved;
  /* NULL or "": $DATASETD_ADDRESS, else the system's daemon, else the one that
   * this user's jobs share. */
  const char* address;
  int64_t connect_timeout_ns; /* 0: 10 s; negative: no limit */
  /* Of calls, except loads, their estimates and pushes, which have no limit.
   * 0: 60 s; negative: no limit. */
  int64_t call_timeout_ns;
} datasetd_client_options;

/* Called on the calling thread at least every 100 ms while a call waits. A
 * nonzero result ends the wait with DATASETD_CANCELLED. */
typedef int32_t (*datasetd_wait_function)(void* argument);

/* Sets the function that is called while a call of this thread waits for the
 * daemon's answer, unless the call has its own `wait`. NULL, the default: none.
 * For languages that handle signals only while their own code runs.
 * datasetd_feed_next calls none: give it a timeout, and call it again. */
DATASETD_API void datasetd_set_thread_wait(datasetd_wait_function wait,
                                           void* argument);

/* Connects to a daemon. `options` may be NULL. The daemon keeps the client's
 * datasets until datasetd_client_close, which open feeds survive. */
DATASETD_API int32_t
datasetd_client_connect(const datasetd_client_options* options,
                        datasetd_client** client, datasetd_error* error);
DATASETD_API void datasetd_client_close(datasetd_client* client);
/* Returns the absolute path of the daemon's socket, owned by the client. */
DATASETD_API const char* datasetd_client_address(const datasetd_client* client);

/* Calls a unary method of the services in proto/datasetd/v1, such as
 * "GetStatus", but not OpenFeed and SendIndices, which the functions of
 * feeds call. Another name is DATASETD_INVALID_ARGUMENT.
 *
 * `request_json` is the method's request; `response_json`, which may be NULL,
 * receives its response, with all pages of a list. */
DATASETD_API int32_t datasetd_call(datasetd_client* client, const char* method,
                                   const char* request_json,
                                   char** response_json, datasetd_error* error);

/* Called on the calling thread, at least every 100 ms, with the Dataset while
 * it loads, or with the message that the function documents. A nonzero result
 * ends the wait with DATASETD_CANCELLED. */
typedef int32_t (*datasetd_progress_function)(const char* json, void* argument);

/* Loads a dataset. `spec_json` is a DatasetSpec; `dataset_json` receives a
 * Dataset. */
DATASETD_API int32_t datasetd_load_dataset(datasetd_client* client,
                                           const char* spec_json,
                                           datasetd_progress_function progress,
                                           void* argument, char** dataset_json,
                                           datasetd_error* error);

/* Begins a push; `header_json` is a PushHeader. Blocks until the daemon has
 * checked it and reserved the memory, so that a taken name or a small budget
 * fails here. `wait` may be NULL; a nonzero result ends the push. The client
 * must outlive the push. */
DATASETD_API int32_t datasetd_push_begin(datasetd_client* client,
                                         const char* header_json,
                                         datasetd_wait_function wait,
                                         void* argument, datasetd_push** push,
                                         datasetd_error* error);
/* Sends the next bytes in the format of PushDatasetRequest.block, cut anywhere.
 * Blocks while the daemon is behind. */
DATASETD_API int32_t datasetd_push_write(datasetd_push* push, const void* data,
                                         uint64_t size_bytes,
                                         datasetd_error* error);
/* Sends the next samples by field: `fields` has a pointer for each field of the
 * header, to its samples one after the other. All fields have one size and are
 * not encoded. */
DATASETD_API int32_t datasetd_push_write_samples(datasetd_push* push,
                                                 const void* const* fields,
                                                 uint64_t num_fields,
                                                 uint64_t num_samples,
                                                 datasetd_error* error);
/* Blocks until the dataset is READY; `dataset_json` receives it. */
DATASETD_API int32_t datasetd_push_finish(datasetd_push* push,
                                          char** dataset_json,
                                          datasetd_error* error);
/* Must be called once in any case; cancels the push if it is not finished. */
DATASETD_API void datasetd_push_close(datasetd_push* push);

/* Dry run of a load: `estimate_json` receives a LoadEstimate, `progress`
 * EstimateLoadResponses. Loads nothing. */
DATASETD_API int32_t datasetd_estimate_load(datasetd_client* client,
                                            const char* spec_json,
                                            datasetd_progress_function progress,
                                            void* argument,
                                            char** estimate_json,
                                            datasetd_error* error);

/* Copies the samples `indices` of a dataset, without a feed. `request_json` is
 * a ReadSamplesRequest without indices; `info_json` receives a ReadInfo. A
 * `timeout_ns` of 0 is the client's call_timeout_ns; negative: no limit. */
DATASETD_API int32_t datasetd_read_samples(
    datasetd_client* client, const char* request_json, const int64_t* indices,
    uint64_t num_indices, int64_t timeout_ns, datasetd_samples** samples,
    char** info_json, datasetd_error* error);
/* Returns the first of info.size_bytes bytes, which live as long as `samples`.
 */
DATASETD_API const void* datasetd_samples_data(const datasetd_samples* samples);
DATASETD_API void datasetd_samples_close(datasetd_samples* samples);

/* --- Feed --------------------------------------------------------------- */

/* Arrays of a feed's order; each pointer may be NULL. All are the caller's, and
 * are not used after the call. */
typedef struct datasetd_feed_arrays {
  uint32_t struct_size;
  uint32_t reserved;
  /* Distinct samples to which the feed is restricted; NULL: all. */
  const int64_t* subset;
  uint64_t subset_size;
  /* The feed draws samples by weight (WeightedOrder); NULL: it does not. The
   * weights are of `weighted_samples`, or if that is NULL, of the dataset's
   * samples in their order. */
  const double* weights;
  const int64_t* weighted_samples;
  uint64_t num_weights;
  /* The classes of the order's samples, for options_json.group_order; NULL:
   * none. */
  const int32_t* classes;
  uint64_t num_classes; /* of the array */
} datasetd_feed_arrays;

/* Opens a feed. `options_json` is a FeedOptions, whose device counts GPUs as
 * this process does; if it is empty and the dataset has several replicas, the
 * GPU that is current in this thread is taken, or else the first. `info_json`,
 * which may be NULL, receives an OpenFeedResponse.
 *
 * `arrays` may be NULL. An array that it has is not empty, and options_json
 * need not tell of it: of weighted_order only num_draws may be set. */
DATASETD_API int32_t datasetd_feed_open(datasetd_client* client,
                                        const char* options_json,
                                        const datasetd_feed_arrays* arrays,
                                        datasetd_feed** feed, char** info_json,
                                        datasetd_error* error);
/* Closes a feed. Batches and tensors that are still held stay valid. */
DATASETD_API void datasetd_feed_close(datasetd_feed* feed);

/* Returns the device as in DLPack: type 1 is the CPU, 2 a CUDA GPU in this
 * process's numbering. */
DATASETD_API void datasetd_feed_device(const datasetd_feed* feed,
                                       int32_t* device_type,
                                       int32_t* device_id);
/* Returns the total time that datasetd_feed_next has waited. */
DATASETD_API int64_t datasetd_feed_waited_ns(const datasetd_feed* feed);
/* Returns the number of slots, of prefetch + 2, that batches and tensors of
 * this process hold. */
DATASETD_API uint32_t datasetd_feed_num_held(const datasetd_feed* feed);

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
  uint32_t num_held; /* datasetd_feed_num_held when it was returned */
  uint32_t reserved;
} datasetd_batch;

/* Returns the next batch, for use on `stream`, a CUstream as an integer; 0 is
 * the default stream. CU_STREAM_PER_THREAD (2) is refused on a GPU: it is
 * another stream on the thread that releases the batch. A negative timeout
 * means no limit. Release the batch once. Errors as Feed::Next in
 * client/feed/feed.h.
 *
 * Also returns a tensor of each of the first `num_tensors` fields, as
 * datasetd_batch_dlpack. On the host those in the bit mask `copied_fields` own
 * copies instead, and hold nothing of the batch; on a GPU it must be 0. */
DATASETD_API int32_t datasetd_feed_next(
    datasetd_feed* feed, uint64_t stream, int64_t timeout_ns,
    datasetd_batch* batch, struct DLManagedTensor** tensors,
    uint32_t num_tensors, uint64_t copied_fields, datasetd_error* error);
/* Makes batch `index` of `epoch` the next one. Errors as Feed::Seek in
 * client/feed/feed.h. */
DATASETD_API int32_t datasetd_feed_seek(datasetd_feed* feed, uint64_t epoch,
                                        uint64_t index, datasetd_error* error);

/* Gives a weighted feed other weights, as many as it was opened with. It draws
 * by them from the next datasetd_feed_seek on, also one to the current
 * position. Waits at most `timeout_ns` for the daemon (negative: no limit), and
 * calls `wait`, which may be NULL, every 100 ms; a nonzero result cancels the
 * call. Errors as Feed::SetWeights in client/feed/feed.h. */
DATASETD_API int32_t datasetd_feed_set_weights(
    datasetd_feed* feed, const double* weights, uint64_t num_weights,
    int64_t timeout_ns, datasetd_wait_function wait, void* argument,
    datasetd_error* error);

/* Appends batches to the order of a feed that has client_order. After a seek
 * into an epoch whose earlier batches were not all full, `first_row` is the
 * number of the epoch's rows before these batches; negative: all were full. If
 * `ends_epoch` is not 0, the next call begins the next epoch. Waits at most
 * `timeout_ns` for the daemon (negative: no limit), and calls `wait`, which may
 * be NULL, every 100 ms; a nonzero result cancels the call. Errors as
 * Feed::SendIndices in client/feed/feed.h. */
DATASETD_API int32_t datasetd_feed_send_indices(
    datasetd_feed* feed, const int64_t* indices, uint64_t num_indices,
    const uint32_t* batch_sizes, uint64_t num_batches, int64_t first_row,
    int32_t ends_epoch, int64_t timeout_ns, datasetd_wait_function wait,
    void* argument, datasetd_error* error);

/* Field number of the sample indices, int64 [num_samples]. With a mixture the
 * dataset's number is in the upper 32 bits, the index in it below. */
#define DATASETD_INDICES 0xffffffffu

/* Returns a writable tensor that shares the batch's memory and holds it until
 * the caller calls its deleter, once. Fields are numbered as in
 * OpenFeedResponse.layout. */
DATASETD_API int32_t datasetd_batch_dlpack(const datasetd_batch* batch,
                                           uint32_t field,
                                           struct DLManagedTensor** tensor,
                                           datasetd_error* error);
/* Delays reuse of the slot until the work enqueued on `stream` before the
 * release has completed. The stream may be of another GPU that reads the batch,
 * and must not be destroyed before the batch is released: that ends the feed.
 * 0 and 1 (CU_STREAM_LEGACY) are the default stream of the batch's GPU; another
 * GPU's cannot be named. CU_STREAM_PER_THREAD is refused. A batch has at most
 * 8 streams with the feed's own: more are RESOURCE_EXHAUSTED. */
DATASETD_API int32_t datasetd_batch_record_stream(const datasetd_batch* batch,
                                                  uint64_t stream,
                                                  datasetd_error* error);
/* Releases a batch. No effect on a released batch. */
DATASETD_API void datasetd_batch_release(datasetd_batch* batch);
/* Calls the tensor's deleter. */
DATASETD_API void datasetd_tensor_delete(struct DLManagedTensor* tensor);

/* A destructor for PyCapsules of tensors: deletes the tensor if nobody has
 * taken it. It is not written in Python because it may be called while an
 * exception is raised. Give it Python's PyCapsule_IsValid and
 * PyCapsule_GetPointer first; they must be the same at each call. */
DATASETD_API void datasetd_set_capsule_functions(
    int (*is_valid)(void* capsule, const char* name),
    void* (*get_pointer)(void* capsule, const char* name));
DATASETD_API void datasetd_capsule_delete(void* capsule);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DATASETD_CLIENT_C_API_DATASETD_H_ */
