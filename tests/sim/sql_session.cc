// Connections to the simulated database, in the place of lib/leaf/sql/mysql_session.cc: SOCI's sessions over
// a network that is slow, loses replies, and is cut. Whatever is done here takes simulated time; a thread
// that waits is a task that is blocked.
//
// A request that has left is not taken back. It takes effect even if no thread waits for it any more, because
// the process was killed or its time-out is over. What the server sees of a connection comes in order.
#include <fmt/format.h>
#include <soci/mysql/soci-mysql.h>
#include <soci/soci.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/sql/error_map.h"
#include "leaf/sql/mysql_session.h"
#include "sim/sql_database.h"

namespace leaf::sim {
namespace {

using soci::details::exchange_type;

enum : unsigned { kCannotConnect = 2003, kGone = 2006 };

[[noreturn]] void Throw(unsigned number, const std::string& message) {
  throw soci::mysql_soci_error(message, static_cast<int>(number));
}

// One connection, as both ends share it.
struct Wire {
  std::uint64_t connection = 0;  // the server's number of it
  int on_their_way = 0;          // requests that no thread waits for any more
  bool closed = false;           // by the client
};

class SimSession final : public soci::details::session_backend {
 public:
  SimSession(SqlDatabase& database, const SqlDatabase::Client& client, std::size_t server, Nanos timeout)
      : database_(database), client_(client), server_(server), timeout_(timeout) {
    wire_->connection = database.server(server).Connect(database.world().now());
  }
  ~SimSession() override {
    wire_->closed = true;
    // A server that does not hear of it keeps what is open until it has waited long enough.
    if (wire_->on_their_way == 0 && database_.Reaches(client_.node, server_))
      database_.server(server_).Close(wire_->connection);
  }

  SqlServer::Outcome Send(const std::string& statement, const SqlServer::Binds& binds);

  bool is_connected() override { return !broken_; }
  void begin() override { Send("START TRANSACTION", {}); }
  void commit() override { Send("COMMIT", {}); }
  void rollback() override { Send("ROLLBACK", {}); }
  bool get_last_insert_id(soci::session& /*session*/, const std::string& /*table*/,
                          long long& value) override {
    value = insert_id_;
    return true;
  }
  std::string get_dummy_from_table() const override { return ""; }
  std::string get_backend_name() const override { return "mysql"; }
  soci::details::statement_backend* make_statement_backend() override;
  soci::details::rowid_backend* make_rowid_backend() override { return nullptr; }
  soci::details::blob_backend* make_blob_backend() override { return nullptr; }

 private:
  World& world() { return database_.world(); }
  SqlServer& server() { return database_.server(server_); }
  void Block(Nanos time) { world().Block(*client_.process, time); }
  // No thread waits for it any more.
  void ArriveLater(const std::string& statement, const SqlServer::Binds& binds, Nanos delay);
  [[noreturn]] void Break(Nanos wait);
  SqlServer::Outcome AtServer(const std::string& statement, const SqlServer::Binds& binds, Nanos deadline);

