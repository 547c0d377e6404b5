// leafsim: the core and service code of leafctl in a cluster that exists in this program only; see README.md.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace leaf::sim {
namespace {

enum ExitCode { kClean = 0, kUsage = 2, kViolation = 10, kNotRepeatable = 11, kAssertion = 12 };

// What an assertion that fails leaves behind.
char current_run[128] = "";

void OnAbort(int) {
  (void)!write(STDERR_FILENO, current_run, std::char_traits<char>::length(current_run));
  _exit(kAssertion);
}

struct Totals {
  std::uint64_t runs = 0;
  std::uint64_t ids = 0;
  std::uint64_t grants = 0;
  std::uint64_t requests = 0;
  std::uint64_t errors = 0;
  std::uint64_t acts = 0;
  std::uint64_t starts = 0;
  std::uint64_t regressions = 0;
  std::uint64_t orders_begun = 0;
  std::uint64_t strict_requests = 0;
  std::uint64_t strict_pairs = 0;
  double node_hours = 0;

  void Add(const Outcome& outcome) {
    ++runs;
    ids += outcome.ids;
    grants += outcome.grants;
    requests += outcome.requests;
    errors += outcome.errors;
    acts += outcome.acts;
    starts += outcome.starts;
    regressions += outcome.regressions;
    orders_begun += outcome.orders_begun;
    strict_requests += outcome.strict_requests;
    strict_pairs += outcome.strict_pairs;
    node_hours += outcome.node_seconds / 3600;
  }
  void Print() const {
    fmt::print(
        "leafsim: {} runs, {:.1f} simulated node-hours, {} faults, {} starts of a process, {} tags whose row "
        "went back, {} requests ({} refused), {} grants, {} IDs checked, {} times that a tag became strict, "
        "{} "
        "requests for it in {} pairs\n",
        runs, node_hours, acts, starts, regressions, requests, errors, grants, ids, orders_begun,
        strict_requests, strict_pairs);
  }
};

struct Flags {
  std::optional<std::uint64_t> seed;
  std::uint64_t seeds = 1;
  std::vector<std::string> scenarios;
  std::uint64_t nodes = 0;
  double hours = 0;
  bool combinations = false;
  bool until_failure = false;
  bool stop = false;
  bool twice = false;
  bool quiet = false;
  bool loud = false;
  bool costs = false;
};

// As tests/sim/scale.py reads it.
void PrintCosts(const Plan& plan, const Outcome& outcome) {
  const Costs& costs = outcome.costs;
  fmt::print(
      R"({{"nodes":{},"tags":{},"seconds":{},"refresh_seconds":{},"grants":{},"statements":{},"rows":{},)"
      R"("reads":{},"lists":{},"names":{},"writes":{}}})"
      "\n",
      plan.nodes, plan.tags, outcome.costs_seconds,
      std::chrono::duration<double>(plan.refresh_interval).count(), costs.grants, costs.statements,
      costs.rows, costs.reads, costs.lists, costs.names, costs.writes);
}

// `shown`: set if what the plan expects to be broken was, and nothing else.
ExitCode RunOne(Plan plan, const Flags& flags, Totals& totals, bool& shown) {
  if (flags.nodes > 0) plan.nodes = flags.nodes;
  plan.counts_costs = flags.costs;
  if (flags.hours > 0) plan.trouble = static_cast<Nanos>(flags.hours * 3600e9);
  if (!flags.quiet) fmt::print("seed {}: {}\n", plan.seed, plan.Text());
  std::fflush(stdout);
  const auto written =
      fmt::format_to_n(current_run, sizeof current_run - 1, "leafsim: an assertion failed at seed {} {}\n",
                       plan.seed, plan.scenario);
  *written.out = '\0';
  const Outcome outcome = Simulate(plan, flags.loud);
  totals.Add(outcome);
  if (flags.costs) PrintCosts(plan, outcome);
  if (!flags.quiet) {
    fmt::print("seed {}: trace {:016x}, {} steps, {} IDs, {} requests, {} refused, {} faults\n", plan.seed,
               outcome.trace, outcome.steps, outcome.ids, outcome.requests, outcome.errors, outcome.acts);
  }
  const bool as_expected =
      !plan.expected.empty() && !outcome.violations.empty() &&
      std::all_of(outcome.violations.begin(), outcome.violations.end(), [&](const std::string& violation) {
        const std::size_t promise = violation.find(" s: P");
        return promise != std::string::npos && plan.expected.contains(violation.substr(promise + 4, 2));
      });
  if (as_expected) {
    shown = true;
    if (!flags.quiet)
      fmt::print("seed {}: breaks {}, as expected: {}\n", plan.seed, fmt::join(plan.expected, " or "),
                 outcome.violations.front());
  } else if (!outcome.violations.empty()) {
    if (flags.quiet) fmt::print("seed {}: {}\n", plan.seed, plan.Text());
    for (const std::string& violation : outcome.violations)
      fmt::print("seed {} VIOLATION {}\n", plan.seed, violation);
    return kViolation;
  }
  if (outcome.ids == 0) {
    fmt::print("seed {} VIOLATION no ID was issued: nothing was checked\n", plan.seed);
    return kViolation;
  }
  if (flags.twice) {
    if (const Outcome again = Simulate(plan, false); again.trace != outcome.trace) {
      fmt::print("seed {} NOT REPEATABLE: trace {:016x} and {:016x}\n", plan.seed, outcome.trace,
                 again.trace);
      return kNotRepeatable;
    }
  }
  return kClean;
}

// A plan that is written down, with each of the seeds.
ExitCode RunAll(const Plan& written, const std::string& name, const Flags& flags, Totals& totals) {
  ExitCode worst = kClean;
  bool shown = false;
  for (std::uint64_t i = 0; i < flags.seeds; ++i) {
    Plan plan = written;
    if (flags.seed) plan.seed = *flags.seed;
    plan.seed += i;
    if (const ExitCode code = RunOne(std::move(plan), flags, totals, shown); code != kClean) worst = code;
    if (worst != kClean && flags.stop) break;
  }
  if (!written.expected.empty() && !shown && worst == kClean) {
    fmt::print(
        "{} VIOLATION {} was expected to be broken, and with none of {} seeds it was: if that is mended, "
        "take `expected` out of the scenario\n",
        name, fmt::join(written.expected, " or "), flags.seeds);
    worst = kViolation;
  }
  return worst;
}

// As RunAll, a line each.
ExitCode RunCombinations(const Flags& flags, Totals& totals) {
  ExitCode worst = kClean;
  for (const Plan& plan : Plan::Combinations()) {
    const ExitCode code = RunAll(plan, plan.scenario, flags, totals);
    if (code != kClean) worst = code;
    fmt::print("{}: {}\n", plan.scenario,
               code != kClean          ? "VIOLATION"
               : plan.expected.empty() ? "no ID twice"
                                       : "IDs twice, as expected: nothing is left that could know");
    std::fflush(stdout);
    if (worst != kClean && flags.stop) break;
  }
  return worst;
}

int Run(const Flags& flags) {
  std::signal(SIGABRT, OnAbort);
  Totals totals;
  ExitCode worst = kClean;
  for (const std::string& path : flags.scenarios) {
    const auto loaded = Plan::Load(path);
    if (!loaded.ok()) {
      fmt::print(stderr, "leafsim: {}\n", loaded.error().message);
      return kUsage;
    }
    if (const ExitCode code = RunAll(*loaded, path, flags, totals); code != kClean) worst = code;
    if (worst != kClean && flags.stop) break;
  }
  if (flags.combinations && !(worst != kClean && flags.stop)) {
    if (const ExitCode code = RunCombinations(flags, totals); code != kClean) worst = code;
  }
  if (flags.scenarios.empty() && !flags.combinations) {
    const std::uint64_t first =
        flags.seed ? *flags.seed
                   : (std::uint64_t{std::random_device{}()} << 32 | std::random_device{}()) >> 12;
    fmt::print("leafsim: seeds from {} on\n", first);
    for (std::uint64_t i = 0; flags.until_failure || i < flags.seeds; ++i) {
      bool shown = false;
      const ExitCode code = RunOne(Plan::Draw(first + i), flags, totals, shown);
      if (code != kClean) worst = code;
      if (code != kClean && (flags.until_failure || flags.stop)) break;
    }
  }
  totals.Print();
  return worst;
}

}  // namespace
}  // namespace leaf::sim

