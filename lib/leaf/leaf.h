// The library: 64-bit IDs, unique everywhere, inside a program of your own. What leafctl serve does, without
// HTTP:
//
//   Generators           one state directory, and what issues IDs from it:
//     SegmentGenerator     ranges out of the table leaf_alloc in MySQL, MariaDB or SQLite
//     SnowflakeGenerator   clock, worker number and sequence; the number is a fixed one, ZooKeeper's or SQL's
//     CodeGenerator        codes of the IDs of both, which tell nothing, and the IDs of codes
//   Client               asks leafctl daemons, those of the same data centre first
//   DecodeSnowflake, EncodeSnowflake, FormatSnowflake, ParseSnowflake
//
// Client and the functions are in component `client` of the package (CMake: leaf::client, pkg-config:
// leaf-client), which needs neither a database nor ZooKeeper; everything is in `generators`
// (leaf::generators, leaf). tests/packages/example in the sources, /usr/share/doc/libleaf-dev/examples once
// installed, is a complete program.
//
// *Never the same ID twice* holds for as long as each state directory stays on its disk and is used in one
// place: it has what this node was granted (marks) and how far its worker number may have issued (the
// ceiling). It is locked while open, in the same way as by leafctl serve and by leafctl next --mode
// snowflake, so that neither of them, nor a second process with this library, issues from it at the same
// time. Do not copy it and do not put it on a file system that forgets. leafctl's other commands may be used
// on it meanwhile: `leafctl --state-dir DIR tag show TAG`.
//
// Invariant: what an ID is issued from (a granted range, a ceiling) is durable in the state directory before
// the first ID of it, and belongs to one process. The schedule that would break it: a process forks, and both
// issue the rest of the range that was in memory. So a child of fork gets an error (kRefused) from every
// generator that its parent opened, never an ID; its copies of them hold nothing that it could use, and
// destroying them there does nothing. It may open Generators of another state directory, and use Clients, but
// no SQLite file that its parent had open when it forked: Open says kRefused, since SQLite would take the
// parent's locks for the child's. Fork while no generator works with SQLite: a
// child may wait for ever for a lock inside SQLite that another thread held at that moment. A parent that
// ends without Close leaves its state directory locked until such children have ended. A child that executes
// another program is harmless. What makes a child without fork() (_Fork, clone) is not seen: nothing may be
// taken there.
//
// Everything here is thread-safe, but for moving, assigning and destroying an object while another thread
// uses it. Errors are values, and no function throws but for std::bad_alloc. The library's threads have the
// signal mask of the thread that opened them. It changes nothing else of the process itself. The client
// library of MySQL sets SIGPIPE to be ignored, and that of ZooKeeper seeds random(3) and drand48(3), where
// they are used. Relative paths mean what they mean when Open is called. These headers define no macro.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "leaf/base/error.h"
#include "leaf/base/id_range.h"
#include "leaf/base/limits.h"
#include "leaf/base/result_type.h"

