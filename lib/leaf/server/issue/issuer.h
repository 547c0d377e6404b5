// What every protocol asks for: IDs. A request is held against the limits, and then served at once or parked.
// Knows no protocol: a caller makes of the results what its protocol says.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/id_range.h"
#include "leaf/base/result.h"
#include "leaf/codes/code_book.h"
#include "leaf/core/snowflake.h"
#include "leaf/server/issue/code_desk.h"
#include "leaf/service/id_service.h"
#include "leaf/service/request_limit.h"

namespace leaf::server {

enum class IdSource : std::uint8_t { kSegment, kSnowflake };

// A request for IDs. Its views are not kept beyond a call.
struct IdRequest {
  IdSource source = IdSource::kSegment;
  std::string_view tag = "";       // in segment mode: a valid one (ValidateTag)
  std::uint64_t count = 1;         // 1..MaxCount
  bool contiguous = false;         // in segment mode: the IDs have to follow each other without a gap
  service::ParkLimits patience{};  // how long it may be parked
  bool as_code = false;            // they are wanted for their codes, without which none is taken
};

// The IDs that a request got, in order. Never allocates.
class IssuedIds {
 public:
  IssuedIds() = default;
  explicit IssuedIds(const IdSpans& spans) : spans_(spans) {}
  explicit IssuedIds(const core::SnowflakeRun& run) : run_(run) {}

  // For a request for codes: those that were open when its IDs were taken, also after a reload. Not null
  // then.
  const CodeDesk::Codes& codes() const { return codes_; }

  // What `use` returns for the ascending ranges, which are gone after the call. Allocates for a batch of
  // snowflake IDs only.
  template <typename Use>
  auto With(Use use) const {
    if (run_.source == nullptr) return use(spans_.ranges());
    if (run_.count == 1) {
      const std::uint64_t id = run_.source->FirstId(run_);
      const IdRange range{id, id + 1};
      return use(std::span<const IdRange>(&range, 1));
    }
    const std::vector<IdRange> ranges = run_.source->RangesOf(run_);
    return use(std::span<const IdRange>(ranges));
  }

 private:
  friend class Issuer;

  CodeDesk::Codes codes_;

  IdSpans spans_;           // of segment mode
  core::SnowflakeRun run_;  // of snowflake mode, once it has a source
};

struct IssuerOptions {
  std::uint64_t max_count = 100'000;
  // Where snowflake mode is off: why; "" for no more than that.
  std::string why_no_snowflakes{};
  service::RequestLimit* limit = nullptr;  // null for none; outlives the issuer
  CodeDesk* codes = nullptr;               // null: there are no codes; outlives the issuer
  // With codes: for the deadlines of requests that wait until those of their tag are open. Outlive the
  // issuer.
  Executor* timers = nullptr;
  const Clock* clock = nullptr;
};

// Thread-safe, never blocks. The service outlives it.
class Issuer {
 public:
  // Called exactly once, at once or later, on any thread. Errors: those of the service.
  using Done = std::function<void(const Result<IssuedIds>&)>;
  // Gives up a parked request: it ends with kExhausted, unless it has ended already. Any thread, any time.
  // Empty if there is nothing to give up.
  using Withdraw = std::function<void()>;

  Issuer(IssuerOptions options, service::IdService& ids)
      : options_(std::move(options)), ids_(ids), max_count_(options_.max_count) {
    LEAF_CHECK(options_.codes == nullptr || (options_.timers != nullptr && options_.clock != nullptr));
  }

  service::IdService& ids() const { return ids_; }

  // The most IDs that one request may ask for.
  std::uint64_t MaxCount(IdSource source) const;
  // Holds for requests that begin from now on. Any time.
  void SetMaxCount(std::uint64_t max_count) { max_count_.store(max_count); }
  // Errors: kTooLarge, with a message that names the limit.
  Result<void> CheckCount(IdSource source, std::uint64_t count) const;

  // Nothing if the mode is on, else kDisabled.
  std::optional<Error> Disabled(IdSource source) const;
  // Counts a request against the limits. The error to answer with if its mode is off (kDisabled), or it is
  // one too many (kLimited).
  std::optional<Error> Refuse(const IdRequest& request) const;
  // The same for a request that asks for no IDs, such as decoding one.
  std::optional<Error> RefuseOther() const;

  // Null: there are no codes.
  CodeDesk* codes() const {
    return options_.codes != nullptr && options_.codes->is_on() ? options_.codes : nullptr;
  }
  // That codes are not configured.
  static Error NoCodes();

  // Takes what was asked for from what is in reserve, or nothing: then the request is one to park. Costs no
  // allocation. Requires: the mode is on; Refuse has let the request pass.
  bool TryTake(const IdRequest& request, IssuedIds& out) const;
  // The same for one ID of a tag, which is not wanted for its code.
  bool TryTakeOne(std::string_view tag, std::uint64_t& id) const {
    return ids_.segment()->TryNextOne(tag, id);
  }
  // Serves what TryTake did not. Requires the same.
  Withdraw Park(const IdRequest& request, Done done) const;

  // Whether a request could be served now, as far as that can be told without taking an ID. `done` is called
  // exactly once, at once or later. Errors: those of the service, and kDisabled.
  using LookDone = std::function<void(const Result<void>&)>;
  void Look(const IdRequest& request, const LookDone& done) const;

 private:
  static Error TooManyRequests();
  static std::string_view CodeTagOf(const IdRequest& request) {
    return request.source == IdSource::kSnowflake ? codes::kSnowflakeTag : request.tag;
  }
  std::optional<Error> RefuseCodes(const IdRequest& request) const;
  // Null if they have to be opened first.
  CodeDesk::Codes CodesFor(const IdRequest& request) const {
    return options_.codes->Find(CodeTagOf(request), CodeDesk::Purpose::kIssue);
  }
  bool TakeIds(const IdRequest& request, IssuedIds& out) const;
  // `codes`: null for IDs.
  Withdraw ParkForIds(const IdRequest& request, CodeDesk::Codes codes, Done done) const;
  Withdraw ParkForCodes(const IdRequest& request, Done done) const;

  const IssuerOptions options_;
  service::IdService& ids_;
  std::atomic<std::uint64_t> max_count_;
};

}  // namespace leaf::server
