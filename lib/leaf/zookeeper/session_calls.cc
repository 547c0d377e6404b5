// Requests and transactions: each is handed to the C client, and its answer is waited for up to a deadline.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/zookeeper/session_impl.h"

namespace leaf::zookeeper {
namespace {

bool IsCreate(Operation::Kind kind) {
  return kind == Operation::Kind::kCreate || kind == Operation::Kind::kCreateSequential ||
         kind == Operation::Kind::kCreateEphemeral;
}

}  // namespace

// ---- the library's threads

template <typename Fill>
void Session::Impl::Complete(const void* context, int code, Fill fill) {
  const auto* const held = static_cast<const HeldCall*>(context);
  Impl& session = *held->session;
  const MutexLock lock(session.mutex_);
  const std::shared_ptr<Call> call = held->call;
  held->handle->calls.erase(call.get());
  if (call->done) return;
  call->done = true;
  call->code = code;
  if (code == ZOK) fill(*call);
  call->done_changed.NotifyAll();
}

void Session::Impl::OnVoid(int code, const void* context) {
  Complete(context, code, [](Call&) {});
}

void Session::Impl::OnStat(int code, const Stat* stat, const void* context) {
  Complete(context, code, [&](Call& call) { call.node.stat = StatOf(*stat); });
}

void Session::Impl::OnData(int code, const char* data, int size, const Stat* stat, const void* context) {
  Complete(context, code, [&](Call& call) {
    // A node without data has size -1.
    if (size > 0) call.node.data.assign(data, static_cast<std::size_t>(size));
    call.node.stat = StatOf(*stat);
  });
}

void Session::Impl::OnAccess(int code, ACL_vector* rules, Stat* stat, const void* context) {
  Complete(context, code, [&](Call& call) { call.access = AccessOf(*rules, *stat); });
}

void Session::Impl::OnStrings(int code, const String_vector* strings, const void* context) {
  Complete(context, code, [&](Call& call) {
    for (int i = 0; i < strings->count; ++i) call.children.emplace_back(strings->data[i]);
  });
}

// ---- calls

Error Session::Impl::NoAnswer() const {
  return {ErrorCode::kUnavailable, fmt::format("ZooKeeper at {} does not answer", options_.connect.hosts),
          "check zookeeper.connect, and that a majority of the servers is up"};
}

template <typename Submit>
Result<std::shared_ptr<Call>> Session::Impl::Begin(MonotonicTime deadline, std::vector<Operation> operations,
                                                   std::string_view path, Submit submit) {
  const auto call = std::make_shared<Call>();
  call->operations = std::move(operations);
  const MutexLock lock(mutex_);
  while (true) {
    const MonotonicTime patience = std::min(deadline, disconnected_since_ + options_.operation_timeout);
    while (!closing_ && !(handle_ && handle_->connected && handle_->ready)) {
      if (auth_failed_) return ErrorOf(ZAUTHFAILED, false, path);
      // There is no other session before the listener has returned.
      if (announcer_ == std::this_thread::get_id() && handle_ && handle_->broken)
        return ErrorOf(ZINVALIDSTATE, false, path);
      const auto left = patience - clock_.Monotonic();
      if (left <= left.zero()) return NoAnswer();
      changed_.WaitFor(mutex_, left);
    }
    if (closing_) return ErrorOf(ZINVALIDSTATE, false, path);
    handle_->calls.emplace(call.get(), HeldCall{call, this, handle_.get()});
    const HeldCall* const held = &handle_->calls.find(call.get())->second;
    const int code = submit(handle_->library, *call, held);
    if (code == ZOK) return call;
    handle_->calls.erase(call.get());
    if (code != ZINVALIDSTATE || !call->operations.empty()) return ErrorOf(code, false, path);
    // The library knows that the session has ended, and is about to say so.
    const auto left = deadline - clock_.Monotonic();
    if (left <= left.zero()) return NoAnswer();
    changed_.WaitFor(mutex_, left);
  }
}

int Session::Impl::Wait(const std::shared_ptr<Call>& call, MonotonicTime deadline) {
  const MutexLock lock(mutex_);
  while (!call->done) {
    const auto left = deadline - clock_.Monotonic();
    if (left <= left.zero()) return ZOPERATIONTIMEOUT;
    call->done_changed.WaitFor(mutex_, left);
  }
  return call->code;
}

// What is lost with its connection has done nothing: it is asked again, as if the caller had come later.
template <typename Submit>
Result<std::vector<std::shared_ptr<Call>>> Session::Impl::Read(const std::vector<std::string>& paths,
                                                               Submit submit) {
  const MonotonicTime deadline = Deadline();
  while (true) {
    std::vector<std::shared_ptr<Call>> calls;
    for (const std::string& path : paths) {
      LEAF_ASSIGN_OR_RETURN(auto call,
                            Begin(deadline, {}, path, [&](zhandle_t* library, Call&, const HeldCall* held) {
                              return submit(library, Path(path), held);
                            }));
      calls.push_back(std::move(call));
    }
    const bool lost = std::any_of(calls.begin(), calls.end(),
                                  [&](const auto& call) { return IsLost(Wait(call, deadline)); });
    if (!lost) return calls;
    if (clock_.Monotonic() >= deadline) return NoAnswer();
  }
}

Result<std::vector<std::optional<NodeData>>> Session::Impl::GetAll(const std::vector<std::string>& paths) {
  LEAF_ASSIGN_OR_RETURN(const auto calls,
                        Read(paths, [](zhandle_t* library, const std::string& path, const HeldCall* held) {
                          return zoo_aget(library, path.c_str(), 0, &OnData, held);
                        }));
  std::vector<std::optional<NodeData>> nodes;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const int code = calls[i]->code;
    if (code != ZOK && code != ZNONODE) return ErrorOf(code, false, paths[i]);
    nodes.push_back(code == ZOK ? std::optional(std::move(calls[i]->node)) : std::nullopt);
  }
  return nodes;
}

