#!/usr/bin/env bash
# Starts a private MariaDB and a private ZooKeeper on free loopback ports, with all their data in one folder, and says
# how to use them. Any number can run at once.
# Usage: dev_up.sh [--dir DIR] [--only mariadb|zookeeper] [--no-flush]
#   --dir DIR   a folder that is empty or does not exist (default: a new one under $TMPDIR or /tmp)
#   --no-flush  MariaDB leaves it to the kernel when its files reach the disk: faster, and what is committed outlives
#               the server, but not a crash of the machine
# What it writes there:
#   env             LEAF_DEV_DIR, LEAF_MYSQL_PORT, LEAF_MYSQL_SOCKET, LEAF_MYSQL_PASSWORD_FILE, LEAF_MYSQL_PID,
#                   LEAF_ZK_CONNECT, LEAF_ZK_PID, to be sourced by a shell
#   leafctl.toml    a configuration that uses them
#   mysql-password  the password of the user leaf, which owns the database leaf
#   mysql-command   the server's command line, each argument ended by a NUL
# As root, MariaDB runs as the user mysql, which has to be able to reach DIR. Its root logs in over the socket, without
# a password, for the user that ran this script. scripts/dev_down.sh DIR ends it all.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR
. "$here/lib.sh"

attempts=8        # ports to try, each
start_seconds=60  # longest wait for a server
dir='' only='' no_flush=()
while (($# > 0)); do
  case $1 in
    --dir) dir=${2:?--dir needs a folder} && shift 2 ;;
    --only) only=${2:?--only needs mariadb or zookeeper} && shift 2 ;;
    --no-flush) no_flush=(--debug-no-sync --innodb-flush-method=nosync) && shift ;;
    *) die "what is '$1'? usage: dev_up.sh [--dir DIR] [--only mariadb|zookeeper] [--no-flush]" ;;
  esac
done
[[ -z $only || $only == mariadb || $only == zookeeper ]] || die "--only mariadb or --only zookeeper, not '$only'"

if [[ -z $dir ]]; then
  dir=$(mktemp -d "${TMPDIR:-/tmp}/leaf-dev.XXXXXX")
else
  mkdir -p "$dir"
