// leafctl next
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "code_store.h"
#include "commands.h"
#include "daemons.h"
#include "leaf/base/duration.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/embed/node.h"
#include "leaf/sql/tag_orders.h"
#include "leaf/sys/paused_tags_file.h"
#include "leaf/sys/process_name.h"
#include "report.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::chrono::milliseconds kTakeTimeout{10'000};
// Between two attempts of --wait.
constexpr std::chrono::milliseconds kRetryPause{200};

struct NextOptions {
  std::optional<std::string> tag;
  std::string count = "1";
  std::string mode = "segment";
  bool direct = false;
  bool range = false;
  bool contiguous = false;
  std::string format = "dec";
  std::string wait;

  bool is_snowflake() const { return mode == "snowflake"; }
  // RunNext has checked the name.
  const IdFormatRow& form() const { return IdFormatRowOf(*ParseIdFormat(format)); }
  bool is_code() const { return form().format == IdFormat::kCode; }
  // Neither a number nor a range: the daemon that issues them writes them, since it knows its layout and its
  // key.
  bool is_text() const { return is_code() || form().has_time; }
};

// Writes IDs as they come, in text, or as one JSON document at the end.
class IdPrinter {
 public:
  IdPrinter(CommandContext& context, const NextOptions& options)
      : context_(context),
        tag_(options.tag),
        as_ranges_(options.range),
        key_(options.range       ? "ranges"
             : options.is_code() ? "codes"
                                 : "ids"),
        format_(options.form().format) {}

  // Needed before IDs are added in a form that is no number.
  void SetText(std::shared_ptr<const FixedIdText> text) { text_ = std::move(text); }

  // All that one answer gave. Errors: kInternal once the output cannot be written, so that nothing more is
  // taken for it.
  Result<void> Add(const std::vector<IdRange>& ranges) {
    for (const IdRange& range : ranges) taken_ += range.size();
    for (const IdRange& range : ranges) Print(range);
    return context_.out.failed() ? Flush() : Result<void>{};
  }

  // The same for IDs that a daemon has written.
  Result<void> AddTexts(const std::vector<std::string>& texts) {
    taken_ += texts.size();
    for (const std::string& text : texts) {
      if (context_.flags.json) {
        items_ += fmt::format("{}\"{}\"", items_.empty() ? "" : ",", text);
      } else if (!context_.out.failed()) {
        context_.out.Write(text + "\n");
      }
    }
    return context_.out.failed() ? Flush() : Result<void>{};
  }

  // What remains to be written. Errors: kInternal, with the number of IDs that have and have not been
  // written.
  Result<void> Finish() {
    if (context_.flags.json) {
      // Put together by hand: up to a hundred million IDs need no document in memory beside their text.
      context_.out.Write(
          fmt::format("{{{}\"{}\":[", tag_ ? fmt::format("\"tag\":{},", Json(*tag_).dump()) : "", key_));
      context_.out.Write(items_);
      context_.out.Write("]}\n");
    }
    return Flush();
  }

  std::uint64_t taken() const { return taken_; }
  // What daemons gave, over all attempts.
  client::SeenIds& seen() { return seen_; }

 private:
  Result<void> Flush() {
    auto written = context_.out.Flush();
    // A reader that has left a pipe has taken what it wanted, however much that was.
    if (written.ok() || context_.out.reader_left()) return written;
    Error error = std::move(written).error();
    error.message = fmt::format("wrote {} of {} ID{}, the rest is lost: {}", Written(), taken_,
                                taken_ == 1 ? "" : "s", error.message);
    return error;
  }

