#include "leaf/java/worker_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "leaf/base/text.h"

namespace leaf::java {
namespace {

constexpr std::size_t kPropertiesBytesMax = 4096;
// Year 2286; a time beyond is none that any layout could hold.
constexpr std::int64_t kMillisEnd = 10'000'000'000'000;

// Nothing if there is no such file. Sets `file.written`. Any user can make a file there: a pipe must not hold
// up the node.
std::optional<std::string> Read(JavaWorkerFile& file) {
  const int fd = open(file.path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat about {};
  std::string text(kPropertiesBytesMax, '\0');
  ssize_t got = -1;
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
    while ((got = read(fd, text.data(), text.size())) < 0 && errno == EINTR) {
    }
  }
  close(fd);
  if (got < 0) return std::nullopt;
  file.written = WallTimeOf(std::int64_t{about.st_mtim.tv_sec} * 1000 + about.st_mtim.tv_nsec / 1'000'000);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return ParseWhole<Number>(text);
}

std::optional<WallTime> TimeOf(std::optional<std::int64_t> millis) {
  if (!millis || *millis < 0 || *millis >= kMillisEnd) return std::nullopt;
  return WallTimeOf(*millis);
}

void ReadProperties(const std::string& text, JavaWorkerFile& file) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string_view value = std::string_view(line).substr(equals + 1);
    if (line.starts_with("workerID=")) file.worker = NumberOf<std::uint64_t>(value);
    if (line.starts_with("maxTimestamp=")) file.time = TimeOf(NumberOf<std::int64_t>(value));
  }
}

void ReadJson(const std::string& text, JavaWorkerFile& file) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return;
  if (const auto worker = json.find("workId"); worker != json.end() && worker->is_number_unsigned())
    file.worker = worker->get<std::uint64_t>();
  if (const auto time = json.find("timestamp"); time != json.end() && time->is_number_integer())
    file.time = TimeOf(time->get<std::int64_t>());
}

}  // namespace

std::vector<JavaWorkerFile> FindJavaWorkerFiles(std::string_view tmp_dir, std::string_view cluster,
                                                std::string_view address) {
  std::vector<JavaWorkerFile> files;
  const std::size_t colon = address.rfind(':');
  if (cluster.empty() || colon == std::string_view::npos) return files;
  const std::string folder = fmt::format("{}/{}/leafconf/{}/", tmp_dir, cluster, address.substr(colon + 1));
  JavaWorkerFile properties;
  properties.path = folder + "workerID.properties";
  if (const auto text = Read(properties)) {
    ReadProperties(*text, properties);
    files.push_back(std::move(properties));
  }
  JavaWorkerFile json;
  json.path = folder + "workerID.json";
  if (const auto text = Read(json)) {
    ReadJson(*text, json);
    files.push_back(std::move(json));
  }
  return files;
}

}  // namespace leaf::java
