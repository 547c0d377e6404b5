// The handlers of all routes; what each answers is told in leafctl(7). One file for each dialect: leaf.cc,
// v1.cc, control.cc (what operators change, and what they go by), tags.cc (the table of tags), pages.cc.
#pragma once

#include "leaf/server/http/handler.h"

namespace leaf::server {

// Java Leaf's routes.
Withdraw LeafSegment(Backend& backend, const Call& call, Respond respond);
Withdraw LeafSnowflake(Backend& backend, const Call& call, Respond respond);
Withdraw LeafDecode(Backend& backend, const Call& call, Respond respond);
Withdraw LeafCache(Backend& backend, const Call& call, Respond respond);
Withdraw LeafDb(Backend& backend, const Call& call, Respond respond);

// Under /v1.
Withdraw V1Segment(Backend& backend, const Call& call, Respond respond);
Withdraw V1Snowflake(Backend& backend, const Call& call, Respond respond);
Withdraw V1Mark(Backend& backend, const Call& call, Respond respond);
Withdraw V1Decode(Backend& backend, const Call& call, Respond respond);
Withdraw V1Codes(Backend& backend, const Call& call, Respond respond);
Withdraw V1Clock(Backend& backend, const Call& call, Respond respond);
Withdraw V1Status(Backend& backend, const Call& call, Respond respond);
Withdraw V1Workers(Backend& backend, const Call& call, Respond respond);
Withdraw V1Nothing(Backend& backend, const Call& call, Respond respond);

// Under /v1, for operators.
Withdraw V1Pause(Backend& backend, const Call& call, Respond respond);
Withdraw V1Resume(Backend& backend, const Call& call, Respond respond);
Withdraw V1Tags(Backend& backend, const Call& call, Respond respond);
Withdraw V1Tag(Backend& backend, const Call& call, Respond respond);
Withdraw V1TagHistory(Backend& backend, const Call& call, Respond respond);
Withdraw V1TagRepair(Backend& backend, const Call& call, Respond respond);
Withdraw V1Advice(Backend& backend, const Call& call, Respond respond);

// Pages for people, for Prometheus and for health checks.
Withdraw HealthLive(Backend& backend, const Call& call, Respond respond);
Withdraw HealthReady(Backend& backend, const Call& call, Respond respond);
Withdraw Metrics(Backend& backend, const Call& call, Respond respond);
Withdraw Dashboard(Backend& backend, const Call& call, Respond respond);
Withdraw Nothing(Backend& backend, const Call& call, Respond respond);

}  // namespace leaf::server
