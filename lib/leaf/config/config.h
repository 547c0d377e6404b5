// The configuration as one documented struct. Every key, its type, its default and its place in this struct
// is one line of keys.cc; loader.h fills it from the layers flag > environment > file > default.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/endpoint.h"
#include "leaf/core/id_layout.h"

namespace leaf::config {

using Millis = std::chrono::milliseconds;

// Worker numbers, half-open.
struct WorkerRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// TCP, or a Unix socket.
struct ListenAddress {
  Endpoint tcp;           // port 0: a free one
  std::string unix_path;  // "" for TCP
};

struct Config {
  std::string state_dir;

  struct Server {
    std::vector<Endpoint> listen;  // port 0: a free one
    std::string socket;            // "" for none
    std::string socket_public;     // "" for none
    std::vector<Endpoint> admin_listen;
    std::vector<ListenAddress> redis_listen;
    std::string tls_cert;  // "": without TLS, and so are the next two
    std::string tls_key;
    std::string tls_client_ca;  // "": no certificates of clients
    std::int64_t threads = 0;
    Millis drain_timeout{};
    Millis request_timeout{};
    Millis leaf_wait{};
    std::int64_t max_count = 0;
    std::vector<std::string> allowed_hosts;
    std::int64_t max_connections = 0;
    std::int64_t max_connections_per_address = 0;  // 0 for no limit
    Millis header_timeout{};
    Millis idle_timeout{};
    std::int64_t max_requests_per_second = 0;
    std::int64_t max_tag_requests_per_second = 0;
  } server;

  struct Client {
    std::vector<std::string> servers;
    std::string ca;    // "": the system's
    std::string cert;  // "": none, and no key
    std::string key;
    std::string token_file{};  // "" for none
  } client;

  struct Codes {
    std::string key_file;  // "": there are no codes
    std::int64_t length = 0;
    std::string alphabet;
    bool check = false;
    std::int64_t group = 0;
    // What a tag has instead of the four above.
    struct Own {
      std::optional<std::int64_t> length{};
      std::optional<std::string> alphabet{};
      std::optional<bool> check{};
      std::optional<std::int64_t> group{};
    };
    std::map<std::string, Own> tags{};
  } codes;

  struct Auth {
    std::string tokens_file;             // "" for none
    std::vector<std::string> anonymous;  // roles of callers without a token: "ids", "read"
  } auth;

  struct Segment {
    bool enabled = false;
    std::string store;
    Millis refresh_interval{};
    std::int64_t max_tags = 0;
    std::string fence;
    bool witness_fallback = false;
    std::optional<Millis> claim_watch;  // nothing: "auto"
    std::string step_policy;
    std::int64_t step_max = 0;
    Millis reserve_time{};
  } segment;

  struct Sqlite {
    std::string path;
  } sqlite;

  struct Mysql {
    std::vector<Endpoint> endpoints;
    std::string database;
    std::string user;
    std::string password_file;
    Millis connect_timeout{};
    Millis query_timeout{};
    std::int64_t max_connections = 0;
    std::string tls;
    std::string tls_ca;
  } mysql;

  struct Snowflake {
    bool enabled = false;
    std::string cluster;
    std::string registry;
    bool recycle = false;
    std::string address;
    std::string advertise;
    std::int64_t worker_id = 0;   // with worker_ordinal: the host name's, once it is loaded
    bool worker_ordinal = false;  // snowflake.worker_id = "ordinal"
    std::string worker_host;      // the host name that the number is from
    std::map<std::string, std::int64_t> workers;
    WorkerRange worker_range;
    core::IdLayout layout;  // snowflake.layout and snowflake.epoch_ms
    Millis window{};
    Millis start_wait{};
    Millis clock_jump_max{};
    Millis offline_start_max{};
    std::optional<Millis> claim_watch;  // nothing: "auto"
    Millis lease_time{};
    Millis peer_clock_threshold{};
  } snowflake;

  struct Zookeeper {
    std::string connect;
    Millis session_timeout{};
    std::string auth_file;
  } zookeeper;

  struct Metrics {
    std::int64_t top_tags = 0;
  } metrics;

  struct Log {
    std::string level;
    std::string format;
  } log;
};

}  // namespace leaf::config
