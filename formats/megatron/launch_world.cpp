#include "formats/megatron/launch_world.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <initializer_list>
#include <map>
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

/// The options of a launcher with their values, up to its first word that is neither.
class LauncherOptions {
public:
    LauncherOptions(const LaunchWords& words, std::size_t behind) {
        static constexpr std::array<std::string_view, 16> kWithoutValue{"-l",
                                                                        "-u",
                                                                        "-v",
                                                                        "-K",
                                                                        "-O",
                                                                        "--label",
                                                                        "--unbuffered",
                                                                        "--exclusive",
                                                                        "--overlap",
                                                                        "--standalone",
                                                                        "--no-python",
                                                                        "--no_python",
                                                                        "--wait-all-nodes",
                                                                        "--oversubscribe",
                                                                        "--allow-run-as-root",
                                                                        "--multi_gpu"};
        for (std::size_t i = behind; i < words.size() && words[i].starts_with('-'); ++i) {
            const std::string& word = words[i];
            const std::size_t equals = word.find('=');
            const bool letter = word.size() > 2 && word[1] != '-' && std::isdigit(static_cast<unsigned char>(word[2])) != 0;
            if (equals != std::string::npos)
                values_.emplace(word.substr(0, equals), word.substr(equals + 1));
            else if (letter)
                values_.emplace(word.substr(0, 2), word.substr(2));
            else if (std::find(kWithoutValue.begin(), kWithoutValue.end(), word) != kWithoutValue.end())
                continue;
            else if (i + 1 < words.size() && !words[i + 1].starts_with('-'))
                values_.emplace(word, words[++i]);
        }
    }
    [[nodiscard]] bool has(std::string_view name) const { return values_.contains(name); }
    [[nodiscard]] std::optional<std::int64_t> count(std::initializer_list<std::string_view> names) const {
        for (const std::string_view name : names) {
            if (const auto found = values_.find(name); found != values_.end()) return count_of(found->second);
        }
        return std::nullopt;
    }

private:
    std::map<std::string, std::string, std::less<>> values_;
};

/// The position after the first word that names a program, by its last part ("/usr/bin/srun") or in it ("torch.distributed.run").
std::optional<std::size_t> after(const LaunchWords& words, std::string_view program, bool as_part = false) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string_view word = words[i];
        if (as_part ? word.starts_with(program) : word.substr(word.rfind('/') + 1) == program) return i + 1;  // npos + 1 is 0
    }
    return std::nullopt;
}

/// The value of "NAME=value" or "--name value" among words.
std::optional<std::string> value_among(const LaunchWords& words, std::string_view name) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == name && i + 1 < words.size()) return words[i + 1];
        if (words[i].starts_with(std::string(name) + "=")) return words[i].substr(name.size() + 1);
    }
    return std::nullopt;
}

LaunchWorld product(std::string_view program, std::optional<std::int64_t> nodes, std::optional<std::int64_t> each) {
    if (!nodes || !each) return {};
    return {*nodes * *each, fmt::format("{}: {} of {}", program, counted(*nodes, "node"), *each)};
}

LaunchWorld all_of(std::string_view program, std::optional<std::int64_t> ranks) {
    if (!ranks) return {};
    return {ranks, fmt::format("{}: {}", program, counted(*ranks, "rank"))};
}

/// Tasks of srun. With one on each node it starts others, and so it does where a node has more GPUs than tasks.
LaunchWorld tasks_of(const LauncherOptions& options, const VariableLookup& lookup) {
    const auto either = [&](std::optional<std::int64_t> given, const char* name) { return given ? given : count_of(lookup(name)); };
    const auto each = either(options.count({"--ntasks-per-node"}), "SLURM_NTASKS_PER_NODE");
    const auto gpus = either(options.count({"--gpus-per-node"}), "SLURM_GPUS_PER_NODE");
    if (each && (*each == 1 || (gpus && *gpus > *each))) return {};
    const bool stated = options.has("--ntasks") || options.has("-n");
    const auto nodes = either(options.count({"--nodes", "-N"}), "SLURM_JOB_NUM_NODES");
    const auto tasks = stated ? options.count({"--ntasks", "-n"}) : std::nullopt;
    if (tasks && nodes && *tasks == *nodes && *nodes > 1) return {};
    if (stated) return all_of("srun", tasks);
    return nodes && each ? product("srun", nodes, each) : all_of("srun", count_of(lookup("SLURM_NTASKS")));
}

}  // namespace

LaunchWorld launch_world(const std::vector<std::string>& launcher, const std::string& program, const std::vector<std::string>& training,
                         const VariableLookup& lookup) {
    // In front of the command, or around it.
    const auto variable = [&](const char* name) {
        const auto given = value_among(launcher, name);
        return given ? given : lookup(name);
    };
    if (const auto nodes = value_among(training, "--actor-num-nodes"))
        return product("actors", count_of(nodes), count_of(value_among(training, "--actor-num-gpus-per-node")));
    if (!launcher.empty() && launcher.back() == "megatron" && !program.ends_with(".py")) {
        // ms-swift: one node unless a variable says otherwise
        const auto nodes = variable("NNODES");
        return product("megatron", nodes ? count_of(nodes) : std::optional<std::int64_t>(1), count_of(variable("NPROC_PER_NODE")));
    }
    auto torch = after(launcher, "torchrun");
    if (!torch) torch = after(launcher, "torch.distributed", true);
    if (torch) {
        const LauncherOptions options(launcher, *torch);
        return product("torchrun", options.has("--nnodes") ? options.count({"--nnodes"}) : std::optional<std::int64_t>(1),
                       options.count({"--nproc_per_node", "--nproc-per-node"}));
    }
    if (const auto behind = after(launcher, "deepspeed")) {
        const LauncherOptions options(launcher, *behind);
        return product("deepspeed", options.count({"--num_nodes"}), options.count({"--num_gpus"}));
    }
    if (const auto behind = after(launcher, "accelerate"))
        return all_of("accelerate", LauncherOptions(launcher, *behind + 1).count({"--num_processes"}));
    for (const char* name : {"mpirun", "mpiexec"}) {
        if (const auto behind = after(launcher, name)) return all_of(name, LauncherOptions(launcher, *behind).count({"-np", "--np", "-n"}));
    }
    const auto srun = after(launcher, "srun");
    return srun ? tasks_of(LauncherOptions(launcher, *srun), lookup) : LaunchWorld{};
}

}  // namespace mgplan::formats