  // IDs in whole lines.
  std::uint64_t Written() const {
    const std::uint64_t lines = context_.out.lines_written();
    if (context_.flags.json) return lines == 0 ? 0 : taken_;
    if (!as_ranges_) return lines;
    const auto end =
        sizes_.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(lines, sizes_.size()));
    return std::accumulate(sizes_.begin(), end, std::uint64_t{0});
  }

  void Print(const IdRange& range) {
    if (context_.flags.json) {
      AddJson(range);
    } else if (as_ranges_) {
      std::string line;
      AppendId(line, range.begin, format_);
      line += ' ';
      AppendId(line, range.end, format_);
      context_.out.Write(line + "\n");
      sizes_.push_back(range.size());
    } else {
      for (std::uint64_t id = range.begin; id < range.end && !context_.out.failed(); ++id) {
        AppendOne(context_.out.buffer(), id);
        context_.out.Write("\n");
      }
    }
  }

  void AppendOne(std::string& out, std::uint64_t id) const {
    if (text_ != nullptr) {
      text_->Append(out, id);
    } else {
      AppendId(out, id, format_);
    }
  }

  void AddJson(const IdRange& range) {
    if (as_ranges_) {
      items_ += items_.empty() ? "{\"begin\":\"" : ",{\"begin\":\"";
      AppendId(items_, range.begin, format_);
      items_ += "\",\"end\":\"";
      AppendId(items_, range.end, format_);
      items_ += "\"}";
      return;
    }
    for (std::uint64_t id = range.begin; id < range.end; ++id) {
      items_ += items_.empty() ? "\"" : ",\"";
      AppendOne(items_, id);
      items_ += '"';
    }
  }

  CommandContext& context_;
  const std::optional<std::string> tag_;
  const bool as_ranges_;
  const std::string_view key_;  // of the list in the document
  const IdFormat format_;
  std::shared_ptr<const FixedIdText> text_;  // for IDs in a form that is no number
  std::string items_;
  std::vector<std::uint64_t> sizes_;  // of the ranges that were printed, each in a line
  std::uint64_t taken_ = 0;
  client::SeenIds seen_;
};

// Whether a daemon speaks for the state directory.
embed::ClusterLink::JoinAs JoinAs(const config::Resolved& resolved) {
  if (!embed::ClusterLink::IsConfigured(resolved)) return embed::ClusterLink::JoinAs::kCommand;
  const std::string& state_dir = resolved.config.state_dir;
  if (sys::StateDirLock::Take(state_dir, sys::StateDirUse::kCommand).ok())
    return embed::ClusterLink::JoinAs::kCommand;
  const auto holder = sys::StateDirLock::HolderOf(state_dir);
  return holder && holder->use == sys::StateDirUse::kCommand ? embed::ClusterLink::JoinAs::kCommand
                                                             : embed::ClusterLink::JoinAs::kBesideDaemon;
}

Result<std::shared_ptr<const FixedIdText>> CodesToIssue(CommandContext& context, std::string_view tag,
                                                        CodeStore::ClusterName cluster,
                                                        std::uint64_t last = 0) {
  LEAF_ASSIGN_OR_RETURN(const auto store,
                        CodeStore::Open(context, Store::Access::kWrite, std::move(cluster)));
  LEAF_ASSIGN_OR_RETURN(CodeStore::Codes codes, store->ToIssue(tag, last));
  return std::shared_ptr<const FixedIdText>(std::move(codes));
}

// Reserves exactly `count` IDs in the store, fenced like a daemon's grants.
Result<void> TakeDirect(CommandContext& context, const NextOptions& options, std::uint64_t count,
                        IdPrinter& printer) {
  const std::string& tag = *options.tag;
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  if (!resolved->config.segment.enabled) {
    return Error{ErrorCode::kDisabled, "segment mode is disabled", "set segment.enabled = true"};
  }
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kWrite));
  LEAF_ASSIGN_OR_RETURN(const auto marks, OpenMarks(context, "next"));
  // What was cut off on this node is so for all that issues from its state directory.
  sys::FileOps file_ops;
  LEAF_ASSIGN_OR_RETURN(const std::vector<core::PausedTag> paused,
                        sys::PausedTagsFile(resolved->config.state_dir, file_ops).Load());
  if (std::any_of(paused.begin(), paused.end(), [&](const auto& one) { return one.tag == tag; })) {
    return Error{ErrorCode::kPaused, fmt::format("tag {} is paused on this node", Quoted(tag)),
                 TagCommand("resume", tag)};
  }
  ContextLogger log(context);
  LEAF_ASSIGN_OR_RETURN(const auto cluster, embed::ClusterLink::Join(context, log, sys::ProcessName("next"),
                                                                     *marks, JoinAs(*resolved)));
  service::Granter granter(store->segments(), *marks, cluster ? &cluster->fence() : nullptr, context.clock,
                           log, ReplyTimeout(context, resolved->config));
  // The command refuses an unknown tag before it locks or makes anything, and takes no ID that has no code.
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, store->segments().Describe(tag));
  std::shared_ptr<const FixedIdText> codes;
  if (options.is_code()) {
    const std::uint64_t last = static_cast<std::uint64_t>(std::max<std::int64_t>(row.max_id, 0)) + count - 1;
    LEAF_ASSIGN_OR_RETURN(codes, CodesToIssue(context, tag, ClusterNameOf(resolved->config), last));
    LEAF_RETURN_IF_ERROR(codes->Check(last));
    printer.SetText(codes);
  }
  std::optional<service::StrictGrant> strict;
  if (cluster) {
    sql::SqlTagOrders orders(store->database());
    LEAF_ASSIGN_OR_RETURN(const auto table, orders.Read());
    if (table && table->IsStrict(tag)) {
      if (resolved->config.segment.witness_fallback) return service::NoStrictWithFallback(tag);
      strict = {.size = [count]() -> Result<core::GrantSize> {
                  return core::GrantSize{count, count};
                },
                .until = context.clock.Monotonic() + context.flags.timeout.value_or(kTakeTimeout)};
    }
  }
  const auto obtain = [&] {
    return granter.Obtain(tag, service::ExactSizer(count), nullptr, 0, strict ? &*strict : nullptr).grant;
  };
  LEAF_ASSIGN_OR_RETURN(
      const core::Grant grant,
      cluster ? cluster->Command(*marks).Obtain(context.flags.timeout.value_or(kTakeTimeout), obtain)
              : obtain());
  if (codes != nullptr) LEAF_RETURN_IF_ERROR(codes->Check(grant.range.end - 1));
  LEAF_RETURN_IF_ERROR(printer.Add({grant.range}));
  return printer.Finish();
}

