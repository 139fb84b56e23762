#include "server/feed/feed_datasets.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "server/dataset/mixture.h"
#include "server/feed/feed_options.h"
#include "server/order/mixture_order.h"

namespace datasetd {
namespace {

constexpr size_t kMaxNamedClasses = 4;

std::string Text(absl::Span<const std::string> names) {
  return absl::StrCat(
      names.size(), " classes, ",
      absl::StrJoin(names.first(std::min(names.size(), kMaxNamedClasses)),
                    ", "),
      names.size() > kMaxNamedClasses ? ", ..." : "");
}

// What tells an order from others, beside the parts.
std::string OrderText(const std::optional<MixtureOptions>& order) {
  if (!order.has_value()) return "mixture";
  return absl::StrCat("mixture ",
                      order->is_fixed_per_batch ? "fixed per batch " : "",
                      absl::StrJoin(order->num_rows, " "));
}

}  // namespace

FeedDatasets& FeedDatasets::operator=(FeedDatasets&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  uses_ = std::move(other.uses_);
  dataset_ = std::move(other.dataset_);
  backend_ = other.backend_;
  visibility_ = other.visibility_;
  return *this;
}

absl::StatusOr<FeedDatasets> FeedDatasets::Use(const v1::FeedOptions& options,
                                               const Caller& caller,
                                               DatasetRegistry* registry) {
  FeedDatasets datasets;
  if (options.has_mixture()) {
    DATASETD_RETURN_IF_ERROR(datasets.Mix(options, caller, registry));
    return datasets;
  }
  DATASETD_ASSIGN_OR_RETURN(
      DatasetUse use,
      registry->Use(options.dataset(), caller, options.device()));
  datasets.dataset_ = use.dataset();
  datasets.backend_ = use.backend();
  datasets.visibility_ = use.visibility();
  datasets.uses_.push_back(std::move(use));
  return datasets;
}

absl::Status FeedDatasets::Mix(const v1::FeedOptions& options,
                               const Caller& caller,
                               DatasetRegistry* registry) {
  std::vector<std::shared_ptr<const Dataset>> parts;
  std::map<std::string, std::shared_ptr<const Dataset>> known;
  std::string device = options.device();
  std::string first_named;
  std::vector<std::string> classes;
  for (const v1::MixturePart& part : options.mixture().parts()) {
    const std::string& name = part.dataset();
    if (const auto found = known.find(name); found != known.end()) {
      parts.push_back(found->second);
      continue;
    }
    absl::StatusOr<DatasetUse> use = registry->Use(name, caller, device);
    if (!use.ok()) {
      return absl::Status(
          use.status().code(),
          absl::StrCat(use.status().message(),
                       parts.empty() || !options.device().empty()
                           ? ""
                           : absl::StrCat(" (the datasets of a mixture must be "
                                          "on one device, and '",
                                          parts.front()->name(), "' is on ",
                                          device, ")")));
    }
    if (parts.empty()) {
      backend_ = use->backend();
      device = backend_->info().name;
      visibility_ = use->visibility();
    }
    if (use->visibility().is_private) {
      // Of several owners, which only root may mix, the feed is nobody's else.
      const bool is_other =
          visibility_.is_private &&
          visibility_.owner_uid != use->visibility().owner_uid;
      visibility_ = is_other ? Visibility{true, caller.uid} : use->visibility();
    }
    std::vector<std::string> names = use->class_names();
    if (classes.empty()) {
      classes = std::move(names);
      first_named = name;
    } else if (!names.empty() && names != classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mixture: datasets '", first_named, "' and '", name,
          "' have different class names, so that a label does not mean the "
          "same: ",
          Text(classes), " and ", Text(names),
          ". Load them with the same class names"));
    }
    parts.push_back(use->dataset());
    known[name] = use->dataset();
    uses_.push_back(*std::move(use));
  }
  DATASETD_ASSIGN_OR_RETURN(const std::optional<MixtureOptions> order,
                            PlanMixture(options.mixture(), parts));
  DATASETD_ASSIGN_OR_RETURN(dataset_,
                            MakeMixture(std::move(parts), DatasetName(options),
                                        OrderText(order), backend_));
  return absl::OkStatus();
}

bool FeedDatasets::Has(const Dataset* dataset) const {
  return std::any_of(uses_.begin(), uses_.end(), [&](const DatasetUse& use) {
    return use.dataset().get() == dataset;
  });
}

absl::Status FeedDatasets::CheckReady() const {
  for (const DatasetUse& use : uses_) {
    if (use.IsReady()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "dataset '", use.dataset()->name(), "' is being unloaded"));
  }
  return absl::OkStatus();
}

void FeedDatasets::Reset() {
  dataset_.reset();
  uses_.clear();
}

}  // namespace datasetd