namespace leaf {

enum class Severity { kDebug, kInfo, kWarning, kError };

// Hears what leafctl serve would log: "info" is rare facts, "warning" what an operator should act on. Called
// by any thread, several at once; must not block for long, throw, or call the object that it hears from.
using LogFunction = std::function<void(Severity, std::string_view)>;

// Where the table leaf_alloc, and leaf_workerid_alloc for SqlNumber, is: segment.store.
struct Sqlite {
  std::string path{};  // "" is leaf.db in the state directory; made, with its tables, if it is missing
};
struct MySql {
  // "HOST:PORT" of each server of one replicated cluster; the first writable is used.
  std::vector<std::string> endpoints{};
  std::string database = "leaf";
  std::string user = "leaf";
  std::string password_file{};  // readable by its owner only; "" for no password
};
using Store = std::variant<Sqlite, MySql>;

// Where the worker number of a snowflake generator comes from: snowflake.registry. `cluster` is the name that
// all nodes of a cluster share, and `address` the "IP:PORT" that identifies this node in it.

// Drawn at random when the state directory is made: the IDs are unique in that directory only.
struct PrivateNumber {};
// Chosen by the caller: no other node of the cluster may have it. Without a cluster as above.
struct FixedNumber {
  std::uint64_t worker = 0;
  std::string cluster{};
};
// From ZooKeeper, out of the tree that Java Leaf uses. Needs GeneratorOptions::zookeeper.
struct ZookeeperNumber {
  std::string cluster{};
  std::string address{};
  bool lease = false;  // of a free number, instead of one that is fixed to `address`
};
// From the table leaf_workerid_alloc in the store.
struct SqlNumber {
  std::string cluster{};
  std::string address{};
};
using WorkerNumber = std::variant<PrivateNumber, FixedNumber, ZookeeperNumber, SqlNumber>;

// What a Generators is opened with. Each line says which key of leafctl.toml(5) it stands for.
struct GeneratorOptions {
  std::string state_dir{};                  // state_dir; made if it is missing, mode 0700
  bool segment = true;                      // segment.enabled
  Store store{};                            // [sqlite] or [mysql]; of tags, and of SqlNumber
  std::optional<WorkerNumber> snowflake{};  // [snowflake]; without one the mode is off
  std::string zookeeper{};  // zookeeper.connect, "" for none; with MySql it is the segments' fence, too
  LogFunction log{};        // empty: nothing is logged
  // Any other key, as `leafctl --set` takes it: {"segment.refresh_interval", "10s"}. One that a member above
  // says is refused. Neither files nor
  // environment variables are read.
  std::vector<std::pair<std::string, std::string>> settings{};
};

// IDs as ascending, disjoint, half-open ranges.
using IdRanges = std::vector<IdRange>;

// One tag, to take IDs of without its name being looked up each time. It follows the name: once the tag is
// removed its calls say so, and once it is added again they find it. For one thread at a time, as an iterator
// is: each thread asks for its own. From SegmentGenerator::Tag; destroy it before its Generators.
class TagHandle {
 public:
  ~TagHandle();
  TagHandle(TagHandle&&) noexcept;
  TagHandle& operator=(TagHandle&&) noexcept;

  // As SegmentGenerator::Take, with the same errors. Requires: this was not moved from.
  Result<std::uint64_t> Take();

