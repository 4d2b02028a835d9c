#include "formats/megatron/launch_world.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using LaunchWords = std::vector<std::string>;

std::optional<std::int64_t> count_of(const std::optional<std::string>& text) {
    const auto number = text ? parse_integer(*text) : std::nullopt;
    return number && *number > 0 && *number < (std::int64_t{1} << 24) ? number : std::nullopt;
}

/// The value of the first of some options: "--nnodes 2", "--nnodes=2", "-N2". Of a launcher only in front of the training's own words.
std::optional<std::string> option_value(const LaunchWords& words, std::initializer_list<std::string_view> names, bool of_launcher = true) {
    for (std::size_t i = 0; i < words.size() && !(of_launcher && words[i].ends_with(".py")); ++i) {
        for (const std::string_view name : names) {
            const std::string& word = words[i];
            if (word == name && i + 1 < words.size()) return words[i + 1];
            if (word.starts_with(std::string(name) + "=")) return word.substr(name.size() + 1);
            const bool letter = name.size() == 2 && name[1] != '-';
            if (letter && word.starts_with(name) && word.size() > 2) return word.substr(2);
        }
    }
    return std::nullopt;
}

std::optional<std::int64_t> option_count(const LaunchWords& words, std::initializer_list<std::string_view> names) {
    return count_of(option_value(words, names));
}

bool mentions(const LaunchWords& words, std::string_view part) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return word.find(part) != std::string::npos; });
}

bool has_word(const LaunchWords& words, std::string_view wanted) {
    return std::find(words.begin(), words.end(), wanted) != words.end();
}

LaunchWorld product(std::string_view program, std::optional<std::int64_t> nodes, std::optional<std::int64_t> each) {
    if (!nodes || !each) return {};
    return {*nodes * *each, fmt::format("{}: {} of {}", program, counted(*nodes, "node"), *each)};
}

LaunchWorld all_of(std::string_view program, std::optional<std::int64_t> ranks) {
    if (!ranks) return {};
    return {ranks, fmt::format("{}: {}", program, counted(*ranks, "rank"))};
}

}  // namespace

LaunchWorld launch_world(const std::vector<std::string>& words, const VariableLookup& lookup) {
    if (words.empty()) return {};
    // In front of the command, or around it.
    const auto variable = [&](const char* name) {
        const auto given = option_value(words, {name});
        return given ? given : lookup(name);
    };
    const auto known = [&](const char* name) { return count_of(variable(name)); };
    if (mentions(words, "torchrun") || mentions(words, "torch.distributed")) {
        const bool nodes = option_value(words, {"--nnodes"}).has_value();
        return product("torchrun", nodes ? option_count(words, {"--nnodes"}) : std::optional<std::int64_t>(1),
                       option_count(words, {"--nproc_per_node", "--nproc-per-node"}));
    }
    if (mentions(words, "deepspeed"))
        return product("deepspeed", option_count(words, {"--num_nodes"}), option_count(words, {"--num_gpus"}));
    if (has_word(words, "accelerate")) return all_of("accelerate", option_count(words, {"--num_processes"}));
    if (has_word(words, "megatron")) {  // of ms-swift, whose nodes are one unless a variable says otherwise
        const auto nodes = variable("NNODES");
        return product("megatron", nodes ? count_of(nodes) : std::optional<std::int64_t>(1), known("NPROC_PER_NODE"));
    }
    if (const auto nodes = option_value(words, {"--actor-num-nodes"}, false))
        return product("actors", count_of(nodes), count_of(option_value(words, {"--actor-num-gpus-per-node"}, false)));
    for (const char* program : {"mpirun", "mpiexec"}) {
        if (has_word(words, program)) return all_of(program, option_count(words, {"-np", "--np", "-n"}));
    }
    if (!has_word(words, "srun")) return {};
    if (option_value(words, {"--ntasks", "-n"})) return all_of("srun", option_count(words, {"--ntasks", "-n"}));
    const auto nodes = option_count(words, {"--nodes", "-N"}), each = option_count(words, {"--ntasks-per-node"});
    if (nodes || each) return product("srun", nodes ? nodes : known("SLURM_JOB_NUM_NODES"), each ? each : known("SLURM_NTASKS_PER_NODE"));
    return all_of("srun", known("SLURM_NTASKS"));
}

}  // namespace mgplan::formats
