// Requests that wait for IDs, in the order in which they came: the one waiting line of both modes.
//
// The line only keeps them. When a request is served, and when it has waited long enough, is its owner's to
// say, and so is the lock that guards the line. What leaves the line is handed back, because an answer is
// given with no lock held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/clock.h"
#include "leaf/base/result.h"

namespace leaf::service {

// A request for `count` of `Ids`. `done` is called once.
template <typename Ids>
struct WaitingRequest {
  using Callback = std::function<void(Result<Ids>)>;

  std::uint64_t ticket = 0;  // given by the line, from 1 on, rising
  std::uint64_t count = 0;
  MonotonicTime deadline;
  Callback done;
};

// `Request` is a WaitingRequest, or derives from one. Not thread-safe. The line is one null pointer until the
// first request is added: tags that were never asked for have a line, too.
template <typename Request>
class WaitingLine {
 public:
  using Iterator = typename std::list<Request>::iterator;

  WaitingLine() = default;
  WaitingLine(const WaitingLine&) = delete;
  WaitingLine& operator=(const WaitingLine&) = delete;

  bool empty() const { return !line_ || line_->requests.empty(); }
  std::size_t size() const { return line_ ? line_->requests.size() : 0; }
  // IDs that are asked for in the whole line.
  std::uint64_t ids() const { return line_ ? line_->ids : 0; }

  // The ticket of the request that was added last, whether it still waits or not; 0 if none was.
  std::uint64_t last_ticket() const { return line_ ? line_->last_ticket : 0; }

  // Requires: not empty.
  Request& front() { return line_->requests.front(); }
  const Request& front() const { return line_->requests.front(); }
  // In order of arrival. `count` of a request must not be changed.
  Iterator begin() { return line_ ? line_->requests.begin() : Iterator{}; }
  Iterator end() { return line_ ? line_->requests.end() : Iterator{}; }

  // For the owner: when it looks at the line next, to see which have waited long enough. The end of time: not
  // at all, as nothing has been added since the last look.
  MonotonicTime next_look() const { return line_ ? line_->next_look : MonotonicTime::max(); }
  // Requires: something was added once.
  void set_next_look(MonotonicTime time) { line_->next_look = time; }

  // The ticket of the request that is added.
  std::uint64_t Add(Request request) {
    if (!line_) line_ = std::make_unique<Line>();
    request.ticket = ++line_->last_ticket;
    line_->ids += request.count;
    line_->requests.push_back(std::move(request));
    return line_->last_ticket;
  }

  // Null if it does not wait any more.
  Request* Find(std::uint64_t ticket) {
    const Iterator found = FindPlace(ticket);
    return found == end() ? nullptr : &*found;
  }

  // Takes requests out of the line.
  Request RemoveFront() {
    LEAF_CHECK(!empty());
    return Remove(begin()).first;
  }
  std::optional<Request> Remove(std::uint64_t ticket) {
    const Iterator found = FindPlace(ticket);
    if (found == end()) return std::nullopt;
    return Remove(found).first;
  }
  // And the place of the next one.
  std::pair<Request, Iterator> Remove(Iterator place) {
    line_->ids -= place->count;
    Request request = std::move(*place);
    return {std::move(request), line_->requests.erase(place)};
  }
  std::list<Request> RemoveAll() {
    if (!line_) return {};
    line_->ids = 0;
    return std::exchange(line_->requests, {});
  }

 private:
  struct Line {
    std::list<Request> requests;  // by ticket
    std::uint64_t last_ticket = 0;
    std::uint64_t ids = 0;
    MonotonicTime next_look = MonotonicTime::max();
  };

  Iterator FindPlace(std::uint64_t ticket) {
    // Most are looked for long after they were served; the first comparison finds that out.
    if (empty() || ticket < front().ticket) return end();
    const Iterator found =
        std::find_if(begin(), end(), [&](const Request& one) { return one.ticket >= ticket; });
    return found != end() && found->ticket == ticket ? found : end();
  }

  std::unique_ptr<Line> line_;
};

}  // namespace leaf::service