// Issues from this state directory's own worker number, as a daemon would, and alone.
Result<void> TakeSnowflakesDirect(CommandContext& context, const NextOptions& options, std::uint64_t count,
                                  IdPrinter& printer) {
  // A batch needs a fraction of the window; what is more is waited for in between.
  constexpr std::uint64_t kBatch = 100'000;
  const std::chrono::milliseconds timeout = context.flags.timeout.value_or(kTakeTimeout);
  // Before the node: its threads log until they end.
  ContextLogger log(context);
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  if (!resolved->config.snowflake.enabled) {
    return Error{ErrorCode::kDisabled, "snowflake mode is disabled", "set snowflake.enabled = true"};
  }
  if (options.form().has_time) {
    LEAF_ASSIGN_OR_RETURN(
        const TimedIdText text,
        TimedIdText::Make(options.form().format, resolved->config.snowflake.layout.TimeSplit()));
    printer.SetText(std::make_shared<const TimedIdText>(text));
  }
  // Before the node, which ends first.
  LEAF_ASSIGN_OR_RETURN(const sys::StateDirLock lock, embed::LockStateDirForCommand(context, timeout));
  LEAF_ASSIGN_OR_RETURN(
      const auto node,
      embed::Node::Open(context, {.snowflake = true, .one_shot = true, .process = "next"}, log));
  LEAF_RETURN_IF_ERROR(lock.Check());
  service::SnowflakeService& snowflake = *node->snowflake();
  LEAF_RETURN_IF_ERROR(snowflake.Start());
  if (options.is_code()) {
    LEAF_ASSIGN_OR_RETURN(auto codes,
                          CodesToIssue(context, codes::kSnowflakeTag, [&snowflake]() -> Result<std::string> {
                            return snowflake.Status().cluster.name;
                          }));
    printer.SetText(std::move(codes));
  }
  const std::uint64_t batch = std::min(kBatch, snowflake.count_max());
  while (count > 0) {
    const std::uint64_t wanted = std::min(batch, count);
    std::promise<Result<core::SnowflakeRun>> answer;
    snowflake.Next(wanted, timeout,
                   [&](Result<core::SnowflakeRun> result) { answer.set_value(std::move(result)); });
    LEAF_ASSIGN_OR_RETURN(const core::SnowflakeRun run, answer.get_future().get());
    LEAF_RETURN_IF_ERROR(printer.Add(run.source->RangesOf(run)));
    count -= wanted;
  }
  return printer.Finish();
}