Result<std::optional<NodeStat>> Session::Impl::Exists(const std::string& path) {
  LEAF_ASSIGN_OR_RETURN(const auto calls,
                        Read({path}, [](zhandle_t* library, const std::string& full, const HeldCall* held) {
                          return zoo_aexists(library, full.c_str(), 0, &OnStat, held);
                        }));
  const int code = calls[0]->code;
  if (code == ZNONODE) return std::optional<NodeStat>{};
  if (code != ZOK) return ErrorOf(code, false, path);
  return std::optional(calls[0]->node.stat);
}

Result<std::optional<std::vector<std::string>>> Session::Impl::Children(const std::string& path) {
  LEAF_ASSIGN_OR_RETURN(const auto calls,
                        Read({path}, [](zhandle_t* library, const std::string& full, const HeldCall* held) {
                          return zoo_aget_children(library, full.c_str(), 0, &OnStrings, held);
                        }));
  const int code = calls[0]->code;
  if (code == ZNONODE) return std::optional<std::vector<std::string>>{};
  if (code != ZOK) return ErrorOf(code, false, path);
  return std::optional(std::move(calls[0]->children));
}

Result<std::vector<std::optional<NodeAccess>>> Session::Impl::GetAccess(
    const std::vector<std::string>& paths) {
  LEAF_ASSIGN_OR_RETURN(const auto calls,
                        Read(paths, [](zhandle_t* library, const std::string& path, const HeldCall* held) {
                          return zoo_aget_acl(library, path.c_str(), &OnAccess, held);
                        }));
  std::vector<std::optional<NodeAccess>> rules;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const int code = calls[i]->code;
    if (code == ZNONODE) {
      rules.emplace_back();
    } else if (code == ZNOAUTH) {
      // What may not even be read is not open.
      rules.emplace_back(NodeAccess{});
    } else if (code != ZOK) {
      return ErrorOf(code, false, paths[i]);
    } else {
      rules.emplace_back(std::move(calls[i]->access));
    }
  }
  return rules;
}

