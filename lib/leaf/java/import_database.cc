// The database of a leaf.properties: its URL with the options of the JDBC drivers, and the login.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/duration.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/text.h"
#include "leaf/java/import_sheet.h"
#include "leaf/java/jdbc_url.h"

namespace leaf::java {
namespace {

// What a driver's option comes to.
struct OptionRule {
  std::string_view name;
  std::string_view why;
};
// Options that ask for what leafctl does anyway, or that say nothing to it.
constexpr std::array kUnneeded{
    OptionRule{"useUnicode", "connections always speak utf8mb4"},
    OptionRule{"characterSetResults", "connections always speak utf8mb4"},
    OptionRule{"connectionCollation", "tags are compared byte for byte"},
    OptionRule{"autoReconnect", "lost connections are always reopened"},
    OptionRule{"autoReconnectForPools", "lost connections are always reopened"},
    OptionRule{"serverTimezone", "no time of the database is used"},
    OptionRule{"useTimezone", "no time of the database is used"},
    OptionRule{"useLegacyDatetimeCode", "no time of the database is used"},
    OptionRule{"useJDBCCompliantTimezoneShift", "no time of the database is used"},
    OptionRule{"zeroDateTimeBehavior", "no time of the database is used"},
    OptionRule{"rewriteBatchedStatements", "there are no batches"},
    OptionRule{"allowMultiQueries", "there are no such statements"},
    OptionRule{"useAffectedRows", "it makes no difference to these statements"},
    OptionRule{"tinyInt1isBit", "there is no such column"},
    OptionRule{"nullCatalogMeansCurrent", "it concerns Java only"},
    OptionRule{"nullNamePatternMatchesAll", "it concerns Java only"},
    OptionRule{"useOldAliasMetadataBehavior", "it concerns Java only"},
    OptionRule{"maxReconnects", "connections are retried without limit, with pauses"},
    OptionRule{"initialTimeout", "connections are retried without limit, with pauses"},
    OptionRule{"tcpKeepAlive", "every statement has a deadline (mysql.query_timeout)"},
    OptionRule{"type", "of several endpoints the first that takes writes is used"},
    OptionRule{"failOverReadOnly", "of several endpoints the first that takes writes is used"},
    OptionRule{"allowPublicKeyRetrieval", "the client library settles this with the server"},
};

class DatabaseImporter {
 public:
  explicit DatabaseImporter(ImportSheet& sheet) : sheet_(sheet) {}

  Result<void> Run(std::string_view why) {
    if (sheet_.IsSet("mysql.endpoints")) return {};
    const Property* const url = sheet_.Find(kUrl);
    if (url == nullptr)
      return Missing(sheet_.NameOf(kUrl), fmt::format("{} asks for a database", why),
                     "set leaf.segment.enable=false if segment mode is not used");
    auto parsed = ParseJdbcUrl(sheet_.Tidy(*url));
    if (!parsed.ok()) {
      Error error = std::move(parsed).error();
      return Wrong(*url, error.message, std::move(error.hint));
    }
    const std::string_view from = url->key;
    LEAF_RETURN_IF_ERROR(sheet_.Set("segment.store", std::string("mysql"), from));
    std::vector<std::string> endpoints;
    for (const Endpoint& host : parsed->hosts) {
      std::string text = EndpointText(host);
      if (std::find(endpoints.begin(), endpoints.end(), text) == endpoints.end())
        endpoints.push_back(std::move(text));
    }
    if (endpoints.size() > 1) {
      sheet_.Note(
          NoteKind::kChanged, *url,
          fmt::format("{} servers: they have to be one replicated cluster; the first that takes writes is "
                      "used, and kept{}",
                      endpoints.size(),
                      parsed->scheme.ends_with(":loadbalance") ? ": load is not balanced over them" : ""));
    }
    LEAF_RETURN_IF_ERROR(sheet_.Set("mysql.endpoints", std::move(endpoints), from));
    LEAF_RETURN_IF_ERROR(sheet_.Set("mysql.database", parsed->database, from));
    return ImportOptionsOf(*url, *parsed);
  }

