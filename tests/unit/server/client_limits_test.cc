// What a server knows of its clients before it answers: the host name in their requests, and how many
// connections they have.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "leaf/server/http/allowed_hosts.h"
#include "leaf/server/net/address_counts.h"
#include "leaf/sys/process_name.h"
#include "support/temp_dir.h"

namespace leaf::server {
namespace {

using testing::TempDir;

TEST(AllowedHosts, AreAddressesLocalhostAndThisMachine) {
  const AllowedHosts hosts({}, {"Db1.example"});
  EXPECT_TRUE(hosts.ChecksListener(true));
  EXPECT_FALSE(hosts.ChecksListener(false));
  for (const char* good :
       {"", "127.0.0.1", "127.0.0.1:8080", "127.255.0.1.", "[::1]", "[::1]:8080", "[fe80::1%25eth0]:1",
        "localhost", "LOCALHOST:1", "localhost.", "a.b.localhost:2", "db1.example", "DB1.EXAMPLE.:80"}) {
    EXPECT_TRUE(hosts.Allows(good)) << good;
  }
  for (const char* bad : {"evil.example", "evil.example:8080", "db1", "db1.example.evil.example",
                          "a.db1.example", "localhostx", "xlocalhost", ".localhost", "1.2.3", "127.0.0.256",
                          "1.2.3.4.5", "0x7f000001", "2130706433", ":80", "."}) {
    EXPECT_FALSE(hosts.Allows(bad)) << bad;
  }
}

TEST(AllowedHosts, AreWhatIsConfigured) {
  const AllowedHosts hosts({"leaf.example", "*.Ids.example"}, {});
  EXPECT_TRUE(hosts.ChecksListener(true));
  EXPECT_TRUE(hosts.ChecksListener(false));
  for (const char* good : {"leaf.example:1", "Leaf.Example", "a.ids.example", "a.b.ids.example", "127.0.0.1"})
    EXPECT_TRUE(hosts.Allows(good)) << good;
  for (const char* bad :
       {"ids.example", ".ids.example", "xids.example", "a.leaf.example", "leaf.example.evil"})
    EXPECT_FALSE(hosts.Allows(bad)) << bad;
  const AllowedHosts all({"leaf.example", "*"}, {});
  EXPECT_FALSE(all.ChecksListener(true));
  EXPECT_TRUE(all.Allows("evil.example"));
}

ClientAddress Client(const char* text) {
  sockaddr_storage storage{};
  if (auto* const v4 = reinterpret_cast<sockaddr_in*>(&storage);
      inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    v6->sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text, &v6->sin6_addr), 1) << text;
  }
  return ClientAddressOf(storage);
}

TEST(AddressCounts, AClientIsAnAddressOrTheNetworkOfAHost) {
  EXPECT_EQ(Client("127.0.0.1"), Client("::ffff:127.0.0.1"));
  EXPECT_NE(Client("127.0.0.1"), Client("127.0.0.2"));
  EXPECT_NE(Client("::ffff:127.0.0.1"), Client("::ffff:127.0.0.2"));
  EXPECT_EQ(Client("2001:db8:1:2::1"), Client("2001:db8:1:2:ffff::1"));
  EXPECT_NE(Client("2001:db8:1:2::1"), Client("2001:db8:1:3::1"));
  EXPECT_NE(Client("::1"), Client("127.0.0.1"));
}

TEST(AddressCounts, EachHasItsOwn) {
  AddressCounts counts;
  const ClientAddress one = Client("127.0.0.1");
  const ClientAddress other = Client("127.0.0.2");
  EXPECT_FALSE(counts.Add(one, 0));
  EXPECT_TRUE(counts.Add(one, 2));
  EXPECT_TRUE(counts.Add(one, 2));
  EXPECT_FALSE(counts.Add(one, 2));
  EXPECT_TRUE(counts.Add(other, 2));
  counts.Remove(one);
  EXPECT_TRUE(counts.Add(one, 2));
  EXPECT_FALSE(counts.Add(one, 1)) << "a lower limit holds for those that come";
  for (int i = 0; i < 2; ++i) counts.Remove(one);
  counts.Remove(other);
  EXPECT_DEATH(counts.Remove(other), "");
}

TEST(MachineNames, AreTheHostsAndThoseOfLoopback) {
  const TempDir dir;
  const std::string hosts = dir.path() + "/hosts";
  std::ofstream(hosts) << "127.0.0.1 localhost leaf # not.this\n"
                          "127.0.1.1\tdb1.example db1\n"
                          "::1 six\n"
                          "::2 far.example\n"
                          "# 127.0.0.1 remark\n"
                          "\n"
                          "::1\n";
  const auto names = sys::MachineNames(hosts);
  const auto has = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const char* name : {"localhost", "leaf", "db1.example", "db1", "six"}) EXPECT_TRUE(has(name)) << name;
  for (const char* name : {"not.this", "far.example", "remark", ""}) EXPECT_FALSE(has(name)) << name;
  EXPECT_TRUE(has(sys::HostName()));
  const std::string host = sys::HostName();
  EXPECT_TRUE(has(host.substr(0, host.find('.'))));
  EXPECT_FALSE(sys::MachineNames(dir.path() + "/none").empty());
}

}  // namespace
}  // namespace leaf::server
