// The codes of [codes], for commands and for the daemon.
#pragma once

#include "leaf/embed/code_store.h"
#include "stores.h"

namespace leaf::cmd {

using embed::ClusterNameOf;
using embed::CodeStore;

}  // namespace leaf::cmd
