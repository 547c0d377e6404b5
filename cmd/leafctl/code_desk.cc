#include "code_desk.h"

#include <optional>

#include "leaf/base/limits.h"

namespace leaf::cmd {

server::CodeDesk::Codes NodeCodeDesk::Find(std::string_view tag, Purpose purpose) const {
  return purpose == Purpose::kIssue ? store_->book().FindToIssue(tag) : store_->book().FindToReveal(tag);
}

void NodeCodeDesk::Open(std::string_view tag, Purpose purpose, Opened opened) {
  const Wanted wanted{std::string(tag), purpose};
  std::optional<Error> failed;
  {
    const MutexLock lock(mutex_);
    const auto failure = failures_.find(wanted);
    if (failure != failures_.end() && clock_.Monotonic() < failure->second.until) {
      failed = failure->second.error;
    } else if (waiting_count_ >= kWaitingMax) {
      failed =
          Error{ErrorCode::kUnavailable, "too many requests wait for the codes of their tags", "retry later"};
    } else {
      ++waiting_count_;
      std::vector<Opened>& others = waiting_[wanted];
      others.push_back(std::move(opened));
      if (others.size() > 1) return;
    }
  }
  if (failed) return opened(*std::move(failed));
  thread_.Post([this, wanted] { OpenNow(wanted); });
}

void NodeCodeDesk::OpenNow(const Wanted& wanted) {
  const auto codes =
      wanted.second == Purpose::kIssue ? store_->ToIssue(wanted.first) : store_->ToReveal(wanted.first);
  std::vector<Opened> waiting;
  {
    const MutexLock lock(mutex_);
    waiting = std::move(waiting_[wanted]);
    waiting_.erase(wanted);
    waiting_count_ -= waiting.size();
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
