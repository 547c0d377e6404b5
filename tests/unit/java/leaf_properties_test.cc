#include "leaf/java/leaf_properties.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/text.h"
#include "leaf/java/jdbc_url.h"
#include "leaf/java/properties.h"

namespace leaf::java {
namespace {

using namespace std::string_literals;

// "key=value@line|…"
std::string Parsed(const std::string& bytes) {
  const auto properties = ParseJavaProperties(bytes);
  if (!properties.ok()) return "error: " + properties.error().message;
  std::string out;
  for (const Property& property : *properties)
    out += property.key + "=" + property.value + "@" + std::to_string(property.line) + "|";
  return out;
}

TEST(JavaProperties, SeparatorsAreEqualsColonAndBlanks) {
  EXPECT_EQ(Parsed("a=1\nb:2\nc 3\nd\t=\t4\n e\f: 5\n"), "a=1@1|b=2@2|c=3@3|d=4@4|e=5@5|");
  // The second separator belongs to the value.
  EXPECT_EQ(Parsed("a==1\nb=:2\nc : = 3\n"), "a==1@1|b=:2@2|c== 3@3|");
  EXPECT_EQ(Parsed("a\nb=\nc:\n=v\n"), "a=@1|b=@2|c=@3|=v@4|");
}

TEST(JavaProperties, BlanksAtTheEndBelongToTheValue) {
  EXPECT_EQ(Parsed("a=true \nb=8686\t\n  c=1"), "a=true @1|b=8686\t@2|c=1@3|");
}

TEST(JavaProperties, CommentsEndWithTheirLine) {
  EXPECT_EQ(Parsed("# a=1\\\n! b=2\n  #c=3\nd=4 # no comment\n"), "d=4 # no comment@4|");
}

TEST(JavaProperties, EveryLineEndCounts) {
  EXPECT_EQ(Parsed("a=1\rb=2\r\nc=3\n\r\nd=4"), "a=1@1|b=2@2|c=3@3|d=4@5|");
}

TEST(JavaProperties, ABackslashContinuesTheLine) {
  EXPECT_EQ(Parsed("a=1,\\\n   2,\\\r\n\t3\nb=4\n"), "a=1,2,3@1|b=4@4|");
  // Two are one backslash, three continue.
  EXPECT_EQ(Parsed("a=x\\\\\nb=y\\\\\\\n z\n"), "a=x\\@1|b=y\\z@2|");
  // What is continued may look like a comment or be empty.
  EXPECT_EQ(Parsed("a=\\\n#1\nb=\\\n\nc=2\n"), "a=#1@1|b=@3|c=2@5|");
  EXPECT_EQ(Parsed("\\\n\na=1"), "a=1@3|");
  EXPECT_EQ(Parsed("ke\\\n  y=1"), "key=1@1|");
  EXPECT_EQ(Parsed("a=1\\"), "a=1@1|");
}

TEST(JavaProperties, EscapesAreJavas) {
  EXPECT_EQ(Parsed("a\\ b\\=\\:=\\t\\n\\r\\f\\q\\\\"), "a b=:=\t\n\r\fq\\@1|");
  EXPECT_EQ(Parsed("a=\\u0041\\u4e2d\\uD83D\\uDE00"), "a=A\xE4\xB8\xAD\xF0\x9F\x98\x80@1|");
  // Latin-1, whatever it was meant to be.
  EXPECT_EQ(Parsed("a=\xE9"), "a=\xC3\xA9@1|");
  EXPECT_EQ(Parsed("a=\xC3\xA9"), "a=\xC3\x83\xC2\xA9@1|");
}

TEST(JavaProperties, WhatJavaRefusesIsRefusedByLine) {
  EXPECT_EQ(Parsed("a=1\nb=\\u00g0"), "error: line 2: \\u is not followed by four hexadecimal digits");
  EXPECT_EQ(Parsed("a=\\u12"), "error: line 1: \\u is not followed by four hexadecimal digits");
  EXPECT_EQ(Parsed("a=\\u"), "error: line 1: \\u is not followed by four hexadecimal digits");
  EXPECT_EQ(Parsed("a=\\ud83d"), "error: line 1: half of a surrogate pair");
  EXPECT_EQ(Parsed("a=\\ude00x"), "error: line 1: half of a surrogate pair");
}

// "scheme host:port,… database key=value&…"
std::string Jdbc(const std::string& url) {
  const auto parsed = ParseJdbcUrl(url);
  if (!parsed.ok()) return "error: " + parsed.error().message;
  std::string out = parsed->scheme;
  for (const Endpoint& host : parsed->hosts) out += " " + host.host + ":" + std::to_string(host.port);
  out += " /" + parsed->database;
  for (const auto& [name, value] : parsed->options) out += " " + name + "=" + value;
  return out;
}

TEST(JdbcUrl, HostsInAllTheirForms) {
  EXPECT_EQ(Jdbc("jdbc:mysql://db/leaf"), "jdbc:mysql db:3306 /leaf");
  EXPECT_EQ(Jdbc("jdbc:mysql://db1:3307,db2/leaf?a=b&c"), "jdbc:mysql db1:3307 db2:3306 /leaf a=b c=");
  EXPECT_EQ(Jdbc("jdbc:mysql:///leaf"), "jdbc:mysql localhost:3306 /leaf");
  EXPECT_EQ(Jdbc("jdbc:mysql://[::1]:3307/leaf"), "jdbc:mysql ::1:3307 /leaf");
  EXPECT_EQ(Jdbc("jdbc:mysql:replication://m:1,s:2/leaf"), "jdbc:mysql:replication m:1 s:2 /leaf");
  EXPECT_EQ(Jdbc("JDBC:MariaDB:Aurora://c.rds.amazonaws.com/leaf"),
            "jdbc:mariadb:aurora c.rds.amazonaws.com:3306 /leaf");
  EXPECT_EQ(Jdbc("jdbc:mysql://address=(host=h)(port=3)(protocol=tcp)(type=master)/leaf"),
            "jdbc:mysql h:3 /leaf type=master");
  EXPECT_EQ(Jdbc("jdbc:mysql://(host=a,port=1),(host=b,port=2)/leaf"), "jdbc:mysql a:1 b:2 /leaf");
  EXPECT_EQ(Jdbc("jdbc:mysql://[(host=a,port=1),b:2]/leaf"), "jdbc:mysql a:1 b:2 /leaf");
  EXPECT_EQ(Jdbc("jdbc:mysql://address=(host=fe80::1)/leaf"), "jdbc:mysql fe80::1:3306 /leaf");
  EXPECT_EQ(Jdbc("jdbc:mysql://u:p%40ss@db:1/leaf"), "jdbc:mysql db:1 /leaf user=u password=p@ss");
  EXPECT_EQ(Jdbc("jdbc:p6spy:mysql://db/leaf"), "jdbc:mysql db:3306 /leaf p6spy=");
  EXPECT_EQ(Jdbc("jdbc:mysql://db/my%20leaf?x=a%26b+c&amp;y=1"), "jdbc:mysql db:3306 /my leaf x=a&b c y=1");
}

TEST(JdbcUrl, WhatIsNotUnderstoodIsNotGuessed) {
  EXPECT_EQ(Jdbc("mysql://db/leaf"), "error: it does not begin with jdbc:");
  EXPECT_EQ(Jdbc("jdbc:oracle://db/leaf"), "error: 'jdbc:oracle:' is not MySQL or MariaDB");
  EXPECT_EQ(Jdbc("jdbc:mysql+srv://db/leaf"), "error: its hosts are looked up in DNS SRV records");
  EXPECT_EQ(Jdbc("jdbc:mysql://db:3306"), "error: it names no database");
  EXPECT_EQ(Jdbc("jdbc:mysql://db:0/leaf"),
            "error: 'db:0' is not HOST:PORT: the port must be a number from 1 to 65535");
  EXPECT_EQ(Jdbc("jdbc:mysql://address=(port=1)/leaf"), "error: a host in brackets has no host");
  EXPECT_EQ(Jdbc("jdbc:mysql://address=(host=h/leaf"), "error: it names no database");
}

TEST(JdbcUrl, NoErrorHasAPasswordInIt) {
  for (const char* const url : {"jdbc:mysql://u:secret@db:x/leaf", "jdbc:mysql://u:sec,ret@db/leaf",
                                "jdbc:mysql://u:secret@[a,b/leaf", "jdbc:mysql://u:se/cret@db/leaf"}) {
    const auto parsed = ParseJdbcUrl(url);
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_EQ(parsed.error().message.find("ret"), std::string::npos) << parsed.error().message;
    EXPECT_EQ(parsed.error().message.find("sec"), std::string::npos) << parsed.error().message;
  }
}

constexpr const char* kUpstream =
    "leaf.name=com.example.leaf\n"
    "leaf.segment.enable=true\n"
    "leaf.jdbc.url=jdbc:mysql://db1:3306/leaf\n"
    "leaf.jdbc.username=root\n"
    "leaf.jdbc.password=secret\n"
    "leaf.snowflake.enable=true\n"
    "leaf.snowflake.zk.address=zk1,zk2:2182/app\n"
    "leaf.snowflake.port=8686\n";

class ImportTest : public ::testing::Test {
 protected:
  ImportTest() { options_.address = "127.0.0.1"; }

