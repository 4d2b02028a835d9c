#pragma once
// Log of a Megatron-LM job while it trains: times of iterations and memory of ranks.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::formats {

/// One line of training_log() (megatron/training/training.py):
/// " [date time] iteration 5/ 100 | consumed samples: 1280 | elapsed time per iteration (ms): 1234.5 | throughput per GPU
/// (TFLOP/s/GPU): 400.1 | learning rate: … | global batch size: 256 | lm loss: … |". Its time is the mean since the last such line.
struct LoggedIteration {
    std::int64_t iteration = 0;
    double seconds = 0;
    std::optional<double> tflops_per_gpu;  ///< with --log-throughput
    std::optional<std::int64_t> global_batch;
    std::int64_t skipped = 0;  ///< iterations whose update was left out (loss scale)
};

/// One line of report_memory() (megatron/training/utils.py), which the first data-parallel ranks print once:
/// "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 | reserved: 3.0 | max reserved: 3.0". MB are MiB
/// there; here they are bytes.
struct LoggedMemory {
    std::int64_t rank = 0;
    std::int64_t after_iterations = 0;  ///< 0: the line does not say
    std::int64_t allocated = 0, max_allocated = 0, reserved = 0, max_reserved = 0;
};

struct MegatronLog {
    std::vector<LoggedIteration> iterations;
    std::vector<LoggedMemory> memory;
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
    std::optional<double> median_tflops_per_gpu;
};
/// Throws ConfigError where none is left, saying why.
[[nodiscard]] SteadyIterations steady_iterations(const MegatronLog& log, std::int64_t global_batch, const std::string& where);

}  // namespace mgplan::formats
