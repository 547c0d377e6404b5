#include "leaf/server/issue/issuer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/text.h"

namespace leaf::server {

std::uint64_t Issuer::MaxCount(IdSource source) const {
  const std::uint64_t max_count = max_count_.load();
  const service::SnowflakeService* const snowflake = ids_.snowflake();
  if (source == IdSource::kSegment || snowflake == nullptr) return max_count;
  return std::min(max_count, snowflake->count_max());
}

Result<void> Issuer::CheckCount(IdSource source, std::uint64_t count) const {
  const std::uint64_t max_count = MaxCount(source);
  if (count <= max_count) return {};
  return Error{ErrorCode::kTooLarge,
               fmt::format("count {} is over this server's limit of {}", count, max_count),
               "ask several times, or raise server.max_count"};
}

std::optional<Error> Issuer::Disabled(IdSource source) const {
  const bool segment = source == IdSource::kSegment;
  if (segment ? ids_.segment() != nullptr : ids_.snowflake() != nullptr) [[likely]]
    return std::nullopt;
  if (segment) return Error{ErrorCode::kDisabled, "segment mode is disabled on this server", ""};
  return Error{ErrorCode::kDisabled, "snowflake mode is disabled on this server", options_.why_no_snowflakes};
}

std::optional<Error> Issuer::Refuse(const IdRequest& request) const {
  if (auto disabled = Disabled(request.source)) return disabled;
  if (options_.limit == nullptr || !options_.limit->active()) [[likely]]
    return std::nullopt;
  using Verdict = service::RequestLimit::Verdict;
  const Verdict verdict = request.source == IdSource::kSnowflake
                              ? options_.limit->AdmitSnowflake()
                              : ids_.segment()->AdmitRequest(request.tag, *options_.limit);
  if (verdict == Verdict::kAdmitted) [[likely]]
    return std::nullopt;
  if (verdict == Verdict::kOfOneTag) {
    return Error{ErrorCode::kLimited, fmt::format("too many requests for tag {}", Quoted(request.tag)),
                 "take more IDs with each request (count=N), or raise server.max_tag_requests_per_second"};
  }
  return TooManyRequests();
}

std::optional<Error> Issuer::RefuseOther() const {
  if (options_.limit == nullptr || !options_.limit->active()) return std::nullopt;
  if (options_.limit->AdmitOther() == service::RequestLimit::Verdict::kAdmitted) return std::nullopt;
  return TooManyRequests();
}

Error Issuer::TooManyRequests() {
  return {ErrorCode::kLimited, "too many requests for this server",
          "ask another server, or raise server.max_requests_per_second"};
}

bool Issuer::TryTake(const IdRequest& request, IssuedIds& out) const {
  if (request.source == IdSource::kSnowflake) return ids_.snowflake()->TryNext(request.count, out.run_);
  return request.contiguous ? ids_.segment()->TryNextContiguous(request.tag, request.count, out.spans_)
                            : ids_.segment()->TryNext(request.tag, request.count, out.spans_);
}

Issuer::Withdraw Issuer::Park(const IdRequest& request, Done done) const {
  auto finish = [done = std::move(done)](const auto& result) {
    done(result.ok() ? Result<IssuedIds>(IssuedIds(*result)) : Result<IssuedIds>(result.error()));
  };
  if (request.source == IdSource::kSegment) {
    const service::ParkedRequest parked = ids_.segment()->Next(
        request.tag, {request.count, request.contiguous}, request.patience, std::move(finish));
    if (!parked) return nullptr;
    return [parked] { parked.Withdraw(); };
  }
  service::SnowflakeService* const snowflake = ids_.snowflake();
  const std::uint64_t ticket = snowflake->Next(request.count, request.patience.wait, std::move(finish));
  if (ticket == 0) return nullptr;
  return [snowflake, ticket] { snowflake->Withdraw(ticket); };
}

void Issuer::Look(const IdRequest& request, const LookDone& done) const {
  if (const auto disabled = Disabled(request.source)) return done(*disabled);
  if (request.source == IdSource::kSnowflake) return done(ids_.snowflake()->CanIssue());
  if (const auto can = ids_.segment()->CanIssue(); !can.ok()) return done(can);
  ids_.segment()->CheckTag(request.tag, done);
}

}  // namespace leaf::server
