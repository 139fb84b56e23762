// datasetctl preview NAME: writes a picture of transformed samples.

#ifndef DATASETD_CLIENT_CTL_PREVIEW_PREVIEW_COMMAND_H_
#define DATASETD_CLIENT_CTL_PREVIEW_PREVIEW_COMMAND_H_

#include <memory>

#include "client/ctl/command.h"

namespace datasetd::ctl {

std::unique_ptr<Command> MakePreviewCommand(const GlobalFlags* flags);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PREVIEW_PREVIEW_COMMAND_H_
