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

// `Request` is a WaitingRequest, or derives from one. Not thread-safe. Small while it is empty: a tag that
// was never asked for has one, too.
template <typename Request>
class WaitingLine {
 public:
  using Iterator = typename std::list<Request>::iterator;

  bool empty() const { return requests_.empty(); }
  std::size_t size() const { return requests_.size(); }
  // IDs that are asked for in the whole line.
  std::uint64_t ids() const { return ids_; }

  // The ticket of the request that was added last, whether it still waits or not; 0 if none was.
  std::uint64_t last_ticket() const { return next_ticket_ - 1; }

  // Requires: not empty.
  Request& front() { return requests_.front(); }
  const Request& front() const { return requests_.front(); }
  // In order of arrival. `count` of a request must not be changed.
  Iterator begin() { return requests_.begin(); }
  Iterator end() { return requests_.end(); }

  // The ticket of the request that is added.
  std::uint64_t Add(Request request) {
    request.ticket = next_ticket_++;
    ids_ += request.count;
    requests_.push_back(std::move(request));
    return requests_.back().ticket;
  }

  // Null if it does not wait any more.
  Request* Find(std::uint64_t ticket) {
    const Iterator found = FindPlace(ticket);
    return found == requests_.end() ? nullptr : &*found;
  }

  // Takes requests out of the line.
  Request RemoveFront() {
    LEAF_CHECK(!requests_.empty());
    return Remove(requests_.begin()).first;
  }
  std::optional<Request> Remove(std::uint64_t ticket) {
    const Iterator found = FindPlace(ticket);
    if (found == requests_.end()) return std::nullopt;
    return Remove(found).first;
  }
  // And the place of the next one.
  std::pair<Request, Iterator> Remove(Iterator place) {
    ids_ -= place->count;
    Request request = std::move(*place);
    return {std::move(request), requests_.erase(place)};
  }
  std::list<Request> RemoveAll() {
    ids_ = 0;
    return std::exchange(requests_, {});
  }

 private:
  Iterator FindPlace(std::uint64_t ticket) {
    // Most are looked for long after they were served; the first comparison finds that out.
    if (requests_.empty() || ticket < requests_.front().ticket) return requests_.end();
    const Iterator found = std::find_if(requests_.begin(), requests_.end(),
                                        [&](const Request& one) { return one.ticket >= ticket; });
    return found != requests_.end() && found->ticket == ticket ? found : requests_.end();
  }

  std::list<Request> requests_;  // by ticket; a deque would take half a kilobyte while it is empty
  std::uint64_t next_ticket_ = 1;
  std::uint64_t ids_ = 0;
};

}  // namespace leaf::service