int main(int argc, char** argv) {
  leaf::sim::Flags flags;
  CLI::App app{
      "Simulates clusters of leafctl daemons in trouble, and checks every ID.\n"
      "Exit codes: 0 clean, 2 usage, 10 a promise was broken, 11 a run did not repeat itself, 12 an "
      "assertion "
      "failed."};
  app.add_option("--seed", flags.seed, "The first seed; drawn, and printed, if not given")
      ->envname("LEAF_SIM_SEED");
  app.add_option("--seeds", flags.seeds, "How many, each one more than the last (1)");
  app.add_option("--scenario", flags.scenarios,
                 "Files of tests/sim/museum to run instead of what a seed draws")
      ->check(CLI::ExistingFile);
  app.add_flag("--combinations", flags.combinations,
               "What is trusted goes back, in every combination of stores, nodes and state directories");
  app.add_option("--nodes", flags.nodes, "Nodes of leafctl (as drawn)");
  app.add_option("--hours", flags.hours, "Simulated hours of trouble in each run (as drawn: a minute or so)");
  app.add_flag("--until-failure", flags.until_failure, "One seed after the other until a promise is broken");
  app.add_flag("--stop", flags.stop, "None after the first with which a promise is broken");
  app.add_flag("--twice", flags.twice, "Run each twice: their traces have to be equal");
  app.add_flag("--costs", flags.costs,
               "Print, as JSON, what the second half of each run cost the database and ZooKeeper");
  app.add_flag("--quiet", flags.quiet, "Only what is broken, and the totals");
  app.add_flag("--loud", flags.loud, "Print what happens, and what the daemons log");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : leaf::sim::kUsage;
  }
  return leaf::sim::Run(flags);
}
