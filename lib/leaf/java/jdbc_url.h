// URLs of the MySQL and MariaDB JDBC drivers, as far as they say where a database is.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/endpoint.h"
#include "leaf/base/result.h"

namespace leaf::java {

struct JdbcUrl {
  std::string scheme;  // "jdbc:mysql", "jdbc:mysql:replication", "jdbc:mariadb:loadbalance", …
  std::vector<Endpoint> hosts;
  std::string database;
  std::vector<std::pair<std::string, std::string>> options;  // decoded, in order, those of hosts first
};

// jdbc:mysql: or jdbc:mariadb:, with replication:, loadbalance:, sequential:, failover: or aurora:, also
// behind p6spy: or log4jdbc:; hosts as h, h:p, [v6]:p, user:password@h, address=(host=h)(port=p)(…), and
// (host=h,port=p,…), several separated by commas or in square brackets; /database; ?options. Nothing of a
// host that is not understood is guessed. Errors: kInvalidArgument that names what is wrong, never with a
// password in it.
Result<JdbcUrl> ParseJdbcUrl(std::string_view url);

}  // namespace leaf::java
