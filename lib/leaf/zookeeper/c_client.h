// ZooKeeper's C client ("the library") in leafctl's terms: its log, its codes and records, and what it reads
// and writes of one call. For the sources of the session (session.h) alone.
#pragma once

#include <zookeeper/zookeeper.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/zookeeper/client.h"

namespace leaf::zookeeper {

// ---- its log

// Everything at debug: what an operator should know, the session says itself, once, while the library repeats
// its complaint with every attempt.
void OnLibraryLog(const char* message);

// What the library logs goes to `log` from now on.
class LibraryLog {
 public:
  explicit LibraryLog(Logger& log);
  ~LibraryLog();
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;

 private:
  Logger& log_;
};

// ---- its codes and records

NodeStat StatOf(const Stat& stat);

// Of a node of leafctl's own: all for the session's credentials, which the servers put in place of "auth";
// reading for every client. The library only reads it.
ACL_vector& OwnRules();
NodeAccess AccessOf(const ACL_vector& rules, const Stat& stat);

// Nothing if the code tells of no conflict.
std::optional<WriteOutcome::Conflict> ConflictOf(int code);
// There is no answer, and none will come: the connection or the session ended first, or time is up.
bool IsLost(int code);
// The one place where the library's codes become ours. `write`: whether it could have had an effect.
Error ErrorOf(int code, bool write, std::string_view path);

// ---- one call

// Longest path of a node that we create, with its number.
inline constexpr std::size_t kPathBytesMax = 1024;

// One call. Everything that the library reads or writes during the call lives here: the caller may have given
// up before the call ends.
struct Call {
  // Set once, before it is handed over.
  std::vector<Operation> operations;
  std::vector<zoo_op_t> library_operations;
  std::vector<std::array<char, kPathBytesMax>> created;
  std::vector<Stat> stats;
  std::vector<zoo_op_result_t> library_results;

  // Guarded by the session's mutex, which has no name here that clang could follow:
  Condition done_changed;
  bool done = false;
  int code = ZOK;
  NodeData node;
  NodeAccess access;
  std::vector<std::string> children;
};

// Fills in what the library takes and gives of call.operations. `own`: the access rules of leafctl's own
// nodes.
void PrepareTransaction(Call& call, const ACL_vector& own);
// ZINVALIDSTATE: nothing was handed over, since there is no connection.
int BeginTransaction(zhandle_t* library, Call& call, void_completion_t completion, const void* context);

}  // namespace leaf::zookeeper
