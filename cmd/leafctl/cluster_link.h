// The witness of the cluster as the configuration has it.
#pragma once

#include "leaf/embed/cluster_link.h"

namespace leaf::cmd {

using embed::ClusterLink;

}  // namespace leaf::cmd
