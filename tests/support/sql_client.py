"""Statements for a MariaDB of a test's own, over its socket, by way of its C client.

A program for each of them would take longer than most statements do.
"""

import ctypes
import os
import pwd

USER = pwd.getpwuid(os.getuid()).pw_name

# As MariaDB's C client numbers them.
_OPT_CONNECT_TIMEOUT, _SET_CHARSET_NAME, _OPT_READ_TIMEOUT, _OPT_WRITE_TIMEOUT = 0, 7, 11, 12
_MULTI_STATEMENTS = 1 << 16


class SqlError(Exception):
    """Nothing answers, or not in time, or the server refuses a statement."""


def _load():
    library = ctypes.CDLL("libmariadb.so.3")
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint
    for name, result, arguments in (
        ("mysql_init", pointer, [pointer]),
        ("mysql_options", ctypes.c_int, [pointer, ctypes.c_int, pointer]),
        ("mysql_real_connect", pointer, [pointer, text, text, text, text, number, text, ctypes.c_ulong]),
        ("mysql_real_query", ctypes.c_int, [pointer, text, ctypes.c_ulong]),
        ("mysql_store_result", pointer, [pointer]),
        ("mysql_field_count", number, [pointer]),
        ("mysql_num_fields", number, [pointer]),
        ("mysql_fetch_row", ctypes.POINTER(pointer), [pointer]),
        ("mysql_fetch_lengths", ctypes.POINTER(ctypes.c_ulong), [pointer]),
        ("mysql_free_result", None, [pointer]),
        ("mysql_next_result", ctypes.c_int, [pointer]),
        ("mysql_error", text, [pointer]),
        ("mysql_close", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_LIBRARY = _load()


def rows(socket, statements, database="", timeout_s=60):
    """The rows of all of these statements, each a list of strings, as this user, whom the socket lets in.

    Raises SqlError; also if an answer takes longer than `timeout_s`.
    """
    connection = _LIBRARY.mysql_init(None)
    try:
        seconds = ctypes.c_uint(timeout_s)
        for option in (_OPT_CONNECT_TIMEOUT, _OPT_READ_TIMEOUT, _OPT_WRITE_TIMEOUT):
            _LIBRARY.mysql_options(connection, option, ctypes.byref(seconds))
        _LIBRARY.mysql_options(connection, _SET_CHARSET_NAME, b"utf8mb4")
        name = database.encode() or None
        if not _LIBRARY.mysql_real_connect(
            connection, None, USER.encode(), None, name, 0, socket.encode(), _MULTI_STATEMENTS
        ):
            _fail(connection, "connect")
        query = statements.encode()
        if _LIBRARY.mysql_real_query(connection, query, len(query)) != 0:
            _fail(connection, statements)
        found = _result(connection, statements)
        while (more := _LIBRARY.mysql_next_result(connection)) == 0:
            found += _result(connection, statements)
        if more > 0:
            _fail(connection, statements)
        return found
    finally:
        _LIBRARY.mysql_close(connection)


def _fail(connection, what):
    raise SqlError("%s: %s" % (what, _LIBRARY.mysql_error(connection).decode("utf-8", "replace")))


def _result(connection, statements):
    """The rows of one statement; none if it is of those that have no rows."""
    result = _LIBRARY.mysql_store_result(connection)
    if not result:
        if _LIBRARY.mysql_field_count(connection) != 0:
            _fail(connection, statements)
        return []
    try:
        found = []
        columns = range(_LIBRARY.mysql_num_fields(result))
        while row := _LIBRARY.mysql_fetch_row(result):
            lengths = _LIBRARY.mysql_fetch_lengths(result)
            found.append([_text(row[column], lengths[column]) for column in columns])
        return found
    finally:
        _LIBRARY.mysql_free_result(result)


def _text(value, length):
    return "NULL" if value is None else ctypes.string_at(value, length).decode("utf-8", "replace")
