#include "leaf/sql/mysql_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <mysql.h>

#include <atomic>

#include "leaf/base/check.h"
#include "leaf/base/mutex.h"

// Name, parameters, arguments. The compiler holds them to the declarations in mysql.h.
#define LEAF_MYSQL_FUNCTIONS(F)                                                                         \
  F(mariadb_connection, (MYSQL * mysql), (mysql))                                                       \
  F(mariadb_get_info, (MYSQL * mysql, mariadb_value value, void* result), (mysql, value, result))       \
  F(mysql_affected_rows, (MYSQL * mysql), (mysql))                                                      \
  F(mysql_close, (MYSQL * mysql), (mysql))                                                              \
  F(mysql_errno, (MYSQL * mysql), (mysql))                                                              \
  F(mysql_error, (MYSQL * mysql), (mysql))                                                              \
  F(mysql_fetch_field_direct, (MYSQL_RES * result, unsigned field), (result, field))                    \
  F(mysql_fetch_lengths, (MYSQL_RES * result), (result))                                                \
  F(mysql_fetch_row, (MYSQL_RES * result), (result))                                                    \
  F(mysql_field_count, (MYSQL * mysql), (mysql))                                                        \
  F(mysql_free_result, (MYSQL_RES * result), (result))                                                  \
  F(mysql_get_option, (MYSQL * mysql, mysql_option option, void* value), (mysql, option, value))        \
  F(mysql_get_server_version, (MYSQL * mysql), (mysql))                                                 \
  F(mysql_get_ssl_cipher, (MYSQL * mysql), (mysql))                                                     \
  F(mysql_init, (MYSQL * mysql), (mysql))                                                               \
  F(mysql_insert_id, (MYSQL * mysql), (mysql))                                                          \
  F(mysql_num_rows, (MYSQL_RES * result), (result))                                                     \
  F(mysql_options, (MYSQL * mysql, mysql_option option, const void* value), (mysql, option, value))     \
  F(mysql_ping, (MYSQL * mysql), (mysql))                                                               \
  F(mysql_real_connect,                                                                                 \
    (MYSQL * mysql, const char* host, const char* user, const char* password, const char* database,     \
     unsigned port, const char* socket, unsigned long flags),                                           \
    (mysql, host, user, password, database, port, socket, flags))                                       \
  F(mysql_real_escape_string, (MYSQL * mysql, char* to, const char* from, unsigned long length),        \
    (mysql, to, from, length))                                                                          \
  F(mysql_real_query, (MYSQL * mysql, const char* query, unsigned long length), (mysql, query, length)) \
  F(mysql_row_seek, (MYSQL_RES * result, MYSQL_ROW_OFFSET row), (result, row))                          \
  F(mysql_row_tell, (MYSQL_RES * result), (result))                                                     \
  F(mysql_server_end, (), ())                                                                           \
  F(mysql_server_init, (int count, char** arguments, char** groups), (count, arguments, groups))        \
  F(mysql_ssl_set,                                                                                      \
    (MYSQL * mysql, const char* key, const char* certificate, const char* authority,                    \
     const char* authorities, const char* ciphers),                                                     \
    (mysql, key, certificate, authority, authorities, ciphers))                                         \
  F(mysql_store_result, (MYSQL * mysql), (mysql))

namespace leaf::sql {
namespace {

constexpr const char* kLibrary = "libmariadb.so.3";

struct MysqlLibrary {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared
#define LEAF_MEMBER(name, parameters, arguments) decltype(&::name) name = nullptr;
  LEAF_MYSQL_FUNCTIONS(LEAF_MEMBER)
#undef LEAF_MEMBER
};

Mutex loading;
MysqlLibrary functions LEAF_GUARDED_BY(loading);    // and written no more once `loaded` is set
std::atomic<const MysqlLibrary*> loaded = nullptr;  // null until all of it is there

template <typename Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

const MysqlLibrary& Library() {
  if (const MysqlLibrary* const library = loaded.load(std::memory_order_acquire)) return *library;
  LEAF_CHECK(LoadMysqlLibrary().ok());
  return *loaded.load(std::memory_order_acquire);
}

}  // namespace

Result<void> LoadMysqlLibrary() {
  if (loaded.load(std::memory_order_acquire) != nullptr) return {};
  const MutexLock lock(loading);
  if (loaded.load(std::memory_order_relaxed) != nullptr) return {};
  const auto failed = [&] {
    const char* const why = dlerror();
    return Error{
        ErrorCode::kConfig,
        fmt::format("the MySQL client library cannot be loaded: {}", why == nullptr ? kLibrary : why),
        "install the package libmariadb3"};
  };
  // Stays for as long as the process does.
  void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return failed();
#define LEAF_FIND(name, parameters, arguments) \
  if (!Find(handle, #name, functions.name)) return failed();
  LEAF_MYSQL_FUNCTIONS(LEAF_FIND)
#undef LEAF_FIND
  loaded.store(&functions, std::memory_order_release);
  return {};
}

}  // namespace leaf::sql

extern "C" {
#define LEAF_PASS_ON(name, parameters, arguments) \
  auto STDCALL name parameters->decltype(::name arguments) { return leaf::sql::Library().name arguments; }
LEAF_MYSQL_FUNCTIONS(LEAF_PASS_ON)
#undef LEAF_PASS_ON
}
