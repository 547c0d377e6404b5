// Runs every target over its corpus, and over mutations of it that a seed decides: what a fuzzer once found,
// and a little of what it would look for, on every build and with any compiler.
//
// An input that makes a target abort stays behind in the file that is named at the end of the report (the
// current folder's fuzz_corpus.TARGET.input), to be given to --replay.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "fuzz/targets.h"
#include "leaf/base/check.h"
#include "support/fakes.h"
#include "support/scale.h"

namespace leaf::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kInputBytesMax = 4096;

constexpr std::string_view kUsage =
    "usage: fuzz_corpus [--seed N] [--iterations N] [--target NAME] [--replay FILE] CORPUS\n"
    "       fuzz_corpus --list | --dictionary NAME\n"
    "CORPUS holds a folder for each target. --iterations: mutations of the cheapest target; others get\n"
    "fewer, as they cost more. --replay runs one file through --target, and nothing else. --dictionary "
    "prints\n"
    "a target's words as libFuzzer reads them.\n";

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t iterations = testing::Scaled(std::uint64_t{12'000});
  std::string target;
  std::string replay;
  std::string dictionary;
  std::string corpus;
  bool list = false;
};

[[noreturn]] void Usage() {
  std::fputs(kUsage.data(), stderr);
  std::exit(2);
}

std::uint64_t NumberOf(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || end != text.data() + text.size()) Usage();
  return number;
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&]() -> std::string_view {
      if (++i == argc) Usage();
      return argv[i];
    };
    if (name == "--seed") {
      options.seed = NumberOf(value());
    } else if (name == "--iterations") {
      options.iterations = NumberOf(value());
    } else if (name == "--target") {
      options.target = value();
    } else if (name == "--replay") {
      options.replay = value();
    } else if (name == "--dictionary") {
      options.dictionary = value();
    } else if (name == "--list") {
      options.list = true;
    } else if (!name.starts_with("--") && options.corpus.empty()) {
      options.corpus = name;
    } else {
      Usage();
    }
  }
  if (options.corpus.empty() && !options.list && options.dictionary.empty() && options.replay.empty())
    Usage();
  return options;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  LEAF_CHECK(stream.is_open());
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The input at hand, where it outlives the process, however that ends.
class InputKeeper {
 public:
  explicit InputKeeper(const Target& target)
      : path_(fmt::format("fuzz_corpus.{}.input", target.name)),
        fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    LEAF_CHECK(fd_ >= 0);
  }
  InputKeeper(const InputKeeper&) = delete;
  InputKeeper& operator=(const InputKeeper&) = delete;
  // Only reached if all went well.
  ~InputKeeper() {
    close(fd_);
    unlink(path_.c_str());
  }

  void Keep(std::string_view input) const {
    LEAF_CHECK(ftruncate(fd_, static_cast<off_t>(input.size())) == 0);
    LEAF_CHECK(pwrite(fd_, input.data(), input.size(), 0) == static_cast<ssize_t>(input.size()));
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const int fd_;
};

class Mutator {
 public:
  Mutator(const Target& target, const std::vector<std::string>& corpus, std::uint64_t seed)
      : target_(target), corpus_(corpus), random_(seed) {}

  std::string Next() {
    std::string input = corpus_[Below(corpus_.size())];
    for (std::size_t changes = 1 + Below(4); changes > 0; --changes) Change(input);
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
    return input;
  }

 private:
  std::size_t Below(std::size_t bound) { return static_cast<std::size_t>(random_.Below(bound)); }
  // A place in or just behind the input.
  std::size_t Place(const std::string& input) { return Below(input.size() + 1); }
  std::size_t Length(const std::string& input, std::size_t at) {
    return std::min(input.size() - at, 1 + Below(Below(4) == 0 ? input.size() + 1 : 8));
  }

