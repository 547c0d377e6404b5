#include "leaf/inspect/host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include "leaf/access/token_file.h"
#include "leaf/base/text.h"
#include "leaf/sys/durable_file.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/secret_file.h"
#include "leaf/sys/state_dir.h"

namespace leaf::inspect {
namespace {

// Marks and state are small; SQLite's log and a database of tags want a little more.
constexpr std::uint64_t kFreeBytesMin = std::uint64_t{64} << 20;
constexpr std::size_t kInspectedBytesMax = std::size_t{1} << 20;

std::string ReadOrNothing(const std::string& path, std::size_t bytes_max = kInspectedBytesMax) {
  sys::FileOps ops;
  auto content = sys::ReadWholeFile(ops, path, bytes_max);
  return content.ok() && *content ? std::move(**content) : std::string();
}

std::string_view WithoutBlanksAround(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// The words of a line of /proc.
std::vector<std::string> FieldsOf(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace

Diagnosis InspectConfigFile(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    return {"config-file", Level::kProblem, fmt::format("{}: {}", path, std::strerror(errno)),
            "it cannot be looked at", ""};
  if (S_ISREG(status.st_mode) && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return {"config-file", Level::kProblem, fmt::format("{} has mode {:04o}", path, status.st_mode & 07777U),
            "users other than its owner can change it, and so choose the worker number and the database",
            fmt::format("chmod go-w {}", ShellWord(path))};
  }
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    return {"config-file", Level::kWarning, fmt::format("{} belongs to user {}", path, status.st_uid),
            "its owner decides what leafctl does", fmt::format("chown root {}", ShellWord(path))};
  }
  return Diagnosis::Ok("config-file", path);
}

namespace {

Diagnosis SecretFileProblem(std::string check, const Error& error) {
  return {std::move(check), Level::kProblem, error.message, "leafctl does not start with it",
          error.hint.empty() ? "make it readable by the user that leafctl runs as, and by no other user"
                             : error.hint};
}

}  // namespace

Diagnosis InspectSecretFile(std::string check, const std::string& path) {
  if (const auto secret = sys::ReadSecretFile(path); !secret.ok())
    return SecretFileProblem(std::move(check), secret.error());
  return Diagnosis::Ok(std::move(check), fmt::format("only the owner of {} can read it", path));
}

Diagnosis InspectTokens(const std::string& path, WallTime now, bool is_needed) {
  constexpr std::chrono::hours kExpirySoon{24 * 14};
  const auto text = sys::ReadSecretFile(path, access::kTokenFileBytesMax);
  if (!text.ok()) return SecretFileProblem("tokens", text.error());
  const auto tokens = access::ParseTokenFile(*text);
  if (!tokens.ok()) {
    return {"tokens", Level::kProblem, fmt::format("{}: {}", path, tokens.error().message),
            "leafctl does not start with it, and a reload keeps the old tokens", "correct that line"};
  }
  std::vector<std::string> ended;
  std::vector<std::string> ending;
  for (const access::TokenEntry& entry : *tokens) {
    if (entry.IsExpired(now)) {
      ended.push_back(entry.name);
    } else if (entry.IsExpired(now + kExpirySoon)) {
      ending.push_back(entry.name);
    }
  }
  if (tokens->empty() && is_needed) {
    return {"tokens", Level::kWarning, fmt::format("{} has no tokens", path),
            "only the Unix socket gives IDs", "leafctl token add NAME --role ids"};
  }
  if (!ended.empty() || !ending.empty()) {
    return {"tokens", Level::kWarning,
            ended.empty() ? fmt::format("expire within two weeks: {}", fmt::join(ending, ", "))
                          : fmt::format("have expired: {}", fmt::join(ended, ", ")),
            "a daemon refuses a token that has expired", "leafctl token add makes another"};
  }
  return Diagnosis::Ok("tokens", fmt::format("{} has {} tokens", path, tokens->size()));
}

std::vector<Diagnosis> InspectStateDir(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT)
      return {
          Diagnosis::Ok("state-dir", fmt::format("{} does not exist yet; the first start creates it", path))};
    return {{"state-dir", Level::kProblem, fmt::format("{}: {}", path, std::strerror(errno)),
             "marks and ceilings have to be kept there",
             "name another with state_dir, or give leafctl access"}};
  }
  if (!S_ISDIR(status.st_mode))
    return {{"state-dir", Level::kProblem, fmt::format("{} is not a directory", path),
             "marks and ceilings have to be kept in one", "name another with state_dir"}};
  std::vector<Diagnosis> found;
  if (::access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
    found.push_back({"state-dir", Level::kProblem,
                     fmt::format("{} cannot be written to: {}", path, std::strerror(errno)),
                     "no ID is issued whose mark or ceiling could not be stored",
                     "run this as the user that leafctl runs as; if you did, let that user write there"});
  } else if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    found.push_back({"state-dir", Level::kProblem,
                     fmt::format("{} has mode {:04o}", path, status.st_mode & 07777U),
                     "others can change what this node remembers of what it issued",
                     fmt::format("chmod 700 {}", ShellWord(path))});
  } else if (const auto accepted = sys::CheckStateDir(path); !accepted.ok()) {
    found.push_back({"state-dir", Level::kProblem, accepted.error().message,
                     "a daemon or a command that runs as this user refuses it", accepted.error().hint});
  }
  struct statvfs space {};
  if (statvfs(path.c_str(), &space) == 0) {
    const std::uint64_t free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
    if (free_bytes < kFreeBytesMin || (space.f_files > 0 && space.f_favail == 0)) {
      found.push_back({"state-space", Level::kProblem,
                       fmt::format("{} has {} KiB and {} files left", path, free_bytes >> 10,
                                   static_cast<std::uint64_t>(space.f_favail)),
                       "no ID is issued whose mark or ceiling could not be stored", "make room"});
    }
    if ((space.f_flag & ST_RDONLY) != 0) {
      found.push_back({"state-space", Level::kProblem,
                       fmt::format("the file system of {} is mounted read-only", path),
                       "no ID is issued whose mark or ceiling could not be stored", "mount it for writing"});
    }
  }
  if (found.empty()) found.push_back(Diagnosis::Ok("state-dir", path));
  return found;
}

