// Takes IDs by hiredis, as its README shows, and prints them, one a line.
// Usage: hiredis_client PORT TAG COUNT alone|pipelined|pool|steady|error
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL 8
#define DEPTH 50

static void die(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static redisContext* open_connection(int port) {
  redisContext* context = redisConnect("127.0.0.1", port);
  if (context == NULL || context->err) die(context ? context->errstr : "no memory");
  return context;
}

static void print_id(redisReply* reply) {
  if (reply == NULL) die("no reply");
  if (reply->type == REDIS_REPLY_ERROR) die(reply->str);
  if (reply->type != REDIS_REPLY_INTEGER) die("not an integer");
  printf("%lld\n", reply->integer);
  freeReplyObject(reply);
}

int main(int argc, char** argv) {
  if (argc != 5) die("usage: hiredis_client PORT TAG COUNT MODE");
  const int port = atoi(argv[1]);
  const char* const tag = argv[2];
  const int count = atoi(argv[3]);
  const char* const mode = argv[4];
  setvbuf(stdout, NULL, _IOLBF, 0);

  if (strcmp(mode, "pool") == 0) {
    redisContext* pool[POOL];
    for (int i = 0; i < POOL; ++i) pool[i] = open_connection(port);
    for (int i = 0; i < count; ++i) print_id(redisCommand(pool[i % POOL], "INCR %s", tag));
    for (int i = 0; i < POOL; ++i) redisFree(pool[i]);
    return 0;
  }
  redisContext* context = open_connection(port);
  if (strcmp(mode, "error") == 0) {
    redisReply* const reply = redisCommand(context, "INCR %s", tag);
    if (reply == NULL || reply->type != REDIS_REPLY_ERROR) die("no error");
    printf("%s\n", reply->str);
    return 0;
  }
  for (int taken = 0; taken < count;) {
    if (strcmp(mode, "pipelined") == 0) {
      const int depth = count - taken < DEPTH ? count - taken : DEPTH;
      for (int i = 0; i < depth; ++i) redisAppendCommand(context, "INCR %s", tag);
      for (int i = 0; i < depth; ++i) {
        void* reply = NULL;
        if (redisGetReply(context, &reply) != REDIS_OK) die(context->errstr);
        print_id(reply);
      }
      taken += depth;
      continue;
    }
    redisReply* const reply = redisCommand(context, "INCR %s", tag);
    if (reply == NULL && strcmp(mode, "steady") == 0) {
      // The server restarts: the client connects again, once it is back.
      usleep(20000);
      redisReconnect(context);
      continue;
    }
    print_id(reply);
    ++taken;
  }
  redisFree(context);
  return 0;
}
