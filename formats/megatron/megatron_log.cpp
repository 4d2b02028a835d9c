#include "formats/megatron/megatron_log.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::size_t kMostWrong = 3;
constexpr double kMostSeconds = 1e6, kMostMebibytes = 1e9;
constexpr std::string_view kElapsed = "elapsed time per iteration (ms):";
/// A line of more times the median is a pause: an evaluation, a checkpoint, a stalled loader.
constexpr double kPause = 1.5;

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
        if (!field(line, kElapsed)) problems.add("{}: '{}' has no | before it; is the line broken?", place, kElapsed);
        return;
    }
    read.seconds = *milliseconds / 1e3;
    read.tflops_per_gpu = number(line, "throughput per GPU (TFLOP/s/GPU):", 0, 1e9, place, problems);
    if (const auto batch = number(line, "global batch size:", 1, 1e15, place, problems))
        read.global_batch = static_cast<std::int64_t>(*batch);
    read.skipped = static_cast<std::int64_t>(number(line, "number of skipped iterations:", 0, 1e15, place, problems).value_or(0));
    log.iterations.push_back(read);
}

/// The names of a report of memory in one program's lines.
struct MemoryNames {
    std::string_view mark, allocated, max_allocated, reserved, max_reserved;
    double unit;  ///< bytes
};
constexpr std::array kMemoryNames{
    MemoryNames{"memory (MB)", "allocated:", "max allocated:", "reserved:", "max reserved:", 1048576.0},
    MemoryNames{"memory (GB)",
                "mem-allocated-gigabytes:", "mem-max-allocated-gigabytes:", "mem-reserved-gigabytes:", "mem-max-reserved-gigabytes:", 1e9},
};

void read_memory(std::string_view line, const MemoryNames& names, const std::string& place, MegatronLog& log, Problems& problems) {
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
    const std::string_view fields = line.substr(line.find(names.mark) + names.mark.size());
    const std::size_t before = problems.list().size();
    const auto bytes = [&](std::string_view name) -> std::int64_t {
        if (!field(fields, name) && problems.list().size() == before)
            problems.add("{}: a report of memory without '{}'; is the line broken?", place, name);
        return std::llround(number(fields, name, 0, kMostMebibytes, place, problems).value_or(0) * names.unit);
    };
    read.allocated = bytes(names.allocated);
    read.max_allocated = bytes(names.max_allocated);
    read.reserved = bytes(names.reserved);
    // Reports of old versions end here.
    read.max_reserved = field(fields, names.max_reserved) ? bytes(names.max_reserved) : read.reserved;
    read.retries = std::llround(number(fields, "mem-alloc-retires:", 0, kMostMebibytes, place, problems).value_or(0));
    if (problems.list().size() == before) log.memory.push_back(read);
}

// ---- lines of other programs

/// The text after a key and its separators, up to what ends a value; nothing without the key.
std::optional<std::string_view> value_of(std::string_view line, std::string_view key) {
    for (auto at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
        if (at > 0 && (std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0 || line[at - 1] == '_' || line[at - 1] == '/'))
            continue;  // ends another key
        std::string_view rest = line.substr(at + key.size());
        const auto first = rest.find_first_not_of("'\" ");
        if (first == std::string_view::npos || (rest[first] != ':' && rest[first] != '=')) continue;
        rest = trimmed(rest.substr(first + 1));
        if (rest.starts_with("np.float64(")) rest.remove_prefix(std::string_view("np.float64(").size());
        while (!rest.empty() && (rest.front() == '\'' || rest.front() == '"')) rest.remove_prefix(1);
        return rest.substr(0, rest.find_first_of(" ,|'\")]}\t\r"));
    }
    return std::nullopt;
}

std::optional<double> number_of(std::string_view line, std::string_view key, double low, double high) {
    const auto text = value_of(line, key);
    const auto value = text ? parse_real(std::string(*text)) : std::nullopt;
    return value && *value >= low && *value <= high ? value : std::nullopt;
}

constexpr double kMostSteps = 1e15;

/// State of a reader of lines.
struct LinesBefore {
    std::int64_t step = -1;
    double elapsed = 0;
};

/// A line of one step with its seconds under a key. False: it is none, or repeats the step before.
bool read_timed_step(std::string_view line, std::string_view step_key, std::string_view seconds_key, MegatronLog& log,
                     LinesBefore& before) {
    const auto step = number_of(line, step_key, 0, kMostSteps);
    const auto seconds = number_of(line, seconds_key, 1e-6, kMostSeconds);
    if (!step || !seconds) return false;
    const auto number = static_cast<std::int64_t>(*step);
    if (number == before.step) return false;  // a progress bar draws a step more than once
    before.step = number;
    LoggedIteration read{.iteration = number + 1, .seconds = *seconds};
    if (const auto batch = number_of(line, "global_batch_size", 1, kMostSteps)) read.global_batch = static_cast<std::int64_t>(*batch);
    log.iterations.push_back(read);
    return true;
}