Result<void> TakeFromDaemon(CommandContext& context, const config::Resolved& resolved, const Daemons& daemons,
                            const NextOptions& options, std::uint64_t count, IdPrinter& printer,
                            bool& met_a_server) {
  LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(resolved));
  client::DaemonClient daemon(daemons.servers, context.flags.timeout.value_or(kTakeTimeout), TlsOf(resolved),
                              token);
  daemon.Remember(printer.seen());
  const auto sink = [&](const std::vector<IdRange>& ranges) { return printer.Add(ranges); };
  const std::uint64_t rest = count - printer.taken();
  const auto text_sink = [&](const std::vector<std::string>& texts) { return printer.AddTexts(texts); };
  auto taken = options.is_text() ? daemon.NextTexts(options.is_snowflake() ? "" : *options.tag,
                                                    options.form().form, rest, options.contiguous, text_sink)
               : options.is_snowflake() ? daemon.NextSnowflake(rest, sink)
               : options.contiguous     ? daemon.NextContiguous(*options.tag, rest, sink)
                                        : daemon.NextSegment(*options.tag, rest, sink);
  met_a_server = daemon.met_a_server();
  if (!taken.ok()) return taken;
  context.Detail(fmt::format("answered by {}", daemon.answered_by()));
  return printer.Finish();
}

// What is left of `count`, from a daemon or, where the user means that, from the store or the worker itself.
// `is_direct`: that some was taken without a daemon, and the rest is, too.
Result<void> TakeOnce(CommandContext& context, const NextOptions& options, std::uint64_t count,
                      IdPrinter& printer, bool& is_direct) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const auto take_direct = [&] {
    const std::uint64_t rest = count - printer.taken();
    return options.is_snowflake() ? TakeSnowflakesDirect(context, options, rest, printer)
                                  : TakeDirect(context, options, rest, printer);
  };
  if (is_direct) return take_direct();

  const Daemons daemons = FindDaemons(*resolved);
  // What answers there as another program would is no reason to go elsewhere: it may be a daemon's proxy.
  bool met_a_server = false;
  auto taken = TakeFromDaemon(context, *resolved, daemons, options, count, printer, met_a_server);
  if (taken.ok() || taken.error().code != ErrorCode::kUnreachable || daemons.configured || met_a_server ||
      printer.taken() > 0)
    return taken;
  // No daemon is there. `next` means this store (or worker) if the user has configured it, or nothing at all.
  const bool store_configured =
      options.is_snowflake()
          ? resolved->IsSet("snowflake.")
          : resolved->IsSet("segment.store") || resolved->IsSet("sqlite.") || resolved->IsSet("mysql.");
  if (!store_configured && resolved->AnythingSet()) {
    return Error{ErrorCode::kUnreachable,
                 fmt::format("no daemon answers, and no {} is configured",
                             options.is_snowflake() ? "snowflake worker" : "store"),
                 fmt::format("start leafctl serve, name one with --server, or {} with --direct",
                             options.is_snowflake() ? "issue here" : "take from the store")};
  }
  context.Detail(options.is_snowflake() ? "no daemon answers, issuing here"
                                        : "no daemon answers, taking from the store");
  taken = take_direct();
  is_direct = printer.taken() > 0;
  return taken;
}

// What waiting can mend: a daemon or a store that is down, restarts or drains; a worker that waits until the
// clock has passed what it may have issued before a crash.
bool IsPassing(const Error& error) {
  const ExitCode code = ExitCodeOf(error.code);
  return code == ExitCode::kNoDaemon || code == ExitCode::kBackend || error.code == ErrorCode::kClock;
}

// Whether it ended early, and after how many IDs.
Result<void> WithCount(Result<void> taken, const CommandContext& context, const IdPrinter& printer,
                       std::uint64_t count) {
  if (taken.ok() || printer.taken() == 0 || context.out.failed()) return taken;
  Error error = std::move(taken).error();
  error.message = fmt::format("{} of {} IDs were taken, then: {}", printer.taken(), count, error.message);
  return error;
}

// Whether the format, and --range, are for the IDs that are asked for.
Result<void> CheckFormat(const NextOptions& options) {
  if (options.form().has_time && !options.is_snowflake()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--format {} is for snowflake IDs, which have a time, not for a tag's", options.format),
        fmt::format("leafctl next --mode snowflake --format {}", options.format)};
  }
  if (options.range && options.is_text()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--range has no --format {}, which is of single IDs", options.format), ""};
  }
  if (options.is_code() && options.tag && !options.is_snowflake() && *options.tag == codes::kSnowflakeTag) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("tag {} has no codes: with codes this name means snowflake IDs", Quoted(*options.tag)),
        "leafctl next --mode snowflake --format code"};
  }
  return {};
}

