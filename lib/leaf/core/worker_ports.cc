#include "leaf/core/worker_ports.h"

#include <fmt/format.h>

#include <algorithm>

#include "leaf/base/text.h"

namespace leaf::core {

Result<void> CheckSameCluster(const ClusterProperties& stored, const ClusterProperties& configured,
                              std::string_view where) {
  const auto differ = [&](std::string_view what, const auto& before, const auto& now) {
    return Error{ErrorCode::kRefused,
                 fmt::format("{} belongs to a cluster whose {} is {}, but {} is configured: IDs could repeat",
                             where, what, before, now),
                 "configure the old value, or use a new state_dir and a new cluster name"};
  };
  if (stored.name != configured.name) return differ("name", Quoted(stored.name), Quoted(configured.name));
  if (stored.registry != configured.registry)
    return differ("registry", Quoted(stored.registry), Quoted(configured.registry));
  if (stored.layout.Bits() != configured.layout.Bits())
    return differ("layout", stored.layout.Bits(), configured.layout.Bits());
  if (stored.layout.epoch_ms() != configured.layout.epoch_ms())
    return differ("epoch_ms", stored.layout.epoch_ms(), configured.layout.epoch_ms());
  return {};
}

Result<void> CheckWorkerNumber(std::uint64_t worker, std::uint64_t begin, std::uint64_t end,
                               const IdLayout& layout) {
  const std::uint64_t worker_end = std::min(end, layout.worker_end());
  if (worker >= begin && worker < worker_end) return {};
  if (begin >= worker_end) {
    return Error{ErrorCode::kRefused,
                 fmt::format("no number of snowflake.worker_range {}-{} fits layout {}, whose highest is {}",
                             begin, end - 1, layout.Bits(), layout.worker_end() - 1),
                 ""};
  }
  return Error{ErrorCode::kRefused,
               fmt::format("worker number {} is not in {}..{} (snowflake.worker_range, and what layout {} "
                           "can hold)",
                           worker, begin, worker_end - 1, layout.Bits()),
               ""};
}

bool IsSamePlace(std::string_view written, std::string_view now) {
  const auto adds = [](std::string_view longer, std::string_view shorter) {
    return longer.size() > shorter.size() && longer.starts_with(shorter) && longer[shorter.size()] == '@';
  };
  return written == now || adds(written, now) || adds(now, written);
}

}  // namespace leaf::core
