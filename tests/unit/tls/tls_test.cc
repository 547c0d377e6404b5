#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "leaf/tls/context.h"
#include "leaf/tls/session.h"
#include "support/temp_dir.h"

namespace leaf::tls {
namespace {

using Fault = Session::CertificateFault;
using Outcome = Session::Outcome;
using ::testing::HasSubstr;

// An authority and certificates of it, made by openssl.
class Pki {
 public:
  Pki() {
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout authority.key -out "
        "authority.pem "
        "-days 30 -subj /CN=authority");
  }

  Pem Cert(const std::string& name) const { return {name + ".pem", Text(name + ".pem")}; }
  Pem Key(const std::string& name) const { return {name + ".key", Text(name + ".key")}; }

  // `alternatives`: "DNS:localhost".
  void Issue(const std::string& name, const std::string& alternatives, int days = 30) const {
    Run(
        fmt::format("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {0}.key -out {0}.csr "
                    "-subj /CN={0}",
                    name));
    std::ofstream(dir_.path() + "/" + name + ".ext") << "subjectAltName=" << alternatives << "\n";
    Run(fmt::format(
        "x509 -req -in {0}.csr -CA authority.pem -CAkey authority.key -CAcreateserial -out {0}.pem "
        "-days {1} -extfile {0}.ext",
        name, days));
  }

  void Run(const std::string& arguments) const {
    const std::string command = fmt::format("cd '{}' && openssl {} >/dev/null 2>&1", dir_.path(), arguments);
    if (std::system(command.c_str()) != 0) ADD_FAILURE() << command;
  }

 private:
  std::string Text(const std::string& name) const {
    std::ifstream file(dir_.path() + "/" + name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const testing::TempDir dir_;
};

const Pki& ThePki() {
  static const Pki* const pki = [] {
    auto* const made = new Pki;
    made->Issue("server", "DNS:localhost,IP:127.0.0.1");
    made->Issue("client", "email:ops@example.org,URI:urn:client,DNS:client.example.org");
    made->Issue("old", "DNS:localhost", -1);
    return made;
  }();
  return *pki;
}

std::shared_ptr<const ServerContext> Server(const std::string& name = "server", bool asks = false) {
  const Pki& pki = ThePki();
  ServerContext::Parts parts{pki.Cert(name), pki.Key(name)};
  if (asks) parts.client_ca = pki.Cert("authority");
  auto context = ServerContext::Make(parts);
  EXPECT_TRUE(context.ok()) << (context.ok() ? "" : context.error().message);
  return *context;
}

std::shared_ptr<const ClientContext> Client(const std::string& name = "", bool trusts = true) {
  const Pki& pki = ThePki();
  ClientContext::Parts parts;
  parts.ca = pki.Cert(trusts ? "authority" : "server");
  if (!name.empty()) parts.identity = ClientContext::Identity{pki.Cert(name), pki.Key(name)};
  auto context = ClientContext::Make(parts);
  EXPECT_TRUE(context.ok()) << (context.ok() ? "" : context.error().message);
  return *context;
}

// Two sockets that are connected, and do not block.
class Wire {
 public:
  Wire() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds_), 0); }
  ~Wire() {
    for (const int fd : fds_) close(fd);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int server() const { return fds_[0]; }
  int client() const { return fds_[1]; }

 private:
  int fds_[2] = {-1, -1};
};

// Both do what they can, until neither can do more.
std::pair<Outcome, Outcome> Shake(Session& server, Session& client) {
  std::pair<Outcome, Outcome> outcomes{Outcome::kWantRead, Outcome::kWantRead};
  for (int i = 0; i < 20; ++i) {
    if (outcomes.second == Outcome::kWantRead) outcomes.second = client.Handshake();
    if (outcomes.first == Outcome::kWantRead) outcomes.first = server.Handshake();
  }
  return outcomes;
}

constexpr std::pair kBothDone{Outcome::kDone, Outcome::kDone};

std::string ReadSome(Session& session, std::size_t room = 1000) {
  std::string text(room, '\0');
  const Session::Moved moved = session.Read(text.data(), text.size());
  text.resize(moved.bytes);
  return text;
}

TEST(TlsContext, NamesThePartThatIsOfNoUse) {
  const Pki& pki = ThePki();
  const auto why = [](const ServerContext::Parts& parts) {
    const auto made = ServerContext::Make(parts);
    EXPECT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kConfig);
    return made.error().message;
  };
  EXPECT_THAT(why({{"cert", ""}, pki.Key("server")}), HasSubstr("cert: there is no certificate"));
  EXPECT_THAT(
      why({{"cert", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, pki.Key("server")}),
      HasSubstr("cert: certificate 1 in it is broken"));
  EXPECT_THAT(why({pki.Cert("server"), {"key", "nothing"}}), HasSubstr("key: there is no private key"));
  EXPECT_THAT(why({pki.Cert("server"), pki.Key("client")}),
              HasSubstr("client.key: the key is not that of server.pem"));
  EXPECT_THAT(why({pki.Cert("server"), pki.Key("server"), Pem{"ca", "x"}}),
              HasSubstr("ca: there is no certificate"));
  // One that is whole, and one that is cut off.
  Pem cut = pki.Cert("server");
  cut.text += cut.text.substr(0, cut.text.size() / 2);
  EXPECT_THAT(why({cut, pki.Key("server")}), HasSubstr("certificate 2 in it is broken"));
}

TEST(TlsContext, AKeyWithAPassPhraseIsNotAskedFor) {
  const Pki& pki = ThePki();
  pki.Run("pkey -in server.key -aes256 -passout pass:x -out secret.key");
  const auto made = ServerContext::Make({pki.Cert("server"), pki.Key("secret")});
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("secret.key: the key has a pass phrase"));
}

