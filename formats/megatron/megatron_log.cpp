#include "formats/megatron/megatron_log.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::size_t kMostWrong = 3;
constexpr double kMostSeconds = 1e6, kMostMebibytes = 1e9;
constexpr std::string_view kElapsed = "elapsed time per iteration (ms):";
constexpr std::string_view kMemory = "memory (MB)";

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
    return text;
}

/// The text between `name` (with its colon) and the next bar, or nothing.
std::optional<std::string_view> field(std::string_view line, std::string_view name) {
    for (auto at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
        // "allocated:" also ends "max allocated:": a field begins after a bar or at the start.
        const std::string_view before = trimmed(line.substr(0, at));
        if (!before.empty() && before.back() != '|') continue;
        const std::string_view rest = line.substr(at + name.size());
        return trimmed(rest.substr(0, rest.find('|')));
    }
    return std::nullopt;
}

/// A number of a field; a problem where it is none, or is out of range.
std::optional<double> number(std::string_view line, std::string_view name, double low, double high, const std::string& place,
                             Problems& problems) {
    const auto text = field(line, name);
    if (!text) return std::nullopt;
    const auto value = parse_real(std::string(*text));
    if (value && *value >= low && *value <= high) return value;
    problems.add("{}: {} '{}' is not a number from {:g} to {:g}; is the line broken?", place, name, text->substr(0, 60), low, high);
    return std::nullopt;
}

std::optional<std::int64_t> whole(std::string_view text) {
    const auto value = parse_integer(std::string(trimmed(text)));
    return value && *value >= 0 ? value : std::nullopt;
}

void read_iteration(std::string_view line, const std::string& place, MegatronLog& log, Problems& problems) {
    LoggedIteration read;
    // " iteration        5/     100 |"
    const auto at = line.find("iteration ");
    const auto slash = line.find('/', at == std::string_view::npos ? line.size() : at);
    const auto count =
        at == std::string_view::npos || slash == std::string_view::npos
            ? std::nullopt
            : whole(line.substr(at + std::string_view("iteration ").size(), slash - at - std::string_view("iteration ").size()));
    if (!count || *count < 1) {
        problems.add("{}: has a time and no 'iteration N/ALL |' before it; is the line broken?", place);
        return;
    }
    read.iteration = *count;
    const auto milliseconds = number(line, kElapsed, 1e-3, kMostSeconds * 1e3, place, problems);
    if (!milliseconds) {
        if (!field(line, kElapsed)) problems.add("{}: '{}' stands behind no bar; is the line broken?", place, kElapsed);
        return;
    }
    read.seconds = *milliseconds / 1e3;
    read.tflops_per_gpu = number(line, "throughput per GPU (TFLOP/s/GPU):", 0, 1e9, place, problems);
    if (const auto batch = number(line, "global batch size:", 1, 1e15, place, problems))
        read.global_batch = static_cast<std::int64_t>(*batch);
    read.skipped = static_cast<std::int64_t>(number(line, "number of skipped iterations:", 0, 1e15, place, problems).value_or(0));
    log.iterations.push_back(read);
}

void read_memory(std::string_view line, const std::string& place, MegatronLog& log, Problems& problems) {
    LoggedMemory read;
    if (const auto at = line.find("[Rank "); at != std::string_view::npos) {
        const std::string_view rest = line.substr(at + 6);
        const auto rank = whole(rest.substr(0, rest.find(']')));
        if (!rank) {
            problems.add("{}: '[Rank {}' names no rank; is the line broken?", place, rest.substr(0, 20));
            return;
        }
        read.rank = *rank;
    }
    if (const auto at = line.find("(after "); at != std::string_view::npos) {
        const std::string_view rest = line.substr(at + 7);
        read.after_iterations = whole(rest.substr(0, rest.find(" iteration"))).value_or(0);
    }
    const std::string_view fields = line.substr(line.find(kMemory) + kMemory.size());
    const std::size_t before = problems.list().size();
    const auto bytes = [&](std::string_view name) -> std::int64_t {
        if (!field(fields, name) && problems.list().size() == before)
            problems.add("{}: a report of memory without '{}'; is the line broken?", place, name);
        return std::llround(number(fields, name, 0, kMostMebibytes, place, problems).value_or(0) * 1048576.0);
    };
    read.allocated = bytes("allocated:");
    read.max_allocated = bytes("max allocated:");
    read.reserved = bytes("reserved:");
    // Reports of old versions end here.
    read.max_reserved = field(fields, "max reserved:") ? bytes("max reserved:") : read.reserved;
    if (problems.list().size() == before) log.memory.push_back(read);
}

double quantile(const std::vector<double>& sorted, double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

MegatronLog read_megatron_log(std::string_view text, const std::string& where) {
    MegatronLog log;
    Problems problems;
    std::int64_t number_of_line = 0;
    std::size_t wrong = 0;
    while (!text.empty() && wrong < kMostWrong) {
        const auto end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        ++number_of_line;
        const std::size_t before = problems.list().size();
        const std::string place = fmt::format("{}:{}", where, number_of_line);
        if (line.find(kElapsed) != std::string_view::npos) {
            read_iteration(line, place, log, problems);
        } else if (const auto at = line.find(kMemory); at != std::string_view::npos && line.find('|', at) != std::string_view::npos) {
            read_memory(line, place, log, problems);
        }
        if (problems.list().size() > before) ++wrong;
    }
    if (problems.empty() && log.iterations.empty())
        problems.add(
            "{}: no line has '{}', as Megatron-LM prints it every --log-interval iterations on the last rank; give the log of a rank that "
            "printed it",
            where, kElapsed);
    problems.throw_if_any();
    return log;
}

SteadyIterations steady_iterations(const MegatronLog& log, std::int64_t global_batch, const std::string& where) {
    std::vector<double> seconds, tflops;
    std::int64_t first = 0, skipped = 0, other_batch = 0;
    std::int64_t last_iteration = 0;
    for (const auto& each : log.iterations) {
        const bool starts = last_iteration == 0 || each.iteration <= last_iteration;
        last_iteration = each.iteration;
        if (starts) {
            ++first;
        } else if (each.skipped > 0) {
            ++skipped;
        } else if (each.global_batch && *each.global_batch != global_batch) {
            ++other_batch;
        } else {
            seconds.push_back(each.seconds);
            if (each.tflops_per_gpu && *each.tflops_per_gpu > 0) tflops.push_back(*each.tflops_per_gpu);
        }
    }
    if (seconds.empty()) {
        throw ConfigError(
            fmt::format("{}: of {} lines with times none is left to compare: {} begin a job (they hold its start-up), {} have skipped "
                        "updates, {} another "
                        "global batch size than {}; give a longer log, or the arguments of this job",
                        where, log.iterations.size(), first, skipped, other_batch, global_batch));
    }
    std::sort(seconds.begin(), seconds.end());
    std::sort(tflops.begin(), tflops.end());
    SteadyIterations steady;
    steady.lines = std::ssize(seconds);
    steady.median_seconds = quantile(seconds, 0.5);
    steady.lower_quartile = quantile(seconds, 0.25);
    steady.upper_quartile = quantile(seconds, 0.75);
    if (!tflops.empty()) steady.median_tflops_per_gpu = quantile(tflops, 0.5);
    return steady;
}

}  // namespace mgplan::formats