  SqlDatabase& database_;
  const SqlDatabase::Client client_;
  const std::size_t server_;
  const Nanos timeout_;
  const std::shared_ptr<Wire> wire_ = std::make_shared<Wire>();
  bool broken_ = false;
  std::int64_t insert_id_ = 0;
};

void SimSession::ArriveLater(const std::string& statement, const SqlServer::Binds& binds, Nanos delay) {
  ++wire_->on_their_way;
  world().Spawn(
      nullptr,
      [&database = database_, index = server_, wire = wire_, statement, binds] {
        SqlServer& server = database.server(index);
        // What has to wait for a row is not waited for.
        server.Execute(wire->connection, statement, binds, database.world().now());
        server.GiveUp(wire->connection);
        --wire->on_their_way;
        if (wire->closed && wire->on_their_way == 0) server.Close(wire->connection);
      },
      delay);
}

void SimSession::Break(Nanos wait) {
  broken_ = true;
  Block(wait);
  Throw(SqlServer::kLostConnection, "Lost connection to server during query");
}

SqlServer::Outcome SimSession::AtServer(const std::string& statement, const SqlServer::Binds& binds,
                                        Nanos deadline) {
  Nanos pause = kMilli;
  while (true) {
    SqlServer::Outcome outcome = server().Execute(wire_->connection, statement, binds, world().now());
    if (!outcome.blocked) return outcome;
    if (server().IsDeadlocked(wire_->connection)) {
      server().Rollback(wire_->connection);
      outcome.blocked = false;
      outcome.error = SqlServer::kDeadlock;
      outcome.message = "Deadlock found when trying to get lock";
      return outcome;
    }
    // innodb_lock_wait_timeout, which is as long as the client's own.
    if (world().now() >= deadline) {
      server().GiveUp(wire_->connection);
      outcome.blocked = false;
      outcome.error = SqlServer::kLockWait;
      outcome.message = "Lock wait timeout exceeded";
      return outcome;
    }
    Block(std::min(pause, deadline - world().now()));
    pause = std::min(2 * pause, 16 * kMilli);
  }
}

SqlServer::Outcome SimSession::Send(const std::string& statement, const SqlServer::Binds& binds) {
  Dice& dice = world().dice();
  if (client_.process->dead) Block(0);
  if (broken_) Throw(kGone, "Server has gone away");
  const Nanos deadline = world().now() + timeout_;
  const Nanos way_there = database_.TravelTime();
  const Nanos way_back = database_.TravelTime();
  if (!database_.Reaches(client_.node, server_)) Break(dice.Chance(0.5) ? kMilli : timeout_);
  if (way_there >= timeout_) {
    ArriveLater(statement, binds, way_there);
    Break(timeout_);
  }
  try {
    Block(way_there);
  } catch (const ProcessKilled&) {
    // It was sent, or not.
    if (dice.Chance(0.5)) ArriveLater(statement, binds, 0);
    throw;
  }
  if (!database_.Reaches(client_.node, server_)) Break(dice.Chance(0.5) ? kMilli : timeout_ - way_there);
  const bool writes = SqlServer::Writes(statement);
  if (dice.Chance(database_.refuses)) {
    if (!writes || dice.Chance(0.5)) Break(0);
    server().Rollback(wire_->connection);
    Throw(SqlServer::kDeadlock, "Deadlock found when trying to get lock");
  }
  // A reply that is lost is that of something which has happened, or not.
  const bool loses = writes && dice.Chance(database_.loses_reply);
  if (loses && dice.Chance(0.5)) Break(way_back);
  SqlServer::Outcome outcome = AtServer(statement, binds, deadline);
  if (loses) Break(way_back);
  if (world().now() + way_back > deadline) Break(deadline - world().now());
  Block(way_back);
  if (!database_.Reaches(client_.node, server_)) Break(dice.Chance(0.5) ? 0 : deadline - world().now());
  if (outcome.error == SqlServer::kLostConnection) Break(0);
  ++world().costs().statements;
  world().costs().rows += outcome.rows.size();
  if (outcome.error != 0) Throw(outcome.error, outcome.message);
  insert_id_ = outcome.insert_id;
  return outcome;
}

// ---- SOCI's side

class SimStatement;

class SimInto final : public soci::details::standard_into_type_backend {
 public:
  explicit SimInto(SimStatement& statement) : statement_(statement) {}
  void define_by_pos(int& position, void* data, exchange_type type) override {
    position_ = position++;
    data_ = data;
    type_ = type;
  }
  void pre_fetch() override {}
  void post_fetch(bool got_data, bool called_from_fetch, soci::indicator* indicator) override;
  void clean_up() override {}

 private:
  SimStatement& statement_;
  int position_ = 0;
  void* data_ = nullptr;
  exchange_type type_ = soci::details::x_char;
};

class SimUse final : public soci::details::standard_use_type_backend {
 public:
  explicit SimUse(SimStatement& statement) : statement_(statement) {}
  void bind_by_pos(int& /*position*/, void* /*data*/, exchange_type /*type*/, bool /*read_only*/) override {
    LEAF_CHECK(false);  // values have names
  }
  void bind_by_name(const std::string& name, void* data, exchange_type type, bool /*read_only*/) override {
    name_ = name;
    data_ = data;
    type_ = type;
  }
  void pre_use(const soci::indicator* indicator) override;
  void post_use(bool /*got_data*/, soci::indicator* /*indicator*/) override {}
  void clean_up() override {}

 private:
  SimStatement& statement_;
  std::string name_;
  void* data_ = nullptr;
  exchange_type type_ = soci::details::x_char;
};

class SimStatement final : public soci::details::statement_backend {
 public:
  explicit SimStatement(SimSession& session) : session_(session) {}
  void alloc() override {}
  void clean_up() override {}
  void prepare(const std::string& query, soci::details::statement_type /*type*/) override { query_ = query; }
  exec_fetch_result execute(int number) override {
    outcome_ = session_.Send(query_, binds_);
    next_ = 0;
    if (outcome_.rows.empty()) return ef_no_data;
    return number > 0 ? fetch(number) : ef_success;
  }
  exec_fetch_result fetch(int number) override {
    LEAF_CHECK(number == 1);
    if (next_ >= outcome_.rows.size()) return ef_no_data;
    ++next_;
    return ef_success;
  }
  long long get_affected_rows() override { return outcome_.affected; }
  int get_number_of_rows() override { return next_ > 0 ? 1 : 0; }
  std::string get_parameter_name(int /*index*/) const override { return ""; }
  std::string rewrite_for_procedure_call(const std::string& query) override { return query; }
  int prepare_for_describe() override {
    LEAF_CHECK(false);
    return 0;
  }
  void describe_column(int /*number*/, soci::data_type& /*type*/, std::string& /*name*/) override {
    LEAF_CHECK(false);
  }
  soci::details::standard_into_type_backend* make_into_type_backend() override { return new SimInto(*this); }
  soci::details::standard_use_type_backend* make_use_type_backend() override { return new SimUse(*this); }
  soci::details::vector_into_type_backend* make_vector_into_type_backend() override { return nullptr; }
  soci::details::vector_use_type_backend* make_vector_use_type_backend() override { return nullptr; }

