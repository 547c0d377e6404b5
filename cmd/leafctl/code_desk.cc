#include "code_desk.h"

#include <optional>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/server/issue/issuer.h"

namespace leaf::cmd {

Result<void> NodeCodeDesk::Prepare(const std::optional<Options>& options) {
  if (!options || store_ != nullptr) return {};
  LEAF_ASSIGN_OR_RETURN(store_, make_(*options));
  making_.emplace("leaf-codes", 1, clock_);
  reading_.emplace("leaf-reveal", 1, clock_);
  store_->KeepComparing(*making_, clock_, log_);
  return {};
}

void NodeCodeDesk::Adopt(std::optional<Options> options) {
  CodeStore* const store = options ? store_.get() : nullptr;
  if (store != nullptr) store->Reconfigure(*std::move(options));
  settings_.fetch_add(1);
  in_use_.store(store, std::memory_order_release);
}

void NodeCodeDesk::CompareRecords() {
  if (making_) making_->Post([this] { store_->CompareRecords(log_); });
}

std::string NodeCodeDesk::KeyInUse() const {
  const CodeStore* const store = in_use_.load(std::memory_order_acquire);
  return store == nullptr ? "" : store->book().fingerprint();
}

server::CodeDesk::Codes NodeCodeDesk::Find(std::string_view tag, Purpose purpose) const {
  const CodeStore* const store = in_use_.load(std::memory_order_acquire);
  if (store == nullptr) return nullptr;
  return purpose == Purpose::kIssue ? store->book().FindToIssue(tag) : store->book().FindToReveal(tag);
}

void NodeCodeDesk::Open(std::string_view tag, Purpose purpose, Opened opened) {
  if (!is_on()) return opened(server::Issuer::NoCodes());
  const Wanted wanted{std::string(tag), purpose, settings_.load()};
  if (const auto failed = Refuse(wanted)) return opened(*failed);
  if (!Join(wanted, std::move(opened))) return;
  (purpose == Purpose::kIssue ? making_ : reading_)->Post([this, wanted] { OpenNow(wanted); });
}

std::optional<Error> NodeCodeDesk::Refuse(const Wanted& wanted) {
  const MutexLock lock(mutex_);
  const auto failure = failures_.find(wanted);
  if (failure != failures_.end() && clock_.Monotonic() < failure->second.until) return failure->second.error;
  if (WaitingLocked(wanted.purpose) < kWaitingMax) return std::nullopt;
  return Error{ErrorCode::kUnavailable, "too many requests wait for the codes of their tags", "retry later"};
}

bool NodeCodeDesk::Join(const Wanted& wanted, Opened opened) {
  const MutexLock lock(mutex_);
  ++WaitingLocked(wanted.purpose);
  std::vector<Opened>& all = waiting_[wanted];
  all.push_back(std::move(opened));
  return all.size() == 1;
}

void NodeCodeDesk::OpenNow(const Wanted& wanted) {
  const auto codes =
      wanted.purpose == Purpose::kIssue ? store_->ToIssue(wanted.tag) : store_->ToReveal(wanted.tag);
  std::vector<Opened> waiting;
  {
    const MutexLock lock(mutex_);
    waiting = std::move(waiting_[wanted]);
    waiting_.erase(wanted);
    WaitingLocked(wanted.purpose) -= waiting.size();
    if (codes.ok()) {
      failures_.erase(wanted);
    } else {
      if (failures_.size() >= kFailuresMax) failures_.clear();
      failures_.insert_or_assign(wanted, Failure{codes.error(), clock_.Monotonic() + kNegativeTtl});
    }
  }
  for (const Opened& opened : waiting) opened(codes);
}

}  // namespace leaf::cmd
