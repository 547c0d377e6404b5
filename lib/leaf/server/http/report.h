// Answers that take longer the more tags there are.
#pragma once

#include <functional>

#include "leaf/base/executor.h"
#include "leaf/server/http/handler.h"

namespace leaf::server {

// Where reports to this caller are made.
Executor& ReportLane(const Backend& backend, const Call& call);

// Runs `make` on `lane`, unless the request is given up before that, or `unread` is full. The answer counts
// there until it is sent. `unread` is one of the backend's.
Withdraw PostReport(const Backend& backend, Executor& lane, UnreadBytes& unread, Respond respond,
                    std::function<Response()> make);

}  // namespace leaf::server