 private:
  friend class SegmentGenerator;
  class Impl;
  explicit TagHandle(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// IDs of tags. From Generators; all of it ends with that. Where segment mode is off, every call says so:
// kDisabled.
class SegmentGenerator {
 public:
  // An ID of `tag` from the reserve in memory. Never blocks, and allocates only for an error. If there is
  // none, one is asked for in the background, so that a later call finds it. Errors: kExhausted (nothing in
  // reserve right now), kNotFound (no such tag; a "no" is remembered for a second), kPaused, kFrozen (the
  // database went back: leafctl tag repair), kOverflow, kTooLarge, kLimited (too many unknown tags at once),
  // kRefused (in a child of fork), kUnavailable (closed).
  Result<std::uint64_t> Take(std::string_view tag);
  // What takes IDs of `tag` faster, one by one. The tag need not exist: the handle's Take says so.
  TagHandle Tag(std::string_view tag);
  // `count` of them, all or none. Errors: as above, kInvalidArgument (count is 0); kTooLarge beyond
  // server.max_count.
  Result<IdRanges> Take(std::string_view tag, std::uint64_t count);

  // The same, but waits for the database, parked, up to `timeout`. Served in order of arrival; one thread's
  // IDs of a tag strictly increase. Further errors: kUnavailable, kPermission and kConfig if the database
  // says so; kExhausted says that no range came in time.
  Result<std::uint64_t> Next(std::string_view tag, std::chrono::milliseconds timeout);
  Result<IdRanges> Next(std::string_view tag, std::uint64_t count, std::chrono::milliseconds timeout);

  // Adds a tag to the table, with the first ID above everything this state directory (and the witness, where
  // there is one) knows was granted under that name. A request that begins after the return finds it. Blocks.
  // Errors: kAlreadyExists, kInvalidArgument (`tag`, or a step outside 1..2^30-1), kUnavailable,
  // kOutcomeUnknown (the answer of the database was lost: the tag may be there), kOverflow (there is no ID
  // left above those), kPermission, kConfig (no table: leafctl db init), kDisabled, kRefused (in a child of
  // fork).
  Result<void> AddTag(std::string_view tag, std::int64_t step);

 private:
  friend class Generators;
  friend class CodeGenerator;
  friend class TagHandle;
  class Impl;
  explicit SegmentGenerator(Impl& impl) : impl_(impl) {}
  Impl& impl_;
};

// IDs with a time in them. From Generators; all of it ends with that. Where snowflake mode is off, every call
// says so: kDisabled.
class SnowflakeGenerator {
 public:
  // An ID now. Never blocks, and allocates only for an error. Errors: kExhausted (the sequences up to
  // `snowflake.window` ahead of the clock are used up), kClock (it went back or jumped, or it has to pass
  // what an earlier process may have issued, after a crash `snowflake.window` at most; the message has the
  // figures), kNotOwner (the worker number is another node's), kOverflow, kTooLarge, kRefused (in a child of
  // fork), kUnavailable (closed; state file or registry do not answer).
  Result<std::uint64_t> Take();
  // All or none. Errors: as above, kInvalidArgument (count is 0).
  Result<IdRanges> Take(std::uint64_t count);

  // The same, but waits up to `timeout` for what passes.
  Result<std::uint64_t> Next(std::chrono::milliseconds timeout);
  Result<IdRanges> Next(std::uint64_t count, std::chrono::milliseconds timeout);

  // The worker number in use. Errors: as Take, if there is none.
  Result<std::uint64_t> Worker() const;

 private:
  friend class Generators;
  friend class CodeGenerator;
  class Impl;
  explicit SnowflakeGenerator(Impl& impl) : impl_(impl) {}
  Impl& impl_;
};

// Codes of IDs, which tell nothing of them (leafctl-code(1)): of the IDs of tags, and, as tag "snowflake", of
// snowflake IDs. From Generators; all of it ends with that. The settings say what they are made of:
// {"codes.key_file", "/etc/leafctl/codes.key"}, {"codes.length", "14"}, {"codes.tags",
// "order.length=14,order.group=0"}. Where they name no key, every call says so: kConfig.
//
// Key, alphabet and whether there is a check character belong to a tag from its first code on, for every
// program and daemon, and lengths only grow. They are kept in the database before the first code is made: so
// the first call for a tag blocks on it, for as long as its time-outs allow, and so does the first for a code
// whose length is not known here.
class CodeGenerator {
 public:
  // New IDs, as codes. Errors: those of SegmentGenerator::Next, or of SnowflakeGenerator::Next; kConfig (the
  // tag has another key, another alphabet or a greater length; no table: leafctl db init), kOverflow (the IDs
  // are beyond the codes; they are never issued).
  Result<std::string> Next(std::string_view tag, std::chrono::milliseconds timeout);
  Result<std::vector<std::string>> Next(std::string_view tag, std::uint64_t count,
                                        std::chrono::milliseconds timeout);

  // The code of an ID of this tag. Whether the ID was ever issued is not asked. Errors: as above, but for
  // those of Next; kNotFound (no such tag).
  Result<std::string> Of(std::string_view tag, std::uint64_t id);
  // The ID of a code, in any case, with or without hyphens and blanks. Errors: kInvalidArgument (no code, or
  // mistyped; the message says which), kNotFound (no ID has it, or the tag has no codes), kConfig (another
  // key), and the database's.
  Result<std::uint64_t> Reveal(std::string_view tag, std::string_view code);

 private:
  friend class Generators;
  class Impl;
  explicit CodeGenerator(Impl& impl) : impl_(impl) {}
  Impl& impl_;
};

// One state directory, locked, with what issues from it; the threads for it are its own.
class Generators {
 public:
  // Blocks while the worker number is claimed, a few seconds at most: if the registry does not answer by then
  // it is claimed once it does, and meanwhile SnowflakeGenerator says why it has none. The database is not
  // waited for. Errors: kInvalidArgument (options; also both modes off, and a key in `settings` that another
  // member says), kRefused (the state directory is in use, or is not what it was: another cluster, another
  // machine's; a number that is taken; a SQLite file that the parent of this process had open when it
  // forked), kPermission, kConfig (also a codes.key_file without a key, or that other users may read), kClock
  // (too far behind or ahead of what was issued, with the figures), kUnavailable (the disk, or no thread can
  // be started), kOverflow.
  static Result<Generators> Open(const GeneratorOptions& options);
  // Closes. In a child of fork: does nothing.
  ~Generators();
  Generators(Generators&&) noexcept;
  Generators& operator=(Generators&&) noexcept;

  // All exist, also where a mode is disabled: its calls return kDisabled. Requires: this was not moved from.
  SegmentGenerator& segment();
  SnowflakeGenerator& snowflake();
  CodeGenerator& codes();

  // Ends it, whatever other threads do with it: a call that waits gets kUnavailable, and so does every later
  // one. Blocks until the calls to the outside that are under way have ended (AddTag's and codes', too), and,
  // for snowflakes, until the clock has passed the last ID (snowflake.window at most), so that the next Open
  // need not wait. What was in reserve is never issued: a gap. Without it, after a crash, nothing repeats
  // either. Idempotent. Gives the state directory free.
  void Close();

 private:
  class Impl;
  explicit Generators(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ClientOptions {
  // Groups of daemons, nearest first: {{"http://10.1.0.1:8080", "http://10.1.0.2:8080"},
  // {"http://10.2.0.1:8080"}}, "https://HOST:PORT", or "unix:/PATH". A group is asked only if all daemons of
  // those before it are away or turn the request down.
  std::vector<std::vector<std::string>> groups{};
  // Longest wait for each daemon that is asked, twice: to connect, and for its answer. More than a day is a
  // day. Looking up a name takes its own time (resolv.conf(5)).
  std::chrono::milliseconds timeout{2000};
  // A daemon that did not answer, or could not serve at all, is passed over for so long, and then tried
  // again: so the near ones come back by themselves. If all are away they are tried nevertheless.
  std::chrono::milliseconds away{5000};
  // For https: files in PEM, read once, by Open, as client.ca, client.cert and client.key of leafctl.toml(5)
  // say. OpenSSL is loaded then, and not before. "": the system's authorities, and no certificate to show.
  std::string ca{};
  std::string cert{};
  std::string key{};
  // File with the token that daemons ask for (leafctl-access(7)), readable by its owner only. Read once, by
  // Open. "" for none.
  std::string token_file{};
};

// Asks daemons for IDs. Holds no connection between calls, and no IDs: a child of fork may go on with its
// copy. Errors of both: kUnreachable (no daemon answers; all are named), kPermission (a socket that may not
// be opened, or the token does not allow it), kConfig (no trust over TLS), kInvalidArgument, and what the
// daemons say: kNotFound, kFrozen, kPaused, kExhausted, kClock, kNotOwner, kDisabled, kLimited, kUnavailable.
// IDs of an answer that was lost, or of a request that went on to another daemon, are never issued: a gap.
class Client {
 public:
  // Errors: kInvalidArgument (no daemon, or an address of another form), kConfig (a file for TLS, the
  // one with the token, or OpenSSL). Does not connect.
  static Result<Client> Open(ClientOptions options);
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // `count` IDs of `tag`, all from one daemon. Blocks.
  Result<IdRanges> Next(std::string_view tag, std::uint64_t count);
  // The same of its snowflake worker.
  Result<IdRanges> NextSnowflake(std::uint64_t count);

  // `count` new IDs of `tag` as codes, which tell nothing of the IDs (leafctl-code(1)); of its snowflake
  // worker for tag "snowflake". Errors: as above; kConfig (the daemons have no key, or another one than the
  // tag's codes), kOverflow (the IDs are beyond the codes).
  Result<std::vector<std::string>> NextCodes(std::string_view tag, std::uint64_t count);
  // The ID that a code stands for. Errors: as above, kInvalidArgument (no code, or mistyped; the message says
  // which), kNotFound (no ID has it).
  Result<std::uint64_t> Reveal(std::string_view tag, std::string_view code);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What a snowflake ID is made of. The defaults are Leaf's; both belong to a cluster, as snowflake.epoch_ms
// and snowflake.layout of leafctl.toml(5).
struct SnowflakeLayout {
  std::int64_t epoch_ms = kLeafEpochMillis;  // Unix milliseconds
  std::string bits = "41-10-12";             // time, worker, sequence
};
struct SnowflakeParts {
  std::int64_t time_ms = 0;  // Unix milliseconds
  std::uint64_t worker = 0;
  std::uint64_t sequence = 0;
};
// Errors: kInvalidArgument (a layout that is none, an ID of 2^63 or more).
Result<SnowflakeParts> DecodeSnowflake(std::uint64_t id, const SnowflakeLayout& layout = {});
// Errors: kInvalidArgument, which names the part that does not fit.
Result<std::uint64_t> EncodeSnowflake(const SnowflakeParts& parts, const SnowflakeLayout& layout = {});

// A snowflake ID as a UUIDv7 (RFC 9562) or a ULID: as unique as the ID, in the same order, and reversible.
// Errors: kInvalidArgument (as above, or a layout whose times do not fit into 48 bits).
enum class SnowflakeText : std::uint8_t { kUuid, kUlid };
Result<std::string> FormatSnowflake(std::uint64_t id, SnowflakeText form, const SnowflakeLayout& layout = {});
// Reads either of the two. Errors: kInvalidArgument, which says what is wrong: also a UUID or ULID that was
// not made of a snowflake ID.
Result<std::uint64_t> ParseSnowflake(std::string_view text, const SnowflakeLayout& layout = {});

}  // namespace leaf
