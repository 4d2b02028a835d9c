#pragma once
// Options of `plan` alone: restrictions of the search, and contents of the answer.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.hpp"
#include "plan/text/errors.hpp"
#include "planner/candidates.hpp"
#include "planner/scaling.hpp"

namespace mgplan::cli {

/// Options of `plan` alone.
struct PlanOptions {
    planner::SearchSpace space;
    std::vector<std::string> recompute{"none", "selective", "full"};
    std::vector<std::string> recompute_modules{"core_attn"};
    std::string recompute_method = "uniform";
    std::string sequence_parallel = "auto";
    std::vector<std::string> cp_comm_types{"p2p", "all_gather", "a2a"};
    std::optional<std::string> order = "tp-cp-ep-dp-pp";
    std::string cuda_graphs = "none";
    std::string objective = "throughput";
    std::optional<std::int64_t> top;
    bool wide = false, all = false, assumed = false, markdown = false;
    std::int64_t threads = 0;
    bool balance_stages = false;
    std::vector<std::string> schedules{"auto"};
    std::optional<std::int64_t> explain;
    std::optional<std::int64_t> pick;
    std::optional<std::string> save_plan, html, compare, headroom, search, dispatcher;
    bool exhaustive = false;
    std::optional<std::string> tokens, gpu_hour_price;
};

/// Plans without --top, in a table and in lists for programs.
constexpr std::int64_t kTopOfATable = 5, kTopOfAList = 10;

/// Declares the options of the search alone, in a group of their own.
void declare_search_options(Options& options, PlanOptions& values);
/// Declares these and those of the answer of `plan`.
void declare_plan_options(Options& options, PlanOptions& values);

/// Checks for Options::checked of a number of tokens and of a price; `option` names the price in messages.
void check_tokens(const std::string& given, Problems& problems);
void check_price(std::string_view option, const std::string& given, Problems& problems);

/// Returns the goal of texts that the checks accept; each may be missing.
[[nodiscard]] planner::TrainingGoal training_goal(const std::optional<std::string>& tokens,
                                                  const std::optional<std::string>& gpu_hour_price);

/// Reads a large count: a real number with an optional suffix K, M, B (or G) or T, powers of 1000 in any case of
/// letters: "15T", "1.5e12", "300B". Returns nothing for other texts, for numbers not above zero, and beyond 1e18.
[[nodiscard]] std::optional<double> parse_large_count(std::string_view text);

/// Reads the words into the space; problems are added.
void finish_space(PlanOptions& values, Problems& problems);

/// Adds contradictions between options of the answer; `worlds`: those of --world.
void check_answer(const PlanOptions& values, const std::vector<std::int64_t>& worlds, Format format, Problems& problems);

}  // namespace mgplan::cli