 private:
  Result<void> ImportOptionsOf(const Property& url, const JdbcUrl& parsed) {
    std::optional<std::string> user;
    std::optional<std::string> password;
    Tls tls;
    for (const auto& [name, value] : parsed.options) {
      if (name == "user") {
        user = value;
      } else if (name == "password") {
        password = value;
      } else if (name == "connectTimeout" || name == "socketTimeout") {
        LEAF_RETURN_IF_ERROR(ImportTimeout(url, name, value));
      } else if (!tls.Take(name, value)) {
        ListOption(url, name, value);
      }
    }
    LEAF_RETURN_IF_ERROR(ImportTls(url, tls));
    return ImportLogin(url, user, password);
  }

  Result<void> ImportTimeout(const Property& url, const std::string& name, const std::string& value) {
    const std::string key = name == "connectTimeout" ? "mysql.connect_timeout" : "mysql.query_timeout";
    constexpr std::uint64_t kMax = std::uint64_t{1} << 31;
    const auto millis = ParseNumber(value, kMax);
    if (!millis)
      return Wrong(url, fmt::format("option {}: {} is not a number of milliseconds", name, Quoted(value)));
    if (*millis == 0) {
      sheet_.Note(NoteKind::kDropped, url,
                  fmt::format("option {}=0: leafctl has no unlimited waits; {} stays", name, key));
      return {};
    }
    if (sheet_.IsSet(key)) {
      sheet_.Note(NoteKind::kDropped, url, fmt::format("option {}={}: given a second time", name, value));
      return {};
    }
    return sheet_.Set(key, FormatDuration(config::Millis{static_cast<std::int64_t>(*millis)}), url.key);
  }

  // The options that ask for encryption, of both drivers and all their versions.
  struct Tls {
    std::optional<bool> use;
    std::optional<bool> require;
    std::optional<bool> verify;
    std::string mode;

    bool Take(const std::string& name, const std::string& value) {
      const std::string word = LowerCase(value);
      const bool on = word == "true" || word == "yes" || word == "1";
      if (name == "useSSL" || name == "useSsl") {
        use = on;
      } else if (name == "requireSSL") {
        require = on;
      } else if (name == "verifyServerCertificate") {
        verify = on;
      } else if (name == "trustServerCertificate") {
        verify = !on;
      } else if (name == "sslMode") {
        mode = word;
      } else {
        return false;
      }
      return true;
    }
  };

  Result<void> ImportTls(const Property& url, const Tls& tls) {
    std::string level;
    if (!tls.mode.empty()) {
      const std::map<std::string, std::string> kModes{
          {"disabled", "disabled"}, {"disable", "disabled"},       {"preferred", "preferred"},
          {"required", "required"}, {"trust", "required"},         {"verify_ca", "verify"},
          {"verify-ca", "verify"},  {"verify_identity", "verify"}, {"verify-full", "verify"}};
      const auto found = kModes.find(tls.mode);
      if (found == kModes.end())
        return Wrong(url, fmt::format("option sslMode: {} is not known", Quoted(tls.mode)));
      level = found->second;
      if (tls.mode == "verify_ca" || tls.mode == "verify-ca")
        sheet_.Note(NoteKind::kChanged, url,
                    "option sslMode: mysql.tls = \"verify\" compares the server's name, too");
    } else if (tls.use == false) {
      level = "disabled";
    } else if (tls.use == true || tls.require == true) {
      level = tls.verify == true ? "verify" : "required";
      if (!tls.verify) {
        sheet_.Note(NoteKind::kChanged, url,
                    "option useSSL: whether the certificate is verified depends on the driver's version; it "
                    "is not by mysql.tls = \"required\", and is by \"verify\"");
      }
    } else if (tls.verify) {
      sheet_.Note(NoteKind::kDropped, url,
                  "option verifyServerCertificate: without useSSL or sslMode it says nothing");
    }
    if (level.empty()) return {};
    return sheet_.Set("mysql.tls", level, url.key);
  }