Result<void> RunNext(CommandContext& context, NextOptions options) {
  // A UUIDv7 or a ULID is of a snowflake ID in any case.
  if (!options.tag && options.form().has_time) options.mode = "snowflake";
  if (!options.tag && !options.is_snowflake()) {
    return Error{ErrorCode::kInvalidArgument, "no TAG is given",
                 "leafctl next TAG, or leafctl next --mode snowflake"};
  }
  if (options.tag) LEAF_RETURN_IF_ERROR(ValidateTag(*options.tag));
  LEAF_RETURN_IF_ERROR(CheckFormat(options));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t count, ParseUnsigned("-n", options.count, 1, kNextCountMax));
  std::chrono::milliseconds wait{0};
  if (!options.wait.empty()) {
    const auto parsed = ParseDuration(options.wait);
    if (!parsed.ok()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad --wait {}: not a duration such as 30s or 5m", Quoted(options.wait)), ""};
    }
    wait = *parsed;
  }
  if (options.contiguous && options.is_snowflake()) {
    return Error{ErrorCode::kInvalidArgument, "--contiguous is for a tag's IDs, not for snowflake IDs", ""};
  }
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  if (options.direct && resolved->origins.at("client.servers") == "--server") {
    return Error{ErrorCode::kInvalidArgument, "--direct and --server exclude each other", ""};
  }
  if (options.range && !context.flags.json && context.out.is_terminal())
    context.Note("BEGIN (inclusive)  END (exclusive)");
  IdPrinter printer(context, options);
  const MonotonicTime deadline = context.clock.Monotonic() + wait;
  bool told = false;
  bool is_direct = options.direct;
  for (;;) {
    auto taken = WithCount(TakeOnce(context, options, count, printer, is_direct), context, printer, count);
    if (taken.ok() || !IsPassing(taken.error()) || context.out.failed() ||
        context.clock.Monotonic() + kRetryPause > deadline) {
      // Lines are out as they come; a document is written now, with the IDs that there are.
      if (!taken.ok() && context.flags.json && printer.taken() > 0 && !context.out.failed())
        LEAF_RETURN_IF_ERROR(printer.Finish());
      return taken;
    }
    if (!told)
      context.Note(fmt::format("leafctl: {}; trying again for {}", taken.error().message, options.wait));
    told = true;
    context.clock.WaitUntil(context.clock.Monotonic() + kRetryPause);
  }
}

}  // namespace

Run AddNext(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<NextOptions>();
  app.add_option("TAG", options->tag, "The tag; not needed in snowflake mode");
  app.add_option("-n,--count", options->count, "How many IDs, 1 to 100000000")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--mode", options->mode, "How IDs are made")
      ->check(CLI::IsMember({"segment", "snowflake"}))
      ->type_name("MODE")
      ->capture_default_str();
  AddServerFlag(app, context, kServerMeaning);
  app.add_flag("--direct", options->direct,
               "Without a daemon: reserve exactly N from the store, or issue from this state directory's "
               "worker number");
  app.add_option("--wait", options->wait,
                 "Keep trying this long while the daemon or the store is down or restarts, such as 30s")
      ->type_name("DURATION")
      ->check(NotEmpty);
  app.add_flag("--range", options->range,
               "Print ranges, 'BEGIN END' with END exclusive, instead of single IDs");
  app.add_flag("--contiguous", options->contiguous,
               "IDs that follow each other without a gap, at most server.max_count of them");
  std::vector<std::string> formats;
  for (const IdFormatRow& row : IdFormats()) formats.emplace_back(row.name);
  app.add_option("--format", options->format,
                 "Format of an ID; uuidv7 and ulid of snowflake IDs, code with codes.key_file")
      ->check(CLI::IsMember(formats))
      ->type_name("FORMAT")
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  leafctl next pay\n"
      "  leafctl next pay -n 100 --range\n"
      "  leafctl next pay --wait 30s\n"
      "  leafctl next --mode snowflake\n"
      "  leafctl next --format uuidv7\n"
      "  leafctl next pay --format code -n 10\n"
      "  leafctl next pay --server http://10.0.0.1:8080");
  return [options](CommandContext& run_context) { return RunNext(run_context, *options); };
}

}  // namespace leaf::cmd
