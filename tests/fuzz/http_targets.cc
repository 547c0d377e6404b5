// What clients send: targets, and whole connections up to the router's answers.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fuzz/expect.h"
#include "fuzz/targets.h"
#include "leaf/access/gate.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/server/http/request_reader.h"
#include "leaf/server/http/router.h"
#include "leaf/server/http/status_json.h"
#include "leaf/server/visitor.h"
#include "leaf/sys/paused_tags_file.h"
#include "leaf/sys/static_registry.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"

namespace leaf::fuzz {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using nlohmann::json;
using server::Response;
using server::Route;
using std::chrono::milliseconds;

std::string PercentEncoded(std::string_view text) {
  std::string out;
  for (const char c : text) out += fmt::format("%{:02x}", static_cast<unsigned char>(c));
  return out;
}

// ---- connections

struct Received {
  std::string method;
  std::string target;
  std::string accept;
  std::string accept_language;
  std::string content_type;  // "" of a GET, which may have the plain form
  std::string body;
  bool is_head = false;
  bool keep_alive = false;
  bool says_keep_alive = false;
  std::string authorization;
  bool from_page = false;  // a browser's fields
  friend bool operator==(const Received&, const Received&) = default;
};

// The requests on a connection whose bytes come `piece` at a time, up to what is none.
std::vector<Received> ReadRequests(std::string_view bytes, std::size_t piece, bool uses_plain_form) {
  std::vector<Received> requests;
  const auto buffer = std::make_unique<server::ReadBuffer>();
  server::RequestReader reader;
  reader.UsePlainForm(uses_plain_form);
  while (true) {
    const std::size_t size = std::min(piece, bytes.size());
    boost::asio::buffer_copy(buffer->prepare(size), boost::asio::buffer(bytes.data(), size));
    buffer->commit(size);
    bytes.remove_prefix(size);
    auto outcome = reader.Read(*buffer);
    while (outcome == server::RequestReader::Outcome::kRequest) {
      const server::ReceivedRequest& request = reader.request();
      requests.push_back(
          {.method = std::string(request.method),
           .target = std::string(request.target),
           .accept = std::string(request.accept),
           .accept_language = std::string(request.accept_language),
           .content_type = request.method == "GET" ? std::string() : std::string(request.content_type),
           .body = std::string(request.body),
           .is_head = request.is_head,
           .keep_alive = request.keep_alive,
           .says_keep_alive = request.says_keep_alive,
           .authorization = std::string(request.authorization),
           .from_page = !request.origin.empty() || !request.fetch_site.empty() || request.from_script});
      reader.Release(*buffer);
      outcome = reader.Read(*buffer);
    }
    if (outcome == server::RequestReader::Outcome::kBroken) {
      LEAF_CHECK(server::StatusText(reader.status()) != "Unknown" && !reader.why().empty());
      return requests;
    }
    if (bytes.empty()) return requests;
  }
}

// ---- credentials

// Any text of the field is read, and the caller is known with the right token only.
void CheckCredentials(const std::string& authorization) {
  static constexpr std::string_view kToken = "leaf_known";
  static testing::FakeClock clock;
  static access::Gate gate(1);
  if (!gate.has_tokens()) {
    access::TokenEntry entry{.name = "a", .roles = {access::Role::kIds}};
    entry.hash = access::HashOf(kToken);
    gate.Set({entry}, true, {});
  }
  server::Visitor visitor(gate, clock, std::nullopt);
  const bool is_known = visitor.Identify(authorization).is_known;
  LEAF_CHECK(is_known == (visitor.problem().empty() && !authorization.empty()));
  LEAF_CHECK(visitor.Current().roles.empty());  // nothing has logged in
  const bool is_basic = LowerCase(authorization.substr(0, 6)) == "basic ";
  LEAF_CHECK(!is_known || is_basic || authorization.ends_with(kToken));
}

// ---- a node

// The table of tags behind the routes: what reaches it is within the bounds of the tag commands.
class Desk final : public server::TagDesk {
 public:
  explicit Desk(testing::MemorySegmentStore& table) : table_(table) {}

