// leaf::Generators: what leafctl serve puts together, without HTTP.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/text.h"
#include "leaf/config/loader.h"
#include "leaf/embed/code_store.h"
#include "leaf/embed/environment.h"
#include "leaf/embed/node.h"
#include "leaf/leaf.h"
#include "leaf/service/segment_service.h"
#include "leaf/sys/fork_guard.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/system_clock.h"

namespace leaf {
namespace {

using std::chrono::milliseconds;

// The process that raises marks, as people read it.
constexpr std::string_view kProcess = "libleaf";
// A longer wait is as good as one without an end.
constexpr milliseconds kWaitMax = std::chrono::hours{24};
// A parked request is answered at its deadline; one that is not answered so long after it was dropped.
constexpr std::chrono::seconds kAnswerGrace{10};
// Each takes a sys::ForkGuard.
constexpr int kSnowflakesMax = 48;
std::atomic<int> snowflakes_open{0};

// How often this process is a child of one that used this library: an object that was opened before the last
// fork is its parent's.
std::atomic<std::uint64_t> forks{0};

std::uint64_t WatchForks() {
  static const sys::ForkGuard guard([](void*) { forks.fetch_add(1, std::memory_order_relaxed); }, nullptr);
  return forks.load(std::memory_order_relaxed);
}

Error ForkedError() {
  return {ErrorCode::kRefused, "this generator belongs to the parent process",
          "open another one, on another state directory, after the fork"};
}

Error DisabledError(std::string_view mode) {
  return {ErrorCode::kDisabled, fmt::format("{} mode is off in this generator", mode),
          fmt::format("set GeneratorOptions::{} before Generators::Open", mode)};
}

Error ClosedError() { return {ErrorCode::kUnavailable, "this generator is closed", ""}; }

Result<void> CheckCount(std::uint64_t count, std::uint64_t most) {
  if (count == 0) return Error{ErrorCode::kInvalidArgument, "bad count 0: at least one ID", ""};
  if (count > most)
    return Error{ErrorCode::kTooLarge, fmt::format("bad count {}: at most {}", count, most), ""};
  return {};
}

// Waits for the answer to a request that was parked for `wait`.
template <typename T>
Result<T> Await(std::future<Result<T>>& answer, milliseconds wait) {
  if (answer.wait_for(wait + kAnswerGrace) == std::future_status::ready) return answer.get();
  return Error{ErrorCode::kExhausted, "no ID came in time", "retry soon"};
}

milliseconds Bounded(milliseconds timeout) { return std::clamp(timeout, milliseconds{0}, kWaitMax); }

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

// A key that a member of the options stands for is said there: were it said twice, one of the two would be
// ignored.
Result<void> CheckSetting(std::string_view key) {
  constexpr std::pair<std::string_view, std::string_view> kMembers[] = {
      {"state_dir", "state_dir"},
      {"segment.enabled", "segment"},
      {"segment.store", "store"},
      {"sqlite.path", "store"},
      {"mysql.endpoints", "store"},
      {"mysql.database", "store"},
      {"mysql.user", "store"},
      {"mysql.password_file", "store"},
      {"snowflake.enabled", "snowflake"},
      {"snowflake.registry", "snowflake"},
      {"snowflake.recycle", "snowflake"},
      {"snowflake.worker_id", "snowflake"},
      {"snowflake.cluster", "snowflake"},
      {"snowflake.address", "snowflake"},
      {"zookeeper.connect", "zookeeper"},
  };
  for (const auto& [name, member] : kMembers) {
    if (key != name) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad options: settings has {}, which GeneratorOptions::{} says", key, member),
                 fmt::format("set GeneratorOptions::{} instead", member)};
  }
  return {};
}

Result<config::Resolved> Resolve(const GeneratorOptions& options) {
  if (options.state_dir.empty()) {
    return Error{ErrorCode::kInvalidArgument, "bad options: state_dir is empty",
                 "name a directory that no other process uses, and that outlives this one"};
  }
  if (!options.segment && !options.snowflake) {
    return Error{ErrorCode::kInvalidArgument, "bad options: both modes are off",
                 "leave segment true, or set snowflake"};
  }
  if (options.snowflake && std::holds_alternative<ZookeeperNumber>(*options.snowflake) &&
      options.zookeeper.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "bad options: snowflake is a ZookeeperNumber, but zookeeper is empty",
                 "name the servers in GeneratorOptions::zookeeper"};
  }
  // Wherever the process goes later, it means what it meant now.
  std::error_code failed;
  const std::string state_dir =
      std::filesystem::absolute(options.state_dir, failed).lexically_normal().string();
  if (failed) {
    return Error{ErrorCode::kConfig,
                 fmt::format("cannot use state directory {}: {}", options.state_dir, failed.message()), ""};
  }
  config::LoadInput input;
  input.search_file = false;
  input.host = sys::HostName();
  const auto set = [&](std::string key, std::string text) {
    std::string origin = "GeneratorOptions, " + key;
    input.flags.push_back({std::move(key), std::move(text), std::move(origin)});
  };
  const auto set_if = [&](std::string key, const std::string& text) {
    if (!text.empty()) set(std::move(key), text);
  };
  set("state_dir", state_dir);
  set("segment.enabled", options.segment ? "true" : "false");
  std::visit(Overloaded{[&](const Sqlite& sqlite) {
                          set("segment.store", "sqlite");
                          set_if("sqlite.path", sqlite.path);
                        },
                        [&](const MySql& mysql) {
                          set("segment.store", "mysql");
                          set_if("mysql.endpoints", fmt::format("{}", fmt::join(mysql.endpoints, ",")));
                          set("mysql.database", mysql.database);
                          set("mysql.user", mysql.user);
                          set_if("mysql.password_file", mysql.password_file);
                        }},
             options.store);
  set("snowflake.enabled", options.snowflake ? "true" : "false");
  if (options.snowflake) {
    const auto set_node = [&](const char* registry, const std::string& cluster, const std::string& address) {
      set("snowflake.registry", registry);
      set_if("snowflake.cluster", cluster);
      set_if("snowflake.address", address);
    };
    std::visit(Overloaded{[&](const PrivateNumber&) { set_node("static", "", ""); },
                          [&](const FixedNumber& number) {
                            set_node("static", number.cluster, "");
                            set("snowflake.worker_id", fmt::format("{}", number.worker));
                          },
                          [&](const ZookeeperNumber& number) {
                            set_node("zookeeper", number.cluster, number.address);
                            if (number.lease) set("snowflake.recycle", "true");
                          },
                          [&](const SqlNumber& number) { set_node("sql", number.cluster, number.address); }},
               *options.snowflake);
  }
  set_if("zookeeper.connect", options.zookeeper);
  for (const auto& [key, text] : options.settings) {
    LEAF_RETURN_IF_ERROR(CheckSetting(key));
    input.flags.push_back({key, text, "GeneratorOptions::settings"});
  }
  auto resolved = config::Load(input);
  // There is nothing but what the caller gave.
  if (!resolved.ok())
    return Error{ErrorCode::kInvalidArgument, resolved.error().message, resolved.error().hint};
  return resolved;
}

