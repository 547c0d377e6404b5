#include "leaf/server/http/http_protocol.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include "leaf/base/time.h"
#include "leaf/server/http/known_request.h"
#include "leaf/server/net/loop.h"
#include "leaf/server/visitor.h"

namespace leaf::server {
namespace {

constexpr std::string_view kOtherHost =
    "the Host field names another machine; if clients know this one by that name, add it to "
    "server.allowed_hosts";
constexpr std::string_view kOtherHostJson =
    R"({"code":"refused","message":"the Host field names another machine",)"
    R"("hint":"if clients know this server by that name, add it to server.allowed_hosts"})";
constexpr std::string_view kSpeaksTls =
    "this port speaks TLS: ask for https://, with the authority of this server's certificate";
constexpr std::string_view kTooManyUnread = "this server has too many answers that clients do not read\n";
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::uint32_t kRetrySeconds = 1;
constexpr int kFine = 200;

// A large answer counts until it is sent, or given up; one too many becomes an error. What was taken for it
// is lost: handlers refuse most of them before that.
void CountUnread(Response& response, UnreadAnswers& unread) {
  if (!response.is_large() || response.held) return;
  response.held = response.ids ? unread.batches.Hold(response.ids->held_bytes())
                               : unread.reports.Hold(response.body.capacity());
  if (response.held) return;
  response = Response{};
  response.status = 503;
  response.content_type = kPlainText;
  response.body = kTooManyUnread;
  response.retry_after_s = kRetrySeconds;
}

// The Date header; made now and then, by each thread for itself.
std::string_view DateText(const Clock& clock, MonotonicTime now) {
  // How long one is good without a look at the clock.
  constexpr std::chrono::milliseconds kDateTime{100};
  struct Made {
    MonotonicTime at;
    std::string text;
  };
  thread_local Made made;
  if (made.text.empty() || now - made.at >= kDateTime) {
    made.at = now;
    made.text = FormatHttpDate(std::chrono::floor<std::chrono::seconds>(clock.Wall()));
  }
  return made.text;
}

// The body of a large response.
class LongBody final : public LongAnswer {
 public:
  explicit LongBody(Response response) : response_(std::move(response)) {}

  std::string_view Peek(std::size_t most, std::string& scratch) const override {
    if (!response_.ids) return std::string_view(response_.body).substr(sent_, most);
    scratch.clear();
    response_.ids->Peek(most, scratch);
    return scratch;
  }

  bool Skip(std::size_t bytes) override {
    sent_ += bytes;
    if (response_.ids) response_.ids->Skip(bytes);
    return sent_ < response_.body_size();
  }

 private:
  Response response_;
  std::uint64_t sent_ = 0;
};

}  // namespace

class HttpProtocol final : public Protocol {
 public:
  // `bodies`: null where no route has a use for a long one.
  HttpProtocol(const HttpProtocolFactory& factory, const Origin& origin, UnreadBytes* bodies)
      : factory_(factory),
        checks_host_(!origin.is_local && factory.hosts_.ChecksListener(origin.on_loopback)),
        reader_(bodies),
        visitor_(factory.gate_, factory.clock_, origin.user) {}

