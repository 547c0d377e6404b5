// What the server tells of itself: request counts, metrics text, status queries.
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "leaf/server/http/dashboard.h"
#include "leaf/server/http/metrics_builder.h"
#include "leaf/server/http/metrics_text.h"
#include "leaf/server/http/router.h"
#include "leaf/server/http/status_json.h"
#include "leaf/server/request_metrics.h"
#include "support/fakes.h"

namespace leaf::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// ---- requests
// --------------------------------------------------------------------------------------------------

std::uint64_t CountOf(const RouteTotals& totals, int status) {
  const auto found = std::find(kCountedStatuses.begin(), kCountedStatuses.end(), status);
  return totals.requests[static_cast<std::size_t>(found - kCountedStatuses.begin())];
}

TEST(RequestMetrics, ThreadsCountOnTheirOwnAndTheSumIsExact) {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kEach = 20'000;
  RequestMetrics metrics;
  std::vector<RequestMetrics::Shard*> shards;
  for (int i = 0; i < kThreads; ++i) shards.push_back(&metrics.NewShard());
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (RequestMetrics::Shard* shard : shards) {
    threads.emplace_back([shard, &running] {
      shard->CountAccepted();
      for (std::uint64_t i = 0; i < kEach; ++i)
        shard->Count(i % 2 == 0 ? Route::kV1Segment : Route::kHealth, i % 4 == 0 ? 503 : 200,
                     microseconds{60});
      shard->CountClosed();
      --running;
    });
  }
  std::uint64_t last = 0;
  while (running > 0) {
    const std::uint64_t seen =
        CountOf(metrics.Collect().routes[static_cast<std::size_t>(Route::kHealth)], 200);
    EXPECT_GE(seen, last);
    last = seen;
  }
  for (std::thread& thread : threads) thread.join();
  const RequestTotals totals = metrics.Collect();
  const RouteTotals& segment = totals.routes[static_cast<std::size_t>(Route::kV1Segment)];
  EXPECT_EQ(CountOf(segment, 503), kThreads * kEach / 4);
  EXPECT_EQ(CountOf(segment, 200), kThreads * kEach / 4);
  // Between 50 and 100 microseconds.
  EXPECT_EQ(segment.durations[4], kThreads * kEach / 2);
  EXPECT_EQ(segment.sum_ns, kThreads * kEach / 2 * 60'000);
  EXPECT_EQ(totals.connections_accepted, static_cast<std::uint64_t>(kThreads));
  EXPECT_EQ(totals.connections_open, 0U);
}

TEST(RequestMetrics, OddOnesHaveAPlace) {
  RequestMetrics metrics;
  auto& shard = metrics.NewShard();
  shard.Count(Route::kOther, 418, -seconds{1});
  shard.Count(Route::kOther, 200, seconds{100});
  shard.CountRefused();
  const RequestTotals totals = metrics.Collect();
  EXPECT_EQ(totals.routes[0].requests.back(), 1U);
  // An alert asks for it.
  shard.Count(Route::kOther, 401, seconds{1});
  EXPECT_EQ(CountOf(metrics.Collect().routes[0], 401), 1U);
  EXPECT_EQ(metrics.Collect().routes[0].requests.back(), 1U);
  EXPECT_EQ(totals.routes[0].durations.front(), 1U);
  EXPECT_EQ(totals.routes[0].durations.back(), 1U);
  EXPECT_EQ(totals.connections_refused, 1U);
  // Of HTTP and of the Redis port: each has its own metrics.
  std::set<std::pair<bool, std::string_view>> names;
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const auto route = static_cast<Route>(i);
    names.emplace(IsRedis(route), RouteName(route));
  }
  EXPECT_EQ(names.size(), kRoutes);
}