class LibraryEnvironment final : public embed::Environment {
 public:
  explicit LibraryEnvironment(config::Resolved resolved) : resolved_(std::move(resolved)) {}
  Result<const config::Resolved*> Config() override { return &resolved_; }
  const Clock& ClockInUse() const override { return clock_; }
  std::optional<milliseconds> Timeout() const override { return std::nullopt; }

  const config::Config& config() const { return resolved_.config; }
  const std::vector<std::string>& warnings() const { return resolved_.warnings; }

 private:
  const config::Resolved resolved_;
  const sys::SystemClock clock_;
};

class FunctionLogger final : public Logger {
 public:
  explicit FunctionLogger(LogFunction function) : function_(std::move(function)) {}
  void Write(LogLevel level, std::string_view message) override {
    if (!function_) return;
    switch (level) {
      case LogLevel::kDebug:
        return function_(Severity::kDebug, message);
      case LogLevel::kInfo:
        return function_(Severity::kInfo, message);
      case LogLevel::kWarning:
        return function_(Severity::kWarning, message);
      case LogLevel::kError:
        return function_(Severity::kError, message);
    }
  }

 private:
  const LogFunction function_;
};

}  // namespace

// Of both kinds of generator: whether the process has forked since it was opened, and whether it was closed.
struct State {
  const std::uint64_t forks_when_opened = WatchForks();
  std::atomic<bool> closed{false};

  bool forked() const { return forks.load(std::memory_order_relaxed) != forks_when_opened; }
};

// ---- segments

class SegmentGenerator::Impl {
 public:
  Impl(const State& state, const config::Config& config) : state_(state), config_(config) {}