  void Change(std::string& input) {
    const std::size_t at = Place(input);
    switch (Below(9)) {
      case 0:  // a bit
        if (at < input.size()) input[at] ^= static_cast<char>(1U << Below(8));
        return;
      case 1:  // a byte
        if (at < input.size()) input[at] = static_cast<char>(Below(256));
        return;
      case 2:
        input.insert(at, 1 + Below(3), static_cast<char>(Below(256)));
        return;
      case 3:
        input.erase(at, Length(input, at));
        return;
      case 4:
        input.resize(at);
        return;
      case 5: {  // a part of it once more
        const std::string part = input.substr(at, Length(input, at));
        input.insert(Place(input), part);
        return;
      }
      case 6: {  // a part of another
        const std::string& other = corpus_[Below(corpus_.size())];
        const std::size_t from = Place(other);
        input.replace(at, Below(2) == 0 ? 0 : Length(input, at), other, from, Length(other, from));
        return;
      }
      default: {  // a word, put in or put over
        const auto word = target_.words[Below(target_.words.size())];
        input.replace(at, Below(2) == 0 ? 0 : std::min(word.size(), input.size() - at), word);
        return;
      }
    }
  }

  const Target& target_;
  const std::vector<std::string>& corpus_;
  testing::FakeRandom random_;
};

// Whether there is something to run it on.
bool RunTarget(const Target& target, const Options& options) {
  const fs::path folder = fs::path(options.corpus) / target.name;
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  if (files.empty()) {
    std::fprintf(stderr, "%s: no corpus in %s\n", target.name.data(), folder.c_str());
    return false;
  }
  // In the same order on every system.
  std::sort(files.begin(), files.end());
  const InputKeeper keeper(target);
  std::vector<std::string> corpus;
  for (const fs::path& file : files) {
    corpus.push_back(ReadFile(file));
    keeper.Keep(corpus.back());
    target.run(corpus.back());
  }
  Mutator mutator(target, corpus, options.seed);
  const std::uint64_t runs =
      std::max<std::uint64_t>(1, options.iterations / static_cast<unsigned>(target.cost));
  for (std::uint64_t i = 0; i < runs; ++i) {
    const std::string input = mutator.Next();
    keeper.Keep(input);
    target.run(input);
  }
  std::printf("%-17s %3zu files, %6llu mutations\n", target.name.data(), files.size(),
              static_cast<unsigned long long>(runs));
  std::fflush(stdout);
  return true;
}

// As libFuzzer reads it: one quoted word a line.
void PrintDictionary(const Target& target) {
  for (const std::string_view word : target.words) {
    std::string line;
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte >= 0x7F || c == '"' || c == '\\') {
        line += fmt::format("\\x{:02X}", byte);
      } else {
        line += c;
      }
    }
    std::printf("\"%s\"\n", line.c_str());
  }
}

const Target& FindTarget(const std::string& name) {
  const auto found = std::find_if(Targets().begin(), Targets().end(),
                                  [&](const Target& target) { return target.name == name; });
  if (found != Targets().end()) return *found;
  std::fprintf(stderr, "no target called '%s' (--list)\n", name.c_str());
  std::exit(2);
}

int Main(const Options& options) {
  if (options.list) {
    for (const Target& target : Targets()) std::printf("%s\n", target.name.data());
    return 0;
  }
  if (!options.dictionary.empty()) {
    PrintDictionary(FindTarget(options.dictionary));
    return 0;
  }
  if (!options.replay.empty()) {
    FindTarget(options.target).run(ReadFile(options.replay));
    return 0;
  }
  std::printf("seed %llu, %llu iterations; what fails is kept in %s/fuzz_corpus.TARGET.input\n",
              static_cast<unsigned long long>(options.seed),
              static_cast<unsigned long long>(options.iterations), fs::current_path().c_str());
  std::fflush(stdout);
  bool good = true;
  if (!options.target.empty()) {
    good = RunTarget(FindTarget(options.target), options);
  } else {
    for (const Target& target : Targets()) good = RunTarget(target, options) && good;
    // A corpus that nothing runs is a target that was forgotten.
    for (const auto& entry : fs::directory_iterator(options.corpus)) {
      const std::string name = entry.path().filename();
      if (std::none_of(Targets().begin(), Targets().end(),
                       [&](const Target& target) { return target.name == name; })) {
        std::fprintf(stderr, "%s: no such target\n", entry.path().c_str());
        good = false;
      }
    }
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace leaf::fuzz

int main(int argc, char** argv) { return leaf::fuzz::Main(leaf::fuzz::ParseOptions(argc, argv)); }
