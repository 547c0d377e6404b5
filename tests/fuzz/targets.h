// What is fuzzed: one function for each parser that reads outside bytes. Each aborts (LEAF_CHECK) if what it
// calls crashes, or breaks what its header promises: a text that was accepted reads the same after it was
// written again, a result is in its range, an error names its input, a damaged file is refused.
//
// libFuzzer runs each as a program of its own (libfuzzer_entry.cc); fuzz_corpus runs all of them over the
// corpus, with whatever compiler (corpus_main.cc).
#pragma once

#include <span>
#include <string_view>

namespace leaf::fuzz {

// Codes of IDs, their key's file, and the lengths in the database.
void Code(std::string_view input);
// The text forms of lib/leaf/base, and of layouts.
void IdText(std::string_view input);
void Duration(std::string_view input);
void Text(std::string_view input);
void MysqlEndpoint(std::string_view input);
void Time(std::string_view input);
void Layout(std::string_view input);
// The configuration: a TOML file, and what variables and flags say (one NAME=VALUE or key=value a line).
void ConfigFile(std::string_view input);
void ConfigValues(std::string_view input);
// Java Leaf's leaf.properties, behind a byte that chooses the options of its import.
void LeafProperties(std::string_view input);
// A request target with its query and an Accept header (in the first line), and what a client sends on a
// connection, up to the router's answers.
void HttpTarget(std::string_view input);
void HttpRequests(std::string_view input);
// What a client sends to the Redis port.
void RedisCommands(std::string_view input);
// The answer of a daemon, or of another server that listens there: the status in the first line, then the
// body.
void DaemonAnswer(std::string_view input);
// Names of znodes, one in the first line; the records in them, with the kind in the first line; a whole
// namespace, one "path data" a line.
void ZnodeNames(std::string_view input);
void ZnodeRecords(std::string_view input);
void ZnodeTree(std::string_view input);
void Witness(std::string_view input);
void ConnectString(std::string_view input);
// Files of the state directory.
void WorkerState(std::string_view input);
void PausedTags(std::string_view input);
void ClockAcceptance(std::string_view input);

struct Target {
  std::string_view name;  // of its corpus folder, too
  void (*run)(std::string_view input);
  int cost;                                 // of a run, roughly, in runs of the cheapest
  std::span<const std::string_view> words;  // what its grammar consists of
};

// All of them.
std::span<const Target> Targets();

}  // namespace leaf::fuzz