TEST(TlsContext, KnowsWhenItEnds) {
  EXPECT_LT(Server("old")->expires_at(), Server()->expires_at());
  EXPECT_EQ(UnixMillis(Server()->expires_at()) % 1000, 0);
}

TEST(TlsSession, BothWays) {
  const Wire wire;
  Session server(Server(), wire.server(), "");
  Session client(Client(), wire.client(), "localhost");
  ASSERT_EQ(Shake(server, client), kBothDone) << server.error() << client.error();
  EXPECT_EQ(server.peer_name(), "");
  EXPECT_EQ(client.peer_name(), "localhost");
  EXPECT_EQ(client.Write("question").bytes, 8U);
  EXPECT_EQ(ReadSome(server), "question");
  EXPECT_FALSE(server.may_hold_input());
  EXPECT_EQ(server.Write("answer").bytes, 6U);
  EXPECT_EQ(ReadSome(client), "answer");
  EXPECT_EQ(ReadSome(client), "");
  // What has come with a record is there without another look at the socket.
  client.Write("several");
  EXPECT_EQ(ReadSome(server, 3), "sev");
  EXPECT_TRUE(server.may_hold_input());
  EXPECT_TRUE(server.has_input());
  EXPECT_EQ(ReadSome(server), "eral");
  EXPECT_TRUE(client.End());
  char byte = 0;
  EXPECT_EQ(server.Read(&byte, 1).outcome, Outcome::kEnded);
  // The other direction goes on.
  EXPECT_EQ(server.Write("late").bytes, 4U);
  EXPECT_EQ(ReadSome(client), "late");
}

std::uint64_t Arrived(int fd) {
  int bytes = 0;
  EXPECT_EQ(ioctl(fd, FIONREAD, &bytes), 0);
  return static_cast<std::uint64_t>(bytes);
}