  Result<Json> List(const Listing& listing) override {
    LEAF_CHECK(listing.offset <= 1'000'000'000 && listing.limit <= 1'000'000'000);
    return Json{{"tags", Json::array()}};
  }
  Result<Json> Show(const std::string& tag) override {
    LEAF_CHECK(ValidateTag(tag).ok());
    return Told(table_.Describe(tag));
  }
  Result<Json> History(const std::string& tag, std::uint64_t limit) override {
    LEAF_CHECK(limit >= 1 && limit <= 10'000);
    return Show(tag);
  }
  Result<Json> Add(const core::NewTag& tag, const Caller& caller) override {
    LEAF_CHECK(ValidateNewTag(tag.tag).ok());
    LEAF_CHECK(tag.step >= 1 && tag.step <= kStepMax && tag.start.value_or(0) < kMaxIdLimit);
    CheckDescription(tag.description);
    return Told(table_.Add(tag, caller.mode));
  }
  Result<Outcome<Json>> Change(const std::string& tag, const core::TagChange& change,
                               const std::string& confirm, const Caller& caller) override {
    LEAF_CHECK(ValidateTag(tag).ok());
    LEAF_CHECK(change.step.value_or(1) >= 1 && change.step.value_or(1) <= kStepMax);
    LEAF_CHECK(change.max_id.value_or(0) <= kMaxIdLimit);
    CheckDescription(change.description);
    if (confirm.empty() && change.max_id) return Outcome<Json>{.unconfirmed = Unconfirmed{"advance"}};
    auto done = Told(table_.Update(tag, change, caller.mode));
    if (!done.ok()) return done.error();
    return Outcome<Json>{.done = *std::move(done)};
  }
  Result<Outcome<Json>> Remove(const std::string& tag, const std::string& confirm, const Caller&) override {
    LEAF_CHECK(ValidateTag(tag).ok());
    if (confirm.empty()) return Outcome<Json>{.unconfirmed = Unconfirmed{"remove"}};
    auto done = Told(table_.Describe(tag));
    if (!done.ok()) return done.error();
    return Outcome<Json>{.done = *std::move(done)};
  }
  Result<Json> Repair(const std::string& tag, std::optional<std::uint64_t> to, const std::string&,
                      const Caller&) override {
    LEAF_CHECK(to.value_or(0) <= kMaxIdLimit);
    return Show(tag);
  }
  void Paused(const std::string& tag, bool, const Caller&) override { LEAF_CHECK(ValidateTag(tag).ok()); }

 private:
  static void CheckDescription(const std::optional<std::string>& description) {
    if (!description) return;
    LEAF_CHECK(CountCodePoints(*description).value_or(kDescriptionCharactersMax + 1) <=
               kDescriptionCharactersMax);
    LEAF_CHECK(description->find('\0') == std::string::npos);
  }
  static Result<Json> Told(const Result<core::TagRow>& row) {
    if (!row.ok()) return row.error();
    return Json{{"tag", row->tag}};
  }

  testing::MemorySegmentStore& table_;
};

class Node {
 public:
  Node() {
    table_.Put("pay", 1, 100'000);
    table_.Put("order", 1'000'000, 1000);
    segment_.Start();
    LEAF_CHECK(snowflake_.Start().ok());
    Run();
  }

  void Ask(const Received& received) {
    std::optional<Response> answer;
    Route route = Route::kOther;
    router_.Handle(
        {.method = received.method,
         .target = received.target,
         .accept = received.accept,
         .accept_language = received.accept_language,
         .content_type = received.content_type,
         .body = received.body,
         .caller = received.authorization.empty() ? &access::Caller::Operator() : &access::Caller::Open(),
         .from_other_site = received.from_page},
        [&](Response response) {
          LEAF_CHECK(!answer.has_value());  // exactly once
          answer = std::move(response);
        },
        &route);
    Run();
    for (int i = 0; i < 400 && !answer; ++i) {
      clock_.Advance(milliseconds{5});
      Run();
    }
    LEAF_CHECK(answer.has_value());
    WriteOut(*answer);
    CheckAnswer(received, *answer);
    if (answer->status < 300 && received.method != "HEAD" && received.method != "OPTIONS")
      CheckIds(received, route, *answer);
  }

 private:
  void Run() {
    while (timers_.RunOne() || workers_.RunOne()) {
    }
  }

  // A large batch is written out, as it is for its client.
  static void WriteOut(Response& response) {
    if (!response.ids) return;
    while (response.ids->rest() > 0) {
      const std::size_t before = response.body.size();
      response.ids->Peek(1000, response.body);
      response.ids->Skip(response.body.size() - before);
    }
    LEAF_CHECK(response.body.size() == response.ids->size());
    response.ids.reset();
  }

  static void CheckAnswer(const Received& received, const Response& response) {
    LEAF_CHECK(server::StatusText(response.status) != "Unknown");
    // The whole of it is one answer, whatever the request was made of.
    std::string wire;
    server::Render(response, server::Persistence::kDefault, false, "now", wire);
    http::response_parser<http::string_body> parser;
    parser.eager(true);
    parser.body_limit(std::uint64_t{64} * 1024 * 1024);
    error_code failed;
    std::string_view rest = wire;
    while (!rest.empty() && !parser.is_done() && !failed)
      rest.remove_prefix(parser.put(boost::asio::buffer(rest.data(), rest.size()), failed));
    LEAF_CHECK(!failed && parser.is_done() && rest.empty());
    LEAF_CHECK(parser.get().result_int() == static_cast<unsigned>(response.status));
    LEAF_CHECK(parser.get().body() == response.body);
    if (response.content_type == server::kJson && received.method != "HEAD") {
      const json body = json::parse(response.body, nullptr, false);
      LEAF_CHECK(body.is_object());
      if (response.status >= 400 && body.contains("code")) {
        LEAF_CHECK(ErrorCodeFromName(body["code"].get<std::string>()).has_value());
        LEAF_CHECK(!body["message"].get<std::string>().empty());
        ExpectOneLine(body["message"].get<std::string>());
      }
    }
  }

  // Promises P1, P2 and P5: no ID twice, all below 2^63, in order.
  void CheckIds(const Received& received, Route route, const Response& response) {
    const auto target = server::ParseTarget(received.target);
    LEAF_CHECK(target.ok());
    std::string_view tag;
    if (route == Route::kV1Segment) {
      tag = target->segments[2];
    } else if (route == Route::kLeafSegment) {
      tag = target->segments[3];
    } else if (route != Route::kV1Snowflake && route != Route::kLeafSnowflake) {
      return;
    }
    const bool leaf = route == Route::kLeafSegment || route == Route::kLeafSnowflake;
    const bool ranges = !leaf && target->Parameter("form").value() == "range";
    std::vector<std::pair<std::string, std::string>> got;
    if (response.content_type == server::kJson) {
      const json body = json::parse(response.body);
      for (const json& item : body[ranges ? "ranges" : "ids"]) {
        if (ranges) {
          got.emplace_back(item["begin"], item["end"]);
        } else {
          got.emplace_back(item, "");
        }
      }
    } else {
      std::string_view rest = response.body;
      LEAF_CHECK(leaf || rest.ends_with('\n'));
      while (!rest.empty()) {
        const std::string_view line = TakeLine(rest);
        const std::size_t space = std::min(line.find(' '), line.size());
        got.emplace_back(line.substr(0, space), ranges ? line.substr(space + 1) : "");
      }
    }
    std::uint64_t total = 0;
    std::uint64_t& last_end = last_ends_[std::string(tag)];
    for (const auto& [first, second] : got) {
      const auto begin = ParseUnsigned("ID", first, 0, kMaxIdLimit);
      LEAF_CHECK(begin.ok());
      std::uint64_t end = *begin + 1;
      if (ranges) {
        const auto parsed = ParseUnsigned("end", second, 1, kIdEnd);
        LEAF_CHECK(parsed.ok());
        end = *parsed;
      }
      LEAF_CHECK(*begin >= last_end && end > *begin);
      last_end = end;
      total += end - *begin;
    }
    const auto count = leaf ? std::optional<std::string_view>() : target->Parameter("count").value();
    LEAF_CHECK(std::to_string(total) ==
               std::to_string(ParseUnsigned("count", count.value_or("1"), 1, kMaxIdLimit).value()));
  }

  testing::FakeClock clock_;
  testing::FakeRandom random_;
  testing::ManualExecutor timers_{clock_};
  testing::ManualExecutor workers_{clock_};
  testing::RecordingLogger log_;
  testing::MemorySegmentStore table_;
  testing::MemoryMarkStore marks_{clock_};
  testing::CrashingDisk disk_;
  sys::PausedTagsFile paused_file_{"/state", disk_};
  service::PausedTags paused_{paused_file_};
  service::SegmentService segment_{[this] {
                                     service::SegmentOptions options;
                                     options.paused = &paused_;
                                     return options;
                                   }(),
                                   table_,
                                   marks_,
                                   clock_,
                                   random_,
                                   service::SegmentExecutors{timers_, workers_, workers_, workers_},
                                   log_};
  testing::MemoryStateFile state_file_;
  sys::StaticRegistry registry_{5, {}};
  service::SnowflakeService snowflake_{[] {
                                         service::SnowflakeOptions options;
                                         options.cluster.name = "pay";
                                         return options;
                                       }(),
                                       registry_,
                                       state_file_,
                                       clock_,
                                       random_,
                                       {timers_, workers_, workers_},
                                       log_};
  service::IdService ids_{&segment_, &snowflake_};
  service::RequestLimit limit_{clock_};
  server::Issuer issuer_{{.max_count = 5000, .limit = &limit_}, ids_};
  server::UnreadAnswers unread_;
  Desk desk_{table_};
  server::Router router_{
      {.version = "1",
       .store = "sqlite",
       .listen = {},
       .control = &workers_,
       .tags = {.desk = &desk_, .reads = &workers_, .changes = &workers_, .timers = &timers_}},
      issuer_,
      unread_,
      clock_,
      workers_};
  std::map<std::string, std::uint64_t> last_ends_;  // by tag; "" for snowflake
};

}  // namespace

void HttpTarget(std::string_view input) {
  const std::string_view text = TakeLine(input);
  // Which of two types is preferred does not depend on the order in which they are named.
  std::vector<std::string_view> items;
  for (std::string_view rest = input; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    items.push_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  std::reverse(items.begin(), items.end());
  const server::IdsType type = server::PreferredType(input);
  LEAF_CHECK(type == server::PreferredType(fmt::format("{}", fmt::join(items, ","))));
  const std::string_view named = type == server::IdsType::kLines        ? "text/plain"
                                 : type == server::IdsType::kRangeBytes ? "application/octet-stream"
                                                                        : "";
  LEAF_CHECK(input.find(named) != std::string_view::npos);
  // Nothing is wanted more than wholly.
  LEAF_CHECK(server::PreferredType(fmt::format("{},application/json", input)) ==
             server::IdsType::kJsonObject);

  const auto target = server::ParseTarget(text);
  if (!target.ok()) {
    LEAF_CHECK(target.error().code == ErrorCode::kInvalidArgument);
    LEAF_CHECK(text.find('%') != std::string_view::npos);
    return ExpectOneLine(target.error().message);
  }
  LEAF_CHECK(text.find(target->raw_path) != std::string_view::npos);
  LEAF_CHECK(target->raw_path.find('?') == std::string::npos);
  // Written with every byte escaped it says the same.
  std::string written = "/";
  for (const std::string_view segment : target->segments) {
    LEAF_CHECK(!segment.empty());
    written += PercentEncoded(segment) + "/";
  }
  for (std::size_t i = 0; i < target->query.size(); ++i) {
    const auto& [key, value] = target->query[i];
    written += fmt::format("{}{}={}", i == 0 ? "?" : "&", PercentEncoded(key), PercentEncoded(value));
  }
  const auto again = server::ParseTarget(written);
  LEAF_CHECK(again.ok() && again->segments == target->segments && again->query == target->query);
  for (const auto& [key, value] : target->query) {
    const auto count = std::count_if(target->query.begin(), target->query.end(),
                                     [&key = key](const auto& entry) { return entry.first == key; });
    const auto found = target->Parameter(key);
    LEAF_CHECK(found.ok() == (count == 1));
    if (found.ok()) LEAF_CHECK(*found == value);
  }
  if (const auto query = server::ParseStatusQuery(*target); query.ok()) {
    constexpr std::uint64_t kMost = 1'000'000'000;
    LEAF_CHECK(query->offset <= kMost && query->limit <= kMost);
    LEAF_CHECK(query->problems.value_or(0) <= kMost);
  } else {
    LEAF_CHECK(query.error().code == ErrorCode::kInvalidArgument);
    ExpectOneLine(query.error().message);
  }
}

void HttpRequests(std::string_view input) {
  // Under every limit: how much is in a buffer when one is met depends on how the bytes came.
  constexpr std::size_t kBytesMax = std::size_t{12} * 1024;
  if (input.size() > kBytesMax) return;
  const std::vector<Received> whole = ReadRequests(input, kBytesMax, true);
  for (const Received& received : whole) CheckCredentials(received.authorization);
  // What is taken in the plain form the library would have read as well, and no differently.
  LEAF_CHECK(ReadRequests(input, kBytesMax, false) == whole);
  // Where a request ends is not a matter of packets.
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}})
    LEAF_CHECK(ReadRequests(input, piece, true) == whole);
  if (whole.empty()) return;
  Node node;
  for (const Received& received : whole) node.Ask(received);
}

}  // namespace leaf::fuzz