std::optional<LockHolder> FindLockHolder(const std::string& state_dir) {
  struct stat status {};
  const std::string path = state_dir + "/lock";
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  const std::string device = fmt::format("{:02x}:{:02x}", major(status.st_dev), minor(status.st_dev));
  // The process that took the lock last wrote its pid.
  std::string writer = ReadOrNothing(path);
  writer.resize(std::min(writer.find_first_of(" \n"), writer.size()));
  // "1: FLOCK  ADVISORY  WRITE 712 08:02:131 0 EOF". Taking the lock to see whether it can be taken would
  // turn away a daemon that starts at that moment.
  std::istringstream locks(ReadOrNothing("/proc/locks", std::size_t{16} << 20));
  for (std::string line; std::getline(locks, line);) {
    const std::vector<std::string> words = FieldsOf(line);
    if (words.size() < 6 || words[1] != "FLOCK") continue;
    const std::string& holder = words[4];
    const std::size_t inode = words[5].rfind(':');
    if (inode == std::string::npos || ParseWhole<std::uint64_t>(words[5].substr(inode + 1)) != status.st_ino)
      continue;
    // On some file systems, btrfs and overlays, the device here is another than stat's.
    if (words[5].substr(0, inode) == device || holder == writer) return LockHolder{holder};
  }
  return std::nullopt;
}

bool IsPortInUse(std::uint16_t port) {
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(ReadOrNothing(table, std::size_t{64} << 20));
    for (std::string line; std::getline(lines, line);) {
      const std::vector<std::string> words = FieldsOf(line);
      constexpr std::string_view kListening = "0A";
      if (words.size() < 4 || words[3] != kListening) continue;
      const std::size_t colon = words[1].rfind(':');
      if (colon != std::string::npos &&
          ParseWhole<std::uint16_t>(std::string_view(words[1]).substr(colon + 1), 16) == port)
        return true;
    }
  }
  return false;
}

std::uint64_t OwnFilesOf(const config::Config& config) {
  constexpr std::uint64_t kAnyway = 96;
  constexpr std::uint64_t kWithoutPlace = 128 + 64;  // refused, and those kept for Unix sockets
  constexpr std::uint64_t kSqlite = 64;
  const std::uint64_t threads = config.server.threads > 0 ? static_cast<std::uint64_t>(config.server.threads)
                                                          : std::thread::hardware_concurrency();
  const std::uint64_t listeners =
      2 + config.server.listen.size() + config.server.admin_listen.size() + config.server.redis_listen.size();
  const std::uint64_t store = config.segment.store == "mysql"
                                  ? static_cast<std::uint64_t>(config.mysql.max_connections) + kSqlite
                                  : kSqlite;
  return kAnyway + kWithoutPlace + store + threads * (4 + listeners);
}

Diagnosis InspectOpenFileLimit(std::int64_t connections, std::uint64_t own_files) {
  rlimit limit{};
  const std::uint64_t wanted = static_cast<std::uint64_t>(connections) + own_files;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= wanted)
    return Diagnosis::Ok("open-files", fmt::format("room for {} connections", connections));
  return {
      "open-files", Level::kWarning,
      fmt::format("at most {} open files here, and {} are needed", limit.rlim_max, wanted),
      "a daemon with these limits has fewer connections than server.max_connections; a service has limits of "
      "its own",
      "LimitNOFILE= in the unit, or a lower server.max_connections"};
}