  Step Handle(Stream& stream) override {
    bool is_counted = false;
    if (const std::string_view bytes = Bytes(stream); reader_.is_between_requests() && known_.IsNext(bytes)) {
      const Router::Again again = AnswerAgain(stream);
      if (again == Router::Again::kTaken) [[likely]]
        return Step::kAnswered;
      is_counted = again == Router::Again::kHandleCounted;
    }
    if (reader_.is_between_requests()) {
      if (const auto step = SkipEmptyLines(stream)) return *step;
    }
    switch (reader_.Read(stream.in())) {
      case RequestReader::Outcome::kMore:
        return Step::kMore;
      case RequestReader::Outcome::kContinue:
        stream.out() += kContinue;
        return Step::kMore;
      case RequestReader::Outcome::kBroken:
        is_head_ = reader_.is_head();
        Refuse(stream, reader_.status(), reader_.why());
        return Step::kAnswered;
      case RequestReader::Outcome::kRequest:
        break;
    }
    const ReceivedRequest& received = reader_.request();
    is_head_ = received.is_head;
    if (!MayAsk(stream, received)) return Step::kAnswered;
    says_keep_alive_ = received.says_keep_alive;
    // After the answer to a connection over a limit, too.
    if (!received.keep_alive || !stream.origin().refusal.empty()) stream.EndAfterAnswer();
    visitor_.KnowCertificate(stream.client_name());
    const access::Caller& caller = visitor_.Identify(received.authorization);
    SmallTake small_take;
    const Request request{.method = received.method,
                          .target = received.target,
                          .accept = received.accept,
                          .accept_language = received.accept_language,
                          .form = received.form,
                          .content_type = received.content_type,
                          .body = received.body,
                          .body_lost = received.body_lost,
                          .caller = &caller,
                          .wrong_credentials = visitor_.problem(),
                          .from_other_site = IsFromOtherSite(received),
                          .from_script = received.from_script,
                          .is_public_door = stream.origin().is_public_door,
                          .is_local = stream.origin().is_local,
                          .is_counted = is_counted,
                          .small_take = MayKeep(stream, caller) ? &small_take : nullptr};
    const WayBack back = stream.way_back();
    auto withdraw = factory_.router_.Handle(
        request,
        [back](Response response) {
          CountUnread(response, back.loop().shared().unread);
          back.Deliver(std::move(response), &HttpProtocol::WriteTo);
        },
        &route_);
    if (small_take.form != nullptr) {
      known_.Keep(Bytes(stream).substr(0, reader_.plain_size()), received.authorization, route_,
                  std::move(small_take));
    }
    reader_.Release(stream.in());
    if (stream.is_answered()) return Step::kAnswered;
    stream.Park(std::move(withdraw));
    return Step::kParked;
  }

  void HandleTimeout(Stream& stream) override {
    is_head_ = reader_.is_head();
    Refuse(stream, 408, "the request took too long to arrive");
  }

  void HandleNoTls(Stream& stream) override {
    // Requests begin with a method.
    const char first = *static_cast<const char*>(stream.in().data().data());
    if (first >= 'A' && first <= 'Z') Refuse(stream, 400, kSpeaksTls);
  }

 private:
  static std::string_view Bytes(Stream& stream) {
    const auto data = stream.in().data();
    return {static_cast<const char*>(data.data()), data.size()};
  }

  // Empty lines before a request are no part of it: some clients send one behind a body (RFC 9112, section
  // 2.2). The step, if nothing else has come.
  static std::optional<Step> SkipEmptyLines(Stream& stream) {
    constexpr std::string_view kEmptyLine = "\r\n";
    while (Bytes(stream).starts_with(kEmptyLine)) stream.in().consume(kEmptyLine.size());
    if (stream.in().size() == 0) return Step::kNothing;
    if (Bytes(stream) == kEmptyLine.substr(0, 1)) return Step::kMore;
    return std::nullopt;
  }

  // Whether the request that was read is worth keeping, if its answer is small.
  bool MayKeep(Stream& stream, const access::Caller& caller) const {
    const std::size_t size = reader_.plain_size();
    return size > 0 && size <= KnownRequest::kBytesMax && caller.limit == nullptr &&
           !known_.IsNext(Bytes(stream));
  }

  // Answers the request that is known, or nothing has happened and it has to be read.
  Router::Again AnswerAgain(Stream& stream) {
    visitor_.KnowCertificate(stream.client_name());
    const access::Caller& caller = visitor_.Identify(known_.authorization());
    if (std::uint64_t id = 0; known_.is_one_of_tag()) {
      const Router::Again again = factory_.router_.TryTakeOne(known_.take(), caller, id);
      if (again != Router::Again::kTaken) [[unlikely]]
        return again;
      const std::string_view date = BeginAnswer(stream);
      known_.Answer(id, stream.is_last(), date, stream.out());
    } else {
      IssuedIds ids;
      const Router::Again again = factory_.router_.TryTake(known_.take(), caller, ids);
      if (again != Router::Again::kTaken) return again;
      const std::string_view date = BeginAnswer(stream);
      ids.With([&](std::span<const IdRange> ranges) {
        known_.Answer(ranges, stream.is_last(), date, stream.out());
      });
    }
    const std::size_t size = known_.size();
    stream.metrics().Count(known_.route(), kFine, stream.answered_at() - stream.began_at());
    stream.in().consume(size);
    return Router::Again::kTaken;
  }