Result<WriteOutcome> Session::Impl::Write(const std::vector<Operation>& operations) {
  LEAF_CHECK(!operations.empty());
  const MonotonicTime deadline = Deadline();
  const std::string& first = operations.front().path;
  std::vector<Operation> absolute = operations;
  for (Operation& operation : absolute) operation.path = Path(operation.path);
  LEAF_ASSIGN_OR_RETURN(const auto call, Begin(deadline, std::move(absolute), first,
                                               [&](zhandle_t* library, Call& c, const HeldCall* held) {
                                                 PrepareTransaction(c, OwnAccess());
                                                 return BeginTransaction(library, c, &OnVoid, held);
                                               }));
  const int code = Wait(call, deadline);
  WriteOutcome outcome;
  if (code == ZOK) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      WriteOutcome::Part part;
      if (IsCreate(operations[i].kind)) {
        part.path = std::string(call->created[i].data()).substr(options_.connect.chroot.size());
      } else if (operations[i].kind == Operation::Kind::kSet) {
        part.stat = StatOf(call->stats[i]);
      }
      outcome.parts.push_back(std::move(part));
    }
    return outcome;
  }
  const auto conflict = ConflictOf(code);
  const bool refused = code == ZNOAUTH || code == ZINVALIDACL;
  // While the reply is missing, the library may still write to the results.
  if (!conflict && !refused) return ErrorOf(code, true, first);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (call->library_results[i].err == code) {
      outcome.at = i;
      break;
    }
  }
  if (refused) return ErrorOf(code, true, operations[outcome.at].path);
  outcome.conflict = *conflict;
  return outcome;
}

Result<std::shared_ptr<Call>> Session::Impl::BeginProtect(const Seen& node, MonotonicTime deadline) {
  return Begin(deadline, {}, node.path, [&](zhandle_t* library, Call&, const HeldCall* held) {
    return zoo_aset_acl(library, Path(node.path).c_str(), node.version, &OwnRules(), &OnVoid, held);
  });
}

Result<bool> Session::Impl::EndProtect(const std::shared_ptr<Call>& call, MonotonicTime deadline,
                                       const Seen& node) {
  const int code = Wait(call, deadline);
  if (code == ZBADVERSION) return false;
  if (code != ZOK && code != ZNONODE) return ErrorOf(code, true, node.path);
  return true;
}

// ---- the port

Result<std::optional<NodeData>> Session::Get(const std::string& path) {
  LEAF_ASSIGN_OR_RETURN(auto nodes, impl_->GetAll({path}));
  return std::move(nodes.front());
}

Result<std::vector<std::optional<NodeData>>> Session::GetAll(const std::vector<std::string>& paths) {
  return impl_->GetAll(paths);
}

Result<std::optional<NodeStat>> Session::Exists(const std::string& path) { return impl_->Exists(path); }
Result<std::optional<std::vector<std::string>>> Session::Children(const std::string& path) {
  return impl_->Children(path);
}
Result<WriteOutcome> Session::Write(const std::vector<Operation>& operations) {
  return impl_->Write(operations);
}

Result<std::vector<std::optional<NodeAccess>>> Session::GetAccess(const std::vector<std::string>& paths) {
  return impl_->GetAccess(paths);
}

Result<bool> Session::Protect(const std::vector<Seen>& nodes) {
  if (!impl_->HasCredentials()) {
    return Error{ErrorCode::kPermission, "without credentials no node of ZooKeeper can be protected",
                 "set zookeeper.auth_file"};
  }
  const MonotonicTime deadline = impl_->Deadline();
  std::vector<std::shared_ptr<Call>> calls;
  for (const Seen& node : nodes) {
    LEAF_ASSIGN_OR_RETURN(auto call, impl_->BeginProtect(node, deadline));
    calls.push_back(std::move(call));
  }
  bool as_seen = true;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    LEAF_ASSIGN_OR_RETURN(const bool done, impl_->EndProtect(calls[i], deadline, nodes[i]));
    as_seen = as_seen && done;
  }
  return as_seen;
}

}  // namespace leaf::zookeeper
