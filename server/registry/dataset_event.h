#ifndef DATASETD_SERVER_REGISTRY_DATASET_EVENT_H_
#define DATASETD_SERVER_REGISTRY_DATASET_EVENT_H_

namespace datasetd {

// Events of a dataset that the registry reports to its observer.
enum class DatasetEvent {
  kLoading,
  kLoadingAgain,  // after a restart of the daemon
  kReady,
  kFailed,
  kUnloadAsked,
  kUnloaded,
  kEvicted,
};

// Returns the text of the event in the log.
inline const char* DatasetEventName(DatasetEvent event) {
  switch (event) {
    case DatasetEvent::kLoading:
      return "loading";
    case DatasetEvent::kLoadingAgain:
      return "loading again";
    case DatasetEvent::kReady:
      return "ready";
    case DatasetEvent::kFailed:
      return "failed";
    case DatasetEvent::kUnloadAsked:
      return "unload";
    case DatasetEvent::kUnloaded:
      return "unloaded";
    case DatasetEvent::kEvicted:
      return "evicted";
  }
  return "";
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_EVENT_H_