  // Returns the date that goes with the answer.
  std::string_view BeginAnswer(Stream& stream) {
    stream.BeginAnswer();
    return DateText(factory_.clock_, stream.answered_at());
  }

  // Whether the client may ask anything here; refused if not.
  bool MayAsk(Stream& stream, const ReceivedRequest& received) {
    const std::string_view refusal = stream.origin().refusal;
    if (!refusal.empty() && !Router::IsForWatchers(received.target)) {
      // The texts are static, and need no escapes.
      const std::string json =
          fmt::format(R"({{"code":"unavailable","message":"{}","hint":"retry later"}})", refusal);
      Refuse(stream, 503, refusal, kRetrySeconds, received.target.starts_with("/v1/") ? json : "");
      return false;
    }
    if (!checks_host_ || received.host == allowed_host_) return true;
    if (!factory_.hosts_.Allows(received.host)) {
      Refuse(stream, 421, kOtherHost, std::nullopt,
             received.target.starts_with("/v1/") ? kOtherHostJson : "");
      return false;
    }
    allowed_host_ = received.host;
    return true;
  }

  // A browser says it in Sec-Fetch-Site; one that does not know that field says where the page is from.
  bool IsFromOtherSite(const ReceivedRequest& received) const {
    if (received.fetch_site.empty()) [[likely]]
      return !received.origin.empty() && !factory_.hosts_.IsOwnOrigin(received.origin, received.host);
    return received.fetch_site != "same-origin" && received.fetch_site != "none";
  }

  // Answers what is no request; the connection has to end, since it is not known where the next one would
  // begin. `json`: the body for clients that expect JSON, instead of `why`; "" for none.
  void Refuse(Stream& stream, int status, std::string_view why,
              std::optional<std::uint32_t> retry_after_s = std::nullopt, std::string_view json = "") {
    route_ = Route::kOther;
    stream.EndAfterAnswer();
    Response response;
    response.status = status;
    response.content_type = json.empty() ? kPlainText : kJson;
    response.body = json.empty() ? why : json;
    if (json.empty()) response.body += '\n';
    response.retry_after_s = retry_after_s;
    Write(stream, response);
  }

  static void WriteTo(Stream& stream, Response& response) {
    static_cast<HttpProtocol&>(stream.protocol()).Write(stream, response);
  }

  void Write(Stream& stream, Response& response) {
    const std::string_view date = BeginAnswer(stream);
    const bool large = response.is_large();
    const Persistence persistence = stream.is_last()   ? Persistence::kClose
                                    : says_keep_alive_ ? Persistence::kKeepAlive
                                                       : Persistence::kDefault;
    Render(response, persistence, is_head_ || large, date, stream.out());
    stream.metrics().Count(route_, response.status, stream.answered_at() - stream.began_at());
    if (large && !is_head_) stream.SendLong(std::make_unique<LongBody>(std::move(response)));
  }

  const HttpProtocolFactory& factory_;
  const bool checks_host_;
  RequestReader reader_;
  Visitor visitor_;
  // Of the request under way:
  Route route_ = Route::kOther;
  bool says_keep_alive_ = false;
  bool is_head_ = false;
  std::string allowed_host_;  // the last Host field that was looked at
  KnownRequest known_;
};

std::unique_ptr<Protocol> HttpProtocolFactory::Make(const Origin& origin) const {
  UnreadAnswers& unread = router_.unread();
  // The routes that change tags are not behind the public door: what comes in there must not take the room of
  // operators.
  UnreadBytes* const bodies = origin.is_local         ? &unread.local_bodies
                              : origin.is_public_door ? nullptr
                                                      : &unread.bodies;
  return std::make_unique<HttpProtocol>(*this, origin, bodies);
}

}  // namespace leaf::server
