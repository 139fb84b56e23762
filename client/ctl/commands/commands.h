// The subcommands of datasetctl. Their help() says what they do.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_COMMANDS_H_
#define DATASETD_CLIENT_CTL_COMMANDS_COMMANDS_H_

#include <memory>

#include "client/ctl/command.h"

namespace datasetd::ctl {

std::unique_ptr<Command> MakeBenchCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeDatasetsCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeExplainCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeFeedsCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeLoadCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakePreviewCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeRunCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeStatusCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeTopCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeUnloadCommand(const GlobalFlags* flags);
std::unique_ptr<Command> MakeWebCommand(const GlobalFlags* flags);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_COMMANDS_H_
