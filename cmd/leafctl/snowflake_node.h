// Snowflake mode as the configuration describes it.
#pragma once

#include "leaf/embed/snowflake_node.h"

namespace leaf::cmd {

using embed::LayoutOf;
using embed::SnowflakeNode;

}  // namespace leaf::cmd
