#include "leaf/server/issue/issuer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "leaf/base/mutex.h"
#include "leaf/base/text.h"

namespace leaf::server {
namespace {

// A request that waits for its tag's codes to be opened, and then perhaps for IDs.
class CodeWait {
 public:
  CodeWait(const IdRequest& waiting, Issuer::Done answer)
      : tag_(waiting.tag), request_(waiting), done_(std::move(answer)) {
    request_.tag = tag_;
  }
  CodeWait(const CodeWait&) = delete;
  CodeWait& operator=(const CodeWait&) = delete;

  const IdRequest& request() const { return request_; }
  // The same, for what is left of its wait.
  IdRequest WithinRest(std::chrono::milliseconds rest) const {
    IdRequest request = request_;
    request.patience.wait = std::min(request.patience.wait, rest);
    request.patience.wait_while_failing = std::min(request.patience.wait_while_failing, rest);
    return request;
  }
  const Issuer::Done& done() const { return done_; }

  // The codes are open, or cannot be. False if the request was given up before.
  bool Begin() {
    const MutexLock lock(mutex_);
    return !std::exchange(begun_, true);
  }
  // How to give it up from here on.
  void Parked(Issuer::Withdraw withdraw) {
    {
      const MutexLock lock(mutex_);
      if (!given_up_) {
        withdraw_ = std::move(withdraw);
        return;
      }
    }
    if (withdraw) withdraw();
  }
  // It has waited long enough for its codes. Nothing if they are there, or cannot be.
  void Expire() {
    if (!Begin()) return;
    done_(
        Error{ErrorCode::kUnavailable,
              request_.source == IdSource::kSnowflake
                  ? "the codes of snowflake IDs are not open yet: the database has not answered in time"
                  : fmt::format("the codes of tag {} are not open yet: the database has not answered in time",
                                Quoted(request_.tag)),
              "retry soon"});
  }
  void GiveUp() {
    Issuer::Withdraw withdraw;
    bool answer = false;
    {
      const MutexLock lock(mutex_);
      given_up_ = true;
      answer = !std::exchange(begun_, true);
      withdraw = std::exchange(withdraw_, nullptr);
    }
    if (withdraw) withdraw();
    if (answer) done_(Error{ErrorCode::kExhausted, "the request was given up", ""});
  }

 private:
  const std::string tag_;
  IdRequest request_;
  const Issuer::Done done_;
  Mutex mutex_;
  bool begun_ LEAF_GUARDED_BY(mutex_) = false;
  bool given_up_ LEAF_GUARDED_BY(mutex_) = false;
  Issuer::Withdraw withdraw_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace

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
               // Clients on the Redis port find the limit by these words (client/redis_wire.cc).
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
  if (request.as_code) [[unlikely]] {
    if (auto refused = RefuseCodes(request)) return refused;
  }
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

Error Issuer::NoCodes() {
  return {ErrorCode::kConfig, "codes are not configured on this server",
          "set codes.key_file to a file that leafctl code keygen has made"};
}

std::optional<Error> Issuer::RefuseCodes(const IdRequest& request) const {
  if (codes() == nullptr) return NoCodes();
  if (request.source == IdSource::kSnowflake || request.tag != codes::kSnowflakeTag) return std::nullopt;
  return Error{
      ErrorCode::kRefused,
      fmt::format("tag {} has no codes: with codes this name means snowflake IDs", Quoted(request.tag)), ""};
}

bool Issuer::TryTake(const IdRequest& request, IssuedIds& out) const {
  if (!request.as_code) [[likely]]
    return TakeIds(request, out);
  auto codes = CodesFor(request);
  if (codes == nullptr || !TakeIds(request, out)) return false;
  out.codes_ = std::move(codes);
  return true;
}

bool Issuer::TakeIds(const IdRequest& request, IssuedIds& out) const {
  if (request.source == IdSource::kSnowflake) return ids_.snowflake()->TryNext(request.count, out.run_);
  return request.contiguous ? ids_.segment()->TryNextContiguous(request.tag, request.count, out.spans_)
                            : ids_.segment()->TryNext(request.tag, request.count, out.spans_);
}

Issuer::Withdraw Issuer::Park(const IdRequest& request, Done done) const {
  if (!request.as_code) return ParkForIds(request, nullptr, std::move(done));
  auto codes = CodesFor(request);
  return codes == nullptr ? ParkForCodes(request, std::move(done))
                          : ParkForIds(request, std::move(codes), std::move(done));
}

Issuer::Withdraw Issuer::ParkForCodes(const IdRequest& request, Done done) const {
  const auto wait = std::make_shared<CodeWait>(request, std::move(done));
  const MonotonicTime deadline = options_.clock->Monotonic() + request.patience.wait;
  options_.timers->PostAt(deadline, [wait] { wait->Expire(); });
  options_.codes->Open(
      CodeTagOf(wait->request()), CodeDesk::Purpose::kIssue,
      [this, wait, deadline](const Result<CodeDesk::Codes>& opened) {
        if (!wait->Begin()) return;
        if (!opened.ok()) return wait->done()(opened.error());
        IssuedIds ids;
        if (TakeIds(wait->request(), ids)) {
          ids.codes_ = *opened;
          return wait->done()(ids);
        }
        const auto rest =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - options_.clock->Monotonic());
        wait->Parked(ParkForIds(wait->WithinRest(std::max(rest, std::chrono::milliseconds{0})), *opened,
                                wait->done()));
      });
  return [wait] { wait->GiveUp(); };
}

Issuer::Withdraw Issuer::ParkForIds(const IdRequest& request, CodeDesk::Codes codes, Done done) const {
  auto finish = [codes = std::move(codes), done = std::move(done)](const auto& result) {
    if (!result.ok()) return done(result.error());
    IssuedIds ids(*result);
    ids.codes_ = codes;
    done(ids);
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
  if (request.as_code) {
    if (const auto refused = RefuseCodes(request)) return done(*refused);
  }
  if (request.source == IdSource::kSnowflake) return done(ids_.snowflake()->CanIssue());
  if (const auto can = ids_.segment()->CanIssue(); !can.ok()) return done(can);
  ids_.segment()->CheckReady(request.tag, done);
}

}  // namespace leaf::server