  void ListOption(const Property& url, const std::string& name, const std::string& value) {
    if (name == "p6spy" || name == "log4jdbc") {
      sheet_.Note(NoteKind::kDropped, url,
                  fmt::format("{} before the driver: it logs statements; leafctl does not", name));
      return;
    }
    if (name == "characterEncoding") {
      const std::string word = LowerCase(value);
      const bool utf8 = word == "utf8" || word == "utf-8" || word == "utf8mb4";
      sheet_.Note(NoteKind::kDropped, url,
                  fmt::format("option {}={}: {}", name, Printable(value),
                              utf8 ? "connections always speak utf8mb4"
                                   : "connections speak utf8mb4, and tags are compared byte for byte: check "
                                     "that tags with non-ASCII characters are stored as they look"));
      return;
    }
    // A key of a trust store, say: of a name that sounds like a secret nothing is shown.
    const std::string lowered = LowerCase(name);
    const bool secret =
        lowered.find("password") != std::string::npos || lowered.find("secret") != std::string::npos;
    const std::string shown =
        Printable(value.empty() ? name : fmt::format("{}={}", name, secret ? "…" : value));
    for (const OptionRule& rule : kUnneeded) {
      if (rule.name == name) {
        sheet_.Note(NoteKind::kDropped, url, fmt::format("option {}: not needed: {}", shown, rule.why));
        return;
      }
    }
    const bool trust = lowered.find("truststore") != std::string::npos ||
                       lowered.find("keystore") != std::string::npos || lowered == "serversslcert";
    sheet_.Note(NoteKind::kDropped, url,
                fmt::format("option {}: {}", shown,
                            trust ? "leafctl reads PEM files: name the authorities in mysql.tls_ca"
                                  : "leafctl has no counterpart"));
  }

  Result<void> ImportLogin(const Property& url, const std::optional<std::string>& url_user,
                           const std::optional<std::string>& url_password) {
    const Property* const user = sheet_.Find(kUser);
    if (user != nullptr && url_user && *url_user != user->value)
      return Wrong(*user, "the URL has another user", "keep one of the two");
    if (user == nullptr && !url_user)
      return Missing(sheet_.NameOf(kUser), "leafctl does not guess the database's user");
    LEAF_RETURN_IF_ERROR(sheet_.Set("mysql.user", user != nullptr ? sheet_.Exact(*user) : *url_user,
                                    user != nullptr ? user->key : url.key));

    const Property* const password = sheet_.Find(kPassword);
    if (password != nullptr && url_password && *url_password != password->value)
      return Wrong(*password, "the URL has another password", "keep one of the two");
    const Property& source = password != nullptr ? *password : url;
    const std::string text = password != nullptr ? password->value : url_password.value_or("");
    sheet_.SetPassword(text);
    if (text.find('\0') != std::string::npos || text.find_first_of("\r\n") != std::string::npos)
      return Wrong(source, "the password has a character that no password file can hold");
    if (text.empty()) return {};
    if (password != nullptr && Trimmed(text) != text)
      sheet_.Note(NoteKind::kChanged, *password,
                  "it has a blank at its end, which Java keeps, and so it is kept here");
    if (sheet_.options().password_file.empty()) {
      sheet_.Note(NoteKind::kDropped, source,
                  "passwords are not kept in a configuration file: put it into a file that only its owner "
                  "can read, and name that in mysql.password_file (--password-file FILE does both)");
      return {};
    }
    sheet_.Note(NoteKind::kChanged, source,
                fmt::format("it is in {} now", Printable(sheet_.options().password_file)));
    return sheet_.Set("mysql.password_file", sheet_.options().password_file, "", "--password-file");
  }

  ImportSheet& sheet_;
};

}  // namespace

Result<void> ImportDatabase(ImportSheet& sheet, std::string_view why) {
  return DatabaseImporter(sheet).Run(why);
}

}  // namespace leaf::java
