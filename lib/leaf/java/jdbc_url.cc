#include "leaf/java/jdbc_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "leaf/base/text.h"

namespace leaf::java {
namespace {

Error Wrong(std::string what, std::string hint = "") {
  return {ErrorCode::kInvalidArgument, std::move(what), std::move(hint)};
}

bool SameWord(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return LowerCase(x) == LowerCase(y); });
}

bool TakeWord(std::string_view& text, std::string_view word) {
  if (text.size() < word.size() || !SameWord(text.substr(0, word.size()), word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::string_view WithoutBlanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// %XX and, in options, '+'. What is no escape stays, as the drivers leave it.
std::string Decoded(std::string_view text, bool plus_is_blank) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'                         ? c - '0'
           : LowerCase(c) >= 'a' && LowerCase(c) <= 'f' ? LowerCase(c) - 'a' + 10
                                                        : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(static_cast<unsigned char>(digit(text[i + 1]) * 16 + digit(text[i + 2])));
      i += 2;
    } else {
      out += plus_is_blank && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// Cuts at `separator` where no bracket is open.
std::vector<std::string_view> SplitOutside(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    if (text[i] == separator && depth == 0) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  parts.push_back(text.substr(begin));
  return parts;
}

class Parser {
 public:
  explicit Parser(std::string_view url) : rest_(url) {}

  Result<JdbcUrl> Run() {
    LEAF_RETURN_IF_ERROR(TakeScheme());
    const std::size_t question = std::min(rest_.find('?'), rest_.size());
    const std::string_view options = rest_.substr(std::min(question + 1, rest_.size()));
    const std::string_view place = rest_.substr(0, question);
    // A socket's path, say, may stand in brackets.
    const auto parts = SplitOutside(place, '/');
    if (parts.size() > 2) return Wrong("there is more than one '/' after the hosts");
    if (parts.size() < 2 || WithoutBlanks(parts[1]).empty())
      return Wrong("it names no database", "it is jdbc:mysql://host:port/database");
    url_.database = Decoded(WithoutBlanks(parts[1]), false);
    if (auto hosts = TakeHosts(parts[0], true); !hosts.ok()) {
      // Whatever stands there may be a piece of a password.
      if (place.find('@') != std::string_view::npos)
        return Wrong("its hosts are not understood", "a host is [user:password@]host[:port]");
      return std::move(hosts).error();
    }
    TakeOptions(options);
    for (const auto& option : url_.options) {
      if (!CountCodePoints(option.first) || !CountCodePoints(option.second))
        return Wrong("an option is not valid UTF-8 once its %XX are decoded");
    }
    if (!CountCodePoints(url_.database)) return Wrong("the database's name is not valid UTF-8");
    return std::move(url_);
  }

 private:
  Result<void> TakeScheme() {
    if (!TakeWord(rest_, "jdbc:")) return Wrong("it does not begin with jdbc:");
    for (const std::string_view wrapper : {"p6spy:", "log4jdbc:"}) {
      if (TakeWord(rest_, wrapper)) url_.options.emplace_back(wrapper.substr(0, wrapper.size() - 1), "");
    }
    const std::size_t end = rest_.find("//");
    if (end == std::string_view::npos) return Wrong("there is no // before the hosts");
    std::string scheme = "jdbc:";
    scheme += LowerCase(rest_.substr(0, end));
    rest_.remove_prefix(end + 2);
    constexpr std::array kVendors{"jdbc:mysql:", "jdbc:mariadb:"};
    constexpr std::array kWays{"", "replication:", "loadbalance:", "sequential:", "failover:", "aurora:"};
    for (const std::string_view vendor : kVendors) {
      for (const std::string_view way : kWays) {
        if (scheme != fmt::format("{}{}", vendor, way)) continue;
        scheme.pop_back();
        url_.scheme = std::move(scheme);
        return {};
      }
    }
    if (scheme.find("+srv") != std::string::npos)
      return Wrong("its hosts are looked up in DNS SRV records", "name the servers themselves");
    return Wrong(fmt::format("{} is not MySQL or MariaDB", Quoted(scheme)),
                 "leafctl keeps leaf_alloc in MySQL, MariaDB or SQLite");
  }

  Result<void> TakeHosts(std::string_view text, bool may_be_list) {
    for (std::string_view one : SplitOutside(text, ',')) {
      one = WithoutBlanks(one);
      // [h1,h2] or [(…),(…)], which an IPv6 address is not.
      const bool list = one.starts_with('[') && one.ends_with(']') &&
                        (one.find(',') != std::string_view::npos || one.find('(') != std::string_view::npos);
      if (list && may_be_list) {
        LEAF_RETURN_IF_ERROR(TakeHosts(one.substr(1, one.size() - 2), false));
      } else {
        LEAF_RETURN_IF_ERROR(TakeHost(one));
      }
    }
    return {};
  }

  Result<void> TakeHost(std::string_view text) {
    if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
      const std::string_view login = text.substr(0, at);
      const std::size_t colon = std::min(login.find(':'), login.size());
      url_.options.emplace_back("user", Decoded(login.substr(0, colon), false));
      if (colon < login.size())
        url_.options.emplace_back("password", Decoded(login.substr(colon + 1), false));
      text.remove_prefix(at + 1);
      // user:password@[h1,h2]
      if (text.starts_with('[') && text.find(',') != std::string_view::npos) return TakeHosts(text, true);
    }
    if (TakeWord(text, "address=")) return TakeKeyedHost(text, "");
    if (text.starts_with('(')) return TakeKeyedHost(text, ",");
    if (text.empty()) {
      // As the drivers have it.
      url_.hosts.push_back({"localhost", kMysqlPort});
      return {};
    }
    LEAF_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text, kMysqlPort));
    url_.hosts.push_back(std::move(endpoint));
    return {};
  }

  // (host=h)(port=p), or (host=h,port=p): `separators` stand between pairs within brackets.
  Result<void> TakeKeyedHost(std::string_view text, std::string_view separators) {
    std::string host;
    std::string port = std::to_string(kMysqlPort);
    while (!text.empty()) {
      const std::size_t close = text.find(')');
      if (!text.starts_with('(') || close == std::string_view::npos)
        return Wrong("a host in brackets is not (key=value)");
      const std::string_view group = text.substr(1, close - 1);
      text.remove_prefix(close + 1);
      for (const std::string_view pair :
           separators.empty() ? std::vector<std::string_view>{group} : SplitOutside(group, separators[0])) {
        const std::size_t equals = pair.find('=');
        if (equals == std::string_view::npos) return Wrong("a host in brackets is not (key=value)");
        const std::string_view key = WithoutBlanks(pair.substr(0, equals));
        const std::string_view value = WithoutBlanks(pair.substr(equals + 1));
        if (SameWord(key, "host")) {
          host = value;
        } else if (SameWord(key, "port")) {
          port = value;
        } else if (SameWord(key, "protocol") && SameWord(value, "tcp")) {
          continue;
        } else {
          url_.options.emplace_back(key, Decoded(value, false));
        }
      }
    }
    if (host.empty()) return Wrong("a host in brackets has no host");
    // An IPv6 address may come without its brackets here.
    const bool bare_v6 = host.find(':') != std::string::npos && !host.starts_with('[');
    LEAF_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(fmt::format("{}{}{}:{}", bare_v6 ? "[" : "", host,
                                                                       bare_v6 ? "]" : "", port),
                                                           kMysqlPort));
    url_.hosts.push_back(std::move(endpoint));
    return {};
  }

  void TakeOptions(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('&'), text.size());
      std::string_view option = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      // Copied out of an XML file.
      if (option.starts_with("amp;")) option.remove_prefix(4);
      option = WithoutBlanks(option);
      if (option.empty()) continue;
      const std::size_t equals = std::min(option.find('='), option.size());
      url_.options.emplace_back(Decoded(option.substr(0, equals), true),
                                Decoded(option.substr(std::min(equals + 1, option.size())), true));
    }
  }

  std::string_view rest_;
  JdbcUrl url_;
};

}  // namespace

Result<JdbcUrl> ParseJdbcUrl(std::string_view url) { return Parser(url).Run(); }

}  // namespace leaf::java
