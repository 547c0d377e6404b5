// The worker registry that the configuration names.
#pragma once

#include "leaf/embed/registries.h"

namespace leaf::cmd {

using embed::IsPrivateCluster;
using embed::LayoutOf;
using embed::OpenRegistry;
using embed::RegistryLink;
using embed::WorkerNumbers;
using embed::WorkerNumbersOf;

}  // namespace leaf::cmd