  // Without this the mode is off.
  void Use(embed::Node& node) {
    adapters_ = &node.segment_adapters();
    service_ = node.segment();
  }

  // `wait`: nothing for Take.
  Result<IdSpans> Obtain(std::string_view tag, std::uint64_t count, std::optional<milliseconds> wait) {
    // Before everything else: a lock of the parent may be held here for ever.
    if (state_.forked()) [[unlikely]]
      return ForkedError();
    if (service_ == nullptr) [[unlikely]]
      return DisabledError("segment");
    IdSpans spans;
    if (count > 0 && service_->TryNext(tag, count, spans)) [[likely]]
      return spans;
    if (state_.closed.load()) return ClosedError();
    LEAF_RETURN_IF_ERROR(ValidateTag(tag));
    LEAF_RETURN_IF_ERROR(CheckCount(count, static_cast<std::uint64_t>(config_.server.max_count)));
    const milliseconds patience = wait ? Bounded(*wait) : milliseconds{0};
    const auto promise = std::make_shared<std::promise<Result<IdSpans>>>();
    auto answer = promise->get_future();
    const service::ParkedRequest parked =
        service_->Next(tag, count, {patience, patience},
                       [promise](Result<IdSpans> result) { promise->set_value(std::move(result)); });
    // The range has been asked for; a caller that does not wait leaves the line.
    if (!wait) parked.Withdraw();
    auto result = Await(answer, patience);
    if (!wait && !result.ok() && result.error().code == ErrorCode::kExhausted) {
      return Error{ErrorCode::kExhausted,
                   fmt::format("tag {} has too few IDs in reserve right now", Quoted(tag)), "retry soon"};
    }
    return result;
  }

  // The plain case of Obtain, without what that needs for all others.
  bool TakeOne(std::string_view tag, std::uint64_t& id) {
    return !state_.forked() && service_ != nullptr && service_->TryNextOne(tag, id);
  }

  // Nothing where the mode is off, or is the parent's.
  std::optional<service::TagHandle> Tag(std::string_view tag) {
    if (state_.forked() || service_ == nullptr) return std::nullopt;
    return service_->Tag(tag);
  }
  bool forked() const { return state_.forked(); }

  Result<void> Add(std::string_view name, std::int64_t step) {
    if (state_.forked()) return ForkedError();
    if (service_ == nullptr) return DisabledError("segment");
    if (state_.closed.load()) return ClosedError();
    LEAF_RETURN_IF_ERROR(ValidateNewTag(name));
    if (step < 1 || step > kStepMax) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("bad step {}: not in 1..{}", step, kStepMax), ""};
    }
    core::NewTag tag;
    tag.tag = name;
    tag.step = step;
    LEAF_ASSIGN_OR_RETURN(const core::Mark mark, adapters_->marks().Load(name));
    tag.mark = mark.end;
    std::uint64_t witness = 0;
    if (adapters_->cluster() != nullptr) {
      LEAF_ASSIGN_OR_RETURN(witness, adapters_->cluster()->RaiseMark(tag));
    }
    sql::SqlSegmentStore segments(adapters_->store().database(),
                                  {.who = "library", .origin = sys::ProcessName("library")}, nullptr);
    LEAF_ASSIGN_OR_RETURN(const core::TagRow row, segments.Add(tag, core::WriteMode::kCommit));
    service_->Adopt(row, mark, witness);
    return {};
  }

 private:
  const State& state_;
  const config::Config& config_;
  embed::SegmentAdapters* adapters_ = nullptr;
  service::SegmentService* service_ = nullptr;
};

namespace {

Result<std::uint64_t> FirstOf(const Result<IdSpans>& spans) {
  if (!spans.ok()) return spans.error();
  return spans->ranges().front().begin;
}

Result<IdRanges> AllOf(const Result<IdSpans>& spans) {
  if (!spans.ok()) return spans.error();
  return IdRanges(spans->ranges().begin(), spans->ranges().end());
}

}  // namespace

Result<std::uint64_t> SegmentGenerator::Take(std::string_view tag) {
  std::uint64_t id = 0;
  if (impl_.TakeOne(tag, id)) [[likely]]
    return id;
  return FirstOf(impl_.Obtain(tag, 1, std::nullopt));
}
Result<IdRanges> SegmentGenerator::Take(std::string_view tag, std::uint64_t count) {
  return AllOf(impl_.Obtain(tag, count, std::nullopt));
}
Result<std::uint64_t> SegmentGenerator::Next(std::string_view tag, milliseconds timeout) {
  return FirstOf(impl_.Obtain(tag, 1, timeout));
}
Result<IdRanges> SegmentGenerator::Next(std::string_view tag, std::uint64_t count, milliseconds timeout) {
  return AllOf(impl_.Obtain(tag, count, timeout));
}
Result<void> SegmentGenerator::AddTag(std::string_view tag, std::int64_t step) {
  return impl_.Add(tag, step);
}