fi
dir=$(cd "$dir" && pwd -P)
[[ -z $(ls -A "$dir") ]] || die "$dir is not empty"
# The names of Unix sockets are short: 107 bytes.
((${#dir} <= 85)) || die "$dir: the path is too long for a socket inside"
# The user mysql has to pass through, not to look around.
chmod 711 "$dir"
echo "made by dev_up.sh; dev_down.sh removes this folder" >"$dir/.leaf-dev"
printf 'LEAF_DEV_DIR=%q\n' "$dir" >"$dir/env"

failed() {
  trap - EXIT
  "$here/dev_down.sh" "$dir" >/dev/null || true
}
trap failed EXIT

# A free port, below those that the kernel hands out by itself. Another process may still take it first: then the server
# ends, and the next port is tried.
free_port() {
  local port
  while true; do
    port=$((20000 + SRANDOM % 12000))
    if ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
}

# Runs a server in the background, apart from this terminal; its process ID is in `pid`.
launch() {
  local log=$1
  shift
  setsid "$@" </dev/null >>"$log" 2>&1 &
  pid=$!
}

# Waits until the command succeeds. Fails if the process $1 has ended or takes too long.
wait_until() {
  local process=$1 end=$((SECONDS + start_seconds))
  shift
  until "$@" >/dev/null 2>&1; do
    if ! kill -0 "$process" 2>/dev/null || ((SECONDS >= end)); then return 1; fi
    sleep 0.1
  done
  # What answered was this one, not another on the same port.
  kill -0 "$process" 2>/dev/null
}

give_up() {
  echo "---- the end of $2:" >&2
  tail -n 40 "$2" >&2 || true
  echo "----" >&2
  die "$1 did not start"
}

# ---- MariaDB ---------------------------------------------------------------------------------------------------

start_mariadb() {
  local home=$dir/mysql log=$dir/mysql/log port='' socket=$dir/mysql/socket pid as=() attempt
  local install=mariadb-install-db server=mariadbd client=mariadb
  PATH=$PATH:/usr/sbin:/usr/local/sbin
  command -v "$server" "$install" "$client" >/dev/null || die "there is no MariaDB server: apt-get install mariadb-server"
  mkdir "$home" "$home/tmp"
  if ((EUID == 0)); then
    as=(--user=mysql)
    chown mysql: "$home" "$home/tmp"
    setpriv --reuid=mysql --regid=mysql --clear-groups test -x "$home" ||
      die "the user mysql cannot reach $dir: choose a folder that all users can pass through"
  fi
  # innodb_flush_log_at_trx_commit stays 1: what is committed is durable, as in production. A server that starts
  # removes every temporary table it finds, those of other servers that share the folder included.
  local options=(
    --no-defaults "${as[@]}" --datadir="$home/data" --tmpdir="$home/tmp"
    --innodb-buffer-pool-size=32M --innodb-log-file-size=16M --innodb-flush-log-at-trx-commit=1
    --innodb-use-native-aio=OFF "${no_flush[@]}"
  )
  "$install" "${options[@]}" --skip-test-db --auth-root-authentication-method=socket \
    --auth-root-socket-user="$(id -un)" >>"$log" 2>&1 || give_up mariadb-install-db "$log"

  local password
  password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  (umask 077 && echo "$password" >"$dir/mysql-password")

  for ((attempt = 1; ; ++attempt)); do
    port=$(free_port)
    local command=(
      "$server" "${options[@]}" --skip-log-bin --skip-name-resolve --performance-schema=OFF --max-connections=500
      --bind-address=127.0.0.1 --port="$port" --socket="$socket" --pid-file="$home/pid"
    )
    # For tests that end this server and start it again.
    printf '%s\0' "${command[@]}" >"$dir/mysql-command"
    launch "$log" "${command[@]}"
    echo "LEAF_MYSQL_PID=$pid" >>"$dir/env"
    if wait_until "$pid" "$client" --no-defaults --socket="$socket" --user="$(id -un)" -e 'select 1'; then break; fi
    if ((attempt < attempts)) && ! kill -0 "$pid" 2>/dev/null && grep -q 'Address already in use' "$log"; then continue; fi
    give_up mariadbd "$log"
  done

  "$client" --no-defaults --socket="$socket" --user="$(id -un)" <<SQL
create database leaf character set utf8mb4;
create user 'leaf'@'%' identified by '$password';
grant all on leaf.* to 'leaf'@'%';
SQL
  {
    echo "LEAF_MYSQL_PORT=$port"
    printf 'LEAF_MYSQL_SOCKET=%q\n' "$socket"
    printf 'LEAF_MYSQL_PASSWORD_FILE=%q\n' "$dir/mysql-password"
  } >>"$dir/env"
  mysql_port=$port
}

# ---- ZooKeeper -------------------------------------------------------------------------------------------------

zookeeper_answers() {
  local answer
  {
    exec 3<>"/dev/tcp/127.0.0.1/$1" && echo srvr >&3 && read -r -t 5 answer <&3 && exec 3>&- &&
      [[ $answer == *[Zz]oo[Kk]eeper* ]]
  } 2>/dev/null
}

start_zookeeper() {
  local home=$dir/zookeeper log=$dir/zookeeper/log port='' pid attempt
  local jars=/usr/share/java
  if ! command -v java >/dev/null || [[ ! -e $jars/zookeeper.jar ]]; then
    die "there is no ZooKeeper: apt-get install zookeeper default-jre-headless"
  fi
  mkdir "$home"
  for ((attempt = 1; ; ++attempt)); do
    port=$(free_port)
    cat >"$home/zoo.cfg" <<CONF
dataDir=$home/data
clientPort=$port
clientPortAddress=127.0.0.1
admin.enableServer=false
tickTime=500
maxClientCnxns=0
4lw.commands.whitelist=*
CONF
    # The one-shot compiler starts sooner; slf4j-simple logs to stderr.
    launch "$log" java -Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData \
      -cp "$jars/zookeeper.jar:$jars/slf4j-simple.jar" \
      org.apache.zookeeper.server.quorum.QuorumPeerMain "$home/zoo.cfg"
    echo "LEAF_ZK_PID=$pid" >>"$dir/env"
    if wait_until "$pid" zookeeper_answers "$port"; then break; fi
    if ((attempt < attempts)) && ! kill -0 "$pid" 2>/dev/null && grep -q 'Address already in use' "$log"; then continue; fi
    give_up ZooKeeper "$log"
  done
  echo "LEAF_ZK_CONNECT=127.0.0.1:$port" >>"$dir/env"
  zookeeper_connect=127.0.0.1:$port
}

# ----------------------------------------------------------------------------------------------------------------

mysql_port='' zookeeper_connect=''
if [[ $only != zookeeper ]]; then start_mariadb; fi
if [[ $only != mariadb ]]; then start_zookeeper; fi

{
  echo "state_dir = \"$dir/state\""
  echo
  echo '[server]'
  echo 'listen = ["127.0.0.1:0"]'
  if [[ -n $mysql_port ]]; then
    cat <<TOML

[segment]
store = "mysql"

[mysql]
endpoints = ["127.0.0.1:$mysql_port"]
database = "leaf"
user = "leaf"
password_file = "$dir/mysql-password"
TOML
  fi
  if [[ -n $zookeeper_connect ]]; then
    cat <<TOML

# Without the hash signs the fence is that of a cluster, and snowflake.cluster is needed.
# [zookeeper]
# connect = "$zookeeper_connect"
TOML
  fi
} >"$dir/leafctl.toml"
trap - EXIT

echo "# running in $dir; end it with: $here/dev_down.sh $dir"
echo "# variables for a shell:  . $dir/env"
echo "# configuration:          leafctl --config $dir/leafctl.toml db init"
cat "$dir/leafctl.toml"
