// The MariaDB that the contract suites run on.
#pragma once

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "leaf/sql/database.h"
#include "leaf/sys/secret_file.h"
#include "leaf/sys/system_clock.h"

namespace leaf::testing {

// The server that scripts/dev_up.sh started; a test without one fails.
inline const sys::SystemClock kSystemClock;

// `timeout`: of a connection and of a statement. A slow disk is no fault.
inline sql::MysqlOptions MysqlFromEnvironment(std::chrono::milliseconds timeout = std::chrono::minutes{2}) {
  const char* const port = std::getenv("LEAF_MYSQL_PORT");
  const char* const password_file = std::getenv("LEAF_MYSQL_PASSWORD_FILE");
  if (port == nullptr || password_file == nullptr) {
    throw std::runtime_error("no MariaDB: run this through tests/support/with_mariadb.sh");
  }
  return {.endpoints = {{"127.0.0.1", static_cast<std::uint16_t>(std::stoi(port))}},
          .database = "leaf",
          .user = "leaf",
          .password = [path = std::string(password_file)] { return sys::ReadSecretFile(path); },
          .connect_timeout = timeout,
          .query_timeout = timeout,
          .tls_ca = ""};
}

}  // namespace leaf::testing
