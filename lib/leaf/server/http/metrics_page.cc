#include "leaf/server/http/metrics_page.h"

#include "leaf/server/http/metrics_builder.h"
#include "leaf/server/http/metrics_text.h"

namespace leaf::server {

std::string MetricsPage::Render() const {
  const MonotonicTime began = clock_.Monotonic();
  MetricsBuilder builder;
  builder.AddBuild(options_.version);
  builder.AddReadiness(ids_.GetReadiness());
  builder.AddConfig(ids_.config());
  builder.AddDependencies(ids_.Dependencies());
  if (const service::SegmentService* const segment = ids_.segment()) {
    TopTags top(options_.top_tags);
    const service::SegmentTotals totals =
        segment->Visit([&](service::TagStatus&& tag) { top.Add(std::move(tag)); });
    const service::SegmentStatus status = segment->Status();
    builder.AddSegment(status, totals, top);
    builder.AddFence(status.fence);
    builder.AddTags(top.Take());
  }
  if (const service::SnowflakeService* const snowflake = ids_.snowflake())
    builder.AddSnowflake(snowflake->Status(), snowflake->Tallies(), clock_.Wall());
  builder.AddRequests(requests_.Collect());
  builder.AddProcess(process_());
  builder.AddCollection(clock_.Monotonic() - began);
  return MetricsText(builder.Take());
}

}  // namespace leaf::server
