// Where the two databases differ. Everything else is one code (segment_store.cc, schema.cc).
#pragma once

#include <span>
#include <string_view>

namespace leaf::sql {

struct Dialect {
  std::string_view name;
  std::string_view begin;  // starts a transaction that is going to write
  std::string_view commit;
  std::string_view rollback;
  // Appended to a SELECT whose row is about to be changed.
  std::string_view for_update;
  // The same for a row that is not waited for; where the server knows that (CanReadWithoutWaiting).
  std::string_view for_update_now;
  // Expression: whether the server takes no writes. It need not refuse those of every user.
  std::string_view read_only;
  // Matches the tag :tag byte for byte. Collations fold case and trailing blanks, so the comparison that can
  // use the index is followed by one of bytes, in the connection's character set.
  std::string_view tag_matches;
  std::string_view update_time_ms;  // expression: update_time as Unix milliseconds
  // Appended to SET lists; MySQL's column does it by itself.
  std::string_view touch;
  // Whether a statement of its own raises max_id and tells what it was, so that no row is locked while a
  // reply is on its way (segment_store.cc).
  bool raises_in_one_statement = false;
  std::string_view last_insert_id;    // the number that this connection's last INSERT got
  std::string_view now_ms;            // expression: the server's time as Unix milliseconds
  std::string_view remember_removed;  // upsert of :tag, :max_id into leafctl_removed_tags, never lowering
  // Raises the number of the row :tag of leafctl_orders by one; the row is made if it is missing.
  // Draws the version's nonce as well, into the column `since` of its row.
  std::string_view raise_orders_version;
  // Statements that create what is missing, in order. The first makes leaf_alloc as Leaf publishes it, but
  // with a collation that tells all tags apart.
  std::span<const std::string_view> schema;
};

extern const Dialect kMysql;
extern const Dialect kSqlite;

}  // namespace leaf::sql