  // The values as TOML, a line each; or the error.
  std::string Import(const std::string& bytes) {
    imported_ = {};
    auto imported = ImportLeafProperties(bytes, options_);
    if (!imported.ok()) return "error: " + imported.error().message;
    imported_ = std::move(*imported);
    std::string out;
    for (const auto& [name, value] : imported_.values) out += name + " = " + config::FormatToml(value) + "\n";
    return out;
  }
  std::string ValueOf(const std::string& bytes, const std::string& key) {
    const std::string all = Import(bytes);
    for (const auto& [name, value] : imported_.values) {
      if (name == key) return config::FormatToml(value);
    }
    return all.starts_with("error") ? all : "(none)";
  }
  bool HasNote(const std::string& part) const {
    return std::any_of(imported_.notes.begin(), imported_.notes.end(), [&](const ImportNote& note) {
      return FormatNote(note).find(part) != std::string::npos;
    });
  }

  ImportOptions options_;
  Imported imported_;
};

TEST_F(ImportTest, UpstreamWithBothModes) {
  EXPECT_EQ(Import(kUpstream),
            "segment.enabled = true\n"
            "segment.store = \"mysql\"\n"
            "mysql.endpoints = [\"db1:3306\"]\n"
            "mysql.database = \"leaf\"\n"
            "mysql.user = \"root\"\n"
            "snowflake.enabled = true\n"
            "snowflake.cluster = \"com.example.leaf\"\n"
            "snowflake.registry = \"zookeeper\"\n"
            "snowflake.address = \"127.0.0.1:8686\"\n"
            "zookeeper.connect = \"zk1:2181,zk2:2182/app\"\n");
  EXPECT_EQ(imported_.password, "secret");
  EXPECT_EQ(imported_.spelling, LeafSpelling::kUpstream);
  EXPECT_TRUE(HasNote("line 5: leaf.jdbc.password: not carried over:"));
  for (const ImportNote& note : imported_.notes)
    EXPECT_EQ(FormatNote(note).find("secret"), std::string::npos);
  EXPECT_EQ(FormatImported(imported_, "x").find("secret"), std::string::npos);
}

TEST_F(ImportTest, AnAbsentSwitchIsOnUpstreamAndOffInTheStarter) {
  EXPECT_EQ(ValueOf("leaf.snowflake.enable=false\nleaf.jdbc.url=jdbc:mysql://h/d\nleaf.jdbc.username=u\n",
                    "segment.enabled"),
            "true");
  EXPECT_TRUE(HasNote("leaf.segment.enable is absent, which Java Leaf reads as true"));
  EXPECT_EQ(ValueOf("leaf.segment.url=jdbc:mysql://h/d\n", "segment.enabled"), "false");
  EXPECT_EQ(imported_.spelling, LeafSpelling::kStarter);
  EXPECT_EQ(Import("leaf.name=x\nleaf.snowflake.enable=false\n"),
            "error: leaf.jdbc.url is missing: leaf.segment.enable asks for a database");
}

TEST_F(ImportTest, ATrailingBlankIsWhatJavaMakesOfIt) {
  EXPECT_EQ(ValueOf("leaf.segment.enable=true \nleaf.snowflake.enable=FALSE\n", "segment.enabled"), "false");
  EXPECT_TRUE(HasNote("line 1: leaf.segment.enable: 'true ' is false in Java, for the blank at its end"));
  // Spring's converter trims.
  EXPECT_EQ(ValueOf("leaf.segment.enable=true \nleaf.segment.url=jdbc:mysql://h/d\nleaf.segment.username=u\n",
                    "segment.enabled"),
            "true");
  EXPECT_EQ(ValueOf("leaf.segment.enable=maybe\nleaf.segment.url=x\n", "segment.enabled"),
            "error: line 1: leaf.segment.enable: 'maybe' is neither true nor false");
  std::string text = kUpstream;
  text.replace(text.find("secret"), 6, "secret ");
  Import(text);
  EXPECT_EQ(imported_.password, "secret ");
  text = kUpstream;
  text.replace(text.find("leaf.leaf\n") == std::string::npos ? text.find("example.leaf") : 0, 12,
               "example.leaf ");
  EXPECT_EQ(ValueOf(text, "snowflake.cluster"), "\"com.example.leaf \"");
}

TEST_F(ImportTest, WhatJavaCouldNotStartWithIsRefused) {
  const auto with = [](const std::string& before, const std::string& after) {
    std::string text = kUpstream;
    return text.replace(text.find(before), before.size(), after);
  };
  // Integer.parseInt
  for (const char* const port : {"8686 ", "86 86", "", "+", "--1", "8686\t", "0x50", "99999999999"}) {
    EXPECT_EQ(
        Import(with("8686", port)),
        fmt::format("error: line 8: leaf.snowflake.port: {} is not a port from 1 to 65535", Quoted(port)));
  }
  EXPECT_EQ(ValueOf(with("8686", "+08686"), "snowflake.address"), "\"127.0.0.1:8686\"");
  // ZooKeeper's connect string
  for (const auto& [hosts, bad] :
       std::vector<std::pair<std::string, std::string>>{{"zk1,zk2:2182 ", "zk2:2182 "},
                                                        {"zk1, zk2", " zk2"},
                                                        {"zk1 ,zk2", "zk1 "},
                                                        {"zk1:21 81/app", "zk1:21 81"}}) {
    EXPECT_EQ(Import(with("zk1,zk2:2182/app", hosts)),
              fmt::format("error: line 7: leaf.snowflake.zk.address: {} has a blank in {}", Quoted(hosts),
                          Quoted(bad)));
  }
  // Another path, which both can use.
  EXPECT_EQ(ValueOf(with("/app", "/app "), "zookeeper.connect"), "\"zk1:2181,zk2:2182/app \"");
  EXPECT_TRUE(HasNote("line 7: leaf.snowflake.zk.address: it has a blank at its end, which Java keeps"));
  // The starter's come through Spring, which trims numbers.
  const std::string starter =
      "leaf.name=n\nleaf.snowflake.enable=true\nleaf.snowflake.address=z\nleaf.snowflake.port=";
  EXPECT_EQ(ValueOf(starter + "80 \n", "snowflake.address"), "\"127.0.0.1:80\"");
  EXPECT_TRUE(HasNote("line 4: leaf.snowflake.port: it has a blank at its end"));
  const std::string fork = "leaf.segment.enable=false\nleaf.name=n\nleaf.snowflake.zk.address=z\n";
  EXPECT_EQ(
      Import(fork + "leaf.snowflake.port=80\nleaf.snowflake.mode=zk_normal \n"),
      "error: line 5: leaf.snowflake.mode: 'zk_normal ' is not one of zk_normal, zk_recycle, mysql, local");
  // The fork reads it even if the mode is off.
  const std::string off = fork + "leaf.snowflake.enable=false\nleaf.snowflake.mode=zk_normal\n";
  EXPECT_EQ(Import(off + "leaf.snowflake.port=\n"),
            "error: line 6: leaf.snowflake.port: '' is not a port from 1 to 65535");
  EXPECT_TRUE(Import(off).starts_with("error: leaf.snowflake.port is missing: the fork does not start"));
  EXPECT_EQ(ValueOf(off + "leaf.snowflake.port=80\n", "snowflake.enabled"), "false");
}

TEST_F(ImportTest, NothingIsDroppedSilently) {
  std::string text = kUpstream;
  text.insert(0, "leaf.name=old\n");
  text.replace(text.find("/leaf\n"), 6,
               "/leaf?useSSL=false&connectTimeout=500&socketTimeout=0&fooBar=1&autoReconnect=true\n");
  text += "leaf.segment.url=jdbc:mysql://other/x\nleaf.snowflake.prot=1\nserver.port=8080\n";
  options_.spelling = LeafSpelling::kUpstream;
  ASSERT_FALSE(Import(text).starts_with("error")) << Import(text);
  for (const char* const part : {"line 1: leaf.name: not carried over: given again on line 2",
                                 "option socketTimeout=0: ", "option fooBar=1: leafctl has no counterpart",
                                 "option autoReconnect=true: not needed",
                                 "leaf.segment.url: not carried over: only the starter reads it",
                                 "leaf.snowflake.prot: not carried over: Java Leaf does not read it (did you "
                                 "mean leaf.snowflake.port?)",
                                 "server.port: not carried over: it is Spring's"})
    EXPECT_TRUE(HasNote(part)) << part << "\n" << FormatImported(imported_, "x");
  EXPECT_EQ(ValueOf(text, "mysql.tls"), "\"disabled\"");
  EXPECT_EQ(ValueOf(text, "mysql.connect_timeout"), "\"500ms\"");
  EXPECT_EQ(ValueOf(text, "mysql.query_timeout"), "(none)");
}

TEST_F(ImportTest, TlsOfBothDrivers) {
  const auto tls = [&](const std::string& options) {
    return ValueOf(
        "leaf.snowflake.enable=false\nleaf.jdbc.username=u\nleaf.jdbc.url=jdbc:mysql://h/d?" + options,
        "mysql.tls");
  };
  EXPECT_EQ(tls("useSSL=true"), "\"required\"");
  EXPECT_EQ(tls("useSSL=true&verifyServerCertificate=true"), "\"verify\"");
  EXPECT_EQ(tls("useSSL=true&requireSSL=true&verifyServerCertificate=false"), "\"required\"");
  EXPECT_EQ(tls("sslMode=VERIFY_IDENTITY"), "\"verify\"");
  EXPECT_EQ(tls("sslMode=trust"), "\"required\"");
  EXPECT_EQ(tls("sslMode=DISABLED&useSSL=true"), "\"disabled\"");
  EXPECT_EQ(tls("a=b"), "(none)");
  EXPECT_EQ(tls("sslMode=odd"), "error: line 3: leaf.jdbc.url: option sslMode: 'odd' is not known");
}

TEST_F(ImportTest, TwoSpellingsNeedAWord) {
  const std::string text = std::string(kUpstream) + "leaf.snowflake.address=zk9\n";
  EXPECT_TRUE(
      Import(text).starts_with("error: it has leaf.jdbc.url (line 3), which upstream reads, and "
                               "leaf.snowflake.address (line 9)"));
  options_.spelling = LeafSpelling::kUpstream;
  EXPECT_EQ(ValueOf(text, "zookeeper.connect"), "\"zk1:2181,zk2:2182/app\"");
}

TEST_F(ImportTest, TheForksModes) {
  const std::string base =
      "leaf.segment.enable=false\nleaf.name=n\nleaf.snowflake.port=80\nleaf.snowflake.mode=";
  EXPECT_EQ(ValueOf(base + "zk_recycle\nleaf.snowflake.zk.address=z\n", "snowflake.recycle"), "true");
  EXPECT_EQ(imported_.spelling, LeafSpelling::kFork);
  const std::string mysql = base + "mysql\nleaf.jdbc.url=jdbc:mysql://h/d\nleaf.jdbc.username=u\n";
  EXPECT_EQ(ValueOf(mysql, "snowflake.registry"), "\"sql\"");
  EXPECT_EQ(ValueOf(mysql, "segment.store"), "\"mysql\"");
  const std::string local =
      base + "local\nleaf.snowflake.local.workIdMap={\"127.0.0.1:80\":1,\"127.0.0.2:80\":2}\n";
  EXPECT_EQ(ValueOf(local, "snowflake.workers"), "{ \"127.0.0.1:80\" = 1, \"127.0.0.2:80\" = 2 }");
  EXPECT_EQ(Import(base + "nacos\n"),
            "error: line 4: leaf.snowflake.mode: 'nacos' is not one of zk_normal, zk_recycle, mysql, local");
  EXPECT_EQ(Import(base + "local\n"),
            "error: leaf.snowflake.local.workIdMap is missing: mode local takes the worker number from it");
}

TEST_F(ImportTest, TheMapIsReadStrictly) {
  const auto with = [&](const std::string& map) {
    return Import(
        "leaf.segment.enable=false\nleaf.snowflake.mode=local\nleaf.snowflake.port=80\nleaf.snowflake.local."
        "workIdMap=" +
        map);
  };
  EXPECT_TRUE(with("{\"127.0.0.1:80\":1,\"127.0.0.1:80\":2}").ends_with("'127.0.0.1:80' is there twice"));
  EXPECT_TRUE(with("{\"127.0.0.1:80\":1,\"127.0.0.2:80\":1}")
                  .ends_with("have the same number 1, and would issue the same IDs"));
  EXPECT_TRUE(with("{\"127.0.0.1:80\":1024}").ends_with("and the largest is 1023"));
  EXPECT_TRUE(with("{\"127.0.0.1:80\":18446744073709551615}").ends_with("is not a worker number"));
  EXPECT_TRUE(with("{\"127.0.0.1\":1}").ends_with("is not an ip:port"));
  EXPECT_TRUE(with("[1]").ends_with("it is not a JSON object {\"ip:port\": number, …}"));
  EXPECT_TRUE(with("{\"127.0.0.9:80\":1}").starts_with("error: '127.0.0.1:80' is not in"));
  options_.address.clear();
  EXPECT_TRUE(with("{\"127.0.0.9:80\":1}").find("snowflake.address = \"127.0.0.9:80\"") != std::string::npos);
}

TEST_F(ImportTest, TheAddressIsAskedFor) {
  options_.address.clear();
  EXPECT_TRUE(Import(kUpstream).starts_with("error: this node's IP address is not in the file"));
  options_.address = "127.0.0.1:9";
  EXPECT_EQ(ValueOf(kUpstream, "snowflake.address"), "\"127.0.0.1:9\"");
  EXPECT_TRUE(HasNote("it has another worker number"));
  options_.address = "web-1";
  EXPECT_TRUE(Import(kUpstream).starts_with("error: bad --address: 'web-1' has a dash"));
  options_.address = "127.0.0.1";
  options_.listen = {"127.0.0.1:1", "0.0.0.0:8080"};
  EXPECT_EQ(ValueOf(kUpstream, "snowflake.advertise"), "\"http://127.0.0.1:8080\"");
}

TEST_F(ImportTest, WhatTheUrlAndTheKeysBothSayMustAgree) {
  std::string text = kUpstream;
  text.replace(text.find("/leaf\n"), 6, "/leaf?user=other\n");
  EXPECT_EQ(Import(text), "error: line 4: leaf.jdbc.username: the URL has another user");
  text = kUpstream;
  text.replace(text.find("/leaf\n"), 6, "/leaf?password=other\n");
  EXPECT_EQ(Import(text), "error: line 5: leaf.jdbc.password: the URL has another password");
}

TEST_F(ImportTest, AnAbsentNameIsTheWordNull) {
  std::string text = kUpstream;
  text.erase(0, text.find('\n') + 1);
  EXPECT_EQ(ValueOf(text, "snowflake.cluster"), "\"null\"");
}

TEST_F(ImportTest, TheTomlHasEveryNoteAsAComment) {
  Import(kUpstream);
  const std::string toml = FormatImported(imported_, "leaf\nproperties");
  for (const ImportNote& note : imported_.notes)
    EXPECT_NE(toml.find("\n# " + FormatNote(note) + "\n"), std::string::npos);
  EXPECT_TRUE(toml.starts_with("# Imported by leafctl from leaf\\x0aproperties (spelling: upstream).\n"))
      << toml;
}

}  // namespace
}  // namespace leaf::java
