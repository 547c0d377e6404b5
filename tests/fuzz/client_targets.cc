// Answers from an address where a daemon should be.
#include <charconv>
#include <cstdint>
#include <string>

#include "fuzz/expect.h"
#include "fuzz/targets.h"
#include "leaf/base/limits.h"
#include "leaf/client/answers.h"
#include "leaf/core/id_layout.h"
#include "leaf/inspect/worker_json.h"

namespace leaf::fuzz {

void DaemonAnswer(std::string_view input) {
  constexpr std::string_view kServer = "http://127.0.0.1:8080";
  const std::string_view first = TakeLine(input);
  int status = 0;
  std::from_chars(first.data(), first.data() + first.size(), status);

  const Error error = client::ErrorOf(kServer, status, input);
  const bool foreign = error.message.find(kServer) != std::string::npos;
  LEAF_CHECK(foreign || input.find("code") != std::string_view::npos ||
             input.find('\\') != std::string_view::npos);

  for (const std::string_view key : {"ids", "codes"}) {
    const auto texts = client::TextsOf(kServer, input, key, 2);
    if (texts.ok()) {
      LEAF_CHECK(texts->size() == 2 && texts->front() != texts->back());
      for (const std::string& text : *texts) ExpectOneLine(text);
    } else {
      LEAF_CHECK(texts.error().code == ErrorCode::kInternal);
      ExpectOneLine(texts.error().message);
    }
  }
  if (const auto id = client::RevealedOf(kServer, input); id.ok()) LEAF_CHECK(*id < kIdEnd);

  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{100'000}}) {
    const auto ranges = client::RangesOf(kServer, input, count);
    if (!ranges.ok()) {
      LEAF_CHECK(ranges.error().code == ErrorCode::kInternal);
      ExpectOneLine(ranges.error().message);
      LEAF_CHECK(ranges.error().message.starts_with(kServer));
      continue;
    }
    std::uint64_t rest = count;
    std::uint64_t last_end = 0;
    for (const IdRange& range : *ranges) {
      LEAF_CHECK(range.begin < range.end && range.end <= kIdEnd);
      LEAF_CHECK(range.begin >= last_end && range.size() <= rest);  // no ID stands there twice
      last_end = range.end;
      rest -= range.size();
    }
    LEAF_CHECK(rest == 0);
  }
  if (const auto mark = client::MarkOf(kServer, input); mark.ok()) LEAF_CHECK(mark->end <= kMaxIdLimit);
  if (const auto clock = client::ClockOf(kServer, input); clock.ok())
    LEAF_CHECK(UnixMillis(clock->time) >= 0 && UnixMillis(clock->time) <= core::kEpochMillisMax);
  static_cast<void>(client::MaxCountOf(input));
  if (const auto list = inspect::ParseWorkerList(input); list.ok()) {
    const std::string text = inspect::WorkerListJson(*list).dump();
    const auto again = inspect::ParseWorkerList(text);
    LEAF_CHECK(again.ok() && inspect::WorkerListJson(*again).dump() == text);
  }
}

}  // namespace leaf::fuzz
