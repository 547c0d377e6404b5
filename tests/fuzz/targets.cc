#include "fuzz/targets.h"

#include <array>

namespace leaf::fuzz {

std::span<const Target> Targets() {
  static constexpr std::string_view kIdText[] = {"0x", "0X", "9223372036854775807", "9223372036854775808",
                                                 "-",  "z"};
  static constexpr std::string_view kDuration[] = {"ms", "s", "m", "h", "d", "9223372036854775807", "-", "0"};
  static constexpr std::string_view kText[] = {
      "\xE4\xB8\xAD", "\xF4\x8F\xBF\xBF", "\xED\xA0\x80", "\xC0\x80", "\xC2\x85", "\x7F", "/", "\n"};
  static constexpr std::string_view kEndpoint[] = {
      "[::1]", "[fe80::1%eth0]", ":3306", ":65536", ":0", "localhost", ";", "]:", "'", "="};
  static constexpr std::string_view kTime[] = {
      "2026-11-20", "T11:29:38", ".123", "Z", "+08:00", "-23:59", "-9223372036854775808", "0000-02-29"};
  static constexpr std::string_view kLayout[] = {
      "41-10-12", "-", "61-1-1", "1-1-61", "2147483648", "+", "9223372036854775807", "\n"};
  static constexpr std::string_view kConfigFile[] = {
      "[server]\n",    "listen = ",  "[segment]\n", "step_policy = ", "\"fixed\"",     "[snowflake]\n",
      "workers = { }", "\"3s\"",     "= true\n",    "layout = ",      "epoch_ms = ",   "[\"127.0.0.1:1\"]",
      "\"\"\"",        "\\u0000",    "\\UFFFFFFFF", "[[server]]\n",   "server.listen", "0x7fffffffffffffff",
      "inf",           "1979-05-27", "#",           "{ a = 1 }",      "[mysql]\n",     "endpoints = ",
      "state_dir = ",  "[log]\n"};
  static constexpr std::string_view kConfigValues[] = {"LEAFCTL_SERVER_LISTEN=",
                                                       "LEAFCTL_STATE_DIR=",
                                                       "LEAFCTL_SNOWFLAKE_WORKERS=a:1=7,b:2=8",
                                                       "LEAFCTL_SNOWFLAKE_LAYOUT=41-10-12",
                                                       "LEAFCTL_SNOWFLAKE_WORKER_RANGE=0-1023",
                                                       "LEAFCTL_SEGMENT_FENCE=cluster",
                                                       "LEAFCTL_MYSQL_ENDPOINTS=",
                                                       "LEAFCTL_CLIENT_SERVERS=http://[::1]:80/,unix:/x",
                                                       "server.max_count=",
                                                       "snowflake.registry=zookeeper",
                                                       "snowflake.advertise=http://a:1",
                                                       "snowflake.window=100ms",
                                                       ",",
                                                       "\n",
                                                       "="};
  static constexpr std::string_view kLeafProperties[] = {
      "leaf.name=",
      "leaf.segment.enable=true\n",
      "leaf.snowflake.enable=false\n",
      "leaf.jdbc.url=jdbc:mysql://",
      "leaf.jdbc.username=u\n",
      "leaf.jdbc.password=p\n",
      "leaf.segment.url=",
      "leaf.snowflake.zk.address=",
      "leaf.snowflake.address=",
      "leaf.snowflake.port=8686\n",
      "leaf.snowflake.mode=local\n",
      "leaf.snowflake.local.workIdMap={\"127.0.0.1:80\":1}\n",
      "address=(host=h)(port=1)",
      "(host=h,port=1)",
      "u:p@h",
      "/db?",
      "&sslMode=",
      "&connectTimeout=1",
      "\\u0000",
      "\\ud83d\\ude00",
      "\\\n",
      " ",
      "[",
      "%00"};
  static constexpr std::string_view kHttpTarget[] = {
      "/v1/segment/",   "?count=", "&form=range", "%00",      "%2F",   "%",       ";x=1", "http://host/",
      "text/plain;q=1", ";q=",     "nan",         "1e-99999", "sort=", "limit=1", "\n",   "application/json"};
  static constexpr std::string_view kHttpRequests[] = {
      "GET /v1/segment/pay?count=3 HTTP/1.1\r\n",
      "POST /v1/segment/pay/pause HTTP/1.1\r\n",
      "GET /api/snowflake/get/x HTTP/1.0\r\n",
      "GET /api/segment/get/pay HTTP/1.1\r\n",
      "HEAD ",
      "OPTIONS ",
      "TRACE ",
      "GET /v1/status?sort=trouble&limit=1 HTTP/1.1\r\n",
      "GET /decodeSnowflakeId?snowflakeId=-1 HTTP/1.1\r\n",
      "GET /v1/decode/0x7fffffffffffffff?format=hex HTTP/1.1\r\n",
      "GET /cache HTTP/1.1\r\n",
      "GET /db HTTP/1.1\r\n",
      "GET /metrics HTTP/1.1\r\n",
      "GET /health/ready?tag=pay HTTP/1.1\r\n",
      "&form=range",
      "Host: x\r\n",
      "Accept: text/plain\r\n",
      "Accept-Language: zh\r\n",
      "Transfer-Encoding: chunked\r\n",
      "Content-Length: 5\r\n",
      "Connection: close\r\n",
      "Expect: 100-continue\r\n",
      "\r\n",
      "0\r\n\r\n",
      "%0d%0a",
      "/advice",
      "/mark",
      "/v1/workers",
      "/resume"};
  static constexpr std::string_view kDaemonAnswer[] = {"200\n",
                                                       "413\n",
                                                       "503\n",
                                                       R"({"ranges":[{"begin":"1","end":"4"}]})",
                                                       R"("max_count":)",
                                                       R"("time_ms":)",
                                                       R"("mark":"7")",
                                                       R"({"code":"frozen","message":"m","hint":"h"})",
                                                       "9223372036854775808",
                                                       "18446744073709551615",
                                                       "[[[[",
                                                       "null",
                                                       "1e999"};
  static constexpr std::string_view kZnodeNames[] = {"127.0.0.1:80-0000000007",
                                                     "-",
                                                     "0000000007",
                                                     "workId:",
                                                     "[::1]:80",
                                                     "2147483648",
                                                     "/snowflake",
                                                     "..",
                                                     "%",
                                                     "\xE4\xB8\xAD"};
  static constexpr std::string_view kZnodeRecords[] = {"forever\n",
                                                       "node\n",
                                                       "incarnation\n",
                                                       "\"contributed\":",
                                                       "\"number\":",
                                                       "4611686018427387905",
                                                       "owner\n",
                                                       "ceiling\n",
                                                       "\"ip\":",
                                                       "\"port\":",
                                                       "\"timestamp\":",
                                                       "\"uuid\":",
                                                       "\"generation\":",
                                                       "\"worker\":",
                                                       "null",
                                                       "1e3",
                                                       "-1",
                                                       "\"end\":\"",
                                                       "\"urls\":[]",
                                                       "true",
                                                       "9007199254740993",
                                                       "18446744073709551615",
                                                       "\"layout\":\"41-10-12\"",
                                                       "\\ud800",
                                                       "\\u0000"};
  static constexpr std::string_view kZnodeTree[] = {
      "forever/127.0.0.1:80- ",
      "forever/lock x\n",
      "owners/0 ",
      "ceilings/0 ",
      "leases/1023 ",
      "addresses/127.0.0.1:80 ",
      "temporary/127.0.0.1:80 ",
      R"({"ip":"127.0.0.1","port":"80","timestamp":1795000000000})",
      R"({"uuid":"u","address":"127.0.0.1:80","host":"h","since_ms":1})",
      R"({"uuid":"u","generation":1,"ceiling_ms":1795000003000,"leaf_version":0,"leaf_timestamp_ms":0})",
      R"({"uuid":"u","worker":0})",
      "java retired\n",
      "recycle/notuse/workId:1 ",
      R"({"generation":2,"uuid":"u","address":"127.0.0.1:80","ceiling_ms":null})"};
  static constexpr std::string_view kWitness[] = {
      R"({"end":"1001","claim":"c","by":"b","at_ms":1795000000000})",
      "9223372036854775807",
      "9223372036854775808",
      "\"end\":",
      "null",
      "\\u0000"};
  static constexpr std::string_view kConnectString[] = {":2181", ",",      "/chroot", "[::1]:2181", "//",
                                                        "/..",   ":65536", "%",       "[",          "]"};
  static constexpr std::string_view kWorkerState[] = {"leafctl-snowflake-state 2\n",
                                                      "node ",
                                                      "cluster ",
                                                      "registry ",
                                                      "layout 41-10-12\n",
                                                      "epoch_ms ",
                                                      "worker",
                                                      "none",
                                                      "checksum ",
                                                      "ceiling_ms ",
                                                      "boot_id ",
                                                      "leased",
                                                      "machine ",
                                                      "-1",
                                                      "506805407000000",
                                                      "last_contact_ms ",
                                                      "\n",
                                                      "highest_ms "};
  static constexpr std::string_view kPausedTags[] = {"leafctl-paused-tags 2\n",
                                                     "leafctl-paused-tags 1\n",
                                                     "1795000000000 ",
                                                     "0 ",
                                                     "/0 tags\n",
                                                     "/1 tags\n",
                                                     "/2 tags\n",
                                                     "pay\n",
                                                     "\n",
                                                     "\xE4\xB8\xAD\n"};
  static constexpr std::string_view kClockAcceptance[] = {
      "7f6c0e0e-boot ", "9223372036854775807", "-9223372036854775808", "\n", " ", "-"};

  static constexpr std::array kTargets = {
      Target{"id_text", IdText, 1, kIdText},
      Target{"duration", Duration, 1, kDuration},
      Target{"text", Text, 2, kText},
      Target{"mysql_endpoint", MysqlEndpoint, 1, kEndpoint},
      Target{"time", Time, 1, kTime},
      Target{"layout", Layout, 1, kLayout},
      Target{"config_file", ConfigFile, 40, kConfigFile},
      Target{"config_values", ConfigValues, 40, kConfigValues},
      Target{"leaf_properties", LeafProperties, 40, kLeafProperties},
      Target{"http_target", HttpTarget, 1, kHttpTarget},
      Target{"http_requests", HttpRequests, 10, kHttpRequests},
      Target{"daemon_answer", DaemonAnswer, 1, kDaemonAnswer},
      Target{"znode_names", ZnodeNames, 1, kZnodeNames},
      Target{"znode_records", ZnodeRecords, 1, kZnodeRecords},
      Target{"znode_tree", ZnodeTree, 10, kZnodeTree},
      Target{"witness", Witness, 2, kWitness},
      Target{"connect_string", ConnectString, 1, kConnectString},
      Target{"worker_state", WorkerState, 4, kWorkerState},
      Target{"paused_tags", PausedTags, 2, kPausedTags},
      Target{"clock_acceptance", ClockAcceptance, 2, kClockAcceptance},
  };
  return kTargets;
}

}  // namespace leaf::fuzz