class TagHandle::Impl {
 public:
  Impl(SegmentGenerator::Impl& generator, std::string_view tag)
      : generator_(generator), tag_(tag), handle_(generator.Tag(tag)) {}

  Result<std::uint64_t> Take() {
    std::uint64_t id = 0;
    if (!generator_.forked() && handle_ && handle_->TryTakeOne(id)) [[likely]]
      return id;
    return FirstOf(generator_.Obtain(tag_, 1, std::nullopt));
  }

 private:
  SegmentGenerator::Impl& generator_;
  const std::string tag_;
  std::optional<service::TagHandle> handle_;
};

TagHandle::TagHandle(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TagHandle::~TagHandle() = default;
TagHandle::TagHandle(TagHandle&&) noexcept = default;
TagHandle& TagHandle::operator=(TagHandle&&) noexcept = default;
Result<std::uint64_t> TagHandle::Take() { return impl_->Take(); }

TagHandle SegmentGenerator::Tag(std::string_view tag) {
  return TagHandle(std::make_unique<TagHandle::Impl>(impl_, tag));
}

// ---- snowflakes

class SnowflakeGenerator::Impl {
 public:
  explicit Impl(const State& state) : state_(state) {}
  ~Impl() {
    if (counted_) snowflakes_open.fetch_sub(1);
  }

  // Errors: kRefused.
  Result<void> Count() {
    counted_ = true;
    if (snowflakes_open.fetch_add(1) < kSnowflakesMax) return {};
    return Error{ErrorCode::kRefused,
                 fmt::format("this process has {} snowflake generators already", kSnowflakesMax),
                 "one serves any number of threads"};
  }
  void Use(embed::Node& node) { service_ = node.snowflake(); }

  Result<core::SnowflakeRun> Obtain(std::uint64_t count, std::optional<milliseconds> wait) {
    // As above.
    if (state_.forked()) [[unlikely]]
      return ForkedError();
    if (service_ == nullptr) [[unlikely]]
      return DisabledError("snowflake");
    core::SnowflakeRun run;
    if (count > 0 && service_->TryNext(count, run)) [[likely]]
      return run;
    if (state_.closed.load()) return ClosedError();
    LEAF_RETURN_IF_ERROR(CheckCount(count, service_->count_max()));
    const milliseconds patience = wait ? Bounded(*wait) : milliseconds{0};
    const auto promise = std::make_shared<std::promise<Result<core::SnowflakeRun>>>();
    auto answer = promise->get_future();
    const std::uint64_t ticket = service_->Next(
        count, patience,
        [promise](Result<core::SnowflakeRun> result) { promise->set_value(std::move(result)); });
    if (!wait && ticket != 0) service_->Withdraw(ticket);
    return Await(answer, patience);
  }

  Result<std::uint64_t> Worker() const {
    if (state_.forked()) return ForkedError();
    if (service_ == nullptr) return DisabledError("snowflake");
    if (state_.closed.load()) return ClosedError();
    const service::SnowflakeStatus status = service_->Status();
    if (status.has_worker) return status.worker;
    LEAF_RETURN_IF_ERROR(service_->CanIssue());
    return Error{ErrorCode::kUnavailable, "there is no worker number yet", "retry soon"};
  }

 private:
  const State& state_;
  bool counted_ = false;
  service::SnowflakeService* service_ = nullptr;
};

namespace {

Result<std::uint64_t> FirstOf(const Result<core::SnowflakeRun>& run) {
  if (!run.ok()) return run.error();
  return run->source->FirstId(*run);
}

Result<IdRanges> AllOf(const Result<core::SnowflakeRun>& run) {
  if (!run.ok()) return run.error();
  return run->source->RangesOf(*run);
}

}  // namespace

Result<std::uint64_t> SnowflakeGenerator::Take() { return FirstOf(impl_.Obtain(1, std::nullopt)); }
Result<IdRanges> SnowflakeGenerator::Take(std::uint64_t count) {
  return AllOf(impl_.Obtain(count, std::nullopt));
}
Result<std::uint64_t> SnowflakeGenerator::Next(milliseconds timeout) {
  return FirstOf(impl_.Obtain(1, timeout));
}
Result<IdRanges> SnowflakeGenerator::Next(std::uint64_t count, milliseconds timeout) {
  return AllOf(impl_.Obtain(count, timeout));
}
Result<std::uint64_t> SnowflakeGenerator::Worker() const { return impl_.Worker(); }

// ---- codes

class CodeGenerator::Impl {
 public:
  Impl(const State& state, SegmentGenerator::Impl& segment, SnowflakeGenerator::Impl& snowflake)
      : state_(state), segment_(segment), snowflake_(snowflake) {}

  void Use(std::unique_ptr<embed::CodeStore> store) { store_ = std::move(store); }

  Result<std::vector<std::string>> Next(std::string_view tag, std::uint64_t count, milliseconds timeout) {
    LEAF_ASSIGN_OR_RETURN(const Codes codes, ToIssue(tag));
    if (tag == codes::kSnowflakeTag) return TextsOf(*codes, AllOf(snowflake_.Obtain(count, timeout)));
    return TextsOf(*codes, AllOf(segment_.Obtain(tag, count, timeout)));
  }

  Result<std::string> Of(std::string_view tag, std::uint64_t id) {
    LEAF_ASSIGN_OR_RETURN(const Codes codes, ToIssue(tag));
    return codes->Of(id);
  }

  Result<std::uint64_t> Reveal(std::string_view tag, std::string_view code) {
    LEAF_RETURN_IF_ERROR(Admit(tag));
    Codes codes = store_->book().FindToReveal(tag);
    // Codes of another process may have become longer.
    if (codes == nullptr || !codes->KnowsLengthOf(code)) {
      LEAF_ASSIGN_OR_RETURN(codes, store_->ToReveal(tag));
    }
    return codes->Reveal(code);
  }

 private:
  using Codes = embed::CodeStore::Codes;

  Result<void> Admit(std::string_view tag) const {
    // As above.
    if (state_.forked()) [[unlikely]]
      return ForkedError();
    if (state_.closed.load()) return ClosedError();
    if (store_ == nullptr) {
      return Error{
          ErrorCode::kConfig, "codes are not configured in this generator",
          "name a file that leafctl code keygen has made: codes.key_file in GeneratorOptions::settings"};
    }
    return ValidateTag(tag);
  }

  Result<Codes> ToIssue(std::string_view tag) {
    LEAF_RETURN_IF_ERROR(Admit(tag));
    if (Codes codes = store_->book().FindToIssue(tag)) return codes;
    return store_->ToIssue(tag);
  }

  static Result<std::vector<std::string>> TextsOf(const codes::TagCodes& codes,
                                                  const Result<IdRanges>& ranges) {
    if (!ranges.ok()) return ranges.error();
    LEAF_RETURN_IF_ERROR(codes.Check(ranges->back().end - 1));
    std::vector<std::string> texts;
    for (const IdRange& range : *ranges) {
      for (std::uint64_t id = range.begin; id < range.end; ++id) codes.Append(texts.emplace_back(), id);
    }
    return texts;
  }

  const State& state_;
  SegmentGenerator::Impl& segment_;
  SnowflakeGenerator::Impl& snowflake_;
  std::unique_ptr<embed::CodeStore> store_;  // null without a key
};

Result<std::string> CodeGenerator::Next(std::string_view tag, milliseconds timeout) {
  LEAF_ASSIGN_OR_RETURN(auto codes, impl_.Next(tag, 1, timeout));
  return std::move(codes.front());
}
Result<std::vector<std::string>> CodeGenerator::Next(std::string_view tag, std::uint64_t count,
                                                     milliseconds timeout) {
  return impl_.Next(tag, count, timeout);
}
Result<std::string> CodeGenerator::Of(std::string_view tag, std::uint64_t id) { return impl_.Of(tag, id); }
Result<std::uint64_t> CodeGenerator::Reveal(std::string_view tag, std::string_view code) {
  return impl_.Reveal(tag, code);
}

// ---- all

class Generators::Impl {
 public:
  Impl(config::Resolved resolved, LogFunction log, sys::StateDirLock lock)
      : environment_(std::move(resolved)), log_(std::move(log)), lock_(std::move(lock)) {}

  Result<void> Start() {
    const bool segment = environment_.config().segment.enabled;
    const bool snowflake = environment_.config().snowflake.enabled;
    for (const std::string& warning : environment_.warnings()) log_.Warning("{}", warning);
    if (snowflake) LEAF_RETURN_IF_ERROR(snowflake_impl_.Count());
    LEAF_ASSIGN_OR_RETURN(
        node_, embed::Node::Open(
                   environment_,
                   {.segment = segment, .snowflake = snowflake, .process = std::string(kProcess)}, log_));
    if (segment) segment_impl_.Use(*node_);
    if (snowflake) snowflake_impl_.Use(*node_);
    if (!environment_.config().codes.key_file.empty()) {
      LEAF_ASSIGN_OR_RETURN(auto codes, embed::CodeStore::Open(environment_, embed::Store::Access::kWrite,
                                                               ClusterName(), &log_));
      code_impl_.Use(std::move(codes));
    }
    // First what may be refused.
    if (snowflake) LEAF_RETURN_IF_ERROR(node_->StartSnowflakes());
    if (segment) node_->StartSegments();
    const MutexLock guard(close_mutex_);
    watch_.emplace(*lock_, environment_.ClockInUse(), [this](const Error& lost) {
      log_.Error("no more IDs: {}", lost.message);
      node_->Halt(lost);
    });
    return {};
  }

  void Close() {
    const MutexLock guard(close_mutex_);
    if (!lock_) return;
    state_.closed.store(true);
    watch_.reset();
    if (node_) node_->Stop();
    lock_.reset();
  }

  bool forked() const { return state_.forked(); }
  SegmentGenerator& segment() { return segment_; }
  SnowflakeGenerator& snowflake() { return snowflake_; }
  CodeGenerator& codes() { return codes_; }

 private:
  embed::CodeStore::ClusterName ClusterName() {
    return [node = node_.get()]() -> Result<std::string> {
      if (node->snowflake() == nullptr) return DisabledError("snowflake");
      if (std::string name = node->snowflake()->Status().cluster.name; !name.empty()) return name;
      return Error{ErrorCode::kUnavailable, "there is no worker number yet", "retry soon"};
    };
  }

  State state_;
  LibraryEnvironment environment_;
  FunctionLogger log_;
  Mutex close_mutex_;
  // Given back when nothing more is issued.
  std::optional<sys::StateDirLock> lock_ LEAF_GUARDED_BY(close_mutex_);
  std::unique_ptr<embed::Node> node_;
  SegmentGenerator::Impl segment_impl_{state_, environment_.config()};
  SnowflakeGenerator::Impl snowflake_impl_{state_};
  CodeGenerator::Impl code_impl_{state_, segment_impl_, snowflake_impl_};
  std::optional<sys::StateDirWatch> watch_;  // of both
  SegmentGenerator segment_{segment_impl_};
  SnowflakeGenerator snowflake_{snowflake_impl_};
  CodeGenerator codes_{code_impl_};
};

Result<Generators> Generators::Open(const GeneratorOptions& options) {
  LEAF_ASSIGN_OR_RETURN(config::Resolved resolved, Resolve(options));
  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(resolved.config.state_dir));
  LEAF_ASSIGN_OR_RETURN(sys::StateDirLock lock,
                        sys::StateDirLock::Take(resolved.config.state_dir, sys::StateDirUse::kLibrary));
  Generators generators(std::make_unique<Impl>(std::move(resolved), options.log, std::move(lock)));
  LEAF_RETURN_IF_ERROR(generators.impl_->Start());
  return generators;
}

Generators::Generators(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generators::Generators(Generators&&) noexcept = default;

Generators& Generators::operator=(Generators&& other) noexcept {
  const Generators former(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}

Generators::~Generators() {
  if (!impl_) return;
  if (impl_->forked()) {
    // Its threads are not here, and its locks may be held for ever: it is left as it is.
    static_cast<void>(impl_.release());
    return;
  }
  impl_->Close();
}

void Generators::Close() {
  if (impl_ && !impl_->forked()) impl_->Close();
}

SegmentGenerator& Generators::segment() {
  LEAF_CHECK(impl_ != nullptr);
  return impl_->segment();
}

SnowflakeGenerator& Generators::snowflake() {
  LEAF_CHECK(impl_ != nullptr);
  return impl_->snowflake();
}

CodeGenerator& Generators::codes() {
  LEAF_CHECK(impl_ != nullptr);
  return impl_->codes();
}

}  // namespace leaf
