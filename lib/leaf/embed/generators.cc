// leaf::Generators: what leafctl serve puts together, without HTTP.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/base/text.h"
#include "leaf/config/loader.h"
#include "leaf/embed/code_store.h"
#include "leaf/embed/library_environment.h"
#include "leaf/embed/node.h"
#include "leaf/embed/stores.h"
#include "leaf/leaf.h"
#include "leaf/service/segment_service.h"
#include "leaf/sys/fork_guard.h"
#include "leaf/sys/process_file.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/state_dir.h"
#include "leaf/sys/thread_pool.h"

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

}  // namespace

// Of all kinds of generator: whether the process has forked since it was opened, and whether it was closed.
struct State {
  const std::uint64_t forks_when_opened = sys::WatchForks();
  std::atomic<bool> closed{false};
  // Calls that read or write the database by themselves, on their caller's thread; Close waits for those.
  Mutex mutex;
  Condition came_back;
  int outside LEAF_GUARDED_BY(mutex) = 0;

  bool forked() const { return sys::ForkCount() != forks_when_opened; }
};

namespace {

// A call that goes to the database, until destroyed.
class Outside {
 public:
  explicit Outside(State& state) : state_(&state) {}
  Outside(Outside&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Outside& operator=(Outside&&) = delete;
  ~Outside() {
    if (state_ == nullptr) return;
    const MutexLock lock(state_->mutex);
    --state_->outside;
    state_->came_back.NotifyAll();
  }

 private:
  State* state_;
};

// Errors: kUnavailable, once it was closed.
Result<Outside> GoOutside(State& state) {
  const MutexLock lock(state.mutex);
  if (state.closed.load()) return ClosedError();
  ++state.outside;
  return Outside(state);
}

// Until all have come back. Requires: state.closed, so that no more go.
void AwaitOutside(State& state) {
  const MutexLock lock(state.mutex);
  while (state.outside > 0) state.came_back.Wait(state.mutex);
}

}  // namespace

// ---- segments

class SegmentGenerator::Impl {
 public:
  Impl(State& state, const config::Config& config) : state_(state), config_(config) {}

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
    const auto count_max = static_cast<std::uint64_t>(config_.server.max_count);
    IdSpans spans;
    // A count over the limit is refused, also if the reserve has so many IDs just now.
    if (count > 0 && count <= count_max && service_->TryNext(tag, count, spans)) [[likely]]
      return spans;
    if (state_.closed.load()) return ClosedError();
    LEAF_RETURN_IF_ERROR(ValidateTag(tag));
    LEAF_RETURN_IF_ERROR(CheckCount(count, count_max));
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
    LEAF_ASSIGN_OR_RETURN(const auto outside, GoOutside(state_));
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
  State& state_;
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
  Impl(State& state, SegmentGenerator::Impl& segment, SnowflakeGenerator::Impl& snowflake)
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
      LEAF_ASSIGN_OR_RETURN(const auto outside, GoOutside(state_));
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
    LEAF_ASSIGN_OR_RETURN(const auto outside, GoOutside(state_));
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

  State& state_;
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
    for (const std::string& path : embed::SqliteFilesOf(environment_.config())) {
      LEAF_ASSIGN_OR_RETURN(sys::ProcessFile file, sys::ProcessFile::Note(path));
      sqlite_files_.push_back(std::move(file));
    }
    if (snowflake) LEAF_RETURN_IF_ERROR(snowflake_impl_.Count());
    LEAF_ASSIGN_OR_RETURN(
        node_, embed::Node::Open(
                   environment_,
                   {.segment = segment, .snowflake = snowflake, .process = std::string(kProcess)}, log_));
    LEAF_RETURN_IF_ERROR(CheckLock());
    if (segment) segment_impl_.Use(*node_);
    if (snowflake) snowflake_impl_.Use(*node_);
    if (!environment_.config().codes.key_file.empty()) {
      LEAF_ASSIGN_OR_RETURN(auto codes, embed::CodeStore::Open(environment_, embed::Store::Access::kWrite,
                                                               ClusterName(), &log_));
      comparing_.emplace("leaf-codes", 1, environment_.ClockInUse());
      codes->KeepComparing(*comparing_, environment_.ClockInUse(), log_);
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
    if (comparing_) comparing_->Stop();
    // Those that have begun; the others see that it is closed.
    AwaitOutside(state_);
    lock_.reset();
  }

  bool forked() const { return state_.forked(); }
  SegmentGenerator& segment() { return segment_; }
  SnowflakeGenerator& snowflake() { return snowflake_; }
  CodeGenerator& codes() { return codes_; }

 private:
  // The directory that the node has opened is the one that is locked.
  Result<void> CheckLock() {
    const MutexLock guard(close_mutex_);
    return lock_->Check();
  }

  embed::CodeStore::ClusterName ClusterName() {
    return [node = node_.get()]() -> Result<std::string> {
      if (node->snowflake() == nullptr) return DisabledError("snowflake");
      if (std::string name = node->snowflake()->Status().cluster.name; !name.empty()) return name;
      return Error{ErrorCode::kUnavailable, "there is no worker number yet", "retry soon"};
    };
  }

  State state_;
  embed::LibraryEnvironment environment_;
  embed::FunctionLogger log_;
  Mutex close_mutex_;
  // Given back when nothing more is issued.
  std::optional<sys::StateDirLock> lock_ LEAF_GUARDED_BY(close_mutex_);
  std::vector<sys::ProcessFile> sqlite_files_;  // until all connections to them are closed
  std::unique_ptr<embed::Node> node_;
  SegmentGenerator::Impl segment_impl_{state_, environment_.config()};
  SnowflakeGenerator::Impl snowflake_impl_{state_};
  CodeGenerator::Impl code_impl_{state_, segment_impl_, snowflake_impl_};
  std::optional<sys::ThreadPool> comparing_;  // of the records of codes, if there are any
  std::optional<sys::StateDirWatch> watch_;   // of both
  SegmentGenerator segment_{segment_impl_};
  SnowflakeGenerator snowflake_{snowflake_impl_};
  CodeGenerator codes_{code_impl_};
};

Result<Generators> Generators::Open(const GeneratorOptions& options) try {
  LEAF_ASSIGN_OR_RETURN(config::Resolved resolved, embed::ResolveOptions(options));
  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(resolved.config.state_dir));
  LEAF_ASSIGN_OR_RETURN(sys::StateDirLock lock,
                        sys::StateDirLock::Take(resolved.config.state_dir, sys::StateDirUse::kLibrary));
  Generators generators(std::make_unique<Impl>(std::move(resolved), options.log, std::move(lock)));
  LEAF_RETURN_IF_ERROR(generators.impl_->Start());
  return generators;
} catch (const std::system_error& failed) {
  if (failed.code() != std::errc::resource_unavailable_try_again) throw;
  // What was begun is closed by now.
  return Error{ErrorCode::kUnavailable, failed.what(), "let this process have more threads"};
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
