#include "leaf/embed/snowflake_adapters.h"

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "leaf/client/clock_probe.h"
#include "leaf/config/worker_number.h"
#include "leaf/embed/tls_files.h"
#include "leaf/sys/boot_id.h"
#include "leaf/sys/clock_acceptance.h"

namespace leaf::embed {
namespace {

// How long a peer may take to tell its time.
constexpr std::chrono::milliseconds kPeerTimeout{1000};

service::SnowflakeOptions SnowflakeOptionsOf(const config::Config& config, bool one_shot) {
  const config::Config::Snowflake& snowflake = config.snowflake;
  service::SnowflakeOptions options;
  options.cluster = {snowflake.cluster, snowflake.registry, snowflake.layout};
  options.address = snowflake.address;
  options.worker_source = config::WorkerSourceOf(config);
  options.private_cluster = IsPrivateCluster(config);
  options.says_always_that_it_is_private = !one_shot;
  const config::WorkerRange numbers = WorkerNumbersOf(config);
  options.worker_begin = numbers.begin;
  options.worker_end = numbers.end;
  options.window = snowflake.window;
  options.start_wait = snowflake.start_wait;
  options.clock_jump_max = snowflake.clock_jump_max;
  options.boot_id = sys::ReadBootId();
  options.machine = sys::ReadPlaceId(config.state_dir);
  options.offline_start_max = snowflake.offline_start_max;
  options.accepted_offset = [state_dir = config.state_dir, boot_id = options.boot_id] {
    return sys::LoadAcceptedOffset(state_dir, boot_id);
  };
  return options;
}

// core::PeerClocks over HTTP.
class HttpPeerClocks final : public core::PeerClocks {
 public:
  HttpPeerClocks(const Clock& clock, client::TlsSource tls) : clock_(clock), tls_(std::move(tls)) {}

  std::vector<core::PeerClock> Ask(std::span<const core::Peer> peers) override {
    std::vector<std::string> urls;
    urls.reserve(peers.size());
    for (const core::Peer& peer : peers) urls.push_back(peer.url);
    const auto readings = client::ReadClocks(urls, kPeerTimeout, clock_, tls_);
    std::vector<core::PeerClock> answers;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (!readings[i]) continue;
      answers.push_back({peers[i].address, readings[i]->ahead, readings[i]->uncertainty,
                         /*is_older=*/readings[i]->version.empty()});
    }
    return answers;
  }

 private:
  const Clock& clock_;
  const client::TlsSource tls_;
};

}  // namespace

SnowflakeAdapters::SnowflakeAdapters(const Environment& environment, const config::Config& config,
                                     bool one_shot, sys::FilesIn files)
    : config_(config),
      options_(SnowflakeOptionsOf(config, one_shot)),
      files_(std::move(files)),
      state_file_(config.state_dir, files_),
      timers_("leaf-sf-timers", 1, environment.ClockInUse()),
      workers_("leaf-ceiling", 1, environment.ClockInUse()),
      registry_worker_("leaf-registry", 1, environment.ClockInUse()),
      peer_worker_("leaf-peers", 1, environment.ClockInUse()) {}

Result<std::unique_ptr<SnowflakeAdapters>> SnowflakeAdapters::Open(Environment& environment, bool one_shot,
                                                                   Logger& log) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  const config::Config& config = resolved->config;
  LEAF_ASSIGN_OR_RETURN(sys::FilesIn files, sys::FilesIn::Open(config.state_dir));
  std::unique_ptr<SnowflakeAdapters> adapters(
      new SnowflakeAdapters(environment, config, one_shot, std::move(files)));
  LEAF_ASSIGN_OR_RETURN(adapters->registry_, OpenRegistry(environment, config, log));
  if (adapters->registry_->peers() != nullptr)
    adapters->peer_clocks_ =
        std::make_unique<HttpPeerClocks>(environment.ClockInUse(), ClientTlsOf(config.client));
  return adapters;
}

service::SnowflakePorts SnowflakeAdapters::Ports() {
  service::SnowflakePorts ports{.options = options_,
                                .registry = registry_->registry(),
                                .state_file = state_file_,
                                .random = random_,
                                .executors = {timers_, workers_, registry_worker_},
                                .peer_worker = peer_worker_,
                                .peers = std::nullopt};
  if (peer_clocks_) {
    // Clang 14 makes no aggregate of parentheses.
    ports.peers.emplace(
        service::SnowflakePorts::Peers{.options = {.threshold = config_.snowflake.peer_clock_threshold},
                                       .directory = *registry_->peers(),
                                       .clocks = *peer_clocks_});
  }
  return ports;
}

}  // namespace leaf::embed