/// "1d 2h 3m 4s" in seconds.
std::optional<double> clock_seconds(std::string_view text) {
    double seconds = 0;
    bool any = false;
    for (const std::string& part : split(text, ' ')) {
        if (part.size() < 2) return std::nullopt;
        const auto count = parse_integer(part.substr(0, part.size() - 1));
        const std::string_view units = "smhd";
        constexpr std::array<double, 4> kSeconds{1, 60, 3600, 86400};
        const auto unit = units.find(part.back());
        if (!count || *count < 0 || *count > 1'000'000 || unit == std::string_view::npos) return std::nullopt;
        seconds += static_cast<double>(*count) * kSeconds[unit];
        any = true;
    }
    return any ? std::optional(seconds) : std::nullopt;
}

/// The text between the quotes after a key of a dict.
std::string_view quoted_value(std::string_view line, std::string_view key) {
    const auto at = line.find(key);
    if (at == std::string_view::npos) return "";
    const std::string_view rest = line.substr(at + key.size());
    const auto open = rest.find_first_of("'\"", 1);  // after the key's own quote
    if (open == std::string_view::npos) return "";
    const std::string_view value = rest.substr(open + 1);
    return value.substr(0, value.find(rest[open]));
}

bool read_swift(std::string_view line, MegatronLog& log, LinesBefore& before) {
    auto place = quoted_value(line, "'global_step/max_steps'");
    if (place.empty()) place = quoted_value(line, "\"global_step/max_steps\"");
    if (place.empty()) place = quoted_value(line, "'iteration'");
    if (place.empty()) place = quoted_value(line, "\"iteration\"");
    const auto step = whole(place.substr(0, place.find('/')));
    const auto rate = number_of(line, "train_speed(iter/s)", 1e-6, 1e6), pace = number_of(line, "train_speed(s/it)", 1e-6, kMostSeconds);
    if (!step || *step < 1 || (!rate && !pace)) return false;
    const double mean = pace ? *pace : 1 / *rate;
    // A job that went on from a checkpoint counts its steps from there.
    double steps = static_cast<double>(*step);
    if (const auto clock = clock_seconds(
            quoted_value(line, line.find("'elapsed_time'") != std::string_view::npos ? "'elapsed_time'" : "\"elapsed_time\"")))
        if (std::abs(*clock - mean * steps) > 2 + 0.02 * mean * steps) steps = std::max(1.0, std::round(*clock / mean));
    const double elapsed = mean * steps;
    const bool goes_on = before.step > 0 && *step > before.step && elapsed > before.elapsed;
    const double since = goes_on ? (elapsed - before.elapsed) / static_cast<double>(*step - before.step) : mean;
    log.iterations.push_back({.iteration = *step, .seconds = since});
    before = {*step, elapsed};
    if (const auto reserved = number_of(line, "memory(GiB)", 0, kMostMebibytes)) {
        const auto bytes = std::llround(*reserved * 1073741824.0);
        log.memory.push_back({.after_iterations = *step, .reserved = bytes, .max_reserved = bytes});
    }
    return true;
}

bool read_verl(std::string_view line, MegatronLog& log, LinesBefore& before) {
    const bool update = line.find("timing_s/update_actor:") != std::string_view::npos;
    if (!read_timed_step(line, "step", update ? "timing_s/update_actor" : "train/time(s)", log, before)) return false;
    log.iterations.back().iteration -= 1;  // it counts from 1
    const auto bytes = [&](std::string_view key) {
        const std::string of_actor = fmt::format("actor/{}", key);
        const auto value = line.find(of_actor) != std::string_view::npos ? number_of(line, of_actor, 0, kMostMebibytes)
                                                                         : number_of(line, key, 0, kMostMebibytes);
        return std::llround(value.value_or(0) * 1073741824.0);
    };
    LoggedMemory memory{.after_iterations = log.iterations.back().iteration};
    memory.max_allocated = bytes("perf/max_memory_allocated_gb");
    memory.reserved = memory.max_reserved = bytes("perf/max_memory_reserved_gb");
    if (memory.max_reserved > 0) log.memory.push_back(memory);
    return true;
}

/// Programs whose lines are not Megatron-LM's own: a word that all of them have, and their reader.
struct OtherLines {
    std::string_view framework, mark;
    bool (*read)(std::string_view line, MegatronLog& log, LinesBefore& before);
};
constexpr std::array kOtherLines{
    OtherLines{"NeMo", "train_step_timing in s",
               [](std::string_view line, MegatronLog& log, LinesBefore& before) {
                   return read_timed_step(line, "global_step", "train_step_timing in s", log, before);
               }},
    OtherLines{"ms-swift", "train_speed(", read_swift},
    OtherLines{"verl", "timing_s/update_actor:", read_verl},
    OtherLines{"verl", "train/time(s):", read_verl},
};

// ---- timers

