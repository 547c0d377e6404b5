#include "leaf/server/resp/redis_protocol.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "leaf/server/error_meaning.h"
#include "leaf/server/net/loop.h"
#include "leaf/server/resp/command_reader.h"
#include "leaf/server/resp/take.h"
#include "leaf/server/resp/transaction.h"

namespace leaf::server::resp {
namespace {

constexpr int kBadRequest = 400;

// A request for IDs that outlives its command.
struct ParkedTake {
  explicit ParkedTake(const TakeCommand& parked) : tag(parked.ids.tag), take(parked) { take.ids.tag = tag; }
  ParkedTake(const ParkedTake&) = delete;
  ParkedTake& operator=(const ParkedTake&) = delete;

  const std::string tag;
  TakeCommand take;
};

// A reply that stands in memory, and counts there until it is sent.
class HeldReply final : public LongAnswer {
 public:
  HeldReply(std::string text, Transaction::Held held) : text_(std::move(text)), held_(std::move(held)) {}

  std::string_view Peek(std::size_t most, std::string&) const override {
    return std::string_view(text_).substr(sent_, most);
  }
  bool Skip(std::size_t bytes) override {
    sent_ += bytes;
    return sent_ < text_.size();
  }

 private:
  const std::string text_;
  const Transaction::Held held_;
  std::size_t sent_ = 0;
};

// What comes back for a command that was parked.
struct LateReply {
  std::string text{};
  std::unique_ptr<LongAnswer> rest{};
  Route route = Route::kRedisOther;
  int status = kFine;
  std::vector<Transaction::Outcome> outcomes{};  // of the commands of a transaction
};

class RedisProtocol final : public Protocol {
 public:
  RedisProtocol(const RedisBackend& backend, const Origin& origin, std::uint64_t id)
      : backend_(backend), visitor_(backend.gate, backend.clock, origin.user) {
    session_.visitor = &visitor_;
    session_.id = id;
    session_.since = backend.clock.Monotonic();
  }

  // Clients keep connections in stock, and some say nothing until one is needed.
  bool may_begin_silent() const override { return true; }
  bool tells_of_the_end() const override { return false; }

  Step Handle(Stream& stream) override {
    while (stream.in().size() > 0) {
      const std::string_view bytes = Bytes(stream);
      if (reader_.is_between_commands() && known_.IsNext(bytes) && !queue_) return TakeAgain(stream);
      switch (reader_.Read(bytes)) {
        case CommandReader::Outcome::kMore:
          return Step::kMore;
        case CommandReader::Outcome::kBroken:
          Refuse(stream, fmt::format("ERR {}", reader_.why()));
          return Step::kAnswered;
        case CommandReader::Outcome::kNothing:
          Release(stream);
          continue;
        case CommandReader::Outcome::kCommand:
          break;
      }
      const Step step = Do(stream, reader_.words());
      Release(stream);
      return step;
    }
    return Step::kNothing;
  }

  void HandleTimeout(Stream& stream) override {
    Refuse(stream, "ERR Protocol error: the command took too long to arrive");
  }

 private:
  static std::string_view Bytes(Stream& stream) {
    const auto data = stream.in().data();
    return {static_cast<const char*>(data.data()), data.size()};
  }

  void Release(Stream& stream) {
    stream.in().consume(reader_.size());
    reader_.Release();
  }

  // The connection ends: where the next command would begin is not known, or there is no place for it.
  void Refuse(Stream& stream, std::string_view text) {
    stream.EndAfterAnswer();
    ReplyWriter(session_.version, stream.out()).Error(text);
    End(stream, Route::kRedisOther, kBadRequest);
  }

  // The reply is written.
  static void End(Stream& stream, Route route, int status) {
    stream.BeginAnswer();
    Count(stream, route, status);
  }
  static void Count(Stream& stream, Route route, int status) {
    stream.metrics().Count(route, status, stream.answered_at() - stream.began_at());
  }