// A connection with one request takes two packets of a server.
TEST(TlsSession, ATicketLeavesWithTheNextAnswer) {
  const Wire wire;
  Session server(Server(), wire.server(), "");
  Session client(Client(), wire.client(), "localhost");
  ASSERT_EQ(Shake(server, client), kBothDone);
  const std::uint64_t flight = server.sent_bytes();
  EXPECT_EQ(Arrived(wire.client()), 0U);  // the ticket is held
  client.Write("question");
  EXPECT_EQ(ReadSome(server), "question");
  EXPECT_EQ(server.Write("last answer", Session::Part::kLast).bytes, 11U);
  EXPECT_EQ(server.sent_bytes(), flight);
  EXPECT_TRUE(server.End());
  EXPECT_EQ(Arrived(wire.client()), server.sent_bytes() - flight);
  EXPECT_EQ(ReadSome(client), "last answer");
  char byte = 0;
  EXPECT_EQ(client.Read(&byte, 1).outcome, Outcome::kEnded);
}

TEST(TlsSession, WhatIsHeldDoesNotWaitForAClientThatAsksNothing) {
  const Wire wire;
  Session server(Server(), wire.server(), "");
  Session client(Client(), wire.client(), "localhost");
  ASSERT_EQ(Shake(server, client), kBothDone);
  EXPECT_EQ(ReadSome(server), "");
  EXPECT_GT(Arrived(wire.client()), 100U);
  // A long answer does not wait for the end.
  const std::string text(5000, 'x');
  EXPECT_EQ(server.Write(text, Session::Part::kLast).bytes, text.size());
  EXPECT_EQ(ReadSome(client, 9000), text);
}

