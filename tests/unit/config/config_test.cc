#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "leaf/base/endpoint.h"
#include "leaf/base/text.h"
#include "leaf/config/keys.h"
#include "leaf/config/loader.h"
#include "leaf/config/worker_number.h"
#include "leaf/core/id_layout.h"
#include "leaf/sql/schema.h"
#include "support/temp_dir.h"

namespace leaf::config {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() { input_.environment["HOME"] = dir_.path(); }
  void WriteFile(const std::string& text) {
    input_.file = dir_.path() + "/leafctl.toml";
    std::ofstream(*input_.file) << text;
  }
  std::string Problem() const {
    const auto loaded = Load(input_);
    return loaded.ok() ? "" : loaded.error().message;
  }
  testing::TempDir dir_;
  LoadInput input_;
};

TEST_F(ConfigTest, APathThatIsGivenIsNotEmpty) {
  for (const std::string key : {"state_dir", "sqlite.path"}) {
    input_.flags = {{key, "", "--set"}};
    const auto loaded = Load(input_);
    ASSERT_FALSE(loaded.ok()) << key;
    EXPECT_NE(loaded.error().message.find(key + ": is empty"), std::string::npos) << loaded.error().message;
  }
}

TEST_F(ConfigTest, EveryDefaultParsesAndShowsAsItWasGiven) {
  const auto loaded = Load(input_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.server.listen, (std::vector<Endpoint>{{"127.0.0.1", 8080}}));
  EXPECT_EQ(loaded->config.server.leaf_wait, std::chrono::milliseconds{10});
  EXPECT_EQ(loaded->config.snowflake.layout, core::IdLayout());
  EXPECT_EQ(loaded->config.state_dir, dir_.path() + "/.local/state/leafctl");
  EXPECT_EQ(loaded->config.sqlite.path, loaded->config.state_dir + "/leaf.db");
  EXPECT_EQ(loaded->config.server.socket, loaded->config.state_dir + "/leafctl.sock");
  EXPECT_TRUE(loaded->warnings.empty());
  EXPECT_FALSE(loaded->AnythingSet());
}