  const SqlServer::Value& ValueAt(int position) const {
    return outcome_.rows.at(next_ - 1).at(static_cast<std::size_t>(position - 1));
  }
  void Bind(const std::string& name, SqlServer::Value value) { binds_[name] = std::move(value); }

 private:
  SimSession& session_;
  std::string query_;
  SqlServer::Binds binds_;
  SqlServer::Outcome outcome_;
  std::size_t next_ = 0;
};

void SimInto::post_fetch(bool got_data, bool /*called_from_fetch*/, soci::indicator* indicator) {
  if (!got_data) return;
  const SqlServer::Value& value = statement_.ValueAt(position_);
  if (std::holds_alternative<std::monostate>(value)) {
    if (indicator == nullptr) throw soci::soci_error("Null value fetched and no indicator defined.");
    *indicator = soci::i_null;
    return;
  }
  if (indicator != nullptr) *indicator = soci::i_ok;
  const auto* const number = std::get_if<std::int64_t>(&value);
  switch (type_) {
    case soci::details::x_stdstring:
      *static_cast<std::string*>(data_) =
          number != nullptr ? std::to_string(*number) : std::get<std::string>(value);
      return;
    case soci::details::x_long_long:
      *static_cast<long long*>(data_) =
          number != nullptr ? *number : std::stoll(std::get<std::string>(value));
      return;
    case soci::details::x_integer:
      *static_cast<int*>(data_) =
          number != nullptr ? static_cast<int>(*number) : std::stoi(std::get<std::string>(value));
      return;
    default:
      LEAF_CHECK(false);  // a type that nothing of lib/leaf/sql reads
  }
}

void SimUse::pre_use(const soci::indicator* indicator) {
  if (indicator != nullptr && *indicator == soci::i_null) return statement_.Bind(name_, {});
  switch (type_) {
    case soci::details::x_stdstring:
      return statement_.Bind(name_, *static_cast<std::string*>(data_));
    case soci::details::x_long_long:
      return statement_.Bind(name_, std::int64_t{*static_cast<long long*>(data_)});
    case soci::details::x_integer:
      return statement_.Bind(name_, std::int64_t{*static_cast<int*>(data_)});
    default:
      LEAF_CHECK(false);  // a type that nothing of lib/leaf/sql binds
  }
}

soci::details::statement_backend* SimSession::make_statement_backend() { return new SimStatement(*this); }

// Hands over a session that is made already.
class OneSession final : public soci::backend_factory {
 public:
  soci::details::session_backend* make_session(
      const soci::connection_parameters& /*parameters*/) const override {
    return std::exchange(next, nullptr);
  }
  static SimSession* next;
};
SimSession* OneSession::next = nullptr;

std::unique_ptr<soci::session> Connect(SqlDatabase& database, const sql::MysqlOptions& options,
                                       const Endpoint& endpoint) {
  static const OneSession factory;
  World& world = database.world();
  const SqlDatabase::Client* const client = database.FindClient(options.user);
  LEAF_CHECK(client != nullptr);
  Process& process = *client->process;
  const Nanos patience = NanosOf(options.connect_timeout);
  // There and back twice: the connection, and what the session is told first.
  const Nanos ways = 2 * (database.TravelTime() + database.TravelTime());
  if (process.dead) world.Block(process, 0);
  const std::size_t server = database.ServerBehind(endpoint.host, client->node);
  if (!database.Reaches(client->node, server))
    world.Block(process, world.dice().Chance(0.5) ? kMilli : patience);
  else
    world.Block(process, std::min(ways, patience));
  if (ways >= patience || !database.Reaches(client->node, server) || world.dice().Chance(database.refuses))
    Throw(kCannotConnect, "Can't connect to server");
  OneSession::next = new SimSession(database, *client, server, NanosOf(options.query_timeout));
  return std::make_unique<soci::session>(factory, "");
}

}  // namespace
}  // namespace leaf::sim

namespace leaf::sql {

Result<std::unique_ptr<soci::session>> OpenMysql(const MysqlOptions& options, const Endpoint& endpoint,
                                                 bool* /*full*/) {
  try {
    return sim::Connect(sim::SqlDatabase::running(), options, endpoint);
  } catch (const std::exception& exception) {
    return TranslateReason(exception, Phase::kStatement);
  }
}

bool CanReadWithoutWaiting(soci::session& /*session*/) { return true; }

}  // namespace leaf::sql