TEST(RequestMetrics, TheRouterTellsTheRoute) {
  testing::FakeClock clock;
  testing::ManualExecutor reports{clock};
  service::IdService none(nullptr);
  const Issuer issuer({}, none);
  UnreadAnswers unread;
  const Router router({.version = "1", .store = "sqlite", .listen = {}}, issuer, unread, clock, reports);
  const std::map<std::string, Route> routes{
      {"/api/segment/get/pay", Route::kLeafSegment},
      {"//api//segment/get/pay/", Route::kLeafSegment},
      {"/api/snowflake/get/x", Route::kLeafSnowflake},
      {"/decodeSnowflakeId?snowflakeId=1", Route::kLeafDecode},
      {"/decodeSnowflakeId.json?snowflakeId=1", Route::kLeafDecode},
      {"/cache", Route::kLeafPages},
      {"/db.html", Route::kLeafPages},
      {"/v1/segment/pay?count=3", Route::kV1Segment},
      {"/v1/segment/pay/mark", Route::kV1Mark},
      {"/v1/segment/pay/advice", Route::kV1Advice},
      {"/v1/segment/pay/pause", Route::kV1Pause},
      {"/v1/segment/pay/resume", Route::kV1Resume},
      {"/v1/segment/pay/other", Route::kOther},
      {"/v1/snowflake", Route::kV1Snowflake},
      {"/v1/decode/1", Route::kV1Decode},
      {"/v1/codes/pay/1234", Route::kV1Codes},
      {"/v1/clock", Route::kV1Clock},
      {"/v1/status", Route::kV1Status},
      {"/v1/workers", Route::kV1Workers},
      {"/health/live", Route::kHealth},
      {"/health/other", Route::kHealth},
      {"/metrics", Route::kMetrics},
      {"/", Route::kDashboard},
      {"/dashboard.css", Route::kDashboard},
      {"/api/segment/get", Route::kOther},
      {"/v1", Route::kOther},
      {"/metrics/x", Route::kOther},
      {"/%zz", Route::kOther},
  };
  for (const auto& [target, expected] : routes) {
    Route route = Route::kMetrics;
    router.Handle(
        {"GET", target, ""}, [](const Response&) {}, &route);
    EXPECT_EQ(RouteName(route), RouteName(expected)) << target;
  }
}

// ---- metrics
// ---------------------------------------------------------------------------------------------------

service::TagStatus Tag(const std::string& name, double rate, std::uint64_t issued = 0) {
  service::TagStatus tag;
  tag.tag = name;
  tag.state = "active";
  tag.ids_per_second = rate;
  tag.issued = issued;
  tag.reserve = 10;
  return tag;
}

std::vector<std::string> Names(std::vector<service::TagStatus> tags) {
  std::vector<std::string> names;
  for (const auto& tag : tags) names.push_back(tag.tag);
  return names;
}

TEST(TopTags, TroubleGoesFirstThenTheFastest) {
  TopTags top(3);
  top.Add(Tag("slow", 1));
  top.Add(Tag("fast", 100));
  top.Add(Tag("faster", 200));
  service::TagStatus frozen = Tag("frozen", 0);
  frozen.state = "frozen";
  frozen.frozen_since = WallTime{};
  frozen.problem = Error{ErrorCode::kFrozen, "", ""};
  top.Add(std::move(frozen));
  top.Add(Tag("slower", 0.5));
  EXPECT_EQ(top.active, 4U);
  EXPECT_EQ(top.frozen, 1U);
  EXPECT_EQ(top.reserve, 50U);
  EXPECT_EQ(Names(top.Take()), (std::vector<std::string>{"fast", "faster", "frozen"}));
}

TEST(TopTags, APausedTagIsOfNoOtherState) {
  TopTags top(2);
  top.Add(Tag("fast", 100));
  top.Add(Tag("faster", 200));
  service::TagStatus paused = Tag("paused", 0);
  paused.state = "paused";
  paused.paused = true;
  paused.failures = 3;
  top.Add(std::move(paused));
  EXPECT_EQ(top.active, 2U);
  EXPECT_EQ(top.paused, 1U);
  EXPECT_EQ(top.failing, 0U);
  EXPECT_EQ(Names(top.Take()), (std::vector<std::string>{"faster", "paused"})) << "it is one to look at";

  service::TagStatus both = Tag("both", 0);
  both.state = "paused";
  both.paused = true;
  both.frozen_since = WallTime{};
  top.Add(std::move(both));
  EXPECT_EQ(top.paused, 1U);
  EXPECT_EQ(top.frozen, 1U) << "it needs an operator whether it is paused or not";
}

TEST(TopTags, EqualsAreChosenByWhatTheyIssuedAndThenByName) {
  TopTags top(2);
  for (const char* name : {"d", "b", "c", "a"}) top.Add(Tag(name, 0, name[0] == 'd' ? 5 : 0));
  EXPECT_EQ(Names(top.Take()), (std::vector<std::string>{"a", "d"}));
  TopTags none(0);
  none.Add(Tag("x", 7));
  EXPECT_EQ(none.ids_per_second, 7);
  EXPECT_TRUE(none.Take().empty());
}