TEST_F(ConfigTest, ValuesAreParsedWhereTheyAreRead) {
  // The epoch and the widths are two keys of one layout, in either order.
  WriteFile(
      "[snowflake]\nlayout = \"40-11-12\"\nepoch_ms = 5\nworker_range = \"3-7\"\nclaim_watch = \"2s\"\n"
      "[server]\nlisten = [\"[::1]:0\", \"h:2\"]\n[mysql]\nendpoints = [\"db\", \"[::2]:4\"]\n");
  const auto loaded = Load(input_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Config::Snowflake& snowflake = loaded->config.snowflake;
  EXPECT_EQ(snowflake.layout, *core::IdLayout::Make(40, 11, 12, 5));
  EXPECT_EQ(snowflake.worker_range.begin, 3U);
  EXPECT_EQ(snowflake.worker_range.end, 8U);
  EXPECT_EQ(snowflake.claim_watch, std::chrono::seconds{2});
  EXPECT_EQ(loaded->config.segment.claim_watch, std::nullopt);
  EXPECT_EQ(loaded->config.server.listen, (std::vector<Endpoint>{{"::1", 0}, {"h", 2}}));
  EXPECT_EQ(loaded->config.mysql.endpoints, (std::vector<Endpoint>{{"db", 3306}, {"::2", 4}}));
  EXPECT_EQ(snowflake.address, "h:2");
  EXPECT_EQ(FormatToml(FindKey("snowflake.worker_range")->load(loaded->config)), "\"3-7\"");
  EXPECT_EQ(FormatToml(FindKey("server.listen")->load(loaded->config)), R"(["[::1]:0", "h:2"])");
  EXPECT_EQ(FormatToml(FindKey("segment.claim_watch")->load(loaded->config)), "\"auto\"");
}

TEST_F(ConfigTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  WriteFile("[segment]\nstore = \"mysql\"\nmax_tags = 5\nstep_max = 7\n");
  input_.environment["LEAFCTL_SEGMENT_MAX_TAGS"] = "6";
  input_.environment["LEAFCTL_SEGMENT_STEP_MAX"] = "8";
  input_.flags = {{"segment.step_max", "9", "--set"}};
  const auto loaded = Load(input_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->config.segment.store, "mysql");
  EXPECT_EQ(loaded->config.segment.max_tags, 6);
  EXPECT_EQ(loaded->config.segment.step_max, 9);
  EXPECT_EQ(loaded->origins.at("segment.store"), *input_.file + ":2");
  EXPECT_EQ(loaded->origins.at("segment.max_tags"), "$LEAFCTL_SEGMENT_MAX_TAGS");
  EXPECT_EQ(loaded->origins.at("segment.step_max"), "--set");
  EXPECT_EQ(loaded->origins.at("segment.enabled"), "default");
  EXPECT_TRUE(loaded->IsSet("segment.store"));
  EXPECT_TRUE(loaded->IsSet("segment.")) << "a table";
  EXPECT_FALSE(loaded->IsSet("segment.st")) << "another key begins so";
}

TEST_F(ConfigTest, ReportsEveryProblemAtOnceWithLineAndNearestName) {
  WriteFile("[segment]\nstroe = \"mysql\"\nmax_tags = \"many\"\n[serverr]\n[log]\nlevel = \"loud\"\n");
  const auto loaded = Load(input_);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kConfig);
  const std::string& text = loaded.error().message;
  for (const char* part :
       {":2: unknown key 'segment.stroe', did you mean segment.store?",
        ":3: segment.max_tags: expected a whole number", ":4: unknown table 'serverr', did you mean server?",
        ":6: log.level: 'loud' is not one of", "4 problems"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST_F(ConfigTest, TheOrdinalIsTheNumberAtTheEndOfTheHostName) {
  for (const auto& [host, number] :
       {std::pair{"leafctl-3", 3}, {"a-b-0", 0}, {"leafctl-12.leafctl.svc-9", 12}, {"x-1023", 1023}}) {
    const auto found = OrdinalOf(host, 0, 1024);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, static_cast<std::uint64_t>(number)) << host;
  }
  for (const std::string host : {"", "web", "web3", "3", "a-", "a-3b", "a-b3", "a-+3", "a- 3", "a-03", "a-00",
                                 "a-1024", "a-18446744073709551616", "a.svc-3", "a-\xef\xbc\x93"}) {
    const auto found = OrdinalOf(host, 0, 1024);
    ASSERT_FALSE(found.ok()) << host;
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
    if (!host.empty()) {
      EXPECT_NE(found.error().message.find(Quoted(host)), std::string::npos) << found.error().message;
    }
  }
  EXPECT_FALSE(OrdinalOf("a-4", 5, 8).ok());
  EXPECT_FALSE(OrdinalOf("a-8", 5, 8).ok());
}

TEST_F(ConfigTest, TheWorkerNumberIsANumberOrOrdinal) {
  input_.host = "leafctl-7";
  const auto worker = [&](const std::string& text) {
    input_.flags = {{"snowflake.worker_id", text, "--set"}, {"snowflake.cluster", "pay", "--set"}};
    return Load(input_);
  };
  const auto ordinal = worker("ordinal");
  ASSERT_TRUE(ordinal.ok()) << ordinal.error().message;
  EXPECT_EQ(ordinal->config.snowflake.worker_id, 7);
  EXPECT_EQ(FormatToml(FindKey("snowflake.worker_id")->load(ordinal->config)), "\"ordinal\"");
  EXPECT_EQ(WorkerSourceOf(ordinal->config), "host name 'leafctl-7'");
  EXPECT_EQ(OrdinalText(ordinal->config), "7, from the host name 'leafctl-7'");
  const auto fixed = worker("5");
  EXPECT_EQ(fixed->config.snowflake.worker_id, 5);
  EXPECT_EQ(FormatToml(FindKey("snowflake.worker_id")->load(fixed->config)), "5");
  EXPECT_EQ(WorkerSourceOf(fixed->config), "snowflake.worker_id");
  EXPECT_EQ(OrdinalText(fixed->config), "");
  for (const char* const bad :
       {"ordinals", "", "Ordinal", "-2", "2147483648", "99999999999999999999", "1.5"}) {
    input_.flags = {{"snowflake.worker_id", bad, "--set"}};
    const auto loaded = Load(input_);
    ASSERT_FALSE(loaded.ok()) << bad;
    EXPECT_EQ(loaded.error().code, ErrorCode::kInvalidArgument);
  }
  // The flag that comes later wins, whichever of the two it is.
  input_.environment["LEAFCTL_SNOWFLAKE_WORKER_ID"] = "ordinal";
  EXPECT_EQ(worker("5")->config.snowflake.worker_id, 5);
  EXPECT_FALSE(worker("5")->config.snowflake.worker_ordinal);
  input_.environment.clear();
  input_.flags.clear();
  input_.environment["HOME"] = dir_.path();
  EXPECT_EQ(WorkerSourceOf(Load(input_)->config), "drawn for the state directory");
  for (const char* const toml :
       {"worker_id = \"3\"", "worker_id = 3.0", "worker_id = [3]", "worker_id = true"}) {
    WriteFile(std::string("[snowflake]\n") + toml + "\n");
    EXPECT_NE(Problem().find("snowflake.worker_id: expected a whole number or a word"), std::string::npos)
        << toml;
  }
  WriteFile("[snowflake]\nworker_id = \"ordinal\"\n");
  ASSERT_TRUE(Load(input_).ok()) << Problem();
  EXPECT_EQ(Load(input_)->config.snowflake.worker_id, 7);
  // Mode and registry decide whether it is asked for at all.
  input_.host = "web";
  EXPECT_NE(Problem().find(":2: snowflake.worker_id: the host name 'web' does not end"), std::string::npos)
      << Problem();
  input_.flags = {{"snowflake.enabled", "false", "--set"}};
  EXPECT_EQ(Problem(), "");
  EXPECT_EQ(OrdinalText(Load(input_)->config), "");
}

TEST_F(ConfigTest, BadFlagsAreUsageErrors) {
  input_.flags = {{"server.listen", "nowhere", "--listen"}};
  EXPECT_EQ(Load(input_).error().code, ErrorCode::kInvalidArgument);
  input_.environment["LEAFCTL_LOG_LEVEL"] = "loud";
  EXPECT_EQ(Load(input_).error().code, ErrorCode::kConfig);
}

TEST_F(ConfigTest, AnAddressHasOnePort) {
  for (const char* const text : {"127.0.0.1:1:8099", "[::1]:1:8099", ":80:90", "::1:80"}) {
    input_.flags = {{"server.listen", text, "--listen"}};
    EXPECT_FALSE(Load(input_).ok()) << text;
  }
  input_.flags = {{"snowflake.address", "192.0.2.1:80:90", "--set"}};
  EXPECT_FALSE(Load(input_).ok());
  input_.flags = {{"server.listen", "[::1]:8099", "--listen"}};
  EXPECT_TRUE(Load(input_).ok());
}

// However it is spelled: other nodes would have the same identity.
TEST_F(ConfigTest, LoopbackAndEveryAddressNameNoNode) {
  for (const char* const text : {"0:8080", "[::0]:8080", "LOCALHOST:8080", "127.1:8080", ":8080"}) {
    input_.flags = {{"server.listen", text, "--listen"}};
    const auto loaded = Load(input_);
    ASSERT_TRUE(loaded.ok()) << text;
    EXPECT_EQ(loaded->config.snowflake.address, "") << text;
  }
  input_.flags = {{"server.listen", "192.0.2.1:8080", "--listen"}};
  EXPECT_EQ(Load(input_)->config.snowflake.address, "192.0.2.1:8080");
}

TEST_F(ConfigTest, AnImageChangesTheDefaultOfListenOnly) {
  input_.environment["LEAFCTL_LISTEN_DEFAULT"] = ":9000";
  const auto alone = Load(input_);
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  EXPECT_EQ(alone->config.server.listen, (std::vector<Endpoint>{{"0.0.0.0", 9000}}));
  EXPECT_EQ(alone->origins.at("server.listen"), "$LEAFCTL_LISTEN_DEFAULT");
  EXPECT_FALSE(alone->AnythingSet()) << "no user has set anything";
  EXPECT_FALSE(alone->IsSet("server.listen"));
  EXPECT_TRUE(alone->warnings.empty());
  WriteFile("[server]\nlisten = [\":9001\"]\n");
  EXPECT_EQ(Load(input_)->config.server.listen, (std::vector<Endpoint>{{"0.0.0.0", 9001}}));
  EXPECT_TRUE(Load(input_)->IsSet("server.listen"));
  input_.environment["LEAFCTL_SERVER_LISTEN"] = ":9002";
  EXPECT_EQ(Load(input_)->config.server.listen, (std::vector<Endpoint>{{"0.0.0.0", 9002}}));
  input_.environment["LEAFCTL_LISTEN_DEFAULT"] = "nowhere";
  EXPECT_NE(Problem().find("$LEAFCTL_LISTEN_DEFAULT: server.listen: 'nowhere'"), std::string::npos)
      << Problem();
}

TEST_F(ConfigTest, ReadsListsAndMapsFromVariables) {
  input_.environment["LEAFCTL_MYSQL_ENDPOINTS"] = "a:1, b:2";
  input_.environment["LEAFCTL_SNOWFLAKE_WORKERS"] = "127.0.0.1:8080=1,127.0.0.2:8080=2";
  input_.environment["LEAFCTL_SNOWFLAKE_ADDRESS"] = "127.0.0.2:8080";
  const auto loaded = Load(input_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->config.mysql.endpoints, (std::vector<Endpoint>{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(loaded->config.snowflake.workers.at("127.0.0.2:8080"), 2);
}

TEST_F(ConfigTest, AnUnknownVariableIsAWarning) {
  input_.environment["LEAFCTL_SEGMENT_STROE"] = "x";
  const auto loaded = Load(input_);
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ(loaded->warnings.size(), 1U);
  EXPECT_NE(loaded->warnings[0].find("LEAFCTL_SEGMENT_STORE"), std::string::npos);
}

TEST_F(ConfigTest, HalfOfTlsIsRefused) {
  const std::pair<const char*, const char*> cert{"server.tls_cert", "/s.pem"};
  const std::pair<const char*, const char*> key{"server.tls_key", "/s.key"};
  const std::pair<const char*, const char*> clients{"server.tls_client_ca", "/ca.pem"};
  const auto problem = [&](const std::vector<std::pair<const char*, const char*>>& values) {
    input_.flags.clear();
    for (const auto& [name, value] : values) input_.flags.push_back({name, value, "--set"});
    return Problem();
  };
  EXPECT_EQ(problem({cert, key, clients}), "");
  EXPECT_NE(problem({cert}).find("set server.tls_key"), std::string::npos);
  EXPECT_NE(problem({key}).find("set server.tls_cert"), std::string::npos);
  EXPECT_NE(problem({clients}).find("server.tls_client_ca: only a listener with TLS"), std::string::npos);
  EXPECT_NE(problem({{"client.cert", "/c.pem"}}).find("set client.key"), std::string::npos);
  EXPECT_EQ(problem({{"client.ca", "/c.pem"}}), "");
}

TEST_F(ConfigTest, WithTlsPeersAreToldOfHttps) {
  input_.flags = {{"snowflake.address", "127.0.0.2:8080", "--set"}};
  EXPECT_EQ(Load(input_)->config.snowflake.advertise, "http://127.0.0.2:8080");
  input_.flags.push_back({"server.tls_cert", "/s.pem", "--set"});
  input_.flags.push_back({"server.tls_key", "/s.key", "--set"});
  EXPECT_EQ(Load(input_)->config.snowflake.advertise, "https://127.0.0.2:8080");
  input_.flags.push_back({"snowflake.advertise", "https://id1.example.org:443", "--set"});
  EXPECT_EQ(Load(input_)->config.snowflake.advertise, "https://id1.example.org:443");
}

TEST_F(ConfigTest, WhatCannotBeDoneAsConfiguredIsNotIgnored) {
  input_.flags = {{"snowflake.registry", "zookeeper", "--set"}};
  EXPECT_NE(Problem().find("snowflake.registry"), std::string::npos);
  input_.flags.push_back({"snowflake.enabled", "false", "--set"});
  EXPECT_EQ(Problem(), "");
  input_.flags = {{"segment.fence", "cluster", "--set"}};
  EXPECT_NE(Problem().find("segment.fence"), std::string::npos);
  for (const auto& [key, value] : {std::pair{"segment.store", "mysql"}, {"segment.enabled", "false"}}) {
    input_.flags = {{"segment.fence", "cluster", "--set"}, {key, value, "--set"}};
    EXPECT_EQ(Problem(), "") << key;
  }
}

TEST_F(ConfigTest, AnAuthorityIsAskedAboutOnlyToVerify) {
  input_.flags = {{"mysql.tls_ca", "/etc/ca.pem", "--set"}};
  EXPECT_NE(Problem().find("mysql.tls_ca"), std::string::npos);
  input_.flags.push_back({"mysql.tls", "required", "--set"});
  EXPECT_NE(Problem().find("mysql.tls_ca"), std::string::npos);
  input_.flags.push_back({"mysql.tls", "verify", "--set"});
  EXPECT_EQ(Problem(), "");
}

TEST_F(ConfigTest, MysqlEndpointsAreHostsWithOrWithoutAPort) {
  input_.flags = {{"mysql.endpoints", "db1, db2:3307,[::1],[fe80::1]:3308,localhost", "--set"}};
  EXPECT_EQ(Problem(), "");
  for (const char* wrong : {"db1:", "db1:0", "::1", "db1;x", "db 1", "db1,db2:x"}) {
    input_.flags = {{"mysql.endpoints", wrong, "--set"}};
    EXPECT_NE(Problem().find("mysql.endpoints"), std::string::npos) << wrong;
  }
}

TEST_F(ConfigTest, ANamedClusterNeedsANumberAndAMapAnAddress) {
  input_.flags = {{"snowflake.cluster", "pay", "--set"}};
  EXPECT_NE(Problem().find("snowflake.worker_id"), std::string::npos);
  input_.flags.push_back({"snowflake.worker_id", "3", "--set"});
  EXPECT_EQ(Problem(), "");
  for (const char* listen : {"127.0.0.1:80,0.0.0.0:81", "localhost:80", "[::]:80,[::1]:81", "192.0.2.1:0"}) {
    input_.flags = {{"snowflake.workers", "192.0.2.1:80=3", "--set"}, {"server.listen", listen, "--listen"}};
    EXPECT_NE(Problem().find("snowflake.address"), std::string::npos) << listen;
  }
  input_.flags = {{"snowflake.workers", "192.0.2.1:80=3", "--set"},
                  {"server.listen", "127.0.0.1:8080,192.0.2.1:80", "--listen"}};
  const auto loaded = Load(input_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.snowflake.address, "192.0.2.1:80");
}

TEST_F(ConfigTest, ListenersThatCollideAreNamed) {
  for (const auto& [listen, problem] : std::vector<std::pair<std::string, std::string>>{
           {"127.0.0.1:80,127.0.0.1:80", "127.0.0.1:80 is in the list twice"},
           {":80,192.0.2.1:80", "0.0.0.0:80 and 192.0.2.1:80 cannot both be listened on"},
           {"192.0.2.1:80,0.0.0.0:80", "192.0.2.1:80 and 0.0.0.0:80 cannot both be listened on"},
           {"[::1]:80,[::]:80", "[::1]:80 and [::]:80 cannot both be listened on"},
           {"host:1,a:2,HOST:1", "host:1 and HOST:1 cannot both be listened on"}}) {
    input_.flags = {{"server.listen", listen, "--listen"}};
    EXPECT_NE(Problem().find("--listen: server.listen: " + problem), std::string::npos) << Problem();
  }
  // Port 0 is another port each time.
  for (const char* listen : {"127.0.0.1:0,127.0.0.1:0", "127.0.0.1:80,127.0.0.2:80",
                             "127.0.0.1:80,127.0.0.1:81", "192.0.2.1:80,[::]:80"}) {
    input_.flags = {{"server.listen", listen, "--listen"}};
    EXPECT_EQ(Problem(), "") << listen;
  }
}

TEST_F(ConfigTest, AFileThatIsNamedMustExist) {
  input_.file = dir_.path() + "/none.toml";
  EXPECT_NE(Problem().find("none.toml"), std::string::npos);
  input_.file.reset();
  input_.environment["LEAFCTL_CONFIG"] = dir_.path() + "/none.toml";
  EXPECT_NE(Problem().find("none.toml"), std::string::npos);
}

TEST_F(ConfigTest, TheRedisPortHasAddressesOfItsOwn) {
  const auto load = [this](const std::string& redis) {
    input_.flags = {{"server.listen", "127.0.0.1:80", "--listen"},
                    {"server.socket", "/run/a.sock", "--socket"},
                    {"server.redis_listen", redis, "--redis-listen"}};
    return Load(input_);
  };
  const auto good = load(":6380,[::1]:6380,unix:/run/b.sock,127.0.0.1:0,127.0.0.2:0");
  ASSERT_TRUE(good.ok()) << good.error().message;
  const auto& listen = good->config.server.redis_listen;
  ASSERT_EQ(listen.size(), 5U);
  EXPECT_EQ(listen[0].tcp, (Endpoint{"0.0.0.0", 6380}));
  EXPECT_EQ(listen[2].unix_path, "/run/b.sock");
  EXPECT_EQ(FormatToml(FindKey("server.redis_listen")->load(good->config)),
            R"(["0.0.0.0:6380", "[::1]:6380", "unix:/run/b.sock", "127.0.0.1:0", "127.0.0.2:0"])");
  for (const auto& [redis, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"6380", "neither HOST:PORT nor unix:/PATH"},
           {"unix:b.sock", "neither HOST:PORT nor unix:/PATH"},
           {"127.0.0.1:80", "127.0.0.1:80 is also in server.listen"},
           {":80", "127.0.0.1:80 and 0.0.0.0:80 cannot both be listened on"},
           {"unix:/run/a.sock", "unix:/run/a.sock is also in server.socket"},
           {"unix:/b,unix:/b", "unix:/b is in the list twice"}}) {
    const auto bad = load(redis);
    ASSERT_FALSE(bad.ok()) << redis;
    EXPECT_NE(bad.error().message.find(why), std::string::npos) << bad.error().message;
  }
}

TEST_F(ConfigTest, SystemdsDirectoriesAreDefaults) {
  input_.environment["STATE_DIRECTORY"] = "/var/lib/one:/var/lib/two";
  input_.environment["RUNTIME_DIRECTORY"] = "/run/leafctl";
  const auto loaded = Load(input_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.state_dir, "/var/lib/one");
  EXPECT_EQ(loaded->config.server.socket, "/run/leafctl/leafctl.sock");
}

TEST_F(ConfigTest, SocketCanBeSwitchedOff) {
  input_.flags = {{"server.socket", "", "--socket"}};
  const auto loaded = Load(input_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.server.socket, "");
}

TEST_F(ConfigTest, BadValuesAreNamed) {
  const std::pair<const char*, const char*> bad[] = {{"server.listen", "8080"},
                                                     {"server.listen", "a:b"},
                                                     {"server.listen", "h:70000"},
                                                     {"server.request_timeout", "1"},
                                                     {"server.request_timeout", "0s"},
                                                     {"server.max_count", "0"},
                                                     {"segment.enabled", "yes"},
                                                     {"segment.store", "oracle"},
                                                     {"segment.step_max", "1073741824"},
                                                     {"client.servers", "127.0.0.1"},
                                                     {"snowflake.layout", "41-10-13"},
                                                     {"snowflake.layout", "41-10"},
                                                     {"snowflake.layout", "2147483647-2147483647-65"},
                                                     {"snowflake.address", "a\nb:1"},
                                                     {"server.listen", "a b:1"},
                                                     {"snowflake.advertise", "http://\x1b[31m:1"},
                                                     {"snowflake.worker_range", "5"},
                                                     {"snowflake.worker_range", "-1-5"},
                                                     {"snowflake.worker_range", "7-5"},
                                                     {"snowflake.claim_watch", "soon"},
                                                     {"segment.claim_watch", "9999999d"},
                                                     {"snowflake.epoch_ms", "-1"},
                                                     {"mysql.endpoints", "a:0"},
                                                     {"snowflake.workers", "a"},
                                                     {"log.format", "xml"},
                                                     {"snowflake.window", "99ms"},
                                                     {"snowflake.cluster", "a/b"},
                                                     {"snowflake.address", "x"},
                                                     {"snowflake.epoch_ms", "253402300800000"},
                                                     {"server.threads", "-1"},
                                                     {"server.idle_timeout", "9999999d"}};
  for (const auto& [key, value] : bad) {
    input_.flags = {{key, value, "--set"}};
    EXPECT_NE(Problem().find(key), std::string::npos) << key << "=" << value;
  }
  for (const char* good : {"[::1]:8080", "0.0.0.0:0", "localhost:80"}) {
    input_.flags = {{"server.listen", good, "--set"}};
    EXPECT_EQ(Problem(), "") << good;
  }
}

TEST(Keys, ShownDefaultsReadBackToThemselves) {
  LoadInput input;
  input.environment["HOME"] = "/home/nobody";
  const auto defaults = Load(input);
  ASSERT_TRUE(defaults.ok());
  std::string text = "";
  std::string section;
  for (const Key& key : Keys()) {
    const std::size_t dot = key.name.find('.');
    if (dot != std::string::npos && key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += "[" + section + "]\n";
    }
    text += key.name.substr(dot == std::string::npos ? 0 : dot + 1) + " = " +
            FormatToml(key.load(defaults->config)) + "\n";
  }
  testing::TempDir dir;
  input.file = dir.path() + "/all.toml";
  std::ofstream(*input.file) << text;
  const auto again = Load(input);
  ASSERT_TRUE(again.ok()) << again.error().message;
  for (const Key& key : Keys()) {
    EXPECT_EQ(FormatToml(key.load(again->config)), FormatToml(key.load(defaults->config))) << key.name;
    EXPECT_FALSE(key.meaning.empty()) << key.name;
  }
}

std::string ReadSource(const std::string& path) {
  std::ifstream stream(std::string(LEAF_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(stream) << path;
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// config/leafctl.toml has every key, commented out, with the default that the code has.
TEST(SampleFile, HasEveryKeyWithItsDefault) {
  std::string text;
  std::set<std::string> named;
  std::string section;
  std::istringstream lines(ReadSource("config/leafctl.toml"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) section = line.substr(1, line.find(']') - 1) + ".";
    // Prose has a blank after its '#', a key has none.
    if (line.size() > 1 && line[0] == '#' && line[1] != ' ') {
      line.erase(0, 1);
      EXPECT_TRUE(named.insert(section + line.substr(0, line.find(' '))).second) << line;
    }
    text += line + "\n";
  }
  testing::TempDir dir;
  LoadInput input;
  input.environment["HOME"] = dir.path();
  const auto defaults = Load(input);
  input.file = dir.path() + "/leafctl.toml";
  std::ofstream(*input.file) << text;
  const auto loaded = Load(input);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_TRUE(loaded->warnings.empty());
  for (const Key& key : Keys()) {
    EXPECT_EQ(named.count(key.name), 1U) << key.name;
    if (key.name == "state_dir" || key.name == "server.socket" || key.name == "sqlite.path") continue;
    EXPECT_EQ(FormatToml(key.load(loaded->config)), FormatToml(key.load(defaults->config))) << key.name;
  }
  EXPECT_EQ(named.size(), Keys().size());
}

TEST(SampleFile, TheSqlIsWhatDbInitRuns) {
  EXPECT_NE(ReadSource("config/sql/leaf_alloc.sql").find(sql::SchemaText(sql::kMysql)), std::string::npos);
}

}  // namespace
}  // namespace leaf::config