TEST(TlsSession, TheLastAnswerWaitsUntilTheKernelHasRoom) {
  const Wire wire;
  Session server(Server(), wire.server(), "");
  Session client(Client(), wire.client(), "localhost");
  ASSERT_EQ(Shake(server, client), kBothDone);
  std::string sent;
  std::string rest;
  while (rest.empty()) {
    const std::string piece(3000, static_cast<char>('a' + sent.size() % 26));
    rest = piece.substr(server.Write(piece).bytes);
    sent += piece;
  }
  // The record that was begun goes on, and the end behind it.
  rest += "end";
  sent += "end";
  EXPECT_EQ(server.Write(rest, Session::Part::kLast).bytes, rest.size());
  EXPECT_FALSE(server.End());
  std::string got;
  while (!server.End()) got += ReadSome(client, 100'000);
  for (std::string more; !(more = ReadSome(client, 100'000)).empty();) got += more;
  EXPECT_EQ(got.size(), sent.size());
  EXPECT_TRUE(got == sent);
  char byte = 0;
  EXPECT_EQ(client.Read(&byte, 1).outcome, Outcome::kEnded);
}

TEST(TlsSession, TakesWhatWasReadBefore) {
  const Wire wire;
  Session client(Client(), wire.client(), "127.0.0.1");
  EXPECT_EQ(client.Handshake(), Outcome::kWantRead);
  std::string hello(2000, '\0');
  const ssize_t size = recv(wire.server(), hello.data(), hello.size(), 0);
  ASSERT_GT(size, 0);
  hello.resize(static_cast<std::size_t>(size));
  Session server(Server(), wire.server(), hello);
  EXPECT_EQ(Shake(server, client), kBothDone) << server.error() << client.error();
}

// Megabytes, while the reader has its turn only when the writer can do no more.
TEST(TlsSession, AFullKernelTakesAPart) {
  const Wire wire;
  Session server(Server(), wire.server(), "");
  Session client(Client(), wire.client(), "localhost");
  ASSERT_EQ(Shake(server, client), kBothDone);
  std::string all;
  for (int i = 0; all.size() < 3'000'000; ++i) all += fmt::format("{} ", i);
  std::string rest = all;  // moves, as a connection's output does
  std::string got;
  std::size_t refused = 0;
  while (got.size() < all.size()) {
    const Session::Moved moved = server.Write(rest);
    ASSERT_NE(moved.outcome, Outcome::kFailed) << server.error();
    if (moved.outcome == Outcome::kWantWrite) ++refused;
    rest = rest.substr(moved.bytes);
    for (std::string piece = ReadSome(client, 20'000); !piece.empty(); piece = ReadSome(client, 20'000))
      got += piece;
  }
  EXPECT_EQ(got, all);
  EXPECT_GT(refused, 0U);
  EXPECT_GT(server.sent_bytes(), all.size());
}

// A read asks the kernel once: what a peer sends meanwhile waits for the next one.
TEST(TlsSession, AReadHasAnEnd) {
  const Wire wire;
  Session server(Server(), wire.server(), "");
  Session client(Client(), wire.client(), "localhost");
  ASSERT_EQ(Shake(server, client), kBothDone);
  for (int i = 0; i < 12; ++i) ASSERT_EQ(client.Write(std::string(5'000, 'x')).bytes, 5'000U);
  const std::string first = ReadSome(server, 200'000);
  EXPECT_GT(first.size(), 0U);
  EXPECT_LT(first.size(), 40'000U);
}

TEST(TlsSession, WhomAClientBelieves) {
  const auto fault = [](const std::string& server_name, bool trusts, const std::string& host) {
    const Wire wire;
    Session server(Server(server_name), wire.server(), "");
    Session client(Client("", trusts), wire.client(), host);
    const auto outcomes = Shake(server, client);
    EXPECT_EQ(outcomes, std::pair(Outcome::kFailed, Outcome::kFailed)) << host;
    EXPECT_TRUE(server.peer_refused());
    return client.certificate_fault();
  };
  EXPECT_EQ(fault("server", true, "elsewhere.example"), Fault::kOtherHost);
  EXPECT_EQ(fault("server", true, "127.0.0.2"), Fault::kOtherHost);
  EXPECT_EQ(fault("old", true, "localhost"), Fault::kTime);
  EXPECT_EQ(fault("client", true, "localhost"), Fault::kOtherHost);
  EXPECT_EQ(fault("old", false, "localhost"), Fault::kOther);
}

TEST(TlsSession, CertificatesOfClients) {
  {
    const Wire wire;
    Session server(Server("server", true), wire.server(), "");
    Session client(Client("client"), wire.client(), "localhost");
    ASSERT_EQ(Shake(server, client), kBothDone) << server.error() << client.error();
    EXPECT_EQ(server.peer_name(), "client.example.org");
  }
  for (const std::string name : {"", "old"}) {
    const Wire wire;
    Session server(Server("server", true), wire.server(), "");
    Session client(Client(name), wire.client(), "localhost");
    EXPECT_EQ(Shake(server, client).first, Outcome::kFailed);
    // With TLS 1.3 a client hears of it only now.
    char byte = 0;
    EXPECT_EQ(client.Read(&byte, 1).outcome, Outcome::kFailed);
    EXPECT_TRUE(client.peer_refused()) << client.error();
  }
}

TEST(TlsSession, APeerWithoutTls) {
  for (const std::string text : {"HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR unknown command\r\n"}) {
    const Wire wire;
    Session client(Client(), wire.client(), "localhost");
    EXPECT_EQ(client.Handshake(), Outcome::kWantRead);
    ASSERT_GT(send(wire.server(), text.data(), text.size(), 0), 0);
    EXPECT_EQ(client.Handshake(), Outcome::kFailed);
    EXPECT_TRUE(client.peer_speaks_no_tls()) << client.error();
    // From then on nothing happens.
    char byte = 0;
    EXPECT_EQ(client.Read(&byte, 1).outcome, Outcome::kFailed);
    EXPECT_EQ(client.Write("x").outcome, Outcome::kFailed);
    EXPECT_TRUE(client.End());
  }
}

TEST(TlsSession, APeerThatIsGone) {
  Wire wire;
  Session server(Server(), wire.server(), "");
  Session client(Client(), wire.client(), "localhost");
  ASSERT_EQ(Shake(server, client), kBothDone);
  ASSERT_EQ(shutdown(wire.client(), SHUT_RDWR), 0);
  char byte = 0;
  EXPECT_EQ(server.Read(&byte, 1).outcome, Outcome::kEnded);
  EXPECT_EQ(server.Write("x").outcome, Outcome::kFailed);
}

}  // namespace
}  // namespace leaf::tls