/// Lines below "(min, max) time across ranks (ms):" until one that is no timer.
class TimerLines {
public:
    void read(std::string_view line, MegatronLog& log) {
        if (line.find("time across ranks (ms):") != std::string_view::npos) {
            inside_ = true;
            return;
        }
        if (!inside_) return;
        const auto dots = line.find(" ..");
        const auto colon = line.find(": ", dots == std::string_view::npos ? line.size() : dots);
        if (colon == std::string_view::npos) {
            inside_ = false;
            return;
        }
        const std::string_view before = trimmed(line.substr(0, dots));
        const std::string_view name = before.substr(before.rfind(' ') + 1);  // npos + 1 is 0
        std::string_view value = trimmed(line.substr(colon + 2));
        double least = 0, most = 0;
        if (value.starts_with('(') && value.ends_with(')')) {
            value = value.substr(1, value.size() - 2);
            const auto comma = value.find(',');
            if (comma == std::string_view::npos) return;
            least = parse_real(std::string(trimmed(value.substr(0, comma)))).value_or(-1);
            most = parse_real(std::string(trimmed(value.substr(comma + 1)))).value_or(-1);
        } else {
            least = most = parse_real(std::string(value)).value_or(-1);
        }
        if (name.empty() || least < 0 || most < least || most > kMostSeconds * 1e3) return;
        add(name, least / 1e3, most / 1e3, log);
    }

private:
    static void add(std::string_view name, double least, double most, MegatronLog& log) {
        auto found = std::find_if(log.timers.begin(), log.timers.end(), [&](const LoggedTimer& one) { return one.name == name; });
        if (found == log.timers.end()) {
            if (log.timers.size() == kMostTimers) return;
            found = log.timers.insert(log.timers.end(), {.name = std::string(name)});
        }
        ++found->lines;
        found->least += (least - found->least) / static_cast<double>(found->lines);
        found->most += (most - found->most) / static_cast<double>(found->lines);
    }
    static constexpr std::size_t kMostTimers = 256;
    bool inside_ = false;
};

double quantile(const std::vector<double>& sorted, double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return quantile(values, 0.5);
}

}  // namespace

MegatronLog read_megatron_log(std::string_view text, const std::string& where) {
    MegatronLog log;
    std::array<MegatronLog, kOtherLines.size()> others;
    std::array<LinesBefore, kOtherLines.size()> before_lines;
    TimerLines timers;
    Problems problems;
    std::int64_t number_of_line = 1;
    std::size_t wrong = 0;
    while (!text.empty() && wrong < kMostWrong) {
        // A progress bar draws itself again after a carriage return.
        const auto end = text.find_first_of("\n\r");
        const std::string_view line = text.substr(0, end);
        const std::size_t before = problems.list().size();
        const auto place = [&] { return fmt::format("{}:{}", where, number_of_line); };
        if (line.find(kElapsed) != std::string_view::npos) {
            read_iteration(line, place(), log, problems);
        } else {
            for (const MemoryNames& names : kMemoryNames) {
                const auto at = line.find(names.mark);
                if (at == std::string_view::npos || line.find('|', at) == std::string_view::npos) continue;
                read_memory(line, names, place(), log, problems);
                if (names.unit == 1e9) log.framework = "Megatron-Bridge";
            }
            for (std::size_t i = 0; i < kOtherLines.size(); ++i) {
                if (line.find(kOtherLines[i].mark) != std::string_view::npos) kOtherLines[i].read(line, others[i], before_lines[i]);
            }
            timers.read(line, log);
        }
        if (problems.list().size() > before) ++wrong;
        if (end != std::string_view::npos && text[end] == '\n') ++number_of_line;
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    for (std::size_t i = 0; i < kOtherLines.size() && problems.empty() && log.iterations.empty(); ++i) {
        if (others[i].iterations.empty()) continue;
        log.framework = kOtherLines[i].framework;
        log.iterations = std::move(others[i].iterations);
        log.memory.insert(log.memory.end(), others[i].memory.begin(), others[i].memory.end());
    }
    if (problems.empty() && log.iterations.empty())
        problems.add(
            "{}: no line has '{}', as Megatron-LM prints it every --log-interval iterations on the last rank (nor a step of NeMo, ms-swift "
            "or "
            "verl); give the log of a rank that printed it",
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
    std::sort(tflops.begin(), tflops.end());
    SteadyIterations steady;
    const auto third = static_cast<std::ptrdiff_t>((seconds.size() + 2) / 3);
    steady.early_seconds = median({seconds.begin(), seconds.begin() + third});
    steady.late_seconds = median({seconds.end() - third, seconds.end()});
    for (const double one : seconds) steady.mean_seconds += one / static_cast<double>(seconds.size());
    std::sort(seconds.begin(), seconds.end());
    steady.lines = std::ssize(seconds);
    steady.median_seconds = quantile(seconds, 0.5);
    steady.lower_quartile = quantile(seconds, 0.25);
    steady.upper_quartile = quantile(seconds, 0.75);
    steady.pauses = std::count_if(seconds.begin(), seconds.end(), [&](double one) { return one > kPause * steady.median_seconds; });
    if (!tflops.empty()) steady.median_tflops_per_gpu = quantile(tflops, 0.5);
    return steady;
}

}  // namespace mgplan::formats
