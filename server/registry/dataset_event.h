#ifndef DATASETD_SERVER_REGISTRY_DATASET_EVENT_H_
#define DATASETD_SERVER_REGISTRY_DATASET_EVENT_H_

namespace datasetd {

// What the registry tells its observer of a dataset.
enum class DatasetEvent {
  kLoading,
  kLoadingAgain,  // one of the daemon before
  kReady,
  kFailed,
  kUnloadAsked,
  kUnloaded,
  kEvicted,
};

// As the log has it.
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
