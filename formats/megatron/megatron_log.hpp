#pragma once
// Log of a job that trains with Megatron-LM: times of iterations, memory of ranks, timers. Reads the lines of Megatron-LM itself and of
// four programs that train with it: Megatron-Bridge, NeMo, ms-swift and verl.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::formats {

/// One line of training_log() (megatron/training/training.py):
/// " [date time] iteration 5/ 100 | consumed samples: 1280 | elapsed time per iteration (ms): 1234.5 | throughput per GPU
/// (TFLOP/s/GPU): 400.1 | learning rate: … | global batch size: 256 | lm loss: … |". Its time is the mean since the last such line.
/// Megatron-Bridge prints the same line (training/utils/train_utils.py, 067f987d). The others:
///  * NeMo: "… global_batch_size: 512 | global_step: 3 | … | train_step_timing in s: 7.1", or a progress bar with "global_step=4.000, …
///    train_step_timing in s=14.90" (nemo/lightning/megatron_parallel.py, nemo/utils/callbacks).
///  * ms-swift: a dict with 'iteration': '5/100' or 'global_step/max_steps': '5/100' and the mean speed since the start,
///  'train_speed(s/it)'
///    or 'train_speed(iter/s)' (swift/megatron/callbacks/print.py, 3602360a). Times are differences of the elapsed seconds.
///  * verl: "step:3 - … - timing_s/update_actor:12.5 - …" of the actor's update, or "train/time(s):3.2" of fine-tuning
///    (verl/utils/logger/aggregate_logger.py, b178a3cd).
struct LoggedIteration {
    std::int64_t iteration = 0;
    double seconds = 0;
    std::optional<double> tflops_per_gpu{};  ///< with --log-throughput
    std::optional<std::int64_t> global_batch{};
    std::int64_t skipped = 0;  ///< iterations whose update was left out (loss scale)
};

/// One line of report_memory() (megatron/training/utils.py), which the first data-parallel ranks print once:
/// "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 | reserved: 3.0 | max reserved: 3.0". MB are MiB
/// there; here they are bytes. Megatron-Bridge: "[Rank 0] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 1.0 | …" of 10^9
/// bytes. ms-swift ('memory(GiB)': the largest reserved memory) and verl ("perf/max_memory_allocated_gb:") report the fullest rank.
struct LoggedMemory {
    std::optional<std::int64_t> rank{};                                             ///< nothing: the fullest one of the job
    std::int64_t after_iterations = 0;                                              ///< 0: the line does not say
    std::int64_t allocated = 0, max_allocated = 0, reserved = 0, max_reserved = 0;  ///< 0: the line does not say
    std::int64_t retries = 0;  ///< times that the allocator had to give its cache back first
};

/// One timer of Megatron-LM (core/timers.py) over all ranks, seconds of an iteration, averaged over the lines:
/// "    forward-compute ....: (100.00, 120.00)" below "(min, max) time across ranks (ms):".
struct LoggedTimer {
    std::string name;
    double least = 0, most = 0;
    std::int64_t lines = 0;
};

struct MegatronLog {
    std::string framework = "Megatron-LM";  ///< the program whose lines these are
    std::vector<LoggedIteration> iterations;
    std::vector<LoggedMemory> memory;
    std::vector<LoggedTimer> timers;
};

/// Reads the lines above and passes over all others; any text may precede them (a launcher's rank, a date). Throws ConfigError naming
/// `where` and line where one of them is broken (the first few), and when there is no iteration at all.
[[nodiscard]] MegatronLog read_megatron_log(std::string_view text, const std::string& where);

/// Iterations once training runs steadily: without the first line of the log (or of a job started again), which holds compilation
/// and first allocations, without those with a skipped update, and of the given batch alone where lines name theirs.
struct SteadyIterations {
    std::int64_t lines = 0;
    double median_seconds = 0;
    double lower_quartile = 0, upper_quartile = 0;
    double mean_seconds = 0;
    double early_seconds = 0, late_seconds = 0;  ///< medians of the first and of the last third of the lines
    std::int64_t pauses = 0;                     ///< lines of more than 1.5 times the median
    std::optional<double> median_tflops_per_gpu;
};
/// Throws ConfigError where none is left, saying why.
[[nodiscard]] SteadyIterations steady_iterations(const MegatronLog& log, std::int64_t global_batch, const std::string& where);

}  // namespace mgplan::formats
