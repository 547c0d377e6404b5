#include "leaf/service/tag_ledger.h"

#include <algorithm>

namespace leaf::service {

void TagLedger::Adopt(const core::Mark& mark) {
  if (mark.end == 0) return;
  Account& account = OpenAccount();
  account.base = mark.base;
  account.wasted_before = mark.wasted;
  account.wasted_last = mark.wasted_last;
  account.wasted_exactly = mark.wasted_exactly;
}

void TagLedger::AddGrant(const IdRange& range, std::chrono::nanoseconds latency) {
  Account& account = OpenAccount();
  account.granted += range.size();
  ++account.grants;
  all_tags_.AddGranted(range.size());
  latency = std::max(latency, std::chrono::nanoseconds{0});
  TagTallies& tallies = OpenTallies();
  tallies.refills.Add(latency);
  all_tags_.AddRefill(latency);
  tallies.recent = {tallies.recent[1], range};
}

void TagLedger::BeginAt(std::uint64_t end, WallTime now) {
  Account& account = OpenAccount();
  if (!account.base) account.base = {end, now};
}

void TagLedger::Drop(std::uint64_t count) {
  if (count == 0) return;
  OpenAccount().dropped += count;
  all_tags_.AddDropped(count);
}

void TagLedger::DropUnseen(std::uint64_t count) {
  OpenAccount().granted += count;
  all_tags_.AddGranted(count);
  Drop(count);
}

void TagLedger::LeaveUnissued(std::uint64_t count) {
  OpenAccount().unissued += count;
  Drop(count);
}

void TagLedger::NoteIssued(std::uint64_t id) {
  std::optional<std::uint64_t>& last = OpenAccount().last_issued;
  last = std::max(last.value_or(0), id);
}

void TagLedger::CountWait() {
  ++OpenTallies().waits;
  all_tags_.AddWait();
}

void TagLedger::CountError(std::size_t cause_slot) {
  ++OpenTallies().errors[cause_slot];
  all_tags_.AddError(cause_slot);
}

void TagLedger::CountFailedRefill() {
  ++OpenTallies().refills_failed;
  all_tags_.AddFailedRefill();
}

std::uint64_t TagLedger::Issued(const core::SegmentBuffer* buffer) const {
  const std::uint64_t not_issued =
      account().dropped + (buffer == nullptr ? 0 : buffer->wasted() + buffer->remaining());
  return account().granted > not_issued ? account().granted - not_issued : 0;
}

std::uint64_t TagLedger::IssuedToTell(const core::SegmentBuffer* buffer) {
  if (account().grants == 0) return 0;
  // A take that began before a Clear() can turn from issued to dropped.
  std::uint64_t& told = OpenTallies().issued;
  told = std::max(told, Issued(buffer));
  return told;
}

const TagLedger::Account& TagLedger::account() const {
  static const Account kNothing;
  return books_ ? books_->account : kNothing;
}

TagLedger::Books& TagLedger::OpenBooks() {
  if (!books_) books_ = std::make_unique<Books>();
  return *books_;
}

TagLedger::Account& TagLedger::OpenAccount() { return OpenBooks().account; }

TagTallies& TagLedger::OpenTallies() {
  Books& books = OpenBooks();
  if (!books.tallies) books.tallies = std::make_unique<TagTallies>();
  return *books.tallies;
}

}  // namespace leaf::service