  Step Do(Stream& stream, Words words) {
    if (const std::string_view refusal = stream.origin().refusal; !refusal.empty()) {
      Refuse(stream, fmt::format("ERR max number of clients reached: {}", refusal));
      return Step::kAnswered;
    }
    ReplyWriter reply(session_.version, stream.out());
    const CommandSpec* const command = FindCommand(words.front());
    if (command == nullptr || !HasRightArity(*command, words.size())) [[unlikely]] {
      GiveUpQueue(command);
      const int status = Fail(reply, command == nullptr ? UnknownCommand(words) : WrongArity(*command));
      End(stream, command == nullptr ? Route::kRedisOther : command->route, status);
      return Step::kAnswered;
    }
    if (Refused(stream, *command)) [[unlikely]]
      return Step::kAnswered;
    int status = kFine;
    switch (command->kind) {
      case CommandKind::kEnds:
        status = DoEnd(stream, *command, reply);
        break;
      case CommandKind::kTransaction:
        if (command->route == Route::kRedisExec) return Execute(stream, *command, reply);
        status = command->name == "multi" ? Multi(reply) : Discard(reply);
        break;
      case CommandKind::kTakesIds:
        if (!queue_) return Take(stream, *command, words);
        return EndQueued(stream, *command, Queue(*command, words, reply));
      case CommandKind::kAnswered:
        if (queue_) return EndQueued(stream, *command, Queue(*command, words, reply));
        status = command->handler({backend_, session_, words}, reply);
    }
    End(stream, command->route, status);
    return Step::kAnswered;
  }

  // True if the caller may not use the command: the reply is an error then.
  bool Refused(Stream& stream, const CommandSpec& command) {
    visitor_.KnowCertificate(stream.client_name());
    KnowCaller();
    ReplyWriter reply(session_.version, stream.out());
    const auto refused = RefuseCommand(command, session_, reply);
    if (!refused) [[likely]]
      return false;
    GiveUpQueue(&command);
    End(stream, command.route, *refused);
    return true;
  }

  // `command` was refused, as if it had never come. With EXEC the transaction has ended all the same.
  void GiveUpQueue(const CommandSpec* command) {
    if (!queue_) return;
    if (command != nullptr && command->route == Route::kRedisExec) {
      queue_.reset();
    } else {
      queue_->Spoil();
    }
  }

  // Its token may have expired since the last command, or be gone from the file.
  void KnowCaller() {
    visitor_.Current();
    if (session_.caller != visitor_.held()) session_.caller = visitor_.held();
  }

  int DoEnd(Stream& stream, const CommandSpec& command, ReplyWriter& reply) {
    queue_.reset();
    if (command.name == "quit") {
      stream.EndAfterAnswer();
      reply.Simple("OK");
      return kFine;
    }
    session_.version = Version::kResp2;
    session_.name.clear();
    visitor_.LogOut();
    reply.Simple("RESET");
    return kFine;
  }

  int Multi(ReplyWriter& reply) {
    if (queue_) return Fail(reply, "ERR MULTI calls can not be nested");
    queue_.emplace();
    reply.Simple("OK");
    return kFine;
  }

  int Discard(ReplyWriter& reply) {
    if (!queue_) return Fail(reply, "ERR DISCARD without MULTI");
    queue_.reset();
    reply.Simple("OK");
    return kFine;
  }

  int Queue(const CommandSpec& command, Words words, ReplyWriter& reply) {
    if (!command.in_transactions) {
      queue_->Spoil();
      return Fail(reply, fmt::format("ERR Command not allowed inside a transaction: '{}'", command.name));
    }
    if (const auto added = queue_->Add(backend_, command, words); !added.ok())
      return Fail(reply, added.error());
    reply.Simple("QUEUED");
    return kFine;
  }

  // What is queued counts once it is done.
  static Step EndQueued(Stream& stream, const CommandSpec& command, int status) {
    if (status == kFine) {
      stream.BeginAnswer();
    } else {
      End(stream, command.route, status);
    }
    return Step::kAnswered;
  }

  Step Execute(Stream& stream, const CommandSpec& command, ReplyWriter& reply) {
    if (!queue_ || queue_->is_spoilt()) {
      const std::string_view why =
          queue_ ? "EXECABORT Transaction discarded because of previous errors." : "ERR EXEC without MULTI";
      queue_.reset();
      End(stream, command.route, Fail(reply, why));
      return Step::kAnswered;
    }
    const auto transaction = std::make_shared<Transaction>(
        backend_, *std::move(queue_), session_,
        [back = stream.way_back(), route = command.route](Transaction::Answer answer) {
          LateReply late{.route = route, .outcomes = std::move(answer.outcomes)};
          if (answer.held.empty()) {
            late.text = std::move(answer.reply);
          } else {
            late.rest = std::make_unique<HeldReply>(std::move(answer.reply), std::move(answer.held));
          }
          back.Deliver(std::move(late), &RedisProtocol::WriteTo);
        });
    queue_.reset();
    transaction->Run();
    return ParkUnlessAnswered(stream, [transaction] { transaction->Withdraw(); });
  }