Diagnosis InspectClockSync() {
  timex state{};
  const int result = adjtimex(&state);
  if (result < 0 || result == TIME_ERROR || (state.status & STA_UNSYNC) != 0) {
    return {
        "clock-sync", Level::kWarning, "the kernel's clock is not synchronised",
        "snowflake IDs carry the time; a clock that is corrected later, or that drifts, stops or delays them",
        "run chrony, ntpd or systemd-timesyncd (for a container, on its host: it has the clock of the host)"};
  }
  return Diagnosis::Ok("clock-sync", fmt::format("synchronised, to within {} ms", state.maxerror / 1000));
}

std::vector<Diagnosis> InspectUnitText(const std::string& path, std::string_view text,
                                       const UnitExpectation& expectation) {
  std::vector<Diagnosis> found;
  const auto add = [&](Level level, std::string what, std::string cause, std::string remedy) {
    found.push_back({"unit", level, fmt::format("{}: {}", path, what), std::move(cause), std::move(remedy)});
  };
  std::string type;
  std::string exec;
  std::string state_directory;
  std::string limit;
  std::string restart;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = WithoutBlanksAround(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (line.empty() || line.front() == '#' || line.front() == ';' || equals == std::string_view::npos)
      continue;
    const std::string_view key = WithoutBlanksAround(line.substr(0, equals));
    const std::string value(WithoutBlanksAround(line.substr(equals + 1)));
    if (key == "Type") type = value;
    if (key == "ExecStart") exec = value;
    if (key == "StateDirectory") state_directory = value;
    if (key == "LimitNOFILE") limit = value;
    if (key == "RestartPreventExitStatus") restart = value;
  }
  if (type != "notify")
    add(Level::kWarning, fmt::format("Type={}", type.empty() ? "simple" : type),
        "systemd considers the service ready before it is", "Type=notify");
  std::string program = exec.substr(0, exec.find(' '));
  while (!program.empty() && std::string_view("@-:+!").find(program.front()) != std::string_view::npos)
    program.erase(0, 1);
  if (program.empty() || (program.front() == '/' && ::access(program.c_str(), X_OK) != 0))
    add(Level::kProblem, program.empty() ? "no ExecStart=" : fmt::format("{} cannot be run", program),
        "the service cannot start", "install leafctl there, or correct ExecStart=");
  const std::size_t config = exec.find("--config");
  if (config != std::string::npos && !expectation.config_file.empty() &&
      exec.find(expectation.config_file, config) == std::string::npos) {
    add(Level::kWarning, fmt::format("it does not use {}", expectation.config_file),
        "what is checked here is not what the service runs with", "pass the service's file with --config");
  }
  if (!state_directory.empty() && !expectation.state_dir.empty() &&
      expectation.state_dir != "/var/lib/" + state_directory) {
    add(Level::kWarning, fmt::format("StateDirectory={} is not {}", state_directory, expectation.state_dir),
        "what is checked here is not what the service remembers",
        "pass the service's directory with --state-dir");
  }
  const auto files = ParseWhole<std::uint64_t>(
      limit.substr(limit.rfind(':') == std::string::npos ? 0 : limit.rfind(':') + 1));
  if (files && *files < static_cast<std::uint64_t>(expectation.connections) + expectation.own_files) {
    add(Level::kWarning, fmt::format("LimitNOFILE={}", limit),
        fmt::format("server.max_connections is {}", expectation.connections), "raise one or lower the other");
  }
  if (restart.find("11") == std::string::npos)
    add(Level::kWarning, "RestartPreventExitStatus= lacks 11",
        "a start that was refused for safety would be retried every second",
        "RestartPreventExitStatus=2 4 6 11");
  if (found.empty()) found.push_back(Diagnosis::Ok("unit", path));
  return found;
}

std::vector<Diagnosis> InspectUnit(const UnitExpectation& expectation) {
  // In systemd's order: the first one counts.
  for (const char* const folder :
       {"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system", "/lib/systemd/system"}) {
    const std::string path = fmt::format("{}/leafctl.service", folder);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    std::string text = ReadOrNothing(path);
    std::vector<std::string> more;
    for (const char* const parent :
         {"/usr/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system"}) {
      for (const auto& entry :
           std::filesystem::directory_iterator(fmt::format("{}/leafctl.service.d", parent), error)) {
        if (entry.path().extension() == ".conf") more.push_back(entry.path().string());
      }
    }
    for (const std::string& drop_in : more) {
      text += '\n';
      text += ReadOrNothing(drop_in);
    }
    return InspectUnitText(path, text, expectation);
  }
  return {Diagnosis::Ok("unit", "no leafctl.service is installed here")};
}

}  // namespace leaf::inspect