TEST(TopTags, RandomOnesAreTheSameAsSortedOnes) {
  testing::FakeRandom random;
  for (int round = 0; round < 50; ++round) {
    const std::size_t size = random.Below(12);
    TopTags top(size);
    std::vector<std::pair<double, std::string>> all;
    for (std::uint64_t i = random.Below(60); i > 0; --i) {
      const double rate = static_cast<double>(random.Below(10));
      const std::string name = std::to_string(i);
      top.Add(Tag(name, rate));
      all.emplace_back(-rate, name);
    }
    std::sort(all.begin(), all.end());
    all.resize(std::min(all.size(), size));
    std::set<std::string> expected;
    for (const auto& [rate, name] : all) expected.insert(name);
    const auto names = Names(top.Take());
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
  }
}

MetricsBuilder FullBuilder() {
  MetricsBuilder builder;
  builder.AddBuild("1.2.3");
  builder.AddReadiness({false, {{"a", "", ""}, {"a", "", ""}, {"b", "", ""}}});
  service::Dependency lease;
  lease.name = "registry";
  lease.kind = "zookeeper";
  lease.lease_left = milliseconds{1500};
  service::Dependency database;
  database.name = "database";
  database.kind = "mysql";
  database.up = true;
  database.open = 2;
  database.identity = "db\"1\\";
  builder.AddDependencies({lease, database});
  TopTags top(10);
  service::TagStatus pay = Tag("pay", 2, 7);
  service::TagTallies tallies;
  tallies.waits = 3;
  tallies.errors[service::SlotOf(ErrorCode::kFrozen)] = 4;
  tallies.refills.Add(milliseconds{3});
  tallies.refills.Add(seconds{60});
  pay.tallies = std::make_shared<const service::TagTallies>(tallies);
  pay.days_to_exhaustion = 2;
  pay.codes_left = core::CodesLeft{.end = 1'000'000, .days = 1};
  top.Add(std::move(pay));
  service::TagStatus paused = Tag("off", 0);
  paused.state = "paused";
  paused.paused = true;
  paused.paused_since = WallTimeOf(1'795'000'000'500);
  top.Add(std::move(paused));
  top.Add(Tag("quote\" and \\", 0));
  service::SegmentTotals totals;
  totals.issued = 7;
  totals.tallies = tallies;
  builder.AddSegment({}, totals, top);
  builder.AddTags(top.Take());
  service::SnowflakeStatus snowflake;
  snowflake.has_worker = true;
  snowflake.state = "issuing";
  snowflake.ceiling = WallTimeOf(10'000);
  snowflake.lead = milliseconds{500};
  builder.AddSnowflake(snowflake, {.issued = 9, .waits = 1, .errors = {}}, WallTimeOf(8000));
  builder.AddConfig({.taken_over_at = WallTimeOf(1'795'000'000'250), .problem = Error{}});
  RequestMetrics requests;
  requests.SetConnectionsMax(300);
  requests.NewShard().Count(Route::kHealth, 200, microseconds{50});
  builder.AddRequests(requests.Collect());
  builder.AddProcess({});
  builder.AddCollection(milliseconds{2});
  return builder;
}

// The number may be another node's: of a node that has none yet, and of one that has lost its lease.
TEST(MetricsBuilder, ANodeThatClaimsANumberHasNone) {
  for (const bool had_one : {false, true}) {
    service::SnowflakeStatus status;
    status.has_worker = had_one;
    status.worker = 7;
    status.state = "claiming";
    MetricsBuilder builder;
    builder.AddSnowflake(status, {}, WallTimeOf(8000));
    std::map<std::string, double> states;
    for (const auto& family : builder.Take()) {
      for (const std::string_view missing :
           {"leaf_snowflake_info", "leaf_snowflake_worker", "leaf_snowflake_ceiling_left_seconds"})
        EXPECT_NE(family.name, missing);
      if (family.name != "leaf_snowflake_state") continue;
      for (const auto& sample : family.samples) states[sample.labels.front().value] = sample.value;
    }
    EXPECT_EQ(states["claiming"], 1);
    EXPECT_EQ(states["issuing"], 0);
  }
}

TEST(MetricsBuilder, EachFamilyComesOnceAndEachSampleOnce) {
  auto builder = FullBuilder();
  std::set<std::string> families;
  for (const auto& family : builder.Take()) {
    EXPECT_TRUE(families.insert(family.name).second) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_EQ(family.type == MetricType::kCounter, family.name.ends_with("_total")) << family.name;
    std::set<std::vector<std::pair<std::string, std::string>>> samples;
    for (const auto& [labels, value, histogram] : family.samples) {
      std::vector<std::pair<std::string, std::string>> names;
      for (const MetricLabel& label : labels) names.emplace_back(label.name, label.value);
      EXPECT_TRUE(samples.insert(names).second) << family.name;
      EXPECT_TRUE(std::is_sorted(histogram.bounds.begin(), histogram.bounds.end())) << family.name;
      if (family.type != MetricType::kHistogram) continue;
      EXPECT_EQ(histogram.counts.size(), histogram.bounds.size() + 1) << family.name;
    }
  }
}

TEST(MetricsBuilder, SaysWhatItWasTold) {
  auto builder = FullBuilder();
  const std::string text = MetricsText(builder.Take());
  for (const char* line : {
           "leaf_build_info{version=\"1.2.3\",",
           "leaf_ready 0\n",
           "leaf_not_ready_reason{code=\"a\"} 1\n",
           "leaf_dependency_up{dependency=\"database\",kind=\"mysql\"} 1\n",
           "leaf_dependency_connections_open{dependency=\"database\",kind=\"mysql\"} 2\n",
           "leaf_dependency_lease_left_seconds{dependency=\"registry\",kind=\"zookeeper\"} 1.5\n",
           "identity=\"db\\\"1\\\\\"} 1\n",
           "leaf_segment_ids_issued_total 7\n",
           "leaf_tag_ids_issued_total{tag=\"pay\"} 7\n",
           "leaf_tag_ids_issued_total{tag=\"quote\\\" and \\\\\"} 0\n",
           "leaf_tag_reserve_seconds{tag=\"pay\"} 5\n",
           "leaf_tag_exhaustion_seconds{tag=\"pay\"} 172800\n",
           "leaf_tag_codes_exhaustion_seconds{tag=\"pay\"} 86400\n",
           "leaf_tag_paused_timestamp_seconds{tag=\"off\"} 1795000000.5\n",
           "leaf_segment_tags{state=\"active\"} 2\n",
           "leaf_segment_tags{state=\"paused\"} 1\n",
           "leaf_tag_errors_total{tag=\"pay\",cause=\"frozen\"} 4\n",
           "leaf_tag_refill_duration_seconds_bucket{tag=\"pay\",le=\"0.005\"} 1\n",
           "leaf_tag_refill_duration_seconds_bucket{tag=\"pay\",le=\"+Inf\"} 2\n",
           "leaf_tag_refill_duration_seconds_count{tag=\"pay\"} 2\n",
           "leaf_snowflake_ids_issued_total 9\n",
           "leaf_snowflake_lead_seconds 0.5\n",
           "leaf_snowflake_ceiling_left_seconds 1.5\n",
           "leaf_config_last_reload_successful 0\n",
           "leaf_config_last_reload_success_timestamp_seconds 1795000000.25\n",
           "leaf_http_connections_max 300\n",
           "leaf_http_requests_total{route=\"/health\",code=\"200\"} 1\n",
           "leaf_http_request_duration_seconds_bucket{route=\"/health\",le=\"5e-05\"} 1\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  // Without a rate there is no time for which the reserve lasts.
  EXPECT_EQ(text.find("leaf_tag_reserve_seconds{tag=\"quote"), std::string::npos);
  EXPECT_EQ(text.find("leaf_tag_paused_timestamp_seconds{tag=\"pay"), std::string::npos);
}

TEST(MetricsText, IsAsTheFormatAsks) {
  MetricFamily odd{"odd", "a \\ and \"a\"\nline", MetricType::kGauge, {}};
  for (const double value : {0.1, -2.0, 1e300, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(), 9'007'199'254'740'991.0}) {
    odd.samples.push_back({{}, value, {}});
  }
  odd.samples[0].labels = {{"a", "say \"no\"\n"}, {"b", "\\"}};
  const MetricFamily none{"none", "Without a sample.", MetricType::kCounter, {}};
  const MetricFamily took{
      "took", "", MetricType::kHistogram, {{{{"a", "b"}}, 0, {{0.005, 1}, {1, 2, 3}, 2.5}}}};
  EXPECT_EQ(MetricsText({odd, none, took}),
            "# HELP odd a \\\\ and \"a\"\\nline\n"
            "# TYPE odd gauge\n"
            "odd{a=\"say \\\"no\\\"\\n\",b=\"\\\\\"} 0.1\n"
            "odd -2\n"
            "odd 1e+300\n"
            "odd NaN\n"
            "odd +Inf\n"
            "odd 9007199254740991\n"
            "# TYPE took histogram\n"
            "took_count{a=\"b\"} 6\n"
            "took_sum{a=\"b\"} 2.5\n"
            "took_bucket{a=\"b\",le=\"0.005\"} 1\n"
            "took_bucket{a=\"b\",le=\"1\"} 3\n"
            "took_bucket{a=\"b\",le=\"+Inf\"} 6\n");
}

// What prometheus-cpp writes of the same.
std::string TextOfTheLibrary(const std::vector<MetricFamily>& families) {
  std::vector<prometheus::MetricFamily> theirs;
  for (const MetricFamily& family : families) {
    using Type = prometheus::MetricType;
    auto& made = theirs.emplace_back();
    made.name = family.name;
    made.help = family.help;
    made.type = family.type == MetricType::kCounter ? Type::Counter
                : family.type == MetricType::kGauge ? Type::Gauge
                                                    : Type::Histogram;
    for (const MetricSample& sample : family.samples) {
      auto& metric = made.metric.emplace_back();
      for (const MetricLabel& label : sample.labels) metric.label.push_back({label.name, label.value});
      metric.counter.value = metric.gauge.value = sample.value;
      const MetricHistogram& histogram = sample.histogram;
      metric.histogram.sample_sum = histogram.sum;
      for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
        metric.histogram.sample_count += histogram.counts[i];
        metric.histogram.bucket.push_back(
            {metric.histogram.sample_count,
             i < histogram.bounds.size() ? histogram.bounds[i] : std::numeric_limits<double>::infinity()});
      }
    }
  }
  return prometheus::TextSerializer().Serialize(theirs);
}

// The first line in which the two differ; "" for none.
std::string DifferenceOf(const std::string& ours, const std::string& theirs) {
  const auto [mine, other] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
  if (mine == ours.end() && other == theirs.end()) return "";
  const auto line = [](const std::string& text, std::ptrdiff_t at) {
    const std::size_t begin = at == 0 ? 0 : text.rfind('\n', static_cast<std::size_t>(at) - 1) + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  return line(ours, mine - ours.begin()) + " | " + line(theirs, other - theirs.begin());
}

TEST(MetricsText, IsWhatAnotherWriterWrites) {
  using Limits = std::numeric_limits<double>;
  std::vector<double> values{0,    -0.0, 1,    -1,   0.1,  -0.3,   2.0 / 3, 1.0 / 3, 0.5,     1e-4,   1e-5,
                             5e-5, 1e15, 1e16, 1e17, 1e21, 1e-300, 1e300,   1.5e9,   1e9 + 1, 172'800};
  values.insert(values.end(), {Limits::infinity(), -Limits::infinity(), Limits::max(), Limits::lowest(),
                               Limits::min(), Limits::denorm_min(), Limits::epsilon()});
  for (int shift = 0; shift < 64; ++shift) {
    const double power = std::ldexp(1.0, shift);
    values.insert(values.end(), {power, power - 1, power + 1, -power, 1 / power});
  }
  testing::FakeRandom random;
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t drawn = random.Next();
    values.push_back(static_cast<double>(drawn));
    values.push_back(static_cast<double>(drawn % 10'000'000) / 1000);
    const double any = std::bit_cast<double>(drawn);
    if (!std::isnan(any)) values.push_back(any);
  }
  for (const MetricType type : {MetricType::kCounter, MetricType::kGauge}) {
    MetricFamily family{"some_total", "Some of \"it\", 100 % {x}.", type, {}};
    for (const double value : values) family.samples.push_back({{}, value, {}});
    EXPECT_EQ(DifferenceOf(MetricsText({family}), TextOfTheLibrary({family})), "");
  }

  MetricFamily labels{"labels", "", MetricType::kGauge, {}};
  for (const std::string text : {"", "plain", "say \"no\"", "back\\slash", "\\n", "two\nlines\n", "\\\"\n",
                                 "{a=\"b\"} 1", "tab\t, cr\r", "\x01\x7f", "ünï-码", "100 %s {}"})
    labels.samples.push_back({{{"a", text}, {"tag", "pay"}, {"b", text + text}}, 1, {}});
  MetricFamily histograms{"took_seconds", "How long it took.", MetricType::kHistogram, {}};
  histograms.samples.push_back(
      {{}, 0, {{5e-05, 0.0001, 0.25, 1, 10}, {1, 0, 7, 1'000'000'000'000, 2, 9}, 0.1}});
  histograms.samples.push_back({{{"a", "\"\\\n"}}, 0, {{1}, {0, 0}, 0}});
  histograms.samples.push_back({{{"a", "b"}}, 0, {{}, {3}, Limits::infinity()}});
  EXPECT_EQ(MetricsText({labels, histograms}), TextOfTheLibrary({labels, histograms}));

  const std::vector<MetricFamily> all = FullBuilder().Take();
  std::vector<MetricFamily> with_samples;
  std::copy_if(all.begin(), all.end(), std::back_inserter(with_samples),
               [](const MetricFamily& family) { return !family.samples.empty(); });
  EXPECT_EQ(MetricsText(all), TextOfTheLibrary(with_samples));

  // Where the library departs from the format, or from how the format spells it.
  const MetricFamily nan{"nan", "", MetricType::kGauge, {{{}, Limits::quiet_NaN(), {}}}};
  EXPECT_EQ(MetricsText({nan}), "# TYPE nan gauge\nnan NaN\n");
  EXPECT_EQ(TextOfTheLibrary({nan}), "# TYPE nan gauge\nnan Nan\n");
  const MetricFamily help{"help", "\\ and\nmore", MetricType::kGauge, {{{}, 1, {}}}};
  EXPECT_EQ(MetricsText({help}), "# HELP help \\\\ and\\nmore\n# TYPE help gauge\nhelp 1\n");
  EXPECT_EQ(TextOfTheLibrary({help}), "# HELP help \\ and\nmore\n# TYPE help gauge\nhelp 1\n");
}

// ---- status
// ----------------------------------------------------------------------------------------------------

TEST(StatusQuery, ReadsWhatThereIs) {
  const auto parse = [](const std::string& query) {
    return ParseStatusQuery(*ParseTarget("/v1/status" + query));
  };
  EXPECT_EQ(parse("")->limit, 1000U);
  EXPECT_EQ(parse("?limit=5&offset=7&search=a%20b&sort=rate&problems=0")->search, "a b");
  EXPECT_EQ(parse("?limit=5")->limit, 5U);
  EXPECT_EQ(parse("?sort=reserve")->sort, StatusQuery::Sort::kReserve);
  for (const char* bad : {"?limit=", "?limit=-1", "?limit=1x", "?offset=99999999999999999999",
                          "?sort=", "?sort=Rate", "?search=a&search=b", "?problems=one", "?tag=", "?tag=%01",
                          "?tag=a&tag=b", "?tag=a&limit=1", "?sort=rate&tag=a"}) {
    ASSERT_FALSE(parse(bad).ok()) << bad;
    EXPECT_EQ(parse(bad).error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Dependencies, OneThatIsAwayIsAProblemAndAlwaysInTheStatus) {
  testing::FakeClock clock;
  testing::ManualExecutor reports{clock};
  service::IdService ids(nullptr);
  service::Dependency registry;
  registry.name = "registry";
  registry.kind = "zookeeper";
  registry.problem = Error{ErrorCode::kUnavailable, "no server answers", "start one"};
  ids.Watch([&] { return registry; });
  ASSERT_EQ(ids.Problems({}).size(), 1U);
  EXPECT_EQ(ids.Problems({})[0].code, "unavailable");
  auto json = StatusSnapshot({}, ids).Tell({}, ids);
  EXPECT_EQ(json["dependencies"][0]["up"], false);
  EXPECT_EQ(json["dependencies"][0]["problem"]["hint"], "start one");
  EXPECT_EQ(json["problems_total"], 1);
  registry.up = true;
  registry.problem.reset();
  registry.lease_left = milliseconds{2500};
  EXPECT_TRUE(ids.Problems({}).empty());
  EXPECT_EQ(StatusSnapshot({}, ids).Tell({}, ids)["dependencies"][0]["lease_left_ms"], 2500);
}

TEST(Dashboard, IsCompiledInWhole) {
  EXPECT_TRUE(DashboardFile("").body.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(DashboardFile("").body.ends_with("</html>\n"));
  EXPECT_EQ(DashboardFile("dashboard.js").content_type, "text/javascript;charset=UTF-8");
  EXPECT_NE(DashboardFile("dashboard.css").body.find("prefers-color-scheme"), std::string::npos);
  EXPECT_EQ(DashboardFile("x").status, 404);
}

}  // namespace
}  // namespace leaf::server