  // The command that is known.
  Step TakeAgain(Stream& stream) {
    const Step step =
        Refused(stream, known_.command()) ? Step::kAnswered : Take(stream, known_.command(), known_.take());
    stream.in().consume(known_.size());
    return step;
  }

  Step Take(Stream& stream, const CommandSpec& command, Words words) {
    const auto take = ReadTake(backend_, command, words);
    if (!take.ok()) {
      ReplyWriter reply(session_.version, stream.out());
      End(stream, command.route, Fail(reply, take.error()));
      return Step::kAnswered;
    }
    if (IsOneOfTag(*take)) known_.Keep(Bytes(stream).substr(0, reader_.size()), command, *take);
    return Take(stream, command, *take);
  }

  Step Take(Stream& stream, const CommandSpec& command, const TakeCommand& take) {
    ReplyWriter reply(session_.version, stream.out());
    const auto fail = [&](const Error& error) {
      End(stream, command.route, Fail(reply, error));
      return Step::kAnswered;
    };
    if (const auto denied = RefuseCaller(backend_, take, session_, reply)) [[unlikely]] {
      End(stream, command.route, *denied);
      return Step::kAnswered;
    }
    if (const auto refused = RefuseTake(backend_, take)) return fail(*refused);
    if (IsOneOfTag(take)) {
      if (std::uint64_t id = 0; backend_.issuer.TryTakeOne(take.ids.tag, id)) [[likely]] {
        rising_.Append(id, stream.out());
        End(stream, command.route, kFine);
        return Step::kAnswered;
      }
    } else if (IssuedIds ids; backend_.issuer.TryTake(take.ids, ids)) {
      auto rest = WriteIds(backend_, take, ids, reply);
      if (!rest.ok()) return fail(rest.error());
      End(stream, command.route, kFine);
      if (*rest) stream.SendLong(*std::move(rest));
      return Step::kAnswered;
    }
    if (const auto good = CheckTag(take); !good.ok()) return fail(good.error());
    const auto waiting = std::make_shared<const ParkedTake>(take);
    auto withdraw = backend_.issuer.Park(
        waiting->take.ids, [&backend = backend_, waiting, back = stream.way_back(), route = command.route,
                            version = session_.version](const Result<IssuedIds>& result) {
          LateReply late{.route = route};
          ReplyWriter writer(version, late.text);
          if (!result.ok()) {
            late.status = Fail(writer, result.error());
          } else if (auto rest = WriteIds(backend, waiting->take, *result, writer); rest.ok()) {
            late.rest = *std::move(rest);
          } else {
            late.status = Fail(writer, rest.error());
          }
          back.Deliver(std::move(late), &RedisProtocol::WriteTo);
        });
    return ParkUnlessAnswered(stream, std::move(withdraw));
  }

  static Step ParkUnlessAnswered(Stream& stream, Stream::Withdraw withdraw) {
    if (stream.is_answered()) return Step::kAnswered;
    stream.Park(std::move(withdraw));
    return Step::kParked;
  }

  static void WriteTo(Stream& stream, LateReply& late) {
    stream.out() += late.text;
    End(stream, late.route, late.status);
    for (const Transaction::Outcome& one : late.outcomes) Count(stream, one.route, one.status);
    if (late.rest) stream.SendLong(std::move(late.rest));
  }

  const RedisBackend& backend_;
  CommandReader reader_{kReadBytesMax};
  Visitor visitor_;
  Session session_;
  std::optional<QueuedCommands> queue_;  // between MULTI and EXEC
  KnownTake known_;
  RisingIntegers rising_;
};

}  // namespace
}  // namespace leaf::server::resp

namespace leaf::server {

std::unique_ptr<Protocol> RedisProtocolFactory::Make(const Origin& origin) const {
  return std::make_unique<resp::RedisProtocol>(backend_, origin, next_client_.fetch_add(1));
}

}  // namespace leaf::server
